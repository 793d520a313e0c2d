"""A published time as a claim about the kernel alone, against the study's own kernel trace.

Pure. The trace is of another run than the published timing, at the clocks of that day and with the profiler
on, so it decides only what it can: near its median REPRODUCED, outside everything it holds CONTRADICTED,
else INCONCLUSIVE.
"""

from __future__ import annotations

from math import exp, log

from harness.bundle import Bundle, Claim
from harness.record.study import KernelTime, kernel_time
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

__all__ = ["FACTOR_WITHOUT_SPREAD", "TAU", "decide", "differences", "kernel_times"]

TAU = log(1.05)
"""Equality margin of a time, on the log scale, unless the claim registers another (as in the judge)."""

FACTOR_WITHOUT_SPREAD = 2.0
"""Where the evidence keeps only a median: a published time further off than this factor contradicts it.
Warm launches of one kernel in the study's traces spread by less (largest: mla-decode, 9.84-19.32 µs around
13.32)."""

DEVICE = "time the kernels on an MI350X: harness reproduce --tier device"


def decide(
    published: float, derived: float, low: float | None, high: float | None, tolerance: float | None
) -> Verdict:
    """What a trace with median `derived` and extremes `low`, `high` (None: not kept) says of `published`."""
    tau = TAU if tolerance is None else log(1 + tolerance)
    if abs(log(published / derived)) <= tau:
        return Verdict.REPRODUCED
    if low is None or high is None:
        outside = abs(log(published / derived)) > log(FACTOR_WITHOUT_SPREAD)
    else:
        outside = published > high * exp(tau) or published < low * exp(-tau)
    return Verdict.CONTRADICTED if outside else Verdict.INCONCLUSIVE


def kernel_times(claim: Claim, bundle: Bundle, evidence: Evidence, role: str) -> KernelTime | TierResult:
    """The trace's time of `role` for the claim's own shape, or why there is none.

    `role` is subject or baseline. The symbols are the claim's `kernel_symbols` where it names some; else
    all kernels of that role together make one call. A trace that holds one launch form is of the captured
    shape; one that holds several spans the shapes of the study's own test, and its extremes are theirs.
    """
    study = evidence.get("study")
    named = claim.fields.get("kernel_symbols") if role == "subject" else None
    symbols = tuple(named) if named else _symbols(evidence, role)
    found = kernel_time(study, role, symbols=symbols) if symbols else None
    if found is None:
        missing = " or ".join(symbols) if named else f"a {role} kernel of this bundle"
        return TierResult(
            Verdict.NOT_MEASURED, None, f"the study's kernel traces do not hold {missing}", DEVICE
        )
    other = differences(claim.workload, evidence) if found.forms == 1 else ""
    if other:
        return TierResult(
            Verdict.NOT_COMPARABLE, None, f"the study's kernel trace is of another shape: {other}", DEVICE
        )
    return found


def differences(workload: str | None, evidence: Evidence) -> str:
    """In which dimensions the captured launch is not the claimed one, in words; empty where it is."""
    captured = evidence.get("captured")
    claimed = evidence.get("workloads", {}).get(workload or "", {})
    if captured is None:
        return ""
    said = [
        f"{name} {captured[name]} against {value}"
        for name, value in claimed.get("dims", {}).items()
        if name in captured and captured[name] != value
    ]
    unsaid = [
        f"{name} {captured[name]} against an unsaid one"
        for name in claimed.get("unsaid", ())
        if name in captured
    ]
    return ", ".join(said + unsaid)


def _symbols(evidence: Evidence, role: str) -> tuple[str, ...]:
    rows = [
        row for trace in (evidence.get("study") or {}).get("kernel_traces", ()) for row in trace["kernels"]
    ]
    return tuple(dict.fromkeys(str(row["symbol"]) for row in rows if row["role"] == role))
