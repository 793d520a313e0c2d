"""How many waves of a kernel fit on one gfx950 SIMD, how many workgroups on one CU, and what limits them.

Pure arithmetic over four numbers of a code object. Must not know where they came from, nor torch or numpy.

Sources of the rules: LLVM AMDGPUBaseInfo.cpp (getVGPRAllocGranule, getTotalNumVGPRs, getMaxWavesPerEU,
getMaxWorkGroupsPerCU, getNumExtraSGPRs' table), LLVM AMDGPUUsage (granulated LDS size of GFX950: 320 dwords),
and the agent description of an MI350X (4 SIMDs a CU, 160 KiB of LDS).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["LIMITS", "Occupancy", "allocated_vgprs", "occupancy", "unified_vgprs"]

WAVE = 64
SIMDS_PER_CU = 4
MAX_WAVES_PER_SIMD = 8
MAX_WAVES_PER_CU = SIMDS_PER_CU * MAX_WAVES_PER_SIMD
MAX_WORKGROUP = 1024
VGPRS_PER_SIMD_LANE = 512
VGPR_GRANULE = 8
LDS_PER_CU = 163_840
LDS_GRANULE = 1280
BARRIERS_PER_CU = 16
SGPRS_FOR_EIGHT_WAVES = 100

LIMITS: tuple[str, ...] = ("registers", "lds", "workgroup slots", "barriers", "sgpr")
"""What can hold occupancy below the wave slots; where none does, the limiter is "wave slots"."""


@dataclass(frozen=True)
class Occupancy:
    """Theoretical residency on an otherwise empty CU; a small grid may stay below it.

    `limits` maps each of `LIMITS` to the waves per SIMD that it alone would allow. `limiters` are those that
    bind, in the order of `LIMITS`; `("wave slots",)` where nothing but the hardware maximum does.
    `workgroups_per_cu` is 0 where one workgroup does not fit at all.
    """

    waves_per_simd: int
    workgroups_per_cu: int
    limits: Mapping[str, int]
    limiters: tuple[str, ...]

    @property
    def limiter(self) -> str:
        """The first of `limiters`."""
        return self.limiters[0]


def _round_up(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def unified_vgprs(arch: int, acc: int) -> int:
    """Registers of the unified file that a wave addresses: AccVGPRs start at the next multiple of 4.

    LLVM AMDGPUBaseInfo.cpp, getTotalNumVGPRs, for targets with the gfx90a instructions.
    """
    return _round_up(arch, 4) + acc if acc else arch


def allocated_vgprs(total: int) -> int:
    """`total` rounded up to the allocation granule of 8; at least one granule is always allocated."""
    return max(VGPR_GRANULE, _round_up(total, VGPR_GRANULE))


def occupancy(*, vgprs: int, sgprs: int, lds_bytes: int, workgroup_size: int) -> Occupancy:
    """Occupancy of a kernel on gfx950.

    vgprs: arch and acc registers of a lane together (`unified_vgprs` or the descriptor's allocation), 0..512.
    sgprs: scalar registers that a wave uses. lds_bytes: static plus dynamic LDS of one workgroup.
    workgroup_size: work-items, 1..1024. Raises ValueError for values that no gfx950 kernel can have.
    """
    if not 0 <= vgprs <= VGPRS_PER_SIMD_LANE:
        raise ValueError(f"vgprs must be within 0..{VGPRS_PER_SIMD_LANE} (got {vgprs})")
    if not 1 <= workgroup_size <= MAX_WORKGROUP:
        raise ValueError(f"workgroup_size must be within 1..{MAX_WORKGROUP} (got {workgroup_size})")
    if sgprs < 0 or lds_bytes < 0:
        raise ValueError(f"sgprs and lds_bytes must not be negative (got {sgprs}, {lds_bytes})")
    waves = -(-workgroup_size // WAVE)
    by_lds = LDS_PER_CU // _round_up(lds_bytes, LDS_GRANULE) if lds_bytes else MAX_WAVES_PER_CU
    by_slots = MAX_WAVES_PER_CU // waves
    by_barriers = BARRIERS_PER_CU if waves > 1 else MAX_WAVES_PER_CU
    limits = {
        "registers": min(MAX_WAVES_PER_SIMD, VGPRS_PER_SIMD_LANE // allocated_vgprs(vgprs)),
        "lds": _waves_per_simd(by_lds, waves),
        "workgroup slots": _waves_per_simd(by_slots, waves),
        "barriers": _waves_per_simd(by_barriers, waves),
        "sgpr": MAX_WAVES_PER_SIMD if sgprs <= SGPRS_FOR_EIGHT_WAVES else MAX_WAVES_PER_SIMD - 1,
    }
    fit = min(by_lds, by_slots, by_barriers)
    workgroups = min(fit, min(limits["registers"], limits["sgpr"]) * SIMDS_PER_CU // waves)
    least = min(limits.values())
    binding = tuple(name for name in LIMITS if limits[name] == least)
    limiters = binding if least < MAX_WAVES_PER_SIMD else ("wave slots",)
    return Occupancy(least if workgroups else 0, workgroups, limits, limiters)


def _waves_per_simd(workgroups: int, waves: int) -> int:
    """Waves on the fullest SIMD when `workgroups` of `waves` waves each are spread over the CU."""
    return min(MAX_WAVES_PER_SIMD, -(-workgroups * waves // SIMDS_PER_CU))
