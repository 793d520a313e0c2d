"""One pair of one shape in one regime: gates, controls, trend, and then the decision. Pure.

What the parent asks at each look and what the kinds ask of recorded evidence is this one function, so a
verdict is the same on the machine that measured and on any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.device.plan import CONTROL_AA, CONTROL_POSITIVE, EAGER, Plan, Shape, rotating
from harness.device.run import Decision, replicates
from harness.device.samples import halves, log_ratio, mean_ns
from harness.judge.gates import floor_limited
from harness.judge.many import p_outside
from harness.judge.rule import FLOOR, Interval, decide, interval, last_look
from harness.judge.sequential import judge
from harness.judge.trend import drifts
from harness.verdict import Verdict

__all__ = [
    "Judged",
    "Trouble",
    "controls",
    "judge_control",
    "judge_pair",
    "levels",
    "read_pair",
    "stopping",
    "trouble",
]

_BY_FAULT = {
    "arch": Verdict.NOT_COMPARABLE,
    "branch": Verdict.NOT_COMPARABLE,
    "device": Verdict.NOT_MEASURED,
}
"""What a fault of a process means; any other makes the run INVALID."""


@dataclass(frozen=True)
class Trouble:
    """Why the samples may not be judged at all."""

    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class Judged:
    """A verdict with the interval of the ratio itself (not of its difference from the published one).

    `settled`: no further process can change it.
    """

    verdict: Verdict
    reason: str
    theta: Interval | None = None
    numbers: Mapping[str, Any] | None = None
    settled: bool = False


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def trouble(plan: Plan, processes: Sequence[Mapping[str, Any]], regime: str) -> Trouble | None:
    """A fault, a failed gate, too few processes or a rotation that fits the cache; None where all is well."""
    faulty = [p for p in processes if p["fault"] not in (None, "interrupted")]
    for process in faulty:
        verdict = _BY_FAULT.get(process["fault"], Verdict.INVALID)
        return Trouble(verdict, f"process {process['index']}: {process['fault']}: {process['message']}")
    whole = replicates([dict(p) for p in processes])
    for process in whole:
        failed = [g for g in process["gates"] if g["passed"] is False]
        if failed:
            return Trouble(
                Verdict.INVALID, f"process {process['index']}: {failed[0]['name']}: {failed[0]['detail']}"
            )
        unsteady = [r for r, s in process["steady"].items() if r == regime and not s["steady"]]
        if unsteady:
            return Trouble(Verdict.INVALID, f"process {process['index']}: {regime} never became steady")
        rotation = process["sizing"]["rotation"]
        if rotating(regime) and rotation < plan.least_rotation:
            least = f"less than {plan.least_rotation:g}"
            reason = f"the rotation holds {rotation:.2f} of the last-level cache, {least}"
            return Trouble(Verdict.INVALID, reason)
        limited = None if regime == EAGER else _floor_limited(plan, process, regime)
        if limited is not None:
            return Trouble(Verdict.INVALID, f"process {process['index']}: {limited}")
    if last_look(len(whole), plan.looks) == 0:
        reason = f"{len(whole)} processes, fewer than the first look ({plan.looks[0]}); resume the run"
        return Trouble(Verdict.INCONCLUSIVE, reason)
    if not all(regime in p["regimes"] for p in whole):
        return Trouble(Verdict.NOT_MEASURED, f"this run did not time {regime}")
    return None


def _floor_limited(plan: Plan, process: Mapping[str, Any], regime: str) -> str | None:
    """The gate of `harness.judge.gates` over every pair; a process without the regime is judged elsewhere."""
    samples = process["regimes"].get(regime)
    if samples is None:
        return None
    sides = []
    for taken in samples["pairs"].values():
        both = [halves(order, ns) for order, ns in zip(taken["order"], taken["ns"], strict=True)]
        sides += [[pair[i] / 2 for pair in both] for i in (0, 1)]  # a side has two samples in a block
    return floor_limited(sides, process["sizing"]["floor_ns"], plan.minimum_floors)


def _values(plan: Plan, processes: Sequence[Mapping[str, Any]], regime: str, pair: str) -> list[float]:
    whole = replicates([dict(p) for p in processes])
    return [log_ratio(p, regime, pair) for p in whole[: last_look(len(whole), plan.looks)]]


def controls(
    plan: Plan, processes: Sequence[Mapping[str, Any]], regime: str
) -> tuple[Trouble | None, dict[str, Any]]:
    """A/A and positive control: what they read, and why the run is INVALID where they do not read true.

    A/A: its 95 % half-width may not exceed tau/2, nor its interval lie wholly off 0 by more than tau/2.
    Positive: known by construction; it must be told from 0 and lie within tau/2 of what was built in.
    """
    aa = interval(_values(plan, processes, regime, CONTROL_AA), alpha=0.025, floor=0.0)
    positive = interval(_values(plan, processes, regime, CONTROL_POSITIVE), alpha=0.025, floor=0.0)
    built = math.log1p(plan.extra)
    numbers = {
        "aa_ratio": math.exp(aa.mean),
        "aa_half_width": aa.half,
        "positive_ratio": math.exp(positive.mean),
        "positive_half_width": positive.half,
    }
    limit = plan.tau / 2
    if aa.half > limit:
        return Trouble(
            Verdict.INVALID, f"A/A is known to ± {_percent(aa.half)} only, more than {_percent(limit)}"
        ), numbers
    if aa.low > limit or aa.high < -limit:
        return Trouble(Verdict.INVALID, f"A/A reads {math.exp(aa.mean):.4f}, not 1"), numbers
    found = interval(_values(plan, processes, regime, CONTROL_POSITIVE))
    if found.low <= 0 or abs(positive.mean - built) > limit + positive.half:
        seen = f"{_percent(math.expm1(positive.mean))} ± {_percent(positive.half)}"
        reason = f"a known {_percent(plan.extra)} reads {seen}"
        return Trouble(Verdict.INVALID, f"positive control missed: {reason}"), numbers
    return None, numbers


def judge_pair(
    plan: Plan,
    processes: Sequence[Mapping[str, Any]],
    regime: str,
    pair: str,
    published: float,
    *,
    u0: float,
    u0_df: float = math.inf,
    tau: float | None = None,
) -> Judged:
    """The verdict on `published` for `pair`: gates, controls, trend, decision, in this order."""
    tau = plan.tau if tau is None else tau
    problem = trouble(plan, processes, regime)
    if problem is not None:
        return Judged(problem.verdict, problem.reason)
    values = _values(plan, processes, regime, pair)
    target = math.log(published)
    decision = judge(values, target, tau, u0=u0, u0_df=u0_df, looks=plan.looks)
    assert decision is not None  # `trouble` has counted the processes
    used = values[: decision.look]
    failed, numbers = controls(plan, processes, regime)
    theta = interval(used)
    numbers |= _numbers(theta, decision.delta, tau)
    numbers |= {
        "p_outside": p_outside(decision.delta, tau),
        "look": decision.look,
        "trend_p": decision.trend.p,
        "trend_rise": decision.trend.rise,
    }
    text = _read(theta)
    if failed is not None:
        return Judged(failed.verdict, f"{failed.reason} ({text})", theta, numbers)
    if decision.word == "drifting":
        rise = _percent(decision.trend.rise)
        reason = f"not stationary: drifts by {rise} over the processes (p {decision.trend.p:.2g}; {text})"
        return Judged(Verdict.INVALID, reason, theta, numbers, decision.settled)
    verdict = _VERDICTS[decision.word]
    return Judged(
        verdict, f"{text}: {_off(decision.delta, published, tau)}", theta, numbers, decision.settled
    )


def read_pair(plan: Plan, processes: Sequence[Mapping[str, Any]], regime: str, pair: str) -> Judged:
    """What `pair` reads where nothing was published: is it known well enough to judge by?

    REPRODUCED where gates, controls and trend hold and the interval is no wider than half the tolerance.
    """
    problem = trouble(plan, processes, regime)
    if problem is not None:
        return Judged(problem.verdict, problem.reason)
    values = _values(plan, processes, regime, pair)
    theta = interval(values)
    failed, numbers = controls(plan, processes, regime)
    numbers |= _numbers(theta, theta, plan.tau)
    if failed is not None:
        return Judged(failed.verdict, f"{failed.reason} ({_read(theta)})", theta, numbers)
    if drifts(values, FLOOR):
        return Judged(
            Verdict.INVALID, f"not stationary: drifts over the processes ({_read(theta)})", theta, numbers
        )
    narrow = theta.half <= plan.tau / 2
    verdict = Verdict.REPRODUCED if narrow else Verdict.INCONCLUSIVE
    return Judged(verdict, _read(theta), theta, numbers, narrow)


def judge_control(
    plan: Plan,
    processes: Sequence[Mapping[str, Any]],
    regime: str,
    pair: str,
    truth: float,
    tau: float,
) -> Judged:
    """A claim about the instrument: does `pair` read `truth` within `tau`, all processes pooled.

    The instrument floor is left out of the interval, since it is what such a claim tests; one question is
    asked of all processes and not one at each look.
    """
    problem = trouble(plan, processes, regime)
    if problem is not None:
        return Judged(problem.verdict, problem.reason)
    values = _values(plan, processes, regime, pair)
    theta = interval(values, floor=0.0)
    delta = theta.shifted(math.log(truth))
    numbers = _numbers(theta, delta, tau)
    reason = f"{_read(theta)}: {_off(delta, truth, tau)}"
    return Judged(_VERDICTS[decide(delta, tau)], reason, theta, numbers, True)


_VERDICTS = {
    "inside": Verdict.REPRODUCED,
    "outside": Verdict.CONTRADICTED,
    "between": Verdict.INCONCLUSIVE,
}


def _numbers(theta: Interval, delta: Interval, tau: float) -> dict[str, Any]:
    return {
        "processes": theta.count,
        "ratio": math.exp(theta.mean),
        "low": math.exp(theta.low),
        "high": math.exp(theta.high),
        "delta": delta.mean,
        "half_width": delta.half,
        "tau": tau,
    }


def _read(theta: Interval) -> str:
    low, high = math.exp(theta.low), math.exp(theta.high)
    return f"{math.exp(theta.mean):.4f} [{low:.4f}, {high:.4f}] from {theta.count} processes"


def _off(delta: Interval, published: float, tau: float) -> str:
    tolerance = _percent(math.expm1(tau))
    return f"{_percent(delta.mean)} ± {_percent(delta.half)} from {published:g}, tolerance ± {tolerance}"


def levels(
    plan: Plan, processes: Sequence[Mapping[str, Any]], regime: str, pair: str, side: str
) -> list[float]:
    """log(nanoseconds a launch) of one side, a value for each process up to the last look."""
    whole = replicates([dict(p) for p in processes])
    values = []
    for p in whole[: last_look(len(whole), plan.looks)]:
        launches = 50 if regime == EAGER else int(p["sizing"]["launches"])
        values.append(math.log(mean_ns(p, regime, pair, side, launches)))
    return values


def stopping(plan: Plan, shape: Shape, processes: Sequence[Mapping[str, Any]]) -> Decision:
    """The parent's question at a look. Done when every published ratio is decided in every judged regime.

    Without a published ratio: when the controls hold and the interval is narrower than half the tolerance.
    """
    done, lines = True, []
    for regime in shape.judged:
        for name in shape.baselines:
            published = (shape.published or {}).get(name)
            pair = f"ratio:{name}"
            if published is None:
                judged = read_pair(plan, processes, regime, pair)
            else:
                judged = judge_pair(plan, processes, regime, pair, published, u0=shape.u0)
            if judged.theta is None:
                return Decision(False, judged.reason)
            done = done and judged.settled
            lines.append(f"ratio {math.exp(judged.theta.mean):.4f} ± {_percent(judged.theta.half)}")
        if not shape.baselines:
            failed, numbers = controls(plan, processes, regime)
            done = done and failed is None
            lines.append(f"A/A {numbers['aa_ratio']:.4f} ± {_percent(numbers['aa_half_width'])}")
    return Decision(done, "; ".join(lines))
