"""A ratio of two latencies: baseline time over subject time; above 1 the subject is faster."""

from __future__ import annotations

from harness.bundle import Bundle, Claim
from harness.tiers import Evidence
from harness.verdict import TierResult

KIND = "ratio"
TIERS: tuple[str, ...] = ("record", "device")


def identity(claim: Claim) -> tuple[str, ...]:
    """What tells two such claims apart."""
    return tuple(
        str(claim.fields.get(name))
        for name in ("subject_latency", "baseline_latency", "comparison", "cache", "kernel_symbols")
    )


def record(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the record tier says of `claim`."""
    return None


def compile(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the compile tier decides no such claim."""
    return None


def execute(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the execute tier decides no such claim."""
    return None


def device(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the device tier says of `claim`."""
    return None
