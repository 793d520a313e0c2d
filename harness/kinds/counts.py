"""Exact instruction counts of the executed binary against a captured trace."""

from __future__ import annotations

from harness.bundle import Bundle, Claim
from harness.tiers import Evidence
from harness.verdict import TierResult

KIND = "counts"
TIERS: tuple[str, ...] = ("execute",)


def identity(claim: Claim) -> tuple[str, ...]:
    """What tells two such claims apart."""
    names = ("capture", "symbol", "variant")
    return tuple(str(claim.fields.get(name)) for name in names)


def record(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the record tier decides no such claim."""
    return None


def compile(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the compile tier decides no such claim."""
    return None


def execute(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the execute tier says of `claim`."""
    return None


def device(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the device tier decides no such claim."""
    return None
