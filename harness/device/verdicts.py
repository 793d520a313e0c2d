"""What device evidence says of a claim, kind by kind. Pure: a claim and evidence in, a verdict out.

Identity first: another bundle, SKU, regime or cache state is NOT_COMPARABLE (or nothing of it is measured),
never CONTRADICTED. Then `harness.device.judging`. Knows claims and samples; does no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.bundle import Bundle, Claim
from harness.device.judging import Judged, controls, judge_control, judge_pair, levels, read_pair, trouble
from harness.device.plan import (
    COLD,
    CONTROL_AA,
    CONTROL_POSITIVE,
    EAGER,
    WARM,
    Plan,
    plan_from_json,
    shape_id,
)
from harness.device.run import replicates
from harness.device.samples import log_ratio
from harness.judge.many import resampled_mean
from harness.judge.rule import FLOOR, Interval, classes, decide, interval
from harness.judge.sequential import judge as judge_values
from harness.record.regime import decide as decide_time
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

__all__ = [
    "STUDY_ARCH",
    "STUDY_SKU",
    "class_",
    "control",
    "geomean",
    "latency",
    "ratio",
    "regime_of",
    "summary",
    "throughput",
]

STUDY_SKU, STUDY_ARCH = "MI350X", "gfx950"
"""What every claim of the study is about (shared with pins and bundles by a test)."""

U0 = 0.01
"""Standard error of a published log ratio where the publication gives no spread."""

_QUANTILE = 2.2414
"""Normal quantile of 1 - ALPHA, for intervals that resampling gave."""

_TRACE_REMEDY = (
    "on an MI350X with rocprofv3: harness reproduce --tier device (its discovery job times dispatches)"
)
_MEASURE = "measure it: harness reproduce --tier device on the claim's own device"


@dataclass(frozen=True)
class _Samples:
    """The samples that speak of one claim."""

    plan: Plan
    processes: list[dict[str, Any]]
    regime: str
    pair: str


def regime_of(claim: Claim) -> str | None:
    """The regime of evidence in which `claim` may be judged; None where it names none that is timed here.

    A `graph-kernel` claim without a cache state is a cold one, as the engine measures.
    """
    if claim.regime == "graph-kernel":
        return WARM if claim.fields.get("cache") == "warm" else COLD
    return EAGER if claim.regime == "eager-events" else None


def _not(verdict: Verdict, reason: str, remedy: str | None = None) -> TierResult:
    return TierResult(verdict, None, reason, remedy)


def _comparable(
    claim: Claim, bundle: Bundle, evidence: Evidence, *, any_device: bool = False
) -> Plan | TierResult:
    """The plan of the samples, where they are of this bundle and of the claim's device."""
    if evidence.get("bundle") != bundle.id:
        return _not(
            Verdict.INVALID, f"the samples are of bundle {evidence.get('bundle')!r}, not of {bundle.id!r}"
        )
    plan = plan_from_json(evidence["plan"])
    device = evidence["environment"]["device"] or {}
    sku = str(claim.fields.get("sku") or (STUDY_SKU if claim.origin == "study" else ""))
    name = str(device.get("name", "unknown"))
    if not any_device and sku and sku not in name:
        return _not(
            Verdict.NOT_COMPARABLE, f"the claim is about {sku}; this was measured on {name}", _MEASURE
        )
    if claim.origin == "study" and device.get("arch") != STUDY_ARCH:
        return _not(
            Verdict.NOT_COMPARABLE, f"the claim is about {STUDY_ARCH}; this is {device.get('arch')}", _MEASURE
        )
    return plan


def _shape_of(claim: Claim, evidence: Evidence) -> tuple[str, bool]:
    """The id of the claim's shape, and whether that is a launch of its own (a stage, a variant that was
    timed).

    A stage is never read from another launch; a variant that the run has no shape for is another reading of
    the plain one.
    """
    workload, stage = str(claim.workload), claim.fields.get("stage")
    if stage is not None:
        return shape_id(workload, str(stage)), True
    variant = shape_id(workload, str(claim.fields.get("variant")))
    if any(shape["id"] == variant for shape in evidence["shapes"]):
        return variant, True
    return workload, False


