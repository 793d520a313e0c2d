"""Bytes or operations a second, from a latency and the arithmetic of the workload (`traffic` of the kernel
file)."""

from __future__ import annotations

from typing import Any

from harness.bundle import Bundle, Claim
from harness.record.peaks import PEAK_BYTES_PER_S, memory_floor_us
from harness.record.printed import Printed, number, printed, span
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

KIND = "throughput"
TIERS: tuple[str, ...] = ("record", "device")

SCALE = {"GB/s": 1e9, "TB/s": 1e12, "TFLOPS": 1e12}
"""Units per second, decimal as the study has them."""


def identity(claim: Claim) -> tuple[str, ...]:
    """What tells two such claims apart."""
    names = ("latency", "quantity", "side", "implementation", "stage", "run", "variant")
    return tuple(str(claim.fields.get(name)) for name in names)


def record(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the record tier says of `claim`: the printed rate against the printed latency.

    The latency is rounded too: every latency that prints as published is allowed, and no other.
    """
    if claim.published is None:
        return None
    name = claim.fields.get("latency")
    latency = bundle.claim(name) if name is not None else None
    if latency is None or latency.published is None:
        return _open(claim, "the study prints no latency for this rate")
    work = evidence.get("workloads", {}).get(claim.workload or latency.workload or "", {})
    quantity = str(claim.fields.get("quantity", "flops" if claim.unit == "TFLOPS" else "bytes"))
    amount = work.get(quantity)
    if not amount:
        return _open(claim, str(work.get("missing", f"the kernel file counts no {quantity}")))
    scale = SCALE[str(claim.unit)] * 1e-6
    time, rates = printed(latency.published), _rates(claim.published)
    derived = amount / time.value / scale
    agrees = span(claim.published).meets(amount / time.high / scale, amount / time.low / scale)
    formula = work.get(f"{quantity}_formula", quantity)
    unit = "bytes" if quantity == "bytes" else "operations"
    reason = (
        f"{number(amount)} {unit} ({formula}) in {number(time.value)} µs is {number(derived)} {claim.unit}"
    )
    if not agrees:
        needs = " to ".join(number(amount / rate.value / scale) for rate in reversed(rates))
        said = " to ".join(number(rate.value) for rate in rates)
        reason += f"; {said} would need {needs} µs"
    if quantity == "bytes" and memory_floor_us(amount) > time.high:
        reason += f"; MI350X peaks at {PEAK_BYTES_PER_S / 1e9:,.0f} GB/s, so the latency is not of this shape"
    return TierResult(
        Verdict.REPRODUCED if agrees else Verdict.CONTRADICTED,
        round(derived, 2),
        reason,
        numbers={quantity: amount, "latency_us": time.value, "derived": derived},
    )


def _rates(published: Any) -> tuple[Printed, ...]:
    """One printed rate, or the two ends of a published range."""
    return tuple(printed(one) for one in published) if isinstance(published, list) else (printed(published),)


def _open(claim: Claim, why: str) -> TierResult:
    return TierResult(
        Verdict.NOT_MEASURED, None, why, "measure it on an MI350X: harness reproduce --tier device"
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

    return verdicts.throughput(claim, bundle, evidence)
