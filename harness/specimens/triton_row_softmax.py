"""The project's own Triton row softmax, compiled ahead of time: bf16 [rows, N], one program a row.

dims: N, path: "vector" tells the compiler that both pointers are aligned to 16 bytes, so that it moves
128 bits at a time; "scalar" does not, and it moves element by element.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["triton_kernels"]


def triton_kernels(dims: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One kernel, as `harness.compile.worker` takes it."""
    from harness.specimens.triton_softmax import NUM_WARPS, block_of, softmax_rows

    columns = int(dims["N"])
    aligned = [["tt.divisibility", 16]]
    return [
        {
            "name": "softmax_rows",
            "function": softmax_rows,
            "signature": {"x_ptr": "*bf16", "y_ptr": "*bf16", "columns": "constexpr", "block": "constexpr"},
            "constexprs": {"columns": columns, "block": block_of(columns)},
            "attrs": {(0,): aligned, (1,): aligned} if dims["path"] == "vector" else {},
            "options": {"num_warps": NUM_WARPS},
        }
    ]
