"""Exact instruction counts of the executed binary against a captured trace."""

from __future__ import annotations

from harness.bundle import Bundle, Claim
from harness.kinds._executed import launch_of, share
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

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
    """Whether each instruction was executed as often a wave as the capture counted.

    A capture samples some waves of a launch. Where waves differ, its counts must be a sum of wave profiles
    that the launch has.
    """
    launch = launch_of(claim, evidence)
    if isinstance(launch, TierResult):
        return launch
    found = launch["captures"].get(claim.fields["capture"])
    if found is None:
        return TierResult(
            Verdict.NOT_MEASURED,
            None,
            "the counts of this capture are not at hand",
            "set STUDY_SRC to a checkout of the study",
        )
    value = f"{found['equal']} of {found['instructions']}"
    numbers = {name: found[name] for name in ("equal", "instructions", "waves", "how", "parts")}
    where = f"{share(launch)} executed, {found['waves']} waves captured"
    if found["how"] == "differs":
        reason = f"{value} instructions are executed as often as captured; {where}; {found['first']}"
        return TierResult(Verdict.CONTRADICTED, value, reason, numbers=numbers)
    reason = f"{value} instructions are executed as often a wave as captured; {where}"
    if found["how"] == "mixture":
        reason += f"; waves differ, and the capture is a sum of {found['parts']} of their profiles"
    return TierResult(Verdict.REPRODUCED, value, reason, numbers=numbers)


def device(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the device tier decides no such claim."""
    return None