def _samples(
    claim: Claim, bundle: Bundle, evidence: Evidence, *, any_device: bool = False
) -> _Samples | TierResult:
    """The samples of `claim`, or why there are none to compare with it."""
    plan = _comparable(claim, bundle, evidence, any_device=any_device)
    if isinstance(plan, TierResult):
        return plan
    wanted_id, special = _shape_of(claim, evidence)
    if claim.fields.get("comparison") and not special:
        return _not(Verdict.NOT_MEASURED, f"the run does not compare {claim.fields['comparison']}", _MEASURE)
    shape = next((s for s in evidence["shapes"] if s["id"] == wanted_id), None)
    if shape is None:
        return _not(Verdict.NOT_MEASURED, f"no samples of {wanted_id}", _MEASURE)
    regime = regime_of(claim)
    if regime is None and any_device:
        regime = plan.shape(shape["id"]).judged[0]
    if regime is None and claim.regime == "kernel-trace":
        return _not(
            Verdict.NOT_MEASURED, "a kernel-trace claim is judged by a profiler's own clock", _TRACE_REMEDY
        )
    if regime is None:
        return _not(
            Verdict.NOT_COMPARABLE, "the publication names no timing regime, so no measurement is its own"
        )
    baselines = plan.shape(shape["id"]).baselines
    wanted = claim.fields.get("baseline")
    name = wanted if wanted in baselines else (baselines[0] if baselines and wanted is None else "")
    if not name and not any_device:
        return _not(Verdict.NOT_MEASURED, f"the run timed no baseline of this claim ({wanted})", _MEASURE)
    return _Samples(plan, list(shape["processes"]), regime, f"ratio:{name}")


def _result(judged: Judged, value: float | str | None) -> TierResult:
    return TierResult(judged.verdict, value, judged.reason, numbers=dict(judged.numbers or {}))


def _published_ratio(claim: Claim) -> float:
    published = claim.published
    if isinstance(published, (list, tuple)):
        low, high = (float(v) for v in published)
        return math.sqrt(low * high)
    return float(published)


