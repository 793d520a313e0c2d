"""A claim about the measuring instrument itself: A/A reads 1, or the positive control reads what was built
in.

It holds or falls on whatever device measured it; no other tier says anything of it.
"""

from __future__ import annotations

from harness.bundle import Bundle, Claim
from harness.tiers import Evidence
from harness.verdict import TierResult

KIND = "control"
TIERS: tuple[str, ...] = ("device",)


def identity(claim: Claim) -> tuple[str, ...]:
    """What tells two such claims apart."""
    return tuple(str(claim.fields.get(name)) for name in ("control", "cache"))


def record(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: no publication is about the instrument."""
    return None


def compile(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the compile tier decides no such claim."""
    return None


def execute(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the execute tier decides no such claim."""
    return None


def device(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Whether the control read true on the device that is in the evidence."""
    from harness.device import verdicts

    return verdicts.control(claim, bundle, evidence)
