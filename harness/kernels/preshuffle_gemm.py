"""Matrix product with row scales and a preshuffled weight: c = (a @ b.T) * scale_a * scale_b; a [M, K], b [N,
K], c [M, N].

Knows this kernel's shapes, inputs, subject, baselines and reference; nothing of statistics or tiers.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from harness.kernels import aiter, gemm, inputs, stubs
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
)

DEFAULTS: Dims = MappingProxyType(
    {
        "M": 4096,
        "N": 4096,
        "K": 4096,
        "in_dtype": "fp8",
        "out_dtype": "bf16",
        "tile_m": 128,
        "tile_n": 128,
        "tile_k": 128,
        "lds_stage": 2,
        "dsrd_preload": 2,
        "dvmem_preload": 2,
    }
)
WORKLOADS = MappingProxyType(
    {
        "captured": DEFAULTS,
        "timed-m16": MappingProxyType(
            {**DEFAULTS, "M": 16, "N": 1024, "K": 2048, "tile_m": 16, "tile_n": 64, "tile_k": 512}
        ),
    }
)
CAPTURES = (
    Capture(
        "preshuffle_gemm/att_viewer/big/ui_output_agent_58177_dispatch_135/code.json",
        "captured",
        "kernel_gemm_0",
    ),
)
REGION = Region(
    inside=("host dispatch of one launch", "the kernel"),
    outside=("building and JIT", "quantisation and preshuffling", "allocation"),
)
UNKNOWN = (
    "the report's body states M = 16, N = 1024 for the capture; its grid and listing are those of 4096 cubed",
)
_NAMES = {"fp8_e4m3": "fp8", "f16": "fp16"}


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions of one launch. HarnessError where the kernel cannot run them."""
    out = fill(DEFAULTS, dims)
    for name in ("in_dtype", "out_dtype"):
        out[name] = _NAMES.get(out[name], out[name])
    integer(out, "M")
    integer(out, "N", multiple_of=max(16, out["tile_n"]))
    integer(out, "K", multiple_of=max(32, out["tile_k"]))
    inputs.known(out, "in_dtype", ("fp8", "bf16", "fp16"))
    inputs.known(out, "out_dtype", ("bf16", "fp16"))
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
    """One tile of c: the ISA does not depend on M and N."""
    d = resolve(dims)
    return {**d, "M": d["tile_m"], "N": d["tile_n"]}


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """a and b uniform in [-1, 1), quantised per row for fp8; c poisoned."""
    d = resolve(dims)
    made = gemm.operands(d, d["in_dtype"], device=device, seed=seed)
    return {**made, "c": inputs.poison((d["M"], d["N"]), d["out_dtype"], device=device)}


def outputs(tensors: Tensors) -> Tensors:
    """What the kernel writes."""
    return {"c": tensors["c"]}


def arguments(tensors: Tensors, c: Any, d: Dims, at: Any) -> tuple[Any, ...]:
    """What upstream's launcher takes: flat tensors, fp8 as bytes, an empty bias."""
    import torch

    t = tensors
    bias = torch.empty(0, device=c.device, dtype=c.dtype)
    flat = (
        c.view(-1),
        gemm.bytes_only(t["a"]),
        gemm.bytes_only(t["b_shuffled"]),
        t["scale_a"],
        t["scale_b"],
        bias,
    )
    return (*flat, d["M"], d["N"], at)


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """Upstream's kernel with the tile sizes and preload depths named by the dimensions."""
    d = resolve(dims)
    jit = stubs.upstream("kernels.preshuffle_gemm").compile_preshuffle_gemm_a8(
        M=d["M"],
        N=d["N"],
        K=d["K"],
        tile_m=d["tile_m"],
        tile_n=d["tile_n"],
        tile_k=d["tile_k"],
        in_dtype=d["in_dtype"],
        out_dtype=d["out_dtype"],
        lds_stage=d["lds_stage"],
        use_cshuffle_epilog=False,
        use_async_copy=False,
        dsrd_preload=d["dsrd_preload"],
        dvmem_preload=d["dvmem_preload"],
        waves_per_eu=None,
    )
    return stubs.launcher(jit, *arguments(tensors, tensors["c"], d, stubs.fly_stream(stream)))  # type: ignore[no-any-return]


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64."""
    return {"c": gemm.rowscaled(tensors)}


def tolerance(dims: Dims) -> Tolerance:
    """One rounding of a float32 sum of K products below 1."""
    d = resolve(dims)
    return gemm.tolerance(d["K"], d["out_dtype"])


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """The claim's: AITER's CK product with a preshuffled weight. Another: torch._scaled_mm on the plain
    weight."""

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        d, t = resolve(dims), tensors
        kind = inputs.dtype(d["out_dtype"])
        if d["in_dtype"] == "fp8":
            a_scale, b_scale = t["scale_a"][:, None], t["scale_b"][None, :]

            def scaled() -> None:
                t["c_torch"] = torch._scaled_mm(t["a"], t["b"].T, a_scale, b_scale, out_dtype=kind)

            return scaled

        def plain() -> None:
            t["c_torch"] = torch.mm(t["a"], t["b"].T)

        return plain

    def of_aiter(dims: Dims, tensors: Tensors) -> Launch:
        call, d, t = aiter.load("ck-gemm-a8w8"), resolve(dims), tensors
        kind = inputs.dtype(d["out_dtype"])
        a_scale, b_scale = t["scale_a"][:, None], t["scale_b"][:, None]

        def launch() -> None:
            t["c_aiter"] = call(t["a"], t["b_shuffled"], a_scale, b_scale, dtype=kind)

        return launch

    inside = ("allocation of c",)
    return (
        aiter.baseline("ck-gemm-a8w8", "claim", of_aiter, {"c": "c_aiter"}, inside=inside),
        inputs.torch_baseline(
            "torch-scaled-mm", "other", "torch:_scaled_mm", of_torch, {"c": "c_torch"}, inside=inside
        ),
    )
