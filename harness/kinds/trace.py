"""What a thread trace says: totals, stall share, taxonomy, mapped rows, wave states."""

from __future__ import annotations

from harness.bundle import Bundle, Claim
from harness.tiers import Evidence
from harness.verdict import TierResult

KIND = "trace"
TIERS: tuple[str, ...] = ("record", "device")


def identity(claim: Claim) -> tuple[str, ...]:
    """What tells two such claims apart."""
    return tuple(str(claim.fields.get(name)) for name in ("metric", "symbol", "capture"))


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
