"""The kernel compiles, or fails to, with a stated error."""

from __future__ import annotations

from harness.bundle import Bundle, Claim
from harness.compile.variants import variant_of
from harness.kinds._compiled import launch_of
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

KIND = "compiles"
TIERS: tuple[str, ...] = ("compile",)


def identity(claim: Claim) -> tuple[str, ...]:
    """What tells two such claims apart."""
    names = ("layer", "variant", "symbol")
    return tuple(str(claim.fields.get(name)) for name in names)


def record(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the record tier decides no such claim."""
    return None


def compile(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the compile tier says of `claim`: whether it compiled here under the claim's layer, and with
    which error.
    """
    variant = variant_of(bundle.id, claim)
    layer = str(claim.fields["layer"]) if claim.fields.get("layer") else None
    launch = launch_of(claim, evidence, layer=layer, variant=variant.name)
    if isinstance(launch, TierResult):
        return launch
    what = "FlyDSL's host dispatch" if variant.mode == "dispatch" else "the kernel"
    under = f"under layer {launch['layer'][:8]}"
    if not launch["ran"]:
        return TierResult(Verdict.INCONCLUSIVE, None, f"{what} {under}: {launch['error']}")
    value = "compiles" if launch["ok"] else "fails"
    reason = f"{what} {value} {under}" + ("" if launch["ok"] else f": {launch['error']}")
    others = sorted(
        f"{one['layer'][:8]} {'compiles' if one['ok'] else 'fails'}"
        for one in evidence["launches"]
        if one["variant"] == variant.name and one["layer"] != launch["layer"] and one["ran"]
    )
    if others and variant.mode == "dispatch":
        reason += f" (layer {', '.join(others)})"
    if bool(claim.fields["expect"]) != launch["ok"]:
        return TierResult(Verdict.CONTRADICTED, value, reason)
    text = claim.fields.get("error")
    if text and str(text) not in str(launch["error"]):
        return TierResult(Verdict.CONTRADICTED, value, f"{reason}; the claim names another error: {text}")
    return TierResult(Verdict.REPRODUCED, value, reason)


def execute(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the execute tier decides no such claim."""
    return None


def device(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the device tier decides no such claim."""
    return None