def ratio(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult:
    """A ratio of latencies against the published one; a published range is met by its middle, tau widened
    by its half."""
    found = _samples(claim, bundle, evidence)
    if isinstance(found, TierResult):
        return found
    if claim.published is None:
        return _not(Verdict.NOT_MEASURED, "nothing was published to compare with")
    return _result(*_judge_ratio(claim, found))


def _judge_ratio(claim: Claim, found: _Samples) -> tuple[Judged, float | None]:
    tau = math.log1p(claim.tolerance) if claim.tolerance else found.plan.tau
    if isinstance(claim.published, (list, tuple)):
        tau += math.log(float(claim.published[1]) / float(claim.published[0])) / 2
    u0 = float(claim.fields.get("published_se", U0))
    df = float(claim.fields.get("published_df", math.inf))
    judged = judge_pair(
        found.plan,
        found.processes,
        found.regime,
        found.pair,
        _published_ratio(claim),
        u0=u0,
        u0_df=df,
        tau=tau,
    )
    return judged, None if judged.theta is None else round(math.exp(judged.theta.mean), 5)


def class_(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult:
    """The class of the ratio that the claim names, from the interval of the ratio itself."""
    of = bundle.claim(str(claim.fields["of"])) if claim.fields.get("of") else claim
    found = _samples(of, bundle, evidence)
    if isinstance(found, TierResult):
        return found
    judged = read_pair(found.plan, found.processes, found.regime, found.pair)
    if judged.theta is None or judged.verdict is Verdict.INVALID:
        return _result(judged, None)
    seen = classes(judged.theta)
    low, high = math.exp(judged.theta.low), math.exp(judged.theta.high)
    text = f"{math.exp(judged.theta.mean):.4f} [{low:.4f}, {high:.4f}] is {seen}"
    if seen == claim.published:
        return TierResult(Verdict.REPRODUCED, seen, text, numbers=dict(judged.numbers or {}))
    verdict = (
        Verdict.INCONCLUSIVE if seen == "BORDERLINE" and _touches(claim, low, high) else Verdict.CONTRADICTED
    )
    return TierResult(
        verdict, seen, f"{text}; {claim.published} is published", numbers=dict(judged.numbers or {})
    )


def _touches(claim: Claim, low: float, high: float) -> bool:
    """Does the interval reach into the published class: then the measurement contradicts nothing yet."""
    ranges = {"WIN": (1.05, math.inf), "PARITY": (0.95, 1.05), "HEADROOM": (0.0, 0.95)}
    bottom, top = ranges.get(str(claim.published), (0.0, math.inf))
    return high >= bottom and low <= top


def _judge_level(found: _Samples, side: str, published: float, tau: float) -> TierResult:
    problem = trouble(found.plan, found.processes, found.regime)
    if problem is not None:
        return _not(problem.verdict, problem.reason)
    failed, numbers = controls(found.plan, found.processes, found.regime)
    if failed is not None:
        return TierResult(failed.verdict, None, failed.reason, numbers=numbers)
    values = levels(found.plan, found.processes, found.regime, found.pair, side)
    decision = judge_values(values, math.log(published), tau, u0=U0, looks=found.plan.looks)
    if decision is None:
        return _not(Verdict.INCONCLUSIVE, f"{len(values)} processes, fewer than the first look needs")
    theta = interval(values[: decision.look])
    verdict = {
        "inside": Verdict.REPRODUCED,
        "outside": Verdict.CONTRADICTED,
        "drifting": Verdict.INVALID,
    }.get(decision.word, Verdict.INCONCLUSIVE)
    value = math.exp(theta.mean)
    numbers |= {
        "low": math.exp(theta.low),
        "high": math.exp(theta.high),
        "processes": theta.count,
        "tau": tau,
    }
    span = f"[{numbers['low']:.4g}, {numbers['high']:.4g}]"
    text = f"{value:.4g} {span} from {theta.count} processes; {published:g} is published"
    if decision.word == "drifting":
        text = f"not stationary: it drifts by {100 * decision.trend.rise:.2f} % over the processes ({text})"
    return TierResult(verdict, round(value, 5), text, numbers=numbers)


def latency(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult:
    """Microseconds of one launch of one side. Absolute times move with clocks: the tolerance is the claim's
    own."""
    if not isinstance(claim.published, (int, float)):
        return _not(Verdict.NOT_MEASURED, "no single latency was published")
    if claim.regime == "kernel-trace":
        return _traced(claim, bundle, evidence)
    found = _samples(claim, bundle, evidence)
    if isinstance(found, TierResult):
        return found
    tau = math.log1p(claim.tolerance) if claim.tolerance else found.plan.tau
    judged = _judge_level(found, str(claim.fields.get("side", "subject")), float(claim.published) * 1e3, tau)
    value = None if not isinstance(judged.value, (int, float)) else round(judged.value / 1e3, 4)
    return TierResult(
        judged.verdict,
        value,
        judged.reason.replace("is published", "ns is published"),
        judged.remedy,
        judged.numbers,
    )


def _traced(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult:
    """A kernel time against the profiler's own clock: the dispatches of the recapture's discovery job.

    The rule is that of the record tier (`harness.record.regime.decide`), which reads the study's trace. The
    recapture launches the subject alone.
    """
    plan = _comparable(claim, bundle, evidence)
    if isinstance(plan, TierResult):
        return plan
    name, _ = _shape_of(claim, evidence)
    trace = (evidence.get("trace") or {}).get(name)
    launch = None if trace is None else trace.get("launch")
    if claim.fields.get("side", "subject") != "subject" or launch is None:
        return _not(
            Verdict.NOT_MEASURED,
            "no dispatch of it was traced here by the profiler's own clock",
            _TRACE_REMEDY,
        )
    times = [float(one) for one in launch["durations_us"]]
    median, low, high = float(launch["median_us"]), min(times), max(times)
    verdict = decide_time(float(claim.published), median, low, high, claim.tolerance)
    text = f"rocprofv3 has median {median:g} µs ({low:g}-{high:g} µs, {len(times)} launches)"
    numbers = {"median_us": median, "min_us": low, "max_us": high, "launches": len(times)}
    return TierResult(verdict, median, f"{text}; {claim.published:g} µs is published", numbers=numbers)


def throughput(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult:
    """Bytes or operations of one launch over its time; the time is that of the latency claim it names."""
    named = claim.fields.get("latency")
    timed = bundle.claim(str(named)) if named else claim
    found = _samples(timed, bundle, evidence)
    if isinstance(found, TierResult):
        return found
    if not isinstance(claim.published, (int, float)):
        return _not(Verdict.NOT_MEASURED, "no single rate was published")
    whole = [p for p in found.processes if p.get("sizing")]
    amount = int(whole[0]["sizing"]["bytes_per_launch"]) if whole else 0
    if claim.fields.get("quantity") != "bytes" or amount == 0:
        return _not(Verdict.NOT_MEASURED, "this run counted no operations of a launch")
    scale = {"GB/s": 1.0, "TB/s": 1e-3}.get(claim.unit or "")
    if scale is None:
        return _not(Verdict.NOT_MEASURED, f"no bytes per nanosecond in {claim.unit}")
    tau = math.log1p(claim.tolerance) if claim.tolerance else found.plan.tau
    judged = _judge_level(
        found, str(claim.fields.get("side", "subject")), amount * scale / float(claim.published), tau
    )
    value = None if not isinstance(judged.value, (int, float)) else round(amount * scale / judged.value, 3)
    return TierResult(judged.verdict, value, judged.reason, judged.remedy, judged.numbers)


def geomean(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult:
    """The geometric mean of the ratio over shapes; its interval resamples processes, shapes fixed."""
    found = _comparable(claim, bundle, evidence)
    if isinstance(found, TierResult):
        return found
    plan, regime = found, regime_of(claim) or COLD
    provider = str(claim.fields.get("baseline_provider"))
    wanted = int(claim.fields.get("shapes") or 0)
    columns = []
    for shape in evidence["shapes"]:
        if provider not in plan.shape(shape["id"]).baselines:
            continue
        if trouble(plan, shape["processes"], regime) is None:
            columns.append(
                [log_ratio(p, regime, f"ratio:{provider}") for p in replicates(shape["processes"])]
            )
    if len(columns) < max(wanted, 1):
        reason = f"this run timed {len(columns)} of the {wanted} shapes against {provider}"
        return _not(Verdict.NOT_MEASURED, reason, _MEASURE)
    center, half = resampled_mean(columns)
    error = math.hypot(half / _QUANTILE, FLOOR, float(claim.fields.get("published_se", U0)))
    delta = Interval(
        center - math.log(_published_ratio(claim)), _QUANTILE * error, len(columns), math.inf, error
    )
    tau = math.log1p(claim.tolerance) if claim.tolerance else plan.tau
    word = decide(delta, tau)
    verdict = {"inside": Verdict.REPRODUCED, "outside": Verdict.CONTRADICTED}.get(word, Verdict.INCONCLUSIVE)
    over = f"over {len(columns)} shapes"
    text = f"{math.exp(center):.4f} ± {100 * half:.2f} % {over}; {claim.published} is published"
    return TierResult(
        verdict, round(math.exp(center), 5), text, numbers={"shapes": len(columns), "half_width": delta.half}
    )


def control(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult:
    """A claim about the instrument: A/A within its tolerance of 1, or the positive control found. On any
    device.

    The instrument floor is left out: it is what such a claim tests.
    """
    found = _samples(claim, bundle, evidence, any_device=True)
    if isinstance(found, TierResult):
        return found
    pair = CONTROL_AA if claim.fields["control"] == "a/a" else CONTROL_POSITIVE
    truth = 1.0 if pair == CONTROL_AA else 1.0 + found.plan.extra
    if isinstance(claim.published, (int, float)) and not math.isclose(float(claim.published), truth):
        return _not(Verdict.NOT_COMPARABLE, f"the run built in {truth:g}, the claim says {claim.published}")
    tau = math.log1p(claim.tolerance) if claim.tolerance else found.plan.tau
    judged = judge_control(found.plan, found.processes, found.regime, pair, truth, tau)
    return _result(judged, None if judged.theta is None else round(math.exp(judged.theta.mean), 5))


def summary(evidence: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every pair in every regime side by side, judged or not: shape, regime, pair, ratio, interval,
    processes."""
    rows = []
    for shape in evidence["shapes"]:
        whole = replicates(shape["processes"])
        if len(whole) < 2:
            continue
        for regime, samples in whole[0]["regimes"].items():
            for pair in samples["pairs"]:
                values = [log_ratio(p, regime, pair) for p in whole]
                found = interval(values, alpha=0.025, floor=0.0)
                rows.append(
                    {
                        "shape": shape["id"],
                        "regime": regime,
                        "pair": pair,
                        "ratio": math.exp(found.mean),
                        "half_width": found.half,
                        "sd": math.sqrt(
                            max(0.0, sum((v - found.mean) ** 2 for v in values) / (len(values) - 1))
                        ),
                        "processes": len(whole),
                    }
                )
    return rows
