"""A row softmax in Triton: one program a row, the whole row in registers. The instrument's own subject.

Importing this needs Triton; the kernel itself runs on CUDA and ROCm and compiles for gfx950 without either.
"""

# Triton traces the function; its decorator has no types.
# mypy: allow-untyped-defs, allow-untyped-decorators

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["NUM_WARPS", "block_of", "softmax_rows"]

NUM_WARPS = 8


@triton.jit
def softmax_rows(x_ptr, y_ptr, columns: tl.constexpr, block: tl.constexpr):
    """y[r, :] = softmax(x[r, :]) for row r = program id; x, y contiguous [rows, columns], computed in
    float32.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    inside = column < columns
    at = row * columns + column
    x = tl.load(x_ptr + at, mask=inside, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


def block_of(columns: int) -> int:
    """The block size for a row of `columns`: the next power of two."""
    return int(triton.next_power_of_2(columns))
