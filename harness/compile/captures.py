"""What the study captured of each listing, as far as code objects go, and how a compiled listing
differs from it.

The figures and hashes are in `captures.json`: count and hash of the normal form, first and last
address, size, and a hash over addresses, instructions and branch displacements (null where the capture
was not at hand).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from harness.bundle import Bundle, Claim
from harness.compile.isa import difference, parse_capture

__all__ = ["captured", "differences", "facts"]


@cache
def facts() -> Mapping[str, Mapping[str, Any]]:
    """capture (path under the study's examples) -> first_pc, last_pc, size, code_sha256 (None: not at
    hand).
    """
    loaded: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("captures.json").read_text())
    return loaded


def captured(bundle: Bundle) -> dict[str, dict[str, Any]]:
    """capture -> its facts, for each capture that a claim of `bundle` names."""
    names = (str(claim.fields.get("capture")) for claim in bundle.claims if claim.kind == "isa")
    return {name: dict(facts()[name]) for name in names if name in facts()}


def differences(
    bundle: Bundle, found: Sequence[Mapping[str, Any]], texts: Mapping[str, tuple[str, ...]]
) -> dict[str, dict[str, Any]]:
    """claim -> how the listing compiled for it differs from the captured one, where it does and both
    are at hand.

    The captured listing is at hand where STUDY_SRC has it, or where another compile gave it (by its hash).
    """
    out: dict[str, dict[str, Any]] = {}
    for claim in bundle.claims:
        if claim.kind != "isa" or claim.fields.get("check") != "identity":
            continue
        compiled = _compiled_for(claim, found)
        wanted = str(claim.fields["sha256"])
        if compiled is None or compiled["sha256"] == wanted:
            continue
        reference = texts.get(wanted) or _of_study(str(claim.fields["capture"]))
        differing = difference(reference, texts[compiled["sha256"]]) if reference else None
        if differing is not None:
            out[claim.id] = {
                "count": differing.count,
                "first": differing.first,
                "captured": differing.left,
                "compiled": differing.right,
                "before": list(differing.before),
                "after": list(differing.after),
                "constants_only": differing.constants_only,
            }
    return out


def _compiled_for(claim: Claim, found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    for launch in found:
        if launch["layer"] != claim.fields["layer"] or launch["variant"]:
            continue
        if claim.workload in (launch["workload"], *launch["also"]):
            for entry in launch["objects"]:
                if entry["symbol"] == claim.fields["symbol"]:
                    found_entry: Mapping[str, Any] = entry
                    return found_entry
    return None


def _of_study(capture: str) -> tuple[str, ...] | None:
    root = os.environ.get("STUDY_SRC")
    path = Path(root) / capture / "code.json" if root else None
    if path is None or not path.is_file():
        return None
    return parse_capture(path.read_bytes(), str(path)).normal
