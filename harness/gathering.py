"""Runs the tiers over a bundle and lets the kinds judge what they gathered.

Knows tiers and kinds only by their interfaces. Must not know how any of them works, nor what is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness import evidence as evidence_files
from harness import kinds, tiers
from harness.bundle import Bundle
from harness.errors import HarnessError
from harness.tiers import Context, Evidence
from harness.verdict import TierResult

__all__ = ["FILES", "committed", "gather", "judge", "speaking", "was_available"]

FILES = {"compile": "compiled", "execute": "executed"}
"""Tiers that give the same evidence on every machine, and the name of the file that holds it."""

_EXTRAS = {"compile": "compile", "execute": "execute", "device": "device"}


def speaking(tier: str, bundle: Bundle) -> int:
    """How many claims of `bundle` the tier can say something of: 0 means that it need not run."""
    return sum(tier in kinds.kind(claim.kind).TIERS for claim in bundle.claims)


def gather(tier: str, bundle: Bundle, context: Context) -> Evidence:
    """The tier's evidence about `bundle`; `tiers.unavailable` where it cannot work here.

    Bad input in the record is the user's to mend and raises HarnessError; what a later tier lacks is a gap
    in this machine, and is reported as one.
    """
    if not speaking(tier, bundle):
        return {}
    try:
        return tiers.tier(tier).gather(bundle, context)
    except ImportError as error:
        extra = _EXTRAS.get(tier)
        remedy = f"pip install '.[{extra}]'" if extra else "reinstall this package"
        return tiers.unavailable(f"{error.name or error} is not installed", remedy)
    except HarnessError as error:
        if tier == "record":
            raise
        return tiers.unavailable(
            error.message.replace("\n", "; "), error.remedy or "harness doctor says more"
        )
    except OSError as error:
        if tier == "record":
            raise
        where = f"{error.filename}: " if error.filename is not None else ""
        return tiers.unavailable(f"{where}{error.strerror or error}", "harness doctor says more")


def committed(tier: str, bundle: Bundle, context: Context) -> Evidence:
    """The tier's evidence as this repository has committed it, for tiers whose evidence is one file.

    The record is gathered: it is committed evidence already.
    """
    if tier not in FILES:
        return (
            gather(tier, bundle, context)
            if tier == "record"
            else tiers.unavailable(
                f"committed {tier} evidence is of other machines",
                f"harness judge {bundle.id} --evidence FILE",
            )
        )
    if not speaking(tier, bundle):
        return {}
    found = evidence_files.read(bundle.path, FILES[tier])
    if found is None:
        return tiers.unavailable(f"no {tier} evidence is committed", f"harness {tier} {bundle.id}")
    return found


def judge(
    bundle: Bundle, evidence: Mapping[str, Evidence], order: Sequence[str]
) -> dict[str, dict[str, TierResult]]:
    """What the kinds say: claim id -> tier -> result, for the tiers of `order` that say something of the
    claim."""
    out: dict[str, dict[str, TierResult]] = {}
    for claim in bundle.claims:
        results: dict[str, TierResult] = {}
        for tier in order:
            result = kinds.judge(tier, claim, bundle, evidence[tier])
            if result is not None:
                results[tier] = result
        out[claim.id] = results
    return out


def was_available(evidence: Evidence) -> bool:
    """Whether the tier could work here."""
    return "unavailable" not in evidence and bool(evidence)
