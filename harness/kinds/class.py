"""The class of a ratio: WIN (>= 1.05), PARITY, HEADROOM (<= 0.95), BORDERLINE between two."""

from __future__ import annotations

from harness.bundle import Bundle, Claim
from harness.kinds.ratio import DECIMALS, latencies
from harness.record.printed import span
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

KIND = "class"
TIERS: tuple[str, ...] = ("record", "device")

WIN_FROM = 1.05
HEADROOM_TO = 0.95


def identity(claim: Claim) -> tuple[str, ...]:
    """What tells two such claims apart."""
    return (str(claim.fields.get("of")),)


def of(ratio: float) -> str:
    """The class of a ratio that is known exactly."""
    return "WIN" if ratio >= WIN_FROM else "HEADROOM" if ratio <= HEADROOM_TO else "PARITY"


def record(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the record tier says of `claim`: the class of the ratio that the printed latencies give."""
    if claim.published is None or claim.fields.get("of") is None:
        return None
    ratio = bundle.claim(claim.fields["of"])
    times = latencies(ratio, bundle)
    if times is None and ratio.published is None:
        return TierResult(
            Verdict.NOT_MEASURED,
            None,
            "the study prints no ratio",
            "measure it: harness reproduce --tier device",
        )
    value = times[1] / times[0] if times else span(ratio.published, decimals=DECIMALS).value
    found = of(value)
    rule = {"WIN": "at least 1.05", "HEADROOM": "at most 0.95", "PARITY": "between 0.95 and 1.05"}[found]
    return TierResult(
        Verdict.REPRODUCED if found == claim.published else Verdict.CONTRADICTED,
        found,
        f"{value:.4f} is {rule}: {found}" + ("" if found == claim.published else f", not {claim.published}"),
        numbers={"ratio": value},
    )


def compile(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the compile tier decides no such claim."""
    return None


def execute(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the execute tier decides no such claim."""
    return None


def device(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the device tier says of `claim`: see `harness.device.verdicts`."""
    from harness.device import verdicts

    return verdicts.class_(claim, bundle, evidence)
