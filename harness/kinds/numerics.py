"""The outputs against a float64 reference."""

from __future__ import annotations

from harness.bundle import Bundle, Claim
from harness.kinds._executed import launch_of, reduced, share
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

KIND = "numerics"
TIERS: tuple[str, ...] = ("execute", "device")


def identity(claim: Claim) -> tuple[str, ...]:
    """What tells two such claims apart."""
    names = ("metric", "reference", "implementation", "variant")
    return tuple(str(claim.fields.get(name)) for name in names)


def record(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the record tier decides no such claim."""
    return None


def compile(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the compile tier decides no such claim."""
    return None


def execute(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the executed binary's outputs say: correct within the dtype's tolerance, or an error figure.

    A published figure belongs to inputs that the study does not publish; it is met where the figure here is
    no worse, within 5 % for an error and the published digits for a cosine.
    """
    launch = launch_of(claim, evidence)
    if isinstance(launch, TierResult):
        return launch
    outputs = launch["numerics"]
    if not outputs:
        return TierResult(Verdict.INCONCLUSIVE, None, "no output of this launch was compared")
    metric = str(claim.fields["metric"])
    passed = all(one["passed"] for one in outputs.values())
    where = f"{share(launch)}{reduced(launch, claim, bundle)}; {launch['tolerance']['reason']}"
    if metric == "correct":
        worst = max((one["worst"] for one in outputs.values() if one["worst"] is not None), default=None)
        told = "within" if passed else "not within"
        shown = f", {worst:.3g} of the allowed error" if worst is not None else ""
        reason = f"{told} tolerance of the float64 reference{shown} ({where})"
        good = passed == bool(claim.published)
        return TierResult(Verdict.REPRODUCED if good else Verdict.CONTRADICTED, str(passed).lower(), reason)
    values = [one[metric] for one in outputs.values() if one[metric] is not None]
    if not values or claim.published is None:
        return TierResult(Verdict.INCONCLUSIVE, None, f"{metric} is no number here ({where})")
    published = float(claim.published)
    if metric == "cosine":
        value = min(values)
        good = value >= published - 0.5e-5
    else:
        value = max(values)
        good = value <= published * 1.05
    reason = f"{metric} {value:.6g}, published {published:g} ({where})"
    if good:
        return TierResult(Verdict.REPRODUCED, value, reason)
    if passed:
        return TierResult(
            Verdict.INCONCLUSIVE,
            value,
            f"{reason}; within the dtype's tolerance, on inputs that the study does not state",
        )
    return TierResult(Verdict.CONTRADICTED, value, reason)


def device(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the device tier says of `claim`."""
    return None
