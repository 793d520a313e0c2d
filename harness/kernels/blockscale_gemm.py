"""fp8 matrix product with scales a block: a [M, K] scaled per 1x128, b [N, K] per 128x128, preshuffled; c [M,
N].

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
    integer,
)

DEFAULTS: Dims = MappingProxyType(
    {
        "M": 16,
        "N": 7168,
        "K": 2304,
        "in_dtype": "fp8",
        "out_dtype": "bf16",
        "tile_m": 16,
        "tile_n": 64,
        "tile_k": 256,
    }
)
WORKLOADS = MappingProxyType(
    {
        "captured": DEFAULTS,
        "timed": MappingProxyType({**DEFAULTS, "M": 4096, "tile_m": 64, "tile_n": 128, "tile_k": 128}),
    }
)
CAPTURES = (
    Capture(
        "blockscale_preshuffle_gemm/att_viewer/big/ui_output_agent_14065_dispatch_120/code.json",
        "captured",
        "bs_gemm_bf16_direct_t16x64x256",
    ),
)
REGION = Region(
    inside=("host dispatch of one launch", "the kernel"),
    outside=("building and JIT", "quantisation, preshuffling and the transpose of a's scales", "allocation"),
)
UNKNOWN = ("the tile of the timed row at M = 4096: upstream's selection gives 64 by 128 by 128",)
BLOCK = 128


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions of one launch. Where a large M comes without tiles, upstream's own selection is
    taken."""
    given = dict(dims)
    if (given.get("M") or 0) > 128 and "tile_m" not in given:
        given.update(tile_m=64, tile_n=128, tile_k=128)
    out = fill(DEFAULTS, given)
    out["out_dtype"] = {"f16": "fp16"}.get(out["out_dtype"], out["out_dtype"])
    integer(out, "M")
    integer(out, "N", multiple_of=out["tile_n"])
    integer(out, "K", multiple_of=out["tile_k"])
    integer(out, "tile_k", multiple_of=BLOCK)
    inputs.known(out, "in_dtype", ("fp8",))
    inputs.known(out, "out_dtype", ("bf16", "fp16"))
    return out


def _scales(d: Dims) -> tuple[int, int]:
    """Blocks along N and along K."""
    return ceil_div(d["N"], BLOCK), d["K"] // BLOCK


def traffic(dims: Dims) -> Traffic:
    """a, b and both sets of scales once in, c once out."""
    d = resolve(dims)
    along_n, along_k = _scales(d)
    formula = " + 4*(M + N/128)*K/128"
    return gemm.traffic(d, "fp8", d["out_dtype"], scales=(d["M"] + along_n) * along_k, scale_formula=formula)


def memory_bytes(dims: Dims) -> int:
    """Operands, b again (plain and preshuffled), float32 draws, c and a baseline's c."""
    d = resolve(dims)
    return int(traffic(dims).bytes + d["N"] * d["K"] + 4 * (d["M"] + d["N"]) * d["K"] + 2 * d["M"] * d["N"])


def small(dims: Dims) -> dict[str, Any]:
    """As it is: M, N and K all enter the ISA (M = 32 changes 17 lines)."""
    return resolve(dims)


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """a and b uniform in [-1, 1) as fp8, scales uniform in [0, 1) as in upstream's test; c poisoned.

    `scale_a` is [K/128, M] (what both kernels read), `scale_b` [N/128, K/128].
    """
    d = resolve(dims)
    along_n, along_k = _scales(d)
    fp8 = inputs.dtype("fp8")
    b = gemm.raw("b", d["N"], d["K"], device=device, seed=seed).to(fp8)
    scale = inputs.uniform("scale_a", (d["M"], along_k), "f32", device=device, seed=seed, low=0.0)
    return {
        "a": gemm.raw("a", d["M"], d["K"], device=device, seed=seed).to(fp8),
        "b": b,
        "b_shuffled": inputs.shuffle_weight(b),
        "scale_a": scale.T.contiguous(),
        "scale_b": inputs.uniform("scale_b", (along_n, along_k), "f32", device=device, seed=seed, low=0.0),
        "c": inputs.poison((d["M"], d["N"]), d["out_dtype"], device=device),
    }


def outputs(tensors: Tensors) -> Tensors:
    """What the kernel writes."""
    return {"c": tensors["c"]}


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """Upstream's kernel with the tile sizes named by the dimensions."""
    d = resolve(dims)
    jit = stubs.upstream("kernels.blockscale_preshuffle_gemm").compile_blockscale_preshuffle_gemm(
        M=d["M"],
        N=d["N"],
        K=d["K"],
        tile_m=d["tile_m"],
        tile_n=d["tile_n"],
        tile_k=d["tile_k"],
        scale_block_k=BLOCK,
        out_dtype=d["out_dtype"],
        use_async_copy=False,
    )
    t = tensors
    at = stubs.fly_stream(stream)
    scales = (t["scale_a"].view(-1), t["scale_b"].view(-1))
    return stubs.launcher(jit, t["c"], t["a"], t["b_shuffled"], *scales, d["M"], d["N"], at)  # type: ignore[no-any-return]


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64: each 128 of K apart, scaled, then added."""
    import torch

    d = resolve(dims)
    t = {
        name: value.cpu().to(torch.float64)
        for name, value in tensors.items()
        if name in ("a", "b", "scale_a", "scale_b")
    }
    c = torch.zeros(d["M"], d["N"], dtype=torch.float64)
    for block in range(d["K"] // BLOCK):
        part = slice(block * BLOCK, (block + 1) * BLOCK)
        columns = t["scale_b"][:, block].repeat_interleave(BLOCK)[: d["N"]]
        c += t["a"][:, part] @ t["b"][:, part].T * t["scale_a"][block][:, None] * columns[None]
    return {"c": c}


def tolerance(dims: Dims) -> Tolerance:
    """One rounding of a float32 sum of K products below 1, scales below 1."""
    d = resolve(dims)
    return gemm.tolerance(d["K"], d["out_dtype"])


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """The claim's: AITER's CK product of the same layout. Another: torch, dequantised outside, one 16-bit
    product."""

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        d, t = resolve(dims), tensors
        kind = inputs.dtype(d["out_dtype"])
        columns = t["scale_b"].repeat_interleave(BLOCK, dim=0)[: d["N"]].repeat_interleave(BLOCK, dim=1)
        a = (t["a"].to(torch.float32) * t["scale_a"].T.repeat_interleave(BLOCK, dim=1)).to(kind)
        b = (t["b"].to(torch.float32) * columns).to(kind)

        def launch() -> None:
            t["c_torch"] = torch.mm(a, b.T)

        return launch

    def of_aiter(dims: Dims, tensors: Tensors) -> Launch:
        call, d, t = aiter.load("ck-gemm-blockscale"), resolve(dims), tensors
        kind = inputs.dtype(d["out_dtype"])
        scale_a = t["scale_a"].view(
            d["M"], d["K"] // BLOCK
        )  # the same memory, under the shape that AITER asks for

        def launch() -> None:
            t["c_aiter"] = call(t["a"], t["b_shuffled"], scale_a, t["scale_b"], dtype=kind)

        return launch

    inside = ("allocation of c",)
    return (
        aiter.baseline("ck-gemm-blockscale", "claim", of_aiter, {"c": "c_aiter"}, inside=inside),
        inputs.torch_baseline(
            "torch-mm-dequantised",
            "other",
            "torch:mm",
            of_torch,
            {},
            inside=inside,
            outside=("dequantisation to 16 bits",),
            note="twice the bytes and half the peak of fp8; its output carries two more roundings an operand",
        ),
    )
