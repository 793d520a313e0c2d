"""Resource claims against compiled code objects: what is used, what is allocated, and what follows. Pure.

Registers used come from the metadata note (LLVM AMDGPUUsage, Code Object Metadata), what the hardware
allocates from the kernel descriptor, which can be larger; occupancy from what is allocated
(`harness.compile.occupancy`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.bundle import Bundle, Claim
from harness.kinds._compiled import entry, launch_of
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

__all__ = ["compiled_resource"]


def compiled_resource(claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What the compiled code object says of a published figure; None where a code object does not hold it."""
    metric = str(claim.fields["metric"])
    if metric == "grid_workgroups" or claim.published is None:
        return None
    launch = launch_of(claim, evidence)
    if isinstance(launch, TierResult):
        return launch
    found = entry(launch, claim, bundle)
    if isinstance(found, TierResult):
        return found
    value, reason = _measured(metric, found)
    if value is None:
        return None
    if metric == "occupancy_limiter":
        agrees = claim.published in found["occupancy"]["limiters"]
    elif metric == "workgroup_size":
        if _product(claim.published) < int(value):
            reason += "; a launch may have fewer, and a code object does not say"
            return TierResult(
                Verdict.NOT_MEASURED, value, reason, remedy="the record tier reads the traced launch"
            )
        agrees = _product(claim.published) == value
    else:
        agrees = _within(claim, value)
    if not agrees:
        reason += f"; {claim.published} is published" + _why(metric, claim.published, found)
    numbers = {
        "registers": found["registers"],
        "occupancy": found["occupancy"],
        "lds_bytes": found["lds_bytes"],
    }
    return TierResult(Verdict.REPRODUCED if agrees else Verdict.CONTRADICTED, value, reason, numbers=numbers)


def _measured(metric: str, found: Mapping[str, Any]) -> tuple[int | str | None, str]:
    """The figure and the words for it."""
    registers, fits = found["registers"], found["occupancy"]
    allocated = registers["vgpr_allocated"]
    if metric == "vgpr":
        used, highest = _vgprs(registers), f"highest v{registers['highest_v']}"
        return used, f"the code object uses {used} VGPRs ({highest}), {allocated} are allocated"
    if metric == "agpr":
        named = registers["highest_a"] + 1
        return named, f"the listing names {named} AGPRs, {registers['agpr']} are counted by the metadata"
    if metric == "sgpr":
        used = registers["sgpr"]
        return used, f"the code object uses {used} SGPRs (highest s{registers['highest_s']})"
    if metric == "lds":
        return found["lds_bytes"], f"the descriptor asks for {found['lds_bytes']} B of LDS"
    if metric == "scratch":
        return found["scratch_bytes"], f"the descriptor asks for {found['scratch_bytes']} B of scratch"
    if metric == "spills":
        spills = registers["vgpr_spills"] + registers["sgpr_spills"]
        return spills, f"{registers['vgpr_spills']} VGPRs and {registers['sgpr_spills']} SGPRs are spilled"
    if metric == "workgroup_size":
        return found["workgroup_size"], f"the kernel is compiled for workgroups of {found['workgroup_size']}"
    if metric in ("occupancy", "occupancy_limiter"):
        given = f"{allocated} of 512 VGPRs allocated, {found['lds_bytes']} B of LDS"
        room = f"{fits['waves_per_simd']} waves/SIMD on gfx950, {fits['workgroups_per_cu']} workgroups/CU"
        limits = ", ".join(fits["limiters"])
        reason = f"{given}, workgroup {found['workgroup_size']}: {room} (limit: {limits})"
        return (fits["waves_per_simd"] if metric == "occupancy" else fits["limiters"][0]), reason
    return None, ""


def _vgprs(registers: Mapping[str, int]) -> int:
    """Arch VGPRs used: the metadata counts both kinds where there are AGPRs (AGPRs begin at a multiple
    of 4).
    """
    return registers["vgpr"] - registers["agpr"]


def _within(claim: Claim, value: int | str) -> bool:
    published = claim.published
    if isinstance(published, list) and len(published) == 2 and isinstance(value, int):
        return bool(published[0] <= value <= published[1])
    if claim.tolerance is not None and isinstance(value, int):
        return bool(abs(value - published) <= claim.tolerance)
    return bool(published == value)


def _product(published: Any) -> int:
    if isinstance(published, int):
        return published
    out = 1
    for part in published:
        out *= int(part)
    return out


def _why(metric: str, published: Any, found: Mapping[str, Any]) -> str:
    """Where a published figure that is wrong comes from, where that can be told."""
    registers = found["registers"]
    allocated = registers["vgpr_allocated"]
    if not isinstance(published, int):
        return ""
    if metric == "vgpr" and published * 2 == allocated:
        return ": half of the allocation, as this profiler's VGPR_Count is on gfx950"
    used = _vgprs(registers)
    if metric == "vgpr" and used < published <= allocated:
        return ", within the allocation but not used"
    if metric == "vgpr" and 0 < used - published <= 3:
        return f", {used - published} low"
    if metric == "occupancy" and allocated <= 512 and published == max(1, 256 // allocated):
        return f" = 256 // {allocated}, as if the file had 256 registers: the rule of another architecture"
    if metric == "sgpr" and published == 112:
        return ", what the profiler reports for every kernel"
    return ""
