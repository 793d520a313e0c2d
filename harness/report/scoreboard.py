"""bundles/SCOREBOARD.md: one row a kernel, its headline ratio and what the tiers say of it and of the rest.

Pure: bundles and committed verdicts in, text out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from harness.bundle import Bundle, Claim
from harness.report.seal import digest, sealed
from harness.report.words import LEGEND, SYMBOLS, cell, escape
from harness.verdict import TIERS, TierResult, Verdict
from harness.verdicts import FILE as VERDICTS
from harness.verdicts import Committed

__all__ = ["FILE", "inputs", "text"]

FILE = "SCOREBOARD.md"

_INTRO = (
    "One row a kernel: its headline ratio (baseline time over subject time) as published, whether the "
    "printed latencies give it, what it is as a ratio of kernel times by the study's own trace, what a "
    "device says, and how many committed verdicts each tier has."
)


def inputs(root: Path) -> str:
    """The digest of what the scoreboard is made from."""
    paths = [path for name in ("bundle.yaml", VERDICTS) for path in root.glob(f"*/{name}")]
    return digest(paths)


def text(pairs: Sequence[tuple[Bundle, Committed]], root: Path) -> str:
    """The whole file."""
    out = ["# Scoreboard", "", _INTRO, "", f"{LEGEND}; · nothing committed.", ""]
    out.append(
        "| kernel | against | published | class | as printed | as kernel times | device | "
        + " | ".join(TIERS)
        + " |"
    )
    out.append("|---" * (7 + len(TIERS)) + "|")
    for bundle, verdicts in pairs:
        out.append("| " + " | ".join(escape(one) for one in _row(bundle, verdicts)) + " |")
    total = [_counts([verdicts for _, verdicts in pairs], tier) for tier in TIERS]
    out.append("| **all** | | | | | | | " + " | ".join(total) + " |")
    return sealed("\n".join(out) + "\n", inputs(root), ".md")


def _row(bundle: Bundle, verdicts: Committed) -> list[str]:
    headline = _first(bundle, "ratio", kernel=False)
    traced = _first(bundle, "ratio", kernel=True)
    class_ = next((claim for claim in bundle.claims if claim.kind == "class"), None)
    baseline = bundle.baseline.library if bundle.baseline is not None else None
    return [
        f"[{bundle.id}]({bundle.id}/REPORT.md)",
        baseline or "–",
        f"{headline.published:.2f}"
        if headline is not None and isinstance(headline.published, (int, float))
        else "–",
        str(class_.published) if class_ is not None else "–",
        cell(_result(verdicts, headline, "record")),
        cell(_result(verdicts, traced, "record")),
        cell(_result(verdicts, headline, "device")),
        *(_counts([verdicts], tier) for tier in TIERS),
    ]


def _first(bundle: Bundle, kind: str, *, kernel: bool) -> Claim | None:
    for claim in bundle.claims:
        if claim.kind == kind and (claim.regime == "kernel-trace") is kernel:
            return claim
    return None


def _result(verdicts: Committed, claim: Claim | None, tier: str) -> TierResult | None:
    return verdicts.get(claim.id, {}).get(tier) if claim is not None else None


def _counts(many: Sequence[Committed], tier: str) -> str:
    counts = Counter(tiers[tier].verdict for one in many for tiers in one.values() if tier in tiers)
    return " ".join(f"{counts[verdict]}{SYMBOLS[verdict]}" for verdict in Verdict if counts[verdict]) or "·"
