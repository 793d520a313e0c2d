"""Looking things up in compile evidence (schema/compiled.schema.json), for the kinds that judge it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.bundle import Bundle, Claim
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

__all__ = ["entry", "launch_of", "launches_of", "not_compiled"]

Launch = Mapping[str, Any]


def launches_of(
    claim: Claim, evidence: Evidence, *, layer: str | None = None, variant: str = ""
) -> list[Launch]:
    """The launches of the claim's workload under a Python layer (default: the evidence's own) and a
    variant.
    """
    wanted = layer or evidence["layer"]
    return [
        launch
        for launch in evidence["launches"]
        if launch["layer"] == wanted
        and launch["variant"] == variant
        and claim.workload in (launch["workload"], *launch["also"])
    ]


def launch_of(
    claim: Claim, evidence: Evidence, *, layer: str | None = None, variant: str = ""
) -> Launch | TierResult:
    """The one such launch, or NOT_MEASURED with the reason why there is none."""
    found = launches_of(claim, evidence, layer=layer, variant=variant)
    if found:
        return found[0]
    unsaid = evidence["unsaid"].get(claim.workload)
    if unsaid is not None:
        return TierResult(Verdict.NOT_MEASURED, None, f"the workload cannot be compiled: {unsaid}")
    where = f"layer {(layer or evidence['layer'])[:8]}" + (f", variant {variant}" if variant else "")
    return TierResult(Verdict.NOT_MEASURED, None, f"workload {claim.workload} was not compiled under {where}")


def entry(launch: Launch, claim: Claim, bundle: Bundle) -> Mapping[str, Any] | TierResult:
    """The code object that the claim is about: its `symbol`, else the bundle's first kernel, else the
    only one.
    """
    if not launch["ok"]:
        return not_compiled(launch)
    objects: Sequence[Mapping[str, Any]] = launch["objects"]
    wanted = [str(claim.fields["symbol"])] if claim.fields.get("symbol") else list(bundle.kernel.symbols)
    for name in wanted:
        for one in objects:
            if one["symbol"] in (name, f"{name}_0"):
                return one
    if len(objects) == 1 and not claim.fields.get("symbol"):
        return objects[0]
    names = ", ".join(one["symbol"] for one in objects)
    return TierResult(Verdict.NOT_MEASURED, None, f"no kernel {wanted[0]} among those compiled ({names})")


def not_compiled(launch: Launch) -> TierResult:
    """NOT_MEASURED with the compiler's own words."""
    return TierResult(
        Verdict.NOT_MEASURED,
        None,
        f"does not compile here: {launch['error']}",
        remedy="harness compile, for the compiler's whole output",
    )
