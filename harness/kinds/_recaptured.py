"""What a recapture on this device says of trace and resource claims. Pure; shared by the two kinds.

Knows the shape of `harness.trace.recapture`'s evidence, which the device tier keeps by workload under
`trace`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.bundle import Claim
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

__all__ = ["POINTS", "recaptured", "within"]

POINTS = 5.0
"""Percentage points by which a share of a new capture may differ from a published one. Two captures of one
kernel and shape in the study, of different workgroups, differ by 0.3 points in stall share and up to 1.3 in a
class."""

REMEDY = "recapture on an MI350X with rocprofv3 and its trace decoder: harness reproduce --tier device"


def recaptured(claim: Claim, evidence: Evidence, metric: str) -> Mapping[str, Any] | TierResult:
    """The recaptured trace of the claim's workload, in the words of evidence/study.json, or why there is
    none."""
    one = (evidence.get("trace") or {}).get(claim.workload or "")
    if one is None:
        return TierResult(Verdict.NOT_MEASURED, None, "nothing was recaptured of this workload", REMEDY)
    for fault in one["faults"]:
        if fault["rule"] == "wrong-shape":
            return TierResult(Verdict.NOT_COMPARABLE, None, fault["message"], fault.get("remedy"))
        if metric in fault["spoils"]:
            return TierResult(
                Verdict.INVALID,
                None,
                f"the recapture cannot carry it: {fault['message']}",
                fault.get("remedy"),
            )
    found: Mapping[str, Any] | None = one["trace"]
    if found is None:
        return TierResult(Verdict.NOT_MEASURED, None, "the recapture holds no thread trace", REMEDY)
    return found


def within(
    published: Mapping[str, tuple[float, float]], measured: Mapping[str, float], points: float = POINTS
) -> list[str]:
    """The shares more than `points` outside their published (low, high), in words; empty where none is."""
    off = []
    for name, (low, high) in published.items():
        share = measured.get(name, 0.0)
        if not low - points <= share <= high + points:
            said = f"{low:.1f}" if low == high else f"{low:.1f} to {high:.1f}"
            off.append(f"{name} {share:.1f} % (published {said})")
    return off
