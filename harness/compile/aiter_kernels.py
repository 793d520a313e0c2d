"""AITER's Triton baselines, compiled ahead of time for gfx950: softmax, layernorm, rmsnorm, rope.

A kernel module for `harness.compile.worker` (dims: kernel, and the shape's own names); AITER's source
tree must be on the path. AITER's packages run code for a GPU when imported, so they are stood in for by
bare packages with the same search path, and only the modules that hold Triton kernels are imported.
Signatures follow what AITER's own wrappers pass at the pinned commit (aiter/ops/triton).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from harness.errors import HarnessError

__all__ = ["KERNELS", "PATHS", "triton_kernels"]

KERNELS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "softmax": {"N": 8192},
        "layernorm": {"N": 8192},
        "rmsnorm": {"N": 8192},
        "rope": {"head_dim": 128, "num_q_heads": 8, "num_kv_heads": 1, "block_size": 16},
    }
)
"""Baseline -> the dimensions that its ISA depends on, at the captured workload."""

PATHS = ("aiter/ops/triton",)
"""What of AITER's repository the compile needs."""

PACKAGES = (
    "aiter",
    "aiter.ops",
    "aiter.ops.triton",
    "aiter.ops.triton._triton_kernels",
    "aiter.ops.triton._triton_kernels.normalization",
    "aiter.ops.triton._triton_kernels.fusions",
    "aiter.ops.triton._triton_kernels.rope",
    "aiter.ops.triton.rope",
    "aiter.ops.triton.utils",
    "aiter.ops.triton.utils._triton",
)

MAX_FUSED_BYTES = 65536
"""AITER's wrappers take a row in one block up to this size."""


def triton_kernels(dims: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The kernel `dims["kernel"]` as its wrapper launches it, bf16. HarnessError where AITER is not on
    the path.
    """
    _packages()
    made: dict[str, Any] = {
        "softmax": _softmax,
        "layernorm": _layernorm,
        "rmsnorm": _rmsnorm,
        "rope": _rope,
    }[str(dims["kernel"])](dims)
    return [made]


def _packages() -> None:
    roots = [Path(entry) for entry in sys.path if (Path(entry) / "aiter" / "ops" / "triton").is_dir()]
    if not roots:
        raise HarnessError("AITER's source is not on the path", remedy="set AITER_SRC")
    for name in PACKAGES:
        package = ModuleType(name)
        package.__path__ = [str(roots[0].joinpath(*name.split(".")))]
        sys.modules[name] = package


def _kernel(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"aiter.ops.triton._triton_kernels.{module}"), name)


def _launch(
    function: Any, types: Mapping[str, str], constants: Mapping[str, Any], **options: Any
) -> dict[str, Any]:
    """`types` by argument name; "?" is every other argument that is no constant. Pointers and strides
    divide by 16.
    """
    signature = {
        name: "constexpr" if name in constants else types.get(name, types["?"]) for name in function.arg_names
    }
    return {
        "name": function.__name__,
        "function": function,
        "signature": signature,
        "constexprs": dict(constants),
        "attrs": {
            (index,): [["tt.divisibility", 16]]
            for index, (name, kind) in enumerate(signature.items())
            if kind.startswith("*") or name.endswith(("_stride", "_t", "n_cols"))
        },
        "options": options,
    }


def _block(columns: int) -> int:
    power = 1 << (columns - 1).bit_length()
    return min(MAX_FUSED_BYTES // 2, power)


def _softmax(dims: Mapping[str, Any]) -> dict[str, Any]:
    function = _kernel("softmax", "_softmax_kernel_online")
    types = {"output_ptr": "*bf16", "input_ptr": "*bf16", "?": "i32"}
    constants = {"BLOCK_SIZE": _block(int(dims["N"]))}
    return _launch(function, types, constants, num_warps=8, num_stages=2, waves_per_eu=2)


def _layernorm(dims: Mapping[str, Any]) -> dict[str, Any]:
    function = _kernel("normalization.norm", "_layernorm_kernel")
    types = dict.fromkeys(("x_ptr", "y_ptr", "w_ptr", "b_ptr"), "*bf16")
    types |= {"mean_ptr": "*fp32", "rstd_ptr": "*fp32", "eps": "fp32", "?": "i32"}
    return _launch(function, types, {"BLOCK_SIZE": _block(int(dims["N"]))})


def _rmsnorm(dims: Mapping[str, Any]) -> dict[str, Any]:
    function = _kernel("normalization.rmsnorm", "_rms_norm_kernel")
    types = dict.fromkeys(("input_ptr", "output_ptr", "g_ptr"), "*bf16")
    types |= {"rsigma_ptr": "*fp32", "epsilon": "fp32", "?": "i32"}
    columns = int(dims["N"])
    constants = {
        "BLOCK_SIZE": _block(columns),
        "USE_BLOCKED": columns > _block(columns),
        "NUM_PRGMS": 1024,
    }
    return _launch(function, types, constants)


def _rope(dims: Mapping[str, Any]) -> dict[str, Any]:
    function = _kernel("fusions.fused_kv_cache", "_fused_qk_rope_reshape_and_cache_kernel")
    heads, shared, width = int(dims["num_q_heads"]), int(dims["num_kv_heads"]), int(dims["head_dim"])
    absent = ("offs_ptr", "zeros_out_ptr", "k_scale_ptr", "v_scale_ptr")
    types = {name: "*bf16" for name in function.arg_names if name.endswith("_ptr") and name not in absent}
    types |= {"pos_ptr": "*i64", "slot_mapping_ptr": "*i64", "?": "i32"}
    constants: dict[str, Any] = dict.fromkeys(absent)
    constants |= {"QH_PER_KH": heads // shared, "QH": heads, "KH": shared}
    constants |= {"REUSE_FREQS_FRONT_PART": True, "IS_NEOX": True, "BLOCK_D_pe": width}
    constants |= {"BLOCK_D_HALF_pe": width // 2, "BLOCK_SIZE": int(dims["block_size"]), "X_SIZE": 8}
    constants |= {"FLASH_LAYOUT": False, "VALUE_SHUFFLE_LAYOUT": False, "HAVE_POS": False}
    constants |= {"HAVE_K_SCALE": False, "HAVE_V_SCALE": False, "HAVE_ZEROS": False}
    return _launch(function, types, constants, num_warps=1)
