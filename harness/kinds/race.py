"""Free of data races under every legal schedule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.bundle import Bundle, Claim
from harness.kinds._executed import launch_of
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

KIND = "race"
TIERS: tuple[str, ...] = ("execute",)


def identity(claim: Claim) -> tuple[str, ...]:
    """What tells two such claims apart."""
    names = ("symbol",)
    return tuple(str(claim.fields.get(name)) for name in names)


def record(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the record tier decides no such claim."""
    return None


def compile(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the compile tier decides no such claim."""
    return None


def execute(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Whether the executed binary has two unordered accesses to one location.

    A race without a barrier between its accesses contradicts freedom, whether or not a schedule tried here
    shows
    it in the outputs. One that only lacks a wait before a barrier needs the hardware to reorder, and is left
    open.
    """
    launch = launch_of(claim, evidence)
    if isinstance(launch, TierResult):
        return launch
    races = launch["races"]
    found = races["found"]
    watched = f"{races['workgroups']} workgroup{'s' if races['workgroups'] != 1 else ''} watched"
    differing = [one["name"] for one in launch["schedules"] if not one["same_as_fair"]]
    if not found:
        if differing:
            reason = f"no race seen, yet schedule {', '.join(differing)} changes the outputs; {watched}"
            return TierResult(Verdict.INCONCLUSIVE, "none", reason)
        schedules = ", ".join(one["name"] for one in launch["schedules"])
        return TierResult(Verdict.REPRODUCED, "none", f"none; {watched}, same outputs under {schedules}")
    certain = [one for one in found if one["reason"] == "no barrier between"]
    first = (certain or found)[0]
    told = f"{_site(first['first'])}, {_site(first['second'])}, {first['reason']}, in {first['space']}"
    value = f"{len(found)} found"
    if not certain:
        return TierResult(Verdict.INCONCLUSIVE, value, f"{told}; {watched}")
    witness = races["witness"]
    if witness is not None:
        shown = "wrong" if not witness["passed"] else "different"
        told += f"; outputs are {shown} under {witness['schedule']}"
        if not witness["passed"]:
            told += f" (largest error {witness['max_rel_error']:.3g} of the largest value)"
    return TierResult(Verdict.CONTRADICTED, value, f"{told}; {watched}", numbers={"races": len(found)})


def _site(site: Mapping[str, Any]) -> str:
    verb = {"r": "reads", "w": "writes", "a": "updates"}[site["kind"]]
    return f"wave {site['wave']} {verb} at PC 0x{site['pc']:x} ({site['source'] or 'no source line'})"


def device(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the device tier decides no such claim."""
    return None
