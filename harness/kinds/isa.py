"""The binary's listing: identical to a captured one, or holding a pattern a number of times.

A listing's hash is the sha256 of its normal form (`harness.compile.isa`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from harness.bundle import Bundle, Claim
from harness.kinds._compiled import entry, launch_of, launches_of, not_compiled
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
    """What the compile tier says of `claim`: of the listing compiled here, under the claim's own layer
    and variant.
    """
    if claim.fields.get("check") == "identity":
        return _identical(claim, bundle, evidence)
    return _pattern(claim, bundle, evidence)


def _identical(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult:
    layer = str(claim.fields["layer"])
    launch = launch_of(claim, evidence, layer=layer)
    if isinstance(launch, TierResult):
        return launch
    found = entry(launch, claim, bundle)
    if isinstance(found, TierResult):
        return found
    fact = evidence["captures"].get(claim.fields["capture"], {})
    same_text = found["sha256"] == claim.fields["sha256"]
    wrong = _code_object_faults(found, fact)
    numbers = {name: found[name] for name in ("instructions", "sha256", "code_sha256", "first_pc", "size")}
    value = f"{found['instructions']} instructions"
    if not same_text:
        reason = f"layer {layer[:8]} gives another listing: {_difference(claim, found, evidence)}"
        return TierResult(Verdict.CONTRADICTED, value, reason + _who_gives(claim, evidence), numbers=numbers)
    if wrong:
        reason = (
            f"the same instructions under layer {layer[:8]}, but not the same code object: {'; '.join(wrong)}"
        )
        return TierResult(Verdict.CONTRADICTED, value, reason, numbers=numbers)
    level = (
        "every address and branch displacement" if fact.get("code_sha256") else "first and last address, size"
    )
    reason = f"{found['instructions']} instructions identical under layer {layer[:8]}, and {level}"
    if claim.origin == "study":
        others = _layers_that_give(claim, evidence) - {layer}
        if others:
            told = ", ".join(sorted(one[:8] for one in others))
            reason += f"; layer {told} gives the same listing, so it does not tell which of them ran"
            return TierResult(Verdict.INCONCLUSIVE, value, reason, numbers=numbers)
    return TierResult(Verdict.REPRODUCED, value, reason, numbers=numbers)


def _code_object_faults(found: Mapping[str, Any], fact: Mapping[str, Any]) -> list[str]:
    """How the compiled code object differs from the captured one in what lies beyond the text."""
    pairs = [
        (found["first_pc"], fact.get("first_pc"), "first address"),
        (found["last_pc"], fact.get("last_pc"), "last address"),
        (found["size"], fact.get("size"), "size"),
        (found["code_sha256"], fact.get("code_sha256"), "hash of addresses and branch displacements"),
    ]
    return [f"{what} {a}, captured {b}" for a, b, what in pairs if b is not None and a != b]


def _difference(claim: Claim, found: Mapping[str, Any], evidence: Evidence) -> str:
    told = evidence["differences"].get(claim.id)
    counts = f"{found['instructions']} instructions, captured {claim.fields['instructions']}"
    if told is None:
        return counts
    kind = ", only constants: another shape" if told["constants_only"] else ""
    first = f"first at {told['first']}: captured `{told['captured']}`, compiled `{told['compiled']}`"
    return f"{counts}; {told['count']} differ{kind}, {first}"


def _layers_that_give(claim: Claim, evidence: Evidence) -> set[str]:
    """The Python layers under which this workload, as published, gives the claim's listing."""
    return {
        launch["layer"]
        for launch in evidence["launches"]
        if not launch["variant"]
        and claim.workload in (launch["workload"], *launch["also"])
        and any(one["sha256"] == claim.fields["sha256"] for one in launch["objects"])
    }


def _who_gives(claim: Claim, evidence: Evidence) -> str:
    layers = sorted(one[:8] for one in _layers_that_give(claim, evidence))
    return f"; layer {', '.join(layers)} gives the captured one" if layers else ""


def _pattern(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult:
    variant = str(claim.fields.get("variant") or "")
    known = {launch["variant"] for launch in evidence["launches"]}
    launches = launches_of(claim, evidence, variant=variant if variant in known else "")
    if not launches:
        none = launch_of(claim, evidence)
        return none if isinstance(none, TierResult) else not_compiled(none)
    expression = re.compile(str(claim.fields["mnemonic"]))
    counted: list[int] = []
    for launch in launches:
        found = entry(launch, claim, bundle)
        if isinstance(found, TierResult):
            return found
        counted.append(
            sum(many for name, many in found["mnemonics"].items() if expression.fullmatch(name) is not None)
        )
    low, high = min(counted), max(counted)
    value: int | str = low if low == high else f"{low}..{high}"
    name = claim.fields["mnemonic"]
    reason = f"the compiled kernel has {value} of {name}"
    if len(launches) > 1:
        reason += f" over {len(launches)} shapes"
    wanted = _wanted(claim)
    agrees = all(lower <= one <= upper for one in counted for lower, upper in [wanted])
    return TierResult(
        Verdict.REPRODUCED if agrees else Verdict.CONTRADICTED,
        value,
        reason + ("" if agrees else f"; the claim says {_words(claim)}"),
        numbers={"counts": counted},
    )


def _wanted(claim: Claim) -> tuple[float, float]:
    if claim.fields.get("absent"):
        return 0, 0
    if claim.fields.get("count") is not None:
        return int(claim.fields["count"]), int(claim.fields["count"])
    return int(claim.fields.get("min", 0)), float(claim.fields.get("max", math.inf))


def _words(claim: Claim) -> str:
    lower, upper = _wanted(claim)
    if lower == upper:
        return "none" if upper == 0 else str(upper)
    return f"at least {lower}" if upper == math.inf else f"{lower} to {upper:g}"


def execute(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the execute tier decides no such claim."""
    return None


def device(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the device tier decides no such claim."""
    return None
