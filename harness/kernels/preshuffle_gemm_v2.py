"""Matrix product with a preshuffled weight, second version: c = a @ b.T; a [M, K], b [N, K], c [M, N].

Knows this kernel's shapes, inputs, subject, baselines and reference; nothing of statistics or tiers.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from harness.kernels import gemm, inputs, stubs
from harness.kernels.base import (
    BYTES,
    Baseline,
    Capture,
    Dims,
    Launch,
    Region,
    Tensors,
    Tolerance,
    Traffic,
    fill,
    integer,
    need,
)

DEFAULTS: Dims = MappingProxyType(
    {
        "M": 128,
        "N": 5120,
        "K": 8192,
        "in_dtype": "bf16",
        "out_dtype": "bf16",
        "tile_m": 64,
        "tile_n": 128,
        "tile_k": 64,
    }
)
WORKLOADS = MappingProxyType({"captured": DEFAULTS, "timed": MappingProxyType({**DEFAULTS, "M": 4096})})
CAPTURES = (
    Capture(
        "preshuffle_gemm_v2/att_viewer/big/ui_output_agent_63371_dispatch_15/code.json",
        "captured",
        "kernel_gemm_0",
    ),
)
REGION = Region(
    inside=("host dispatch of one launch", "the kernel"),
    outside=("building and JIT", "quantisation and preshuffling", "allocation"),
)
UNKNOWN = ("the report states fp8 at M = 16 for the capture; its grid and listing are bf16 at M = 128",)


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions of one launch. HarnessError where the kernel cannot run them. `dtype` names both
    dtypes."""
    given = dict(dims)
    if given.get("dtype") is not None:
        given = {"in_dtype": given["dtype"], "out_dtype": given["dtype"], **given}
    out = fill(DEFAULTS, given)
    for name in ("in_dtype", "out_dtype"):
        out[name] = {"fp8_e4m3": "fp8", "f16": "fp16"}.get(out[name], out[name])
    integer(out, "M")
    integer(out, "N", multiple_of=max(16, out["tile_n"]))
    integer(out, "K", multiple_of=max(32, out["tile_k"]))
    inputs.known(out, "in_dtype", ("fp8", "bf16", "fp16"))
    inputs.known(out, "out_dtype", ("bf16", "fp16"))
    size = int(2 * out["tile_m"] * out["tile_k"] * BYTES[out["in_dtype"]])
    need(size <= 65536, f"two tiles of a need {size} bytes of LDS; upstream's benchmark stops at 65536")
    return out


def traffic(dims: Dims) -> Traffic:
    """a, b and their scales once in, c once out."""
    d = resolve(dims)
    scales = d["M"] + d["N"] if d["in_dtype"] == "fp8" else 0
    return gemm.traffic(d, d["in_dtype"], d["out_dtype"], scales=scales, scale_formula=" + 4*(M + N) for fp8")


def memory_bytes(dims: Dims) -> int:
    """Operands, b again (plain and preshuffled), float32 draws, c and a baseline's c."""
    d = resolve(dims)
    size = BYTES[d["in_dtype"]]
    return int(
        traffic(dims).bytes + d["N"] * d["K"] * size + 4 * (d["M"] + d["N"]) * d["K"] + 2 * d["M"] * d["N"]
    )


def small(dims: Dims) -> dict[str, Any]:
    """One tile of rows: the ISA does not depend on M."""
    d = resolve(dims)
    return {**d, "M": d["tile_m"]}


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """a and b uniform in [-1, 1), quantised per row for fp8; c poisoned."""
    d = resolve(dims)
    made = gemm.operands(d, d["in_dtype"], device=device, seed=seed)
    return {**made, "c": inputs.poison((d["M"], d["N"]), d["out_dtype"], device=device)}


def outputs(tensors: Tensors) -> Tensors:
    """What the kernel writes."""
    return {"c": tensors["c"]}


def _tiles(d: Dims) -> dict[str, Any]:
    return {name: d[name] for name in ("N", "K", "tile_m", "tile_n", "tile_k", "in_dtype", "out_dtype")}


def _flat(t: Tensors, c: Any) -> tuple[Any, ...]:
    return (c.view(-1), gemm.bytes_only(t["a"]), gemm.bytes_only(t["b_shuffled"]), t["scale_a"], t["scale_b"])


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """Upstream's second version with the tile sizes named by the dimensions."""
    d = resolve(dims)
    jit = stubs.upstream("kernels.preshuffle_gemm_v2").compile_preshuffle_gemm_v2(**_tiles(d))
    at = stubs.fly_stream(stream)
    return stubs.launcher(jit, *_flat(tensors, tensors["c"]), d["M"], d["N"], at)  # type: ignore[no-any-return]


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64."""
    return {"c": gemm.rowscaled(tensors)}


def tolerance(dims: Dims) -> Tolerance:
    """One rounding of a float32 sum of K products below 1."""
    d = resolve(dims)
    return gemm.tolerance(d["K"], d["out_dtype"])


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """The claim's: upstream's first version at the same tiles and its own preload table. Another:
    torch.mm."""

    def of_first(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        d, t = resolve(dims), tensors
        t["c_first"] = torch.empty_like(t["c"])
        jit = stubs.upstream("kernels.preshuffle_gemm").compile_preshuffle_gemm_a8(**_tiles(d))
        bias = torch.empty(0, device=t["c"].device, dtype=t["c"].dtype)
        at = stubs.fly_stream(None)
        return stubs.launcher(jit, *_flat(t, t["c_first"]), bias, d["M"], d["N"], at)  # type: ignore[no-any-return]

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        d, t = resolve(dims), tensors
        need(d["in_dtype"] != "fp8", "torch.mm takes no fp8")

        def launch() -> None:
            t["c_torch"] = torch.mm(t["a"], t["b"].T)

        return launch

    region = Region(inside=("host dispatch of one launch", "the kernel"), outside=REGION.outside)
    return (
        Baseline(
            "flydsl-v1",
            "claim",
            "flydsl",
            "kernels.preshuffle_gemm:compile_preshuffle_gemm_a8",
            "flydsl",
            "kernel_gemm",
            region,
            of_first,
            {"c": "c_first"},
        ),
        inputs.torch_baseline(
            "torch-mm", "other", "torch:mm", of_torch, {"c": "c_torch"}, inside=("allocation of c",)
        ),
    )
