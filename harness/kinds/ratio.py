"""A ratio of two latencies: baseline time over subject time; above 1 the subject is faster.

In the regime that was published, the record can only check the arithmetic: do the two printed latencies
give the printed ratio? In the regime `kernel-trace` the same number is a claim about the kernels
themselves, and the study's own traces may decide it. The two are different claims (docs/adr/0002).
"""

from __future__ import annotations

from harness.bundle import Bundle, Claim
from harness.record.printed import number, printed, said, span
from harness.record.regime import decide, kernel_times
from harness.record.study import KernelTime
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

KIND = "ratio"
TIERS: tuple[str, ...] = ("record", "device")

DECIMALS = 2
"""The study prints the ratios of its scoreboard with two decimals."""


def identity(claim: Claim) -> tuple[str, ...]:
    """What tells two such claims apart."""
    names = ("subject_latency", "baseline_latency", "comparison", "cache", "variant")
    return tuple(str(claim.fields.get(name)) for name in names)


def record(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the record tier says of `claim`."""
    if claim.published is None or claim.origin != "study":
        return None
    times = latencies(claim, bundle)
    if claim.regime == "kernel-trace":
        return _by_trace(claim, bundle, evidence, times)
    if times is None:
        return TierResult(
            Verdict.NOT_MEASURED,
            None,
            f"the study prints {_said(claim)} and not the two latencies behind it",
            "measure both sides: harness reproduce --tier device",
        )
    subject, baseline = times
    derived = baseline / subject
    agrees = span(claim.published, decimals=DECIMALS).holds(derived)
    word = "prints as" if agrees else "does not print as"
    return TierResult(
        Verdict.REPRODUCED if agrees else Verdict.CONTRADICTED,
        round(derived, 5),
        f"{number(baseline)} µs / {number(subject)} µs = {derived:.5f}, which {word} {_said(claim)}",
        numbers={"subject_us": subject, "baseline_us": baseline, "derived": derived},
    )


def _said(claim: Claim) -> str:
    return said(claim.published, decimals=DECIMALS)


def latencies(claim: Claim, bundle: Bundle) -> tuple[float, float] | None:
    """The published latencies (subject, baseline) that `claim` is made of, or None where one was not
    published."""
    values = []
    for side in ("subject_latency", "baseline_latency"):
        name = claim.fields.get(side)
        published = bundle.claim(name).published if name is not None else None
        if published is None:
            return None
        values.append(printed(published).value)
    return values[0], values[1]


def _by_trace(
    claim: Claim, bundle: Bundle, evidence: Evidence, times: tuple[float, float] | None
) -> TierResult:
    """The published ratio as a ratio of kernel times."""
    subject = kernel_times(claim, bundle, evidence, "subject")
    if isinstance(subject, TierResult):
        return subject
    published = span(claim.published, decimals=DECIMALS).value
    baseline = kernel_times(claim, bundle, evidence, "baseline")
    numbers = {"subject_trace_us": subject.median}
    if isinstance(baseline, TierResult):
        return TierResult(
            Verdict.NOT_MEASURED,
            None,
            f"the trace holds no baseline kernel, so no ratio; the subject took {subject.text()}, so that "
            f"{_said(claim)} would need a baseline kernel of {number(published * subject.median)} µs",
            baseline.remedy,
            numbers,
        )
    derived = baseline.median / subject.median
    numbers |= {"baseline_trace_us": baseline.median, "derived": derived}
    return TierResult(
        _verdict(published, derived, claim, times, subject, baseline),
        round(derived, 3),
        f"the trace gives {number(baseline.median)} / {number(subject.median)} µs = {derived:.2f} "
        f"(baseline {baseline.text()}; subject {subject.text()}); {_said(claim)} is published",
        numbers=numbers,
    )


def _verdict(
    published: float,
    derived: float,
    claim: Claim,
    times: tuple[float, float] | None,
    subject: KernelTime,
    baseline: KernelTime,
) -> Verdict:
    """The medians decide what is equal; unequal, the ratio falls with a latency that is no kernel time."""
    verdict = decide(published, derived, derived, derived, claim.tolerance)
    if verdict is Verdict.REPRODUCED or times is None:
        return verdict if verdict is Verdict.REPRODUCED else Verdict.INCONCLUSIVE
    parts = zip(times, (subject, baseline), strict=True)
    fallen = any(
        decide(time, trace.median, trace.low, trace.high, claim.tolerance) is Verdict.CONTRADICTED
        for time, trace in parts
    )
    return Verdict.CONTRADICTED if fallen else Verdict.INCONCLUSIVE


def compile(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the compile tier decides no such claim."""
    return None


def execute(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the execute tier decides no such claim."""
    return None


def device(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the device tier says of `claim`: see `harness.device.verdicts`."""
    from harness.device import verdicts

    return verdicts.ratio(claim, bundle, evidence)
