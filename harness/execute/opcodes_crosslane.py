"""Opcodes that move values between lanes. Arrays are [waves, 64]; every function is pure.

References: CDNA4 ISA, "VOP1/VOP3 Instructions" (permlane swaps, readlane), "DS Instructions" (swizzle,
bpermute).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from harness.execute.table import Op, register

U32 = np.uint32

__all__ = ["bpermute", "permlane_swap", "permute", "swizzle_lanes"]


def permlane_swap(rows: int) -> Any:
    """V_PERMLANE{16,32}_SWAP_B32: odd rows of `rows` lanes of the first exchange with even rows of the
    second.
    """

    def run(a: Any, b: Any) -> Any:
        shape = (*a.shape[:-1], 64 // rows // 2, 2, rows)
        x, y = a.reshape(shape).copy(), b.reshape(shape).copy()
        kept = x[..., 1, :].copy()
        x[..., 1, :] = y[..., 0, :]
        y[..., 0, :] = kept
        return x.reshape(a.shape), y.reshape(b.shape)

    return run


def _swap_name(rows: int) -> None:
    register(
        Op(
            f"v_permlane{rows}_swap_b32",
            "swap",
            ("u32", "u32"),
            ("u32", "u32"),
            permlane_swap(rows),
            "VOP1 Instructions; both registers are read and written; lanes that EXEC turns off keep theirs",
        )
    )


_swap_name(16)
_swap_name(32)


@cache
def swizzle_lanes(offset: int) -> Any:
    """Source lane of each lane for DS_SWIZZLE_B32's offset field.

    Bit 15 set: quad permute by offset[7:0]; else within 32 lanes ((lane & and) | or) ^ xor with and
    offset[4:0],
    or offset[9:5], xor offset[14:10]. KeyError for the FFT and rotate modes, which no compiler here emits.
    """
    lane = np.arange(64)
    if offset >= 0xC000:
        raise KeyError(f"swizzle offset 0x{offset:x}")
    if offset & 0x8000:
        return lane // 4 * 4 + ((offset >> (2 * (lane % 4))) & 3)
    return (lane & 32) | ((((lane & 31) & (offset & 31)) | (offset >> 5 & 31)) ^ (offset >> 10 & 31))


def swizzle(value: Any, active: Any, offset: int) -> Any:
    """Value of the source lane; 0 where that lane is inactive."""
    source = swizzle_lanes(offset)
    return np.where(active[:, source], value[:, source], U32(0))


def bpermute(index: Any, value: Any, active: Any, offset: int) -> Any:
    """DS_BPERMUTE_B32: lane i takes the value of lane (index + offset) / 4 mod 64; 0 where that is
    inactive.
    """
    source = ((index + U32(offset)) >> U32(2)) & U32(63)
    source = source.astype(np.int64)
    got = np.take_along_axis(value, source, axis=1)
    return np.where(np.take_along_axis(active, source, axis=1), got, U32(0))


def permute(index: Any, value: Any, active: Any, offset: int) -> Any:
    """DS_PERMUTE_B32: lane i sends its value to lane (index + offset) / 4 mod 64; the highest sender wins."""
    target = (((index + U32(offset)) >> U32(2)) & U32(63)).astype(np.int64)
    out = np.zeros_like(value)
    for lane in range(64):
        rows = np.flatnonzero(active[:, lane])
        out[rows, target[rows, lane]] = value[rows, lane]
    return out


register(Op("ds_swizzle_b32", "lanes", ("u32",), ("u32", "active", "offset"), swizzle, "DS Instructions"))
register(
    Op("ds_bpermute_b32", "lanes", ("u32",), ("u32", "u32", "active", "offset"), bpermute, "DS Instructions")
)
register(
    Op("ds_permute_b32", "lanes", ("u32",), ("u32", "u32", "active", "offset"), permute, "DS Instructions")
)


def first_lane(active: Any) -> Any:
    """Lowest active lane of each wave, lane 0 where none is."""
    return np.argmax(active, axis=1)


def readfirstlane(value: Any, active: Any) -> Any:
    """V_READFIRSTLANE_B32: the value of the lowest active lane, [waves]."""
    return np.take_along_axis(value, first_lane(active)[:, None], axis=1)[:, 0]


def readlane(value: Any, lane: Any) -> Any:
    """V_READLANE_B32: the value of one lane whatever EXEC says, [waves]."""
    at = np.broadcast_to(np.asarray(lane).astype(np.int64) & 63, value.shape[:1])
    return np.take_along_axis(value, at[:, None], axis=1)[:, 0]


def writelane(old: Any, value: Any, lane: Any) -> Any:
    """V_WRITELANE_B32: one lane replaced whatever EXEC says."""
    out = old.copy()
    at = np.broadcast_to(np.asarray(lane).astype(np.int64) & 63, out.shape[:1])
    out[np.arange(out.shape[0]), at] = np.broadcast_to(value, out.shape[:1])
    return out


register(
    Op("v_readfirstlane_b32", "readlane", ("s32",), ("u32", "active"), readfirstlane, "VOP1 Instructions")
)
register(Op("v_readlane_b32", "readlane", ("s32",), ("u32", "scalar"), readlane, "VOP3 Instructions"))
register(
    Op("v_writelane_b32", "readlane", ("u32",), ("dst", "scalar", "scalar"), writelane, "VOP3 Instructions")
)


def mbcnt(mask: Any, add: Any, high: bool) -> Any:
    """V_MBCNT_{LO,HI}_U32_B32: bits of the mask below this lane, in its half, plus `add`."""
    lane = np.arange(64)
    below = (
        np.where(lane >= 32, 0xFFFFFFFF, (1 << (lane & 31)) - 1)
        if not high
        else np.where(lane >= 32, (1 << (lane & 31)) - 1, 0)
    )
    bits = np.asarray(mask) & below.astype(U32)
    counts = np.zeros(np.broadcast_shapes(bits.shape), U32)
    for shift in range(0, 32, 8):
        counts = counts + _BITS[(bits >> U32(shift)) & U32(0xFF)]
    return counts + add


_BITS = np.array([bin(value).count("1") for value in range(256)], U32)
for _name, _high in (("lo", False), ("hi", True)):
    register(
        Op(
            f"v_mbcnt_{_name}_u32_b32",
            "valu",
            ("u32",),
            ("u32", "u32"),
            lambda a, b, high=_high: mbcnt(a, b, high),
            "VOP3A & VOP3B Instructions",
        )
    )
