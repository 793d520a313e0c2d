"""One file a kernel: inputs, subject, baselines, reference, traffic.

Knows which file serves which bundle. Must not know what a file needs: each is torch-free at import.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import cast

from harness.errors import HarnessError
from harness.kernels.base import KernelModule

__all__ = ["IDS", "get"]

IDS: tuple[str, ...] = (
    "softmax",
    "layernorm",
    "rmsnorm",
    "quant",
    "vec-add",
    "topk-gating",
    "moe-reduce",
    "rope",
    "flash-attn",
    "hgemm-splitk",
    "preshuffle-gemm",
    "preshuffle-gemm-v2",
    "blockscale-gemm",
    "moe-gemm",
    "moe-blockscale",
    "mqa-logits-fp4",
    "mla-decode",
    "paged-attention",
    "fp8-gemm-4wave",
)
"""The bundles of the study. A new kernel needs no entry here: `get` finds its file by name."""


def get(bundle_id: str) -> KernelModule:
    """The kernel file of `bundle_id`. Raises HarnessError where there is none."""
    name = f"harness.kernels.{bundle_id.replace('-', '_')}"
    if importlib.util.find_spec(name) is None:
        raise HarnessError(
            f"bundle {bundle_id}: no kernel file {name.replace('.', '/')}.py",
            remedy="write one with the names listed in harness/kernels/base.py",
        )
    return cast(KernelModule, importlib.import_module(name))
