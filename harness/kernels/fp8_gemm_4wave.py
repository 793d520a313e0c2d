"""fp8 matrix product with row scales, four waves a workgroup: c = (a @ b.T) * scale_a * scale_b; c [M, N]
bf16.

Knows this kernel's shapes, inputs, subject, baselines and reference; nothing of statistics or tiers.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from harness.kernels import aiter, gemm, inputs, stubs
from harness.kernels.base import (
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
        "dtype": "fp8",
        "tile_m": 256,
        "tile_n": 256,
        "b_preshuffled": False,
        "waves": 4,
        "dlpack": True,
        "xcd_remap": True,
    }
)
WORKLOADS = MappingProxyType(
    {
        "sweep": DEFAULTS,
        "test-512": MappingProxyType(
            {**DEFAULTS, "M": 512, "N": 2112, "K": 7168, "tile_m": 64, "tile_n": 64}
        ),
        "large": MappingProxyType({**DEFAULTS, "M": 8192, "N": 8192, "K": 8192}),
    }
)
CAPTURES: tuple[Capture, ...] = ()
REGION = Region(
    inside=(
        "host dispatch of one launch (upstream's test converts three tensors by DLPack at each)",
        "the kernel",
    ),
    outside=("building and JIT", "quantisation", "allocation"),
)
UNKNOWN = (
    "N and K of the attempt at M = 16",
    "no latency is published at this commit: the study says that it fails",
)


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions of one launch. `dlpack` names three arguments' form: upstream's test gives them as
    DLPack."""
    out = fill(DEFAULTS, dims)
    integer(out, "M")
    integer(out, "N", multiple_of=16)
    integer(out, "K", multiple_of=128, at_least=256)
    integer(out, "tile_m", multiple_of=64)
    integer(out, "tile_n", multiple_of=64)
    inputs.known(out, "dtype", ("fp8",))
    inputs.known(out, "waves", (4, 8))
    return out


def traffic(dims: Dims) -> Traffic:
    """a, b and their scales once in, c once out."""
    d = resolve(dims)
    return gemm.traffic(d, "fp8", "bf16", scales=d["M"] + d["N"], scale_formula=" + 4*(M + N)")


def memory_bytes(dims: Dims) -> int:
    """Operands, b again (plain and preshuffled), float32 draws, c and a baseline's c."""
    d = resolve(dims)
    return int(traffic(dims).bytes + d["N"] * d["K"] + 4 * (d["M"] + d["N"]) * d["K"] + 2 * d["M"] * d["N"])


def small(dims: Dims) -> dict[str, Any]:
    """One tile of c; the ISA's dependence on M and N has not been tested against a capture (there is
    none)."""
    d = resolve(dims)
    return {**d, "M": d["tile_m"], "N": d["tile_n"]}


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """a and b uniform in [-1, 1), quantised per row; c poisoned."""
    d = resolve(dims)
    made = gemm.operands(d, "fp8", device=device, seed=seed)
    made["b_shuffled"] = _preshuffled(made["b"]) if d["b_preshuffled"] else made["b"]
    return {**made, "c": inputs.poison((d["M"], d["N"]), "bf16", device=device)}


def _preshuffled(b: Any) -> Any:
    """b in blocks of 16 rows by 64 of K, each block ordered (K quarter, row, 16 bytes)."""
    n, k = b.shape
    return b.reshape(n // 16, 16, k // 64, 4, 16).permute(0, 2, 3, 1, 4).contiguous().reshape(n, k)


def outputs(tensors: Tensors) -> Tensors:
    """What the kernel writes."""
    return {"c": tensors["c"]}


def arguments(d: Dims, tensors: Tensors, stream: Any) -> tuple[Any, Any]:
    """(launcher, its arguments): also for the claim that `flyc.compile` of exactly these fails on some
    layers."""
    module = f"kernels.fp8_gemm_{d['waves']}wave"
    source = stubs.upstream(module)
    chosen: dict[str, Any] = {
        "K": d["K"],
        "BLOCK_M": d["tile_m"],
        "BLOCK_N": d["tile_n"],
        "b_preshuffled": d["b_preshuffled"],
    }
    if d["waves"] == 4:
        jit = source.compile_fp8_gemm_4w(**chosen, use_xcd_remap=d["xcd_remap"])
    else:
        jit = source.compile_fp8_gemm_8w(**chosen)
    wrap = stubs.upstream("flydsl.compiler").from_dlpack if d["dlpack"] else (lambda tensor: tensor)
    t = tensors
    given = (
        gemm.bytes_only(t["a"]),
        wrap(gemm.bytes_only(t["b_shuffled"])),
        t["c"].view(-1),
        wrap(t["scale_a"]),
        wrap(t["scale_b"]),
        d["M"],
        d["N"],
        stubs.fly_stream(stream),
    )
    return jit, given


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """Upstream's kernel; on a GPU through `flyc.compile`, as its test does."""
    jit, given = arguments(resolve(dims), tensors, stream)
    return stubs.launcher(jit, *given)  # type: ignore[no-any-return]


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64."""
    return {"c": gemm.rowscaled(tensors)}


def tolerance(dims: Dims) -> Tolerance:
    """One rounding of a float32 sum of K products below 1."""
    return gemm.tolerance(resolve(dims)["K"], "bf16")


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """No claim has one at this commit; torch._scaled_mm is what upstream's test compares, AITER's CK
    another."""

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        t = tensors
        a_scale, b_scale = t["scale_a"][:, None], t["scale_b"][None, :]

        def launch() -> None:
            t["c_torch"] = torch._scaled_mm(t["a"], t["b"].T, a_scale, b_scale, out_dtype=torch.bfloat16)

        return launch

    def of_aiter(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        call, t = aiter.load("ck-gemm-a8w8"), tensors
        b = inputs.shuffle_weight(t["b"])
        a_scale, b_scale = t["scale_a"][:, None], t["scale_b"][:, None]

        def launch() -> None:
            t["c_aiter"] = call(t["a"], b, a_scale, b_scale, dtype=torch.bfloat16)

        return launch

    return (
        inputs.torch_baseline(
            "torch-scaled-mm",
            "other",
            "torch:_scaled_mm",
            of_torch,
            {"c": "c_torch"},
            inside=("allocation of c",),
        ),
        aiter.baseline("ck-gemm-a8w8", "other", of_aiter, {"c": "c_aiter"}, inside=("allocation of c",)),
    )
