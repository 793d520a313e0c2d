"""What a thread trace says: totals, stall share, taxonomy, mapped rows, executed rows, wave states.

A capture that cannot carry a figure makes it INVALID, however well the sums agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.bundle import Bundle, Claim
from harness.kinds._recaptured import POINTS, recaptured, within
from harness.record.missing import AUDIT, no_capture
from harness.record.printed import Printed, printed, said, span
from harness.record.study import capture, spoiled
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

KIND = "trace"
TIERS: tuple[str, ...] = ("record", "device")

WAVE_STATES: tuple[str, ...] = ("idle", "exec", "wait", "stall")
"""States 1 to 4 of the decoder's own enumeration (rocprofiler-sdk, trace_decoder_types.h; 0 is EMPTY)."""

SHIFTED: Mapping[str, str] = {"exec": "idle", "wait": "exec", "stall": "wait", "sleep": "stall"}
"""The study numbers the states 1 EXEC, 2 WAIT, 3 STALL, 4 SLEEP: its name, and what that number is."""


Judge = Callable[[Claim, Mapping[str, Any]], TierResult | None]


def identity(claim: Claim) -> tuple[str, ...]:
    """What tells two such claims apart."""
    names = ("metric", "symbol", "capture", "variant")
    return tuple(str(claim.fields.get(name)) for name in names)


