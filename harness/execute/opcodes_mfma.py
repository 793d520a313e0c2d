"""Matrix opcodes. Operands are registers as a list of uint32 [waves, 64]; the result is a list of float32
[waves, 64].

Layouts (CDNA4 ISA, "Matrix Arithmetic Instructions", and AMD's Matrix Instruction Calculator): with R rows
in a block of 16 or 32, lane l holds row (A) or column (B) l mod R, and the k indices of group l div R,
consecutive in the registers. The result has column l mod R; its rows are 4 * (l div R) + r in 16x16, and
8 * (r div 4) + 4 * (l div 32) + r mod 4 in 32x32. Products are exact and summed in float64, then rounded
once; the hardware's own order and width of accumulation is not documented.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from harness.execute.floats import bf16_value, decode_table
from harness.execute.table import Op, register

__all__ = ["Matrix", "elements", "matmul"]

F32, F64, U32 = np.float32, np.float64, np.uint32
_REFERENCE = "Matrix Arithmetic Instructions (VOP3P-MAI)"


@dataclass(frozen=True)
class Matrix:
    """Shape of one matrix opcode: rows x rows result, depth k, element formats of A and B; blocks of old
    forms.

    Format "f8f6f4": the instruction's CBSZ and BLGP fields choose. kind: "f32" or "i32" accumulators.
    """

    rows: int
    depth: int
    a: str
    b: str
    scaled: bool = False
    kind: str = "f32"


_BITS = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4, "bf16": 16, "f16": 16, "f32": 32, "i8": 8}


def elements(registers: list[Any], form: str, count: int) -> Any:
    """`count` elements of format `form` from registers, as float64 [waves, 64, count]."""
    words = np.stack(np.broadcast_arrays(*registers), axis=-1)
    bits = _BITS[form]
    if bits == 32:
        return np.ascontiguousarray(words).view(F32).astype(F64)[..., :count]
    if bits == 16:
        halves = np.ascontiguousarray(words).view(np.uint16)[..., :count]
        return (bf16_value(halves) if form == "bf16" else halves.view(np.float16)).astype(F64)
    raw = np.ascontiguousarray(words).view(np.uint8)
    if form == "i8":
        return raw.view(np.int8)[..., :count].astype(F64)
    if bits == 8:
        codes = raw[..., :count]
    elif bits == 4:
        codes = np.stack((raw & 15, raw >> 4), axis=-1).reshape(*raw.shape[:-1], -1)[..., :count]
    else:
        flat = np.unpackbits(raw, axis=-1, bitorder="little")[..., : 6 * count]
        six = flat.reshape(*flat.shape[:-1], count, 6)
        codes = (six << np.arange(6, dtype=np.uint8)).sum(axis=-1).astype(np.uint8)
    return _wide_table(form)[codes]


@cache
def _wide_table(form: str) -> Any:
    return decode_table(form).astype(F64)


def _operand(values: Any, rows: int) -> Any:
    """[waves, 64, per lane] to [waves, rows, depth]."""
    waves, _, count = values.shape
    return values.reshape(waves, 64 // rows, rows, count).transpose(0, 2, 1, 3).reshape(waves, rows, -1)


def matmul(
    shape: Matrix, a: list[Any], b: list[Any], c: list[Any], formats: tuple[str, str], scales: Any = None
) -> list[Any]:
    """D = A B + C. `scales`: (A, B) e8m0 bytes [waves, 64], one for each lane's own block of elements, or
    None.
    """
    rows = shape.rows
    per_lane = shape.depth * rows // 64
    with np.errstate(all="ignore"):
        left, right = elements(a, formats[0], per_lane), elements(b, formats[1], per_lane)
        if scales is not None:
            left = left * _e8m0(scales[0])[..., None]
            right = right * _e8m0(scales[1])[..., None]
        product = np.matmul(_operand(left, rows), _operand(right, rows).transpose(0, 2, 1))
        waves = product.shape[0]
        if rows == 16:
            tiles = product.reshape(waves, 4, 4, 16).transpose(2, 0, 1, 3)  # [r, wave, group, column]
        else:
            tiles = product.reshape(waves, 4, 2, 4, 32).transpose(1, 3, 0, 2, 4).reshape(16, waves, 2, 32)
        tiles = tiles.reshape(len(tiles), waves, 64)
        if shape.kind == "i32":
            return [
                (tile.astype(np.int64) + np.asarray(old).view(np.int32)).astype(np.int32).view(U32)
                for tile, old in zip(tiles, c, strict=True)
            ]
        return [
            (tile + np.asarray(old).view(F32)).astype(F32).view(U32)
            for tile, old in zip(tiles, c, strict=True)
        ]


def _e8m0(codes: Any) -> Any:
    """OCP MX scale: 2^(code - 127), NaN for 255."""
    value = np.ldexp(1.0, codes.astype(np.int32) - 127)
    return np.where(codes == 255, np.nan, value)


SHAPES: dict[str, Matrix] = {}


def _matrix(name: str, shape: Matrix) -> None:
    SHAPES[name] = shape
    register(Op(name, "mfma", ("tile",), ("a", "b", "tile"), matmul, _REFERENCE))


for _rows, _depth in ((16, 16), (32, 8)):
    for _form, _suffix in (("f16", "f16"), ("bf16", "bf16_1k")):
        _matrix(f"v_mfma_f32_{_rows}x{_rows}x{_depth}_{_suffix}", Matrix(_rows, _depth, _form, _form))
        if _suffix == "bf16_1k":
            _matrix(f"v_mfma_f32_{_rows}x{_rows}x{_depth}_bf16", Matrix(_rows, _depth, _form, _form))
for _rows, _depth in ((16, 32), (32, 16)):
    for _form in ("f16", "bf16"):
        _matrix(f"v_mfma_f32_{_rows}x{_rows}x{_depth}_{_form}", Matrix(_rows, _depth, _form, _form))
    for _left in ("fp8", "bf8"):
        for _right in ("fp8", "bf8"):
            _matrix(
                f"v_mfma_f32_{_rows}x{_rows}x{_depth}_{_left}_{_right}", Matrix(_rows, _depth, _left, _right)
            )
    _matrix(f"v_mfma_i32_{_rows}x{_rows}x{_depth}_i8", Matrix(_rows, _depth, "i8", "i8", kind="i32"))
    _matrix(f"v_mfma_i32_{_rows}x{_rows}x{2 * _depth}_i8", Matrix(_rows, 2 * _depth, "i8", "i8", kind="i32"))
for _rows, _depth in ((16, 4), (32, 2)):
    _matrix(f"v_mfma_f32_{_rows}x{_rows}x{_depth}_f32", Matrix(_rows, _depth, "f32", "f32"))
for _rows, _depth in ((16, 128), (32, 64)):
    _matrix(f"v_mfma_f32_{_rows}x{_rows}x{_depth}_f8f6f4", Matrix(_rows, _depth, "f8f6f4", "f8f6f4"))
    _matrix(
        f"v_mfma_scale_f32_{_rows}x{_rows}x{_depth}_f8f6f4",
        Matrix(_rows, _depth, "f8f6f4", "f8f6f4", scaled=True),
    )
