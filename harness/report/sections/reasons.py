"""Why each verdict is what it is: one line a claim and tier, with the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.bundle import Bundle
from harness.report.words import escape
from harness.verdict import TIERS
from harness.verdicts import Committed

ORDER = 20

_TITLES = {
    "record": "Record: what the published evidence itself says",
    "compile": "Compile: what the binary says",
    "execute": "Execute: what the binary does",
    "device": "Device: what an MI350X says",
}


def render(bundle: Bundle, evidence: Mapping[str, Any], verdicts: Committed) -> str | None:
    """A section for each tier that has something committed."""
    out: list[str] = []
    for tier in TIERS:
        rows = [(claim.id, verdicts.get(claim.id, {}).get(tier)) for claim in bundle.claims]
        said = [(name, result) for name, result in rows if result is not None]
        if not said:
            continue
        out += [f"## {_TITLES[tier]}", ""]
        for name, result in said:
            remedy = f" To measure it: {result.remedy}." if result.remedy else ""
            out.append(f"- **{name}** {result.verdict.value}: {escape(result.reason)}.{escape(remedy)}")
        out.append("")
    return "\n".join(out).rstrip() or None
