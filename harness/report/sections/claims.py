"""The claims of a bundle, what was published, and what each tier's committed verdict is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.bundle import Bundle
from harness.report.words import LEGEND, cell, escape, published
from harness.verdict import TIERS
from harness.verdicts import Committed

ORDER = 10


def render(bundle: Bundle, evidence: Mapping[str, Any], verdicts: Committed) -> str | None:
    """One row a claim."""
    out = ["## Claims", "", f"{LEGEND}; · a tier that has nothing committed.", ""]
    out.append("| claim | statement | published | " + " | ".join(TIERS) + " |")
    out.append("|---" * (3 + len(TIERS)) + "|")
    for claim in bundle.claims:
        results = verdicts.get(claim.id, {})
        cells = [claim.id, claim.statement, published(claim.published, claim.unit, claim.kind)]
        cells += [cell(results.get(tier)) for tier in TIERS]
        out.append("| " + " | ".join(escape(one) for one in cells) + " |")
    return "\n".join(out)
