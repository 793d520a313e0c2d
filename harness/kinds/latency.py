"""The time of one launch, in microseconds, in a stated timing regime.

The study's headline latencies are of the regime `eager-events`: host launch time is in them, and no samples
of them were published. The same number as a kernel duration is another claim (`regime: kernel-trace`,
docs/adr/0002).
"""

from __future__ import annotations

from harness.bundle import Bundle, Claim
from harness.record.peaks import PEAK_BYTES_PER_S, memory_floor_us
from harness.record.printed import number, printed
from harness.record.regime import decide, kernel_times
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

KIND = "latency"
TIERS: tuple[str, ...] = ("record", "device")


def identity(claim: Claim) -> tuple[str, ...]:
    """What tells two such claims apart."""
    names = ("side", "implementation", "stage", "run", "kernels", "variant")
    return tuple(str(claim.fields.get(name)) for name in names)


def record(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the record tier says of `claim`: first what no device can do, then the study's own trace."""
    if claim.published is None:
        return None
    published = printed(claim.published)
    impossible = _impossible(claim, published.high, evidence)
    if impossible is not None:
        return impossible
    side = str(claim.fields.get("side", "subject"))
    trace = kernel_times(claim, bundle, evidence, side)
    if claim.regime != "kernel-trace":
        beside = "" if isinstance(trace, TierResult) else f"; a kernel trace beside it has {trace.text()}"
        return TierResult(
            Verdict.NOT_MEASURED,
            None,
            f"the study keeps no samples of this timing, which holds host launch time{beside}",
            "time it on an MI350X: harness reproduce --tier device",
        )
    if isinstance(trace, TierResult):
        return trace
    said = f"{number(published.value)} µs is {published.value / trace.median:.2f} times its median"
    return TierResult(
        decide(published.value, trace.median, trace.low, trace.high, claim.tolerance),
        round(trace.median, 3),
        f"the study's kernel trace has {trace.text()}; {said}",
        numbers={
            "trace_median_us": trace.median,
            "trace_min_us": trace.low,
            "trace_max_us": trace.high,
            "launches": trace.n,
        },
    )


def _impossible(claim: Claim, longest_us: float, evidence: Evidence) -> TierResult | None:
    """CONTRADICTED where the device's memory cannot move the workload's bytes in that time."""
    bytes_ = evidence.get("workloads", {}).get(claim.workload or "", {}).get("bytes")
    if bytes_ is None or memory_floor_us(bytes_) <= longest_us:
        return None
    rate, floor = bytes_ / longest_us * 1e-6, memory_floor_us(bytes_)
    return TierResult(
        Verdict.CONTRADICTED,
        None,
        f"{number(bytes_)} bytes in {claim.published} µs would be {rate:.1f} TB/s; MI350X peaks at "
        f"{PEAK_BYTES_PER_S / 1e12:g} TB/s, so this shape needs at least {number(floor)} µs",
        numbers={"bytes": bytes_, "tb_per_s": rate, "floor_us": floor},
    )


def compile(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the compile tier decides no such claim."""
    return None


def execute(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the execute tier decides no such claim."""
    return None


def device(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the device tier says of `claim`: see `harness.device.verdicts`."""
    from harness.device import verdicts

    return verdicts.latency(claim, bundle, evidence)
