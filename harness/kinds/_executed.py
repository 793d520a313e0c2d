"""Looking things up in `evidence/executed.json`: the launch that a claim is about. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.bundle import Bundle, Claim
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

__all__ = ["launch_of", "reduced", "share"]


def launch_of(claim: Claim, evidence: Evidence) -> Mapping[str, Any] | TierResult:
    """The executed launch of the claim's workload (and symbol, where it names one), or why there is none."""
    for launch in evidence.get("launches", ()):
        if claim.workload not in (launch["workload"], *launch["also"]):
            continue
        if "error" in launch:
            return TierResult(
                Verdict.INVALID,
                None,
                f"the execution stopped: {launch['error']}",
                "harness execute shows where",
            )
        symbol = claim.fields.get("symbol")
        if symbol is None or launch["symbol"] == symbol:
            found: Mapping[str, Any] = launch
            return found
    said = evidence.get("unsaid", {}).get(claim.workload)
    reason = f"workload {claim.workload}: {said}" if said else f"workload {claim.workload} was not executed"
    return TierResult(Verdict.NOT_MEASURED, None, reason, "state the workload's dimensions in bundle.yaml")


def share(launch: Mapping[str, Any]) -> str:
    """`2 of 512 workgroups`, or `all 16 workgroups`; with the size where it was reduced."""
    done = launch["workgroups"]
    if done["executed"] == done["of"]:
        return f"all {done['of']} workgroups"
    return f"{done['executed']} of {done['of']} workgroups"


def reduced(launch: Mapping[str, Any], claim: Claim, bundle: Bundle | None) -> str:
    """`, with M 16 for 32768`: the dimensions that were executed smaller than the workload states; else "".

    Only those that multiply workgroups are (`harness.execute.plan`).
    """
    if bundle is None or claim.workload is None:
        return ""
    stated = bundle.workload(claim.workload).dims
    changed = [
        f"{name} {value} for {stated[name]}"
        for name, value in launch["dims"].items()
        if isinstance(stated.get(name), int) and not isinstance(value, bool) and stated[name] != value
    ]
    return f", with {', '.join(changed)}" if changed else ""
