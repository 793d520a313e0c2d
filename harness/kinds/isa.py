"""The binary's listing: identical to a captured one, or holding a pattern a number of times.

A listing's hash is the sha256 of its normal form (`harness.compile.isa`).
"""

from __future__ import annotations

from harness.bundle import Bundle, Claim
from harness.record.study import capture
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

KIND = "isa"
TIERS: tuple[str, ...] = ("record", "compile")


def identity(claim: Claim) -> tuple[str, ...]:
    """What tells two such claims apart."""
    names = ("check", "capture", "symbol", "mnemonic", "layer", "variant")
    return tuple(str(claim.fields.get(name)) for name in names)


def record(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the record tier says of `claim`: whether the capture it names is the one that the evidence hashed.

    A pattern needs the listing itself, which the record does not keep; who compiled it, a compiler.
    """
    if (
        claim.fields.get("check") != "identity"
        or claim.fields.get("capture") is None
        or claim.origin == "study"
    ):
        return None
    found = capture(evidence.get("study"), claim.fields["capture"])
    if found is None or found["listing_sha256"] is None:
        return TierResult(
            Verdict.NOT_MEASURED,
            None,
            "the record holds no hash of this capture",
            "set STUDY_SRC to a checkout of the study and run harness audit",
        )
    sha, rows = found["listing_sha256"], found["instructions"]
    wanted_sha, wanted_rows = claim.fields.get("sha256"), claim.fields.get("instructions")
    same = sha == wanted_sha and rows == wanted_rows
    return TierResult(
        Verdict.REPRODUCED if same else Verdict.CONTRADICTED,
        str(sha)[:12],
        f"the captured listing has {rows} instructions, sha256 {str(sha)[:12]}"
        + ("" if same else f"; the claim has {wanted_rows}, {wanted_sha}"),
    )


def compile(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the compile tier says of `claim`."""
    return None


def execute(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the execute tier decides no such claim."""
    return None


def device(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the device tier decides no such claim."""
    return None
