"""Operands: from raw source codes to functions that fetch arrays, and from destination codes to ones that
store.

The codes are those of the ISA document's operand tables. A fetch returns [waves, 64] for vector registers,
[waves, 1] for scalar ones in a vector instruction, [waves] in a scalar instruction, and a 0-d array for
constants; numpy's broadcasting does the rest. Must not know opcodes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from harness.execute.state import EXEC, VCC, Array, State, bits_of, lanes_of

__all__ = [
    "Fetch",
    "Store",
    "constant",
    "fetch_mask",
    "fetch_scalar",
    "fetch_vector",
    "store_mask",
    "store_scalar",
    "store_vector",
]

Fetch = Callable[[], Any]
Store = Callable[[Any], None]

_FLOATS = {
    240: 0.5,
    241: -0.5,
    242: 1.0,
    243: -1.0,
    244: 2.0,
    245: -2.0,
    246: 4.0,
    247: -4.0,
    248: 0.15915494309189532,
}
_WIDE = ("u64", "i64", "f64")
_VIEW = {
    "u32": np.uint32,
    "i32": np.int32,
    "f32": np.float32,
    "u64": np.uint64,
    "i64": np.int64,
    "f64": np.float64,
    "u16": np.uint16,
    "i16": np.int16,
    "f16": np.float16,
}


def constant(code: int, kind: str, literal: int | None) -> Any:
    """The 0-d array of an inline constant or literal, typed as `kind`; None where `code` names no constant.

    Integers are sign-extended; a float constant has the bits of its type; a literal is 32 bits,
    zero-extended to u64, sign-extended to i64, the high half of an f64.
    """
    bits: int
    wide = kind in _WIDE
    if code == 255:
        if literal is None:
            return None
        bits = literal
        if kind == "f64":
            bits = literal << 32
        elif kind == "i64" and literal & 0x80000000:
            bits = literal | 0xFFFFFFFF00000000
    elif 128 <= code <= 192:
        bits = code - 128
    elif 193 <= code <= 208:
        bits = (192 - code) & 0xFFFFFFFFFFFFFFFF
    elif code in _FLOATS:
        value = _FLOATS[code]
        if wide:
            bits = struct.unpack("<Q", struct.pack("<d", value))[0]
        elif kind in ("u16", "i16", "f16"):
            bits = struct.unpack("<H", struct.pack("<e", value))[0]
        else:
            bits = struct.unpack("<I", struct.pack("<f", value))[0]
    else:
        return None
    if wide:
        return np.array(bits & 0xFFFFFFFFFFFFFFFF, np.uint64).view(_VIEW[kind])
    if kind in ("u16", "i16", "f16"):
        return np.array(bits & 0xFFFF, np.uint16).view(_VIEW[kind])
    return np.array(bits & 0xFFFFFFFF, np.uint32).view(_VIEW.get(kind, np.uint32))


def fetch_scalar(st: State, code: int, kind: str, literal: int | None = None) -> Fetch:
    """A scalar-instruction source: [waves] arrays."""
    fixed = constant(code, kind, literal)
    if fixed is not None:
        return lambda: fixed
    if kind == "mask":
        kind = "u64"
    if code in (251, 252, 253):
        return _special(st, code, kind)
    if code >= 128:
        raise KeyError(f"scalar source {code}")
    view = _VIEW[kind]
    row = st.s[code].view(view if kind in ("u32", "i32", "f32") else np.uint32)
    if kind in ("u32", "i32", "f32"):
        return lambda: row[st.sel]
    high = st.s[code + 1]

    def pair() -> Any:
        low = row[st.sel].astype(np.uint64)
        low |= high[st.sel].astype(np.uint64) << np.uint64(32)
        return low.view(view)

    return pair


def _special(st: State, code: int, kind: str) -> Fetch:
    target = np.uint64 if kind in _WIDE else np.uint32

    def fetch() -> Any:
        if code == 253:
            value = st.scc[st.sel]
        elif code == 252:
            value = (st.s[EXEC][st.sel] | st.s[EXEC + 1][st.sel]) == 0
        else:
            value = (st.s[VCC][st.sel] | st.s[VCC + 1][st.sel]) == 0
        return value.astype(target).view(_VIEW[kind])

    return fetch


def fetch_vector(
    st: State, code: int, kind: str, literal: int | None = None, *, acc: bool = False, half: int = 0
) -> Fetch:
    """A vector-instruction source. `acc`: the register is an accumulation one; `half` 1: the high 16 bits."""
    if code < 256:
        fixed = constant(code, kind, literal)
        if fixed is not None:
            return lambda: fixed
        if kind in ("u16", "i16", "f16"):
            whole = fetch_scalar(st, code, "u32", literal)
            target = _VIEW[kind]
            return lambda: (
                ((whole()[:, None] >> np.uint32(16 * half)) & np.uint32(0xFFFF))
                .astype(np.uint16)
                .view(target)
            )
        scalar = fetch_scalar(st, code, kind, literal)
        return lambda: scalar()[:, None]
    number = code - 256 + (st.accum_offset if acc else 0)
    _within(st, number, 2 if kind in _WIDE else 1)
    if kind in ("u32", "i32", "f32"):
        row = st.v[number].view(_VIEW[kind])
        return lambda: row[st.sel]
    low = st.v[number]
    target = _VIEW[kind]
    if kind in ("u16", "i16", "f16"):
        halves = low.view(np.uint16)[:, half::2].view(target)
        return lambda: halves[st.sel]
    high = st.v[number + 1]

    def pair() -> Any:
        value = low[st.sel].astype(np.uint64)
        value |= high[st.sel].astype(np.uint64) << np.uint64(32)
        return value.view(target)

    return pair


def _within(st: State, number: int, count: int) -> None:
    if number < 0 or number + count > st.v.shape[0]:
        raise KeyError(f"vector register {number + count - 1} of {st.v.shape[0]} allocated")


def fetch_mask(st: State, code: int) -> Fetch:
    """A lane mask in an SGPR pair, as bool [waves, 64]; inline 0 and -1 too."""
    fixed = constant(code, "u64", None)
    if fixed is not None:
        value = int(fixed)
        lanes = np.array([[value >> lane & 1 for lane in range(64)]], np.bool_)
        return lambda: lanes
    low, high = st.s[code], st.s[code + 1]
    return lambda: lanes_of(low[st.sel], high[st.sel])


def store_scalar(st: State, code: int, kind: str) -> Store:
    """A scalar destination. A write to EXEC also renews its boolean form."""
    row = st.s[code]
    if code == 124 or code < 124 or code in (126, 127):
        pass
    else:
        raise KeyError(f"scalar destination {code}")
    wide = kind in ("u64", "i64", "f64", "mask")
    high = st.s[code + 1] if wide else None
    touches = code in (EXEC, EXEC + 1)

    def store(value: Any) -> None:
        if high is not None:
            bits = np.asarray(value).view(np.uint64)
            row[st.sel] = bits.astype(np.uint32)
            high[st.sel] = (bits >> np.uint64(32)).astype(np.uint32)
        else:
            row[st.sel] = np.asarray(value).view(np.uint32)
        if touches:
            st.refresh_exec()

    return store


def store_mask(st: State, code: int) -> Store:
    """A lane mask destination; lanes that are inactive become 0."""
    low, high = st.s[code], st.s[code + 1]
    touches = code == EXEC

    def store(lanes: Any) -> None:
        if not st.full:
            lanes = lanes & st.mask
        elif lanes.shape != (st.width, 64):
            lanes = np.broadcast_to(lanes, (st.width, 64))
        low[st.sel], high[st.sel] = bits_of(lanes)
        if touches:
            st.refresh_exec()

    return store


def store_row(st: State, row: Array) -> Store:
    """Store into one row [waves, 64] of any dtype under EXEC."""

    def store(value: Any) -> None:
        if st.full:
            row[st.sel] = value
        elif st.is_slice:
            np.copyto(row[st.sel], value, where=st.mask, casting="unsafe")
        else:
            kept = row[st.ids]
            np.copyto(kept, value, where=st.mask, casting="unsafe")
            row[st.ids] = kept

    return store


def store_vector(st: State, number: int, kind: str, *, acc: bool = False, half: int | None = None) -> Store:
    """A vector destination under EXEC.

    16-bit results: `half` None writes the low half and zeroes the high one (what gfx9 does), 0 or 1 writes
    one half and keeps the other.
    """
    number += st.accum_offset if acc else 0
    _within(st, number, 2 if kind in _WIDE else 1)
    if kind in ("u32", "i32", "f32"):
        return store_row(st, st.v[number].view(_VIEW[kind]))
    if kind in ("u16", "i16", "f16"):
        if half is not None:
            return store_row(st, st.v[number].view(np.uint16)[:, half::2].view(_VIEW[kind]))
        whole = store_row(st, st.v[number])
        view = _VIEW[kind]
        return lambda value: whole(np.asarray(value, dtype=view).view(np.uint16).astype(np.uint32))
    low, high = store_row(st, st.v[number]), store_row(st, st.v[number + 1])

    def pair(value: Any) -> None:
        bits = np.asarray(value).view(np.uint64)
        low(bits.astype(np.uint32))
        high((bits >> np.uint64(32)).astype(np.uint32))

    return pair
