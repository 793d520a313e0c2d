"""Registers, LDS, scratch, spills, workgroup, grid and the occupancy that follows.

Occupancy is waves per SIMD by the gfx950 rule (`harness.compile.occupancy`), never by another architecture's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.bundle import Bundle, Claim
from harness.compile.occupancy import allocated_vgprs, occupancy
from harness.kinds._compiled_resource import compiled_resource
from harness.kinds._recaptured import recaptured
from harness.record.missing import AUDIT, no_capture
from harness.record.printed import said
from harness.record.study import capture
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

KIND = "resource"
TIERS: tuple[str, ...] = ("record", "compile", "device")


def identity(claim: Claim) -> tuple[str, ...]:
    """What tells two such claims apart."""
    names = ("metric", "symbol", "capture", "stage", "variant")
    return tuple(str(claim.fields.get(name)) for name in names)


def metric_of(claim: Claim) -> str:
    """What is counted."""
    return str(claim.fields.get("metric"))


def record(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the record tier says of `claim`: the study's own captures against the study's own figures."""
    if claim.published is None:
        return None
    found = capture(evidence.get("study"), claim.fields.get("capture"))
    metric = metric_of(claim)
    if found is None:
        return no_capture(claim)
    if metric in ("occupancy", "occupancy_limiter"):
        return _occupancy(claim, bundle, found)
    if metric in ("vgpr", "agpr"):
        return _registers(claim, found, metric)
    if metric == "grid_workgroups":
        return _grid(claim, found)
    if metric == "workgroup_size":
        return _workgroup(claim, found)
    raw = {"lds": found["lds"], "sgpr": found["sgpr"]}.get(metric)
    if raw is None:
        return TierResult(Verdict.NOT_MEASURED, None, f"the record holds no {metric} of this kernel", AUDIT)
    return _compare(claim, raw, f"the capture has {raw}")


def _in(published: Any, raw: int) -> bool:
    """Whether `raw` is the published number, or lies in the published range."""
    if isinstance(published, list) and len(published) == 2:
        return bool(published[0] <= raw <= published[1])
    return bool(published == raw)


def _compare(claim: Claim, raw: int, reason: str) -> TierResult:
    agrees = _in(claim.published, raw)
    tail = "" if agrees else f"; {said(claim.published)} is published"
    return TierResult(Verdict.REPRODUCED if agrees else Verdict.CONTRADICTED, raw, reason + tail)


def _registers(claim: Claim, found: Mapping[str, Any], metric: str) -> TierResult:
    vgpr = found["vgpr"]
    raw = vgpr["max_index"] if metric == "vgpr" else vgpr.get("agpr_max_index")
    if raw is None:
        return TierResult(Verdict.NOT_MEASURED, None, f"the record holds no {metric} of this kernel", AUDIT)
    file = "v" if metric == "vgpr" else "a"
    reason = (
        f"the listing names {file}0..{file}{raw - 1}" if raw else f"the listing names no {metric.upper()}"
    )
    if metric == "vgpr" and vgpr["allocated"] is not None:
        reason += f", {vgpr['allocated']} are allocated"
    if metric == "vgpr" and vgpr["field"] is not None and vgpr["field"] * 2 == vgpr["allocated"]:
        halved = f"; the profiler's VGPR_Count of {vgpr['field']} is half of them"
        if claim.published == vgpr["field"]:
            return TierResult(Verdict.CONTRADICTED, raw, reason + halved + ", and it is what was published")
        reason += halved
    return _compare(claim, raw, reason)


