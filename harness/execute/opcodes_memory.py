"""Memory opcodes as data: what each moves, and the pure functions of atomics and transposed reads.

References: CDNA4 ISA, "Vector Memory Buffer Instructions", "Flat Memory Instructions", "Data Share
Instructions", "Scalar Memory Instructions".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.execute.floats import bf16_bits, bf16_value, ieee_max, ieee_min
from harness.execute.table import Op, register

__all__ = ["ATOMICS", "MOVES", "Move", "transpose_read"]

U16, U32, U64, I32, I64 = np.uint16, np.uint32, np.uint64, np.int32, np.int64


@dataclass(frozen=True)
class Move:
    """One memory opcode.

    kind: load, store, atomic or transpose. unit: bytes of one memory unit; count: units a lane; pairs 2 for
    the
    READ2 and WRITE2 forms, whose two addresses are `stride` units apart per offset step. signed: sign-extend
    a load. half: 0 or 1 for D16 forms (that half of the register, the other kept), None else.
    """

    kind: str
    unit: int
    count: int
    signed: bool = False
    half: int | None = None
    pairs: int = 1
    stride: int = 1
    returns: bool = False
    lds: bool = False


MOVES: dict[str, Move] = {}
ATOMICS: dict[str, Callable[[Any, Any], Any]] = {}


def _move(
    name: str, unit: str, move: Move, reference: str, function: Callable[..., Any] | None = None
) -> None:
    MOVES[name] = move
    outs = ("data",) if move.kind in ("load", "transpose") or move.returns else ()
    ins = ("address",) if move.kind in ("load", "transpose") else ("address", "data")
    register(Op(name, unit, outs, ins, function or _identity, reference))


def _identity(data: Any) -> Any:
    return data


def _vector(prefix: str, unit: str, reference: str) -> None:
    for size, name, signed in (
        (1, "ubyte", False),
        (1, "sbyte", True),
        (2, "ushort", False),
        (2, "sshort", True),
    ):
        _move(f"{prefix}_load_{name}", unit, Move("load", size, 1, signed), reference)
    for name, size, signed in (("ubyte", 1, False), ("sbyte", 1, True), ("short", 2, False)):
        _move(f"{prefix}_load_{name}_d16", unit, Move("load", size, 1, signed, half=0), reference)
        _move(f"{prefix}_load_{name}_d16_hi", unit, Move("load", size, 1, signed, half=1), reference)
    for count, name in ((1, "dword"), (2, "dwordx2"), (3, "dwordx3"), (4, "dwordx4")):
        _move(f"{prefix}_load_{name}", unit, Move("load", 4, count), reference)
        _move(f"{prefix}_store_{name}", unit, Move("store", 4, count), reference)
    for name, size in (("byte", 1), ("short", 2)):
        _move(f"{prefix}_store_{name}", unit, Move("store", size, 1), reference)
        _move(f"{prefix}_store_{name}_d16_hi", unit, Move("store", size, 1, half=1), reference)


_vector("buffer", "vmem", "Vector Memory Buffer Instructions")
_vector("global", "vmem", "Flat Memory Instructions")
_vector("flat", "vmem", "Flat Memory Instructions")
_vector("scratch", "vmem", "Flat Memory Instructions; addresses of each lane's own scratch")
for _count, _name in ((1, "dword"), (3, "dwordx3"), (4, "dwordx4")):
    _move(
        f"global_load_lds_{_name}",
        "vmem",
        Move("load", 4, _count, lds=True),
        "Flat Memory Instructions; into LDS at M0",
    )
for _name, _size in (("ubyte", 1), ("ushort", 2)):
    _move(
        f"global_load_lds_{_name}",
        "vmem",
        Move("load", _size, 1, lds=True),
        "Flat Memory Instructions; into LDS at M0",
    )


def _signed(function: Any) -> Any:
    def run(old: Any, new: Any) -> Any:
        kind = I32 if old.dtype.itemsize == 4 else I64
        return function(old.view(kind), new.view(kind)).view(old.dtype)

    return run


def _f32(function: Any) -> Any:
    return lambda old, new: function(old.view(np.float32), new.view(np.float32)).astype(np.float32).view(U32)


def _f64(function: Any) -> Any:
    return lambda old, new: function(old.view(np.float64), new.view(np.float64)).view(U64)


def pk_add_bf16(old: Any, new: Any) -> Any:
    """Two bf16 sums, each rounded to nearest even."""
    low = bf16_bits(bf16_value(old & U32(0xFFFF)) + bf16_value(new & U32(0xFFFF)))
    high = bf16_bits(bf16_value(old >> U32(16)) + bf16_value(new >> U32(16)))
    return (low | (high << U32(16))).astype(U32)


def pk_add_f16(old: Any, new: Any) -> Any:
    """Two f16 sums, each rounded to nearest even."""
    a, b = np.ascontiguousarray(old).view(np.float16), np.ascontiguousarray(new).view(np.float16)
    return (a + b).view(U32)


def _add(old: Any, new: Any) -> Any:
    return old + new


_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "swap": lambda old, new: new,
    "add": _add,
    "sub": lambda old, new: old - new,
    "smin": _signed(np.minimum),
    "umin": np.minimum,
    "smax": _signed(np.maximum),
    "umax": np.maximum,
    "and": lambda old, new: old & new,
    "or": lambda old, new: old | new,
    "xor": lambda old, new: old ^ new,
    "inc": lambda old, new: np.where(old >= new, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, new: np.where((old == 0) | (old > new), new, old - old.dtype.type(1)),
}
for _prefix in ("buffer", "global", "flat"):
    for _name, _function in _FUNCTIONS.items():
        for _suffix, _unit in (("", 4), ("_x2", 8)):
            ATOMICS[f"{_prefix}_atomic_{_name}{_suffix}"] = _function
            _move(
                f"{_prefix}_atomic_{_name}{_suffix}",
                "vmem",
                Move("atomic", _unit, 1, returns=True),
                "Vector Memory; returns the old value with SC0",
                _function,
            )
    for _name, _function in (
        ("add_f32", _f32(_add)),
        ("pk_add_f16", pk_add_f16),
        ("pk_add_bf16", pk_add_bf16),
    ):
        ATOMICS[f"{_prefix}_atomic_{_name}"] = _function
        _move(
            f"{_prefix}_atomic_{_name}",
            "vmem",
            Move("atomic", 4, 1, returns=True),
            "Vector Memory; returns the old value with SC0",
            _function,
        )
    for _name, _function in (
        ("add_f64", _f64(_add)),
        ("min_f64", _f64(ieee_min)),
        ("max_f64", _f64(ieee_max)),
    ):
        ATOMICS[f"{_prefix}_atomic_{_name}"] = _function
        _move(
            f"{_prefix}_atomic_{_name}",
            "vmem",
            Move("atomic", 8, 1, returns=True),
            "Vector Memory; returns the old value with SC0",
            _function,
        )

_DS = "Data Share Instructions"
for _name, _size, _flag in (("u8", 1, False), ("i8", 1, True), ("u16", 2, False), ("i16", 2, True)):
    _move(f"ds_read_{_name}", "lds", Move("load", _size, 1, _flag), _DS)
    if _name != "i16":
        _short = _name if _size == 1 else "u16"
        _move(f"ds_read_{_short}_d16", "lds", Move("load", _size, 1, _flag, half=0), _DS)
        _move(f"ds_read_{_short}_d16_hi", "lds", Move("load", _size, 1, _flag, half=1), _DS)
for _bits, _count in ((32, 1), (64, 2), (96, 3), (128, 4)):
    _move(f"ds_read_b{_bits}", "lds", Move("load", 4, _count), _DS)
    _move(f"ds_write_b{_bits}", "lds", Move("store", 4, _count), _DS)
for _bits, _count in ((32, 1), (64, 2)):
    for _form, _stride in (("", 1), ("st64", 64)):
        _move(f"ds_read2{_form}_b{_bits}", "lds", Move("load", 4, _count, pairs=2, stride=_stride), _DS)
        _move(f"ds_write2{_form}_b{_bits}", "lds", Move("store", 4, _count, pairs=2, stride=_stride), _DS)
for _bits in (8, 16):
    _move(f"ds_write_b{_bits}", "lds", Move("store", _bits // 8, 1), _DS)
    _move(f"ds_write_b{_bits}_d16_hi", "lds", Move("store", _bits // 8, 1, half=1), _DS)
_DS_ATOMIC = {
    "add_u32": "add",
    "sub_u32": "sub",
    "min_i32": "smin",
    "max_i32": "smax",
    "min_u32": "umin",
    "max_u32": "umax",
    "and_b32": "and",
    "or_b32": "or",
    "xor_b32": "xor",
    "inc_u32": "inc",
    "dec_u32": "dec",
}
for _name, _key in _DS_ATOMIC.items():
    for _wide in (False, True):
        _full = _name.replace("32", "64") if _wide else _name
        _base, _type = _full.rsplit("_", 1)
        for _returns, _spelled in ((False, f"ds_{_full}"), (True, f"ds_{_base}_rtn_{_type}")):
            ATOMICS[_spelled] = _FUNCTIONS[_key]
            _move(
                _spelled, "lds", Move("atomic", 8 if _wide else 4, 1, returns=_returns), _DS, _FUNCTIONS[_key]
            )
for _name, _function in (
    ("add_f32", _f32(_add)),
    ("min_f32", _f32(ieee_min)),
    ("max_f32", _f32(ieee_max)),
    ("pk_add_f16", pk_add_f16),
    ("pk_add_bf16", pk_add_bf16),
):
    ATOMICS[f"ds_{_name}"] = _function
    _move(f"ds_{_name}", "lds", Move("atomic", 4, 1), _DS, _function)
for _unit, _type in ((4, "b32"), (8, "b64")):
    ATOMICS[f"ds_wrxchg_rtn_{_type}"] = _FUNCTIONS["swap"]
    _move(f"ds_wrxchg_rtn_{_type}", "lds", Move("atomic", _unit, 1, returns=True), _DS, _FUNCTIONS["swap"])


def transpose_read(words: list[Any], bits: int) -> list[Any]:
    """DS_READ_B64_TR_B{16,8,4}: within 16 lanes, rows become columns.

    words: the 64 bits that each lane read, as two uint32 [waves, 64]. With n = 64 / bits elements a lane, 16
    lanes hold n rows of 16 elements (16 / n lanes a row); lane i receives column i, one element of each row.
    """
    n = 64 // bits
    data = np.ascontiguousarray(np.stack(words, axis=-1))
    if bits == 4:
        raw = data.view(np.uint8)
        parts = np.stack((raw & 15, raw >> 4), axis=-1).reshape(*raw.shape[:-1], 16)
    else:
        parts = data.view(U16 if bits == 16 else np.uint8)
    waves = parts.shape[0]
    tiles = parts.reshape(waves, 4, n, 16)  # [wave, 16-lane group, row, column]
    turned = np.ascontiguousarray(tiles.transpose(0, 1, 3, 2)).reshape(waves, 64, n)
    if bits == 4:
        turned = np.ascontiguousarray(turned[..., 0::2] | (turned[..., 1::2] << 4))
    out = turned.view(U32).reshape(waves, 64, 2)
    return [out[..., 0], out[..., 1]]


for _bits in (16, 8, 4):
    _move(
        f"ds_read_b64_tr_b{_bits}",
        "lds",
        Move("transpose", 4, 2),
        _DS,
        lambda words, bits=_bits: transpose_read(words, bits),
    )

for _count, _suffix in ((1, ""), (2, "x2"), (4, "x4"), (8, "x8"), (16, "x16")):
    _move(f"s_load_dword{_suffix}", "smem", Move("load", 4, _count), "Scalar Memory Instructions")
    _move(
        f"s_buffer_load_dword{_suffix}",
        "smem",
        Move("load", 4, _count),
        "Scalar Memory Instructions; clamped",
    )
