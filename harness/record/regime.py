"""A published time as a claim about the kernel alone, against the study's own kernel trace.

Pure. The trace is of another run than the published timing, at the clocks of that day and with the profiler
on, so it decides only what it can: near its median REPRODUCED, outside everything it holds CONTRADICTED,
else INCONCLUSIVE.
"""

from __future__ import annotations

from math import exp, log

from harness.bundle import Bundle, Claim
from harness.record.study import Grid, KernelTime, kernel_time
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

__all__ = ["FACTOR_WITHOUT_SPREAD", "TAU", "decide", "kernel_times"]

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
    all kernels of that role together make one call. The shape is checked on the subject's grid, where the
    kernel file knows it.
    """
    study = evidence.get("study")
    named = claim.fields.get("kernel_symbols") if role == "subject" else None
    symbols = tuple(named) if named else _symbols(evidence, role)
    if not symbols:
        return TierResult(
            Verdict.NOT_MEASURED,
            None,
            f"the study's kernel traces hold no {role} kernel of this bundle",
            DEVICE,
        )
    subject = tuple(named) if named else _symbols(evidence, "subject")
    grid = expected_grid(claim.workload, evidence)
    if grid is not None and subject:
        if kernel_time(study, "subject", symbols=subject[:1], grid=grid) is None:
            have = kernel_time(study, "subject", symbols=subject[:1])
            there = "x".join(map(str, have.grid)) if have is not None and have.grid else "unknown"
            return TierResult(
                Verdict.NOT_COMPARABLE,
                None,
                f"the claimed shape launches {'x'.join(map(str, grid))} workgroups; the trace holds {there}",
                DEVICE,
            )
        if len(symbols) == 1 and role == "subject":
            found = kernel_time(study, role, symbols=symbols, grid=grid)
            assert found is not None  # looked up above
            return found
    found = kernel_time(study, role, symbols=symbols)
    if found is None:
        return TierResult(
            Verdict.NOT_MEASURED, None, f"the study's kernel traces lack {' or '.join(symbols)}", DEVICE
        )
    return found


def expected_grid(workload: str | None, evidence: Evidence) -> Grid | None:
    """The workgroups that the workload launches, where the kernel file can tell."""
    grid = evidence.get("workloads", {}).get(workload or "", {}).get("grid")
    return (int(grid[0]), int(grid[1]), int(grid[2])) if grid else None


def _symbols(evidence: Evidence, role: str) -> tuple[str, ...]:
    rows = [
        row for trace in (evidence.get("study") or {}).get("kernel_traces", ()) for row in trace["kernels"]
    ]
    return tuple(dict.fromkeys(str(row["symbol"]) for row in rows if row["role"] == role))
