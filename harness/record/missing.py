"""What the record does not hold, said in one way, with what would bring it."""

from __future__ import annotations

from harness.bundle import Claim
from harness.verdict import TierResult, Verdict

__all__ = ["AUDIT", "no_capture"]

AUDIT = "set STUDY_SRC to a checkout of the study and run harness audit"


def no_capture(claim: Claim) -> TierResult:
    """NOT_MEASURED: the claim names a capture that the study did not publish, or the kernel has none."""
    name = claim.fields.get("capture")
    if name is None:
        return TierResult(Verdict.NOT_MEASURED, None, "the record holds no capture of this kernel", AUDIT)
    return TierResult(
        Verdict.NOT_MEASURED,
        None,
        f"the figure is of a capture that the study does not hold ({name})",
        "capture it again on an MI350X: harness reproduce --tier device",
    )