def record(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the record tier says of `claim`."""
    if claim.published is None:
        return None
    metric = str(claim.fields.get("metric"))
    found = capture(evidence.get("study"), claim.fields.get("capture"))
    if found is None:
        return no_capture(claim)
    fault = spoiled(found, metric)
    if fault is not None:
        return TierResult(
            Verdict.INVALID, None, f"this capture cannot carry it: {fault['message']}", fault.get("remedy")
        )
    judge = _JUDGES.get(metric)
    answer = judge(claim, found) if judge is not None else None
    if answer is None:
        return TierResult(
            Verdict.NOT_MEASURED,
            None,
            f"the record holds no {metric.replace('_', ' ')} of this capture",
            AUDIT,
        )
    return answer


def _result(agrees: bool, value: float | int | str, reason: str, claim: Claim) -> TierResult:
    tail = "" if agrees else f"; {said(claim.published)} is published"
    return TierResult(Verdict.REPRODUCED if agrees else Verdict.CONTRADICTED, value, reason + tail)


def _rows(published: Any, instructions: int) -> tuple[bool, str]:
    """Row counts of code.json include one label row; a published count may, too."""
    if published == instructions:
        return True, f"{instructions:,} instruction rows"
    return published == instructions + 1, f"{instructions:,} instruction rows and one label row"


def _instructions(claim: Claim, found: Mapping[str, Any]) -> TierResult | None:
    if found["instructions"] is None:
        return None
    agrees, reason = _rows(claim.published, found["instructions"])
    return _result(agrees, found["instructions"], reason, claim)


def _mapped(claim: Claim, found: Mapping[str, Any]) -> TierResult | None:
    mapped, rows = found["mapped"], found["instructions"]
    if mapped is None or rows is None:
        return None
    text = str(claim.published)
    reason = f"{mapped:,} of {rows:,} instruction rows carry a source line"
    if "/" in text:
        left, right = (int(part.replace(",", "")) for part in text.split("/"))
        agrees = left == mapped and _rows(right, rows)[0]
    elif claim.unit in ("%", "percent"):
        figure = printed(claim.published, decimals=1)
        agrees = figure.holds(100 * mapped / rows) or figure.holds(100 * mapped / (rows + 1))
    else:
        agrees = claim.published == mapped
    if agrees and mapped and "label" not in reason and claim.published != mapped:
        reason += "; code.json has one label row more"
    return _result(agrees, f"{mapped}/{rows}", reason, claim)


def _total(name: str) -> Judge:
    def judge(claim: Claim, found: Mapping[str, Any]) -> TierResult | None:
        raw = found["cycles"][name]
        if raw is None:
            return None
        agrees = printed(claim.published).holds(raw)
        return _result(agrees, raw, f"{raw:,} {name} cycles summed over {found['waves']} waves", claim)

    return judge


def _share(published: Any) -> Printed:
    """A published share in percent: to a tenth, but a range as coarse as its ends are printed."""
    return span(published, decimals=0 if isinstance(published, list) else 1)


def _stall_share(claim: Claim, found: Mapping[str, Any]) -> TierResult | None:
    total, stall = found["cycles"]["total"], found["cycles"]["stall"]
    if not total:
        return None
    share = 100 * stall / total
    reason = f"{stall:,} of {total:,} cycles are stalled: {share:.2f} %"
    return _result(_share(claim.published).holds(share), round(share, 2), reason, claim)


def _count(name: str, words: str) -> Judge:
    def judge(claim: Claim, found: Mapping[str, Any]) -> TierResult | None:
        raw = found[name]
        if raw is None:
            return None
        return _result(claim.published == raw, raw, f"{raw:,} {words}", claim)

    return judge


def _shares(found: Mapping[str, Any]) -> Mapping[str, float] | None:
    shares: Mapping[str, float] | None = found.get("taxonomy_study_rule") or found["taxonomy"]
    return shares


def _taxonomy(claim: Claim, found: Mapping[str, Any]) -> TierResult | None:
    shares = _shares(found)
    if shares is None or not isinstance(claim.published, Mapping):
        return None
    off = [
        f"{name} {shares.get(name, 0.0):.2f} % (published {value})"
        for name, value in claim.published.items()
        if not printed(value, decimals=1).holds(shares.get(name, 0.0))
    ]
    top = max(shares, key=lambda name: shares[name])
    if off:
        return TierResult(Verdict.CONTRADICTED, f"{top} {shares[top]:.1f} %", "re-derived: " + ", ".join(off))
    count = len(claim.published)
    reason = (
        f"all {count} published shares of the stall cycles agree as printed, led by {top} {shares[top]:.2f} %"
    )
    return TierResult(Verdict.REPRODUCED, f"{top} {shares[top]:.1f} %", reason)


def _dominant(claim: Claim, found: Mapping[str, Any]) -> TierResult | None:
    shares = _shares(found)
    if not shares:
        return None
    top = max(shares, key=lambda name: shares[name])
    published = shares.get(str(claim.published), 0.0)
    reason = f"{top} holds {shares[top]:.2f} % of the stall cycles"
    if top != claim.published:
        reason += f", {claim.published} {published:.2f} %"
    return _result(top == claim.published, top, reason, claim)


def _wave_states(claim: Claim, found: Mapping[str, Any]) -> TierResult | None:
    """Published shares by state name against the decoder's enumeration."""
    states = found["wave_states"]
    if states is None or not isinstance(claim.published, Mapping):
        return None
    published = {str(name).lower(): printed(value, decimals=1) for name, value in claim.published.items()}
    by_name = all(name in states and figure.holds(states[name]) for name, figure in published.items())
    measured = ", ".join(f"{name.upper()} {states[name]:.1f}" for name in WAVE_STATES)
    value = f"EXEC {states['exec']:.1f} %"
    if by_name:
        return TierResult(Verdict.REPRODUCED, value, f"by the decoder's enumeration: {measured} %")
    shifted = all(
        name in SHIFTED and figure.holds(states[SHIFTED[name]]) for name, figure in published.items()
    )
    reason = f"by the decoder's enumeration (1 IDLE, 2 EXEC, 3 WAIT, 4 STALL) it is {measured} %"
    if shifted:
        reason += ": the published numbers are right and their names shifted by one"
    return TierResult(Verdict.CONTRADICTED, value, reason)


_JUDGES: Mapping[str, Judge] = {
    "instructions": _instructions,
    "mapped": _mapped,
    "total_cycles": _total("total"),
    "stall_cycles": _total("stall"),
    "stall_share": _stall_share,
    "waves": _count("waves", "waves were sampled"),
    "executed": _count("executed", "instruction rows were executed"),
    "taxonomy": _taxonomy,
    "dominant_stall": _dominant,
    "wave_states": _wave_states,
}


def compile(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the compile tier decides no such claim."""
    return None


def execute(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the execute tier decides no such claim."""
    return None


def device(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What a recapture on this device says: counts must be equal, shares agree within `POINTS`.

    Sums of cycles depend on which waves were sampled, so they compare with no other capture's.
    """
    if claim.published is None:
        return None
    metric = str(claim.fields.get("metric"))
    found = recaptured(claim, evidence, metric)
    if isinstance(found, TierResult):
        return found
    if metric in ("total_cycles", "stall_cycles", "waves"):
        return TierResult(
            Verdict.NOT_COMPARABLE,
            None,
            f"{metric.replace('_', ' ')} are of the sampled waves, and another capture samples others",
        )
    if metric in ("instructions", "mapped", "executed", "dominant_stall"):
        return _JUDGES[metric](claim, found)
    measured = _measured_shares(metric, found)
    if measured is None:
        return TierResult(Verdict.NOT_MEASURED, None, f"the recapture holds no {metric.replace('_', ' ')}")
    published = claim.published if isinstance(claim.published, Mapping) else {metric: claim.published}
    off = within(
        {
            str(name).lower() if metric == "wave_states" else str(name): _range(value)
            for name, value in published.items()
        },
        measured,
    )
    top = max(measured, key=lambda name: measured[name])
    value = f"{top} {measured[top]:.1f} %" if len(measured) > 1 else round(measured[top], 2)
    if off:
        reason = f"recaptured, beyond {POINTS:g} points: " + ", ".join(off)
        return TierResult(Verdict.CONTRADICTED, value, reason)
    reason = f"recaptured: each published share within {POINTS:g} points"
    return TierResult(Verdict.REPRODUCED, value, reason)


def _range(published: Any) -> tuple[float, float]:
    if isinstance(published, list) and len(published) == 2:
        return printed(published[0]).value, printed(published[1]).value
    value = printed(published, decimals=1).value
    return value, value


def _measured_shares(metric: str, found: Mapping[str, Any]) -> Mapping[str, float] | None:
    if metric == "stall_share":
        cycles = found["cycles"]
        return {metric: 100 * cycles["stall"] / cycles["total"]} if cycles["total"] else None
    if metric == "taxonomy":
        return _shares(found)
    states: Mapping[str, float] | None = found["wave_states"]
    return states
