"""A geometric mean of ratios over many shapes."""

from __future__ import annotations

from harness.bundle import Bundle, Claim
from harness.record.printed import printed
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

KIND = "geomean"
TIERS: tuple[str, ...] = ("record", "device")


def identity(claim: Claim) -> tuple[str, ...]:
    """What tells two such claims apart."""
    names = ("op", "baseline_provider", "shapes", "weighted", "variant")
    return tuple(str(claim.fields.get(name)) for name in names)


def record(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the record tier says of `claim`: the mean of the study's own benchmark rows, as printed."""
    if claim.published is None:
        return None
    op, provider = claim.fields.get("op"), claim.fields.get("baseline_provider") or "best"
    for row in (evidence.get("study") or {}).get("multishape", ()):
        if row["op"] == op and row["baseline_provider"] == provider:
            break
    else:
        return TierResult(
            Verdict.NOT_MEASURED,
            None,
            f"the record holds no rows of {op} against {provider}",
            "set STUDY_SRC to a checkout of the study and run harness audit",
        )
    weighted = bool(claim.fields.get("weighted"))
    mean = row.get("weighted") if weighted else row["geomean"]
    if mean is None:
        return TierResult(Verdict.NOT_MEASURED, None, "the study's rows carry no weights", None)
    shapes = claim.fields.get("shapes")
    over = row.get("weighted_shapes", row["shapes"]) if weighted else row["shapes"]
    same = shapes is None or not isinstance(shapes, int) or shapes == over
    agrees = same and printed(claim.published, decimals=2).holds(mean)
    words = "weighted geometric mean" if weighted else "geometric mean"
    reason = f"the {words} over {over} shapes of {op} against {provider} is {mean:.4f}"
    if not agrees:
        reason += f"; {claim.published}" + (f" over {shapes} shapes" if shapes else "") + " is published"
    return TierResult(Verdict.REPRODUCED if agrees else Verdict.CONTRADICTED, mean, reason)


def compile(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the compile tier decides no such claim."""
    return None


def execute(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the execute tier decides no such claim."""
    return None


def device(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the device tier says of `claim`: see `harness.device.verdicts`."""
    from harness.device import verdicts

    return verdicts.geomean(claim, bundle, evidence)
