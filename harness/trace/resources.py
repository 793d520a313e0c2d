"""Registers and LDS of a traced kernel, from what the profiler says beside the trace, and what it gets wrong.

Knows the rule for VGPR_Count on gfx950 (rocprofiler-sdk's arch_vgpr_count has no case for it: the field is
half of the unified allocation and the accumulation count is 0; ROCm/rocm-systems pull 5862). Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.compile.occupancy import Occupancy, allocated_vgprs, occupancy, unified_vgprs
from harness.trace.faults import Fault, fault
from harness.trace.isa import Registers

__all__ = ["Beside", "Vgprs", "limit", "vgprs"]

GFX9_EXTRA_SGPRS = 6
"""VCC, FLAT_SCRATCH and XNACK_MASK, which a gfx9 wave holds beside the SGPRs that its code names."""


@dataclass(frozen=True)
class Beside:
    """What files beside the trace say of its kernel; None where none does.

    vgpr, accum, sgpr: the profiler's fields. lds: static LDS in bytes, exact where `lds_exact` (a symbol
    record), else rounded up to 512. gfx: target name as the agent record has it.
    """

    gfx: str | None = None
    vgpr: int | None = None
    accum: int | None = None
    sgpr: int | None = None
    lds: int | None = None
    lds_exact: bool = False
    scratch: int | None = None
    workgroup: tuple[int, int, int] | None = None
    grid: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Vgprs:
    """Unified registers per lane: `allocated` is what a wave occupies, `rule` is how that was derived."""

    allocated: int | None
    rule: str
    fault: Fault | None


def vgprs(beside: Beside, named: Registers) -> Vgprs:
    """The allocation. `named` are the registers that the code uses; it can never be less than those."""
    used = allocated_vgprs(unified_vgprs(named.vgpr, named.agpr)) if named.vgpr else None
    field = beside.vgpr
    if field is None:
        return Vgprs(used, "highest register that the code names, rounded up to 8", None)
    stated = field + (beside.accum or 0)
    if beside.gfx != "gfx950":
        return Vgprs(stated, "the profiler's field", None)
    halved = not beside.accum and field > 0 and (field % 8 != 0 or named.vgpr > field or named.agpr > 0)
    if not halved:
        return Vgprs(stated, "the profiler's field", None)
    double = 2 * field
    message = (
        f"VGPR_Count {field} is half of the allocation: "
        + (f"the code names v{named.vgpr - 1}" if named.vgpr > field else f"{field} is no multiple of 8")
        + f", {double} registers are allocated"
    )
    return Vgprs(
        double,
        "twice the profiler's field",
        fault(
            "vgpr-field-halved", message, "read the kernel descriptor, or use a profiler with the gfx95 fix"
        ),
    )


def limit(beside: Beside, allocated: int | None, named: Registers) -> Occupancy | None:
    """Theoretical waves per SIMD on gfx950; None for another target or where a figure is missing or
    impossible."""
    if beside.gfx != "gfx950" or allocated is None or beside.workgroup is None or beside.lds is None:
        return None
    x, y, z = beside.workgroup
    try:
        return occupancy(
            vgprs=allocated,
            sgprs=named.sgpr + GFX9_EXTRA_SGPRS if named.sgpr else 0,
            lds_bytes=beside.lds,
            workgroup_size=x * y * z,
        )
    except ValueError:
        return None