def _occupancy(claim: Claim, bundle: Bundle, found: Mapping[str, Any]) -> TierResult:
    allocated, source = found["vgpr"]["allocated"], "allocated"
    if allocated is None:
        published = _published_vgprs(bundle)
        if published is None:
            return TierResult(Verdict.NOT_MEASURED, None, "the record holds no register count", AUDIT)
        allocated, source = allocated_vgprs(published), f"allocated for the {published} published"
    size = found["workgroup_size"][0] if found["workgroup_size"] else 256
    rule = occupancy(
        vgprs=allocated, sgprs=found["sgpr"] or 0, lds_bytes=found["lds"] or 0, workgroup_size=size
    )
    limits = ", ".join(rule.limiters)
    reason = (
        f"{allocated} VGPRs {source} of 512, {found['lds'] or 0} B of LDS, workgroup {size}: "
        f"{rule.waves_per_simd} waves/SIMD on gfx950 (limit: {limits})"
    )
    observed = found["occupancy"]["observed"]
    if observed is not None:
        reason += f", {observed} seen at once"
    if metric_of(claim) == "occupancy_limiter":
        named = claim.published in rule.limiters
        verdict = Verdict.REPRODUCED if named else Verdict.CONTRADICTED
        return TierResult(
            verdict, rule.limiter, reason + ("" if named else f"; {said(claim.published)} is published")
        )
    numbers = {"vgpr_allocated": allocated, "waves_per_simd": rule.waves_per_simd, "observed": observed}
    agrees = _in(claim.published, rule.waves_per_simd)
    if not agrees:
        reason += f"; {said(claim.published)} is published"
        if claim.published == min(8, 256 // allocated) and allocated <= 256:
            reason += f" = 256 // {allocated}, the rule of gfx942"
    return TierResult(
        Verdict.REPRODUCED if agrees else Verdict.CONTRADICTED, rule.waves_per_simd, reason, numbers=numbers
    )


def _published_vgprs(bundle: Bundle) -> int | None:
    for claim in bundle.claims:
        if claim.kind == KIND and claim.fields.get("metric") == "vgpr" and isinstance(claim.published, int):
            return claim.published
    return None


def _triple(value: Any) -> tuple[int, int, int] | None:
    if isinstance(value, int):
        return (value, 1, 1)
    if isinstance(value, (list, tuple)) and value and all(isinstance(part, int) for part in value):
        x, y, z = (*value, 1, 1, 1)[:3]
        return (x, y, z)
    return None


def _times(triple: Any) -> str:
    return "x".join(str(part) for part in triple)


def _grid(claim: Claim, found: Mapping[str, Any]) -> TierResult:
    grid = found["grid_workgroups"]
    if grid is None:
        return TierResult(Verdict.NOT_MEASURED, None, "the record holds no grid of this capture", AUDIT)
    agrees = _triple(claim.published) == tuple(grid)
    reason = f"the captured launch has {_times(grid)} workgroups"
    return TierResult(
        Verdict.REPRODUCED if agrees else Verdict.CONTRADICTED,
        _times(grid),
        reason + ("" if agrees else f"; the claimed shape launches {_times(claim.published)}"),
    )


def _waves(size: Any) -> int:
    return -(-int(size[0] * size[1] * size[2]) // 64)


def _workgroup(claim: Claim, found: Mapping[str, Any]) -> TierResult:
    size = found["workgroup_size"]
    if size is None:
        return TierResult(
            Verdict.NOT_MEASURED, None, "the record holds no workgroup size of this capture", AUDIT
        )
    agrees = _triple(claim.published) == tuple(size)
    return TierResult(
        Verdict.REPRODUCED if agrees else Verdict.CONTRADICTED,
        _times(size),
        f"the captured launch has {_times(size)} work-items a workgroup ({_waves(size)} waves)"
        + ("" if agrees else f"; {said(claim.published)} is published"),
    )


def compile(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the compile tier says of `claim`: the code object's metadata and descriptor against the figure."""
    return compiled_resource(claim, bundle, evidence)


def execute(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """Nothing: the execute tier decides no such claim."""
    return None


def device(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What a recapture on this device says of `claim`: its listing, its launch and its wave log."""
    if claim.published is None:
        return None
    metric = metric_of(claim)
    found = recaptured(claim, evidence, "occupancy" if metric.startswith("occupancy") else metric)
    if isinstance(found, TierResult):
        return found
    if metric in ("occupancy", "occupancy_limiter"):
        return _occupancy(claim, bundle, found)
    if metric in ("vgpr", "agpr"):
        return _registers(claim, found, metric)
    if metric == "grid_workgroups":
        return _grid(claim, found)
    if metric == "workgroup_size":
        return _workgroup(claim, found)
    raw = {"lds": found["lds"], "sgpr": found["sgpr"]}.get(metric)
    return None if raw is None else _compare(claim, raw, f"the recapture has {raw}")
