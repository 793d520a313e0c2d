"""16-bit matrix product split over K: c = a @ b.T; a [M, K], b [N, K], c [M, N]; partial sums meet by
atomics.

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
    ceil_div,
    fill,
    fixed,
    integer,
    need,
)

DEFAULTS: Dims = MappingProxyType(
    {
        "M": 32,
        "N": 384,
        "K": 7168,
        "dtype": "bf16",
        "SPLIT_K": 14,
        "tile_m": 32,
        "tile_n": 64,
        "tile_k": 256,
        "block_m_warps": 1,
        "block_n_warps": 2,
        "block_k_warps": 2,
    }
)
WORKLOADS = MappingProxyType({"captured": DEFAULTS})
CAPTURES = (
    Capture(
        "hgemm_splitk/att_viewer/big/ui_output_agent_4716_dispatch_319/code.json",
        "captured",
        "hgemm_bf16_32x64x256_W1x2x2_S2_BT_BLDS1_AS1_SPK14_0",
    ),
)
REGION = Region(
    inside=("host dispatch of one launch", "the kernel, which zeroes c and adds into it"),
    outside=("building and JIT", "allocation of a, b, c and the semaphores"),
)
UNKNOWN = ("which hipBLASLt kernel torch.mm chose",)
SEMAPHORES = 256
"""Length of upstream's semaphore and signal arrays: at most that many tiles of c."""


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions of one launch. HarnessError where the kernel cannot run them."""
    fixed(dims, {"stages": 2})
    out = fill(DEFAULTS, dims)
    integer(out, "M")
    integer(out, "N", multiple_of=out["tile_n"])
    integer(out, "K", multiple_of=out["SPLIT_K"] * out["tile_k"])
    inputs.known(out, "dtype", ("bf16", "f16"))
    tiles = ceil_div(out["M"], out["tile_m"]) * (out["N"] // out["tile_n"])
    need(out["SPLIT_K"] == 1 or tiles <= SEMAPHORES, f"{tiles} tiles of c exceed the {SEMAPHORES} semaphores")
    return out


def traffic(dims: Dims) -> Traffic:
    """a and b once in, c once out."""
    d = resolve(dims)
    return gemm.traffic(d, d["dtype"], d["dtype"])


def memory_bytes(dims: Dims) -> int:
    """a, b, c, float32 draws of a and b, and a baseline's c."""
    d = resolve(dims)
    return int(traffic(dims).bytes + 4 * (d["M"] + d["N"]) * d["K"] + 2 * d["M"] * d["N"])


def small(dims: Dims) -> dict[str, Any]:
    """As it is: the ISA depends on N and K, and M is one tile already. Fewer rows: M = 16 compiles alike."""
    return {**resolve(dims), "M": 16}


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """a and b uniform in [-1, 1); c poisoned (the kernel zeroes it); semaphores and signals zero."""
    import torch

    d = resolve(dims)
    a = gemm.raw("a", d["M"], d["K"], device=device, seed=seed).to(inputs.dtype(d["dtype"]))
    b = gemm.raw("b", d["N"], d["K"], device=device, seed=seed).to(inputs.dtype(d["dtype"]))
    return {
        "a": a,
        "b": b,
        "c": inputs.poison((d["M"], d["N"]), d["dtype"], device=device),
        "semaphore": torch.zeros(SEMAPHORES, dtype=torch.int32, device=device),
        "signal": torch.zeros(SEMAPHORES, dtype=torch.int32, device=device),
    }


def outputs(tensors: Tensors) -> Tensors:
    """What the kernel writes. The semaphores are its state, not results: they must be zero before and are
    after."""
    return {"c": tensors["c"]}


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """Upstream's kernel with the tile sizes named by the dimensions, B through LDS, no bias."""
    d = resolve(dims)
    jit = stubs.upstream("kernels.hgemm_splitk").compile_hgemm_kernel(
        d["dtype"],
        d["N"],
        d["K"],
        TILE_M=d["tile_m"],
        TILE_N=d["tile_n"],
        TILE_K=d["tile_k"],
        SPLIT_K=d["SPLIT_K"],
        BLOCK_M_WARPS=d["block_m_warps"],
        BLOCK_N_WARPS=d["block_n_warps"],
        BLOCK_K_WARPS=d["block_k_warps"],
        B_TO_LDS=True,
        HAS_BIAS=False,
    )
    t = tensors
    at = stubs.fly_stream(stream)
    return stubs.launcher(jit, t["c"], t["a"], t["b"], t["a"], d["M"], t["semaphore"], t["signal"], at)  # type: ignore[no-any-return]


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64 product."""
    return {"c": gemm.product(tensors["a"], tensors["b"])}


def tolerance(dims: Dims) -> Tolerance:
    """SPLIT_K partial sums are rounded and added in the output's dtype, in any order: each addition rounds a
    running sum of standard deviation below sqrt(K)/3, and six standard deviations of SPLIT_K such roundings
    are allowed."""
    d = resolve(dims)
    one = inputs.rounded(d["dtype"])
    spread = d["K"] ** 0.5 / 3
    atol = 6 * (2 * d["SPLIT_K"]) ** 0.5 * one.rtol * 0.58 * 2 * spread
    return Tolerance(atol, one.rtol, f"{d['SPLIT_K']} atomic additions in {d['dtype']}")


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """The claim's: torch.mm into a new tensor, as upstream's test times it. Another: AITER's tuned
    dispatcher."""

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        t = tensors

        def launch() -> None:
            t["c_torch"] = torch.mm(t["a"], t["b"].T)

        return launch

    def of_aiter(dims: Dims, tensors: Tensors) -> Launch:
        call, t = aiter.load("tuned-gemm"), tensors

        def launch() -> None:
            t["c_aiter"] = call(t["a"], t["b"])

        return launch

    inside = ("allocation of c",)
    return (
        inputs.torch_baseline("torch-mm", "claim", "torch:mm", of_torch, {"c": "c_torch"}, inside=inside),
        aiter.baseline("tuned-gemm", "other", of_aiter, {"c": "c_aiter"}, inside=inside),
    )
