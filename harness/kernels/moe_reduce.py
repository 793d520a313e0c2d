"""Sum over the experts of each token: y[t, :] = sum_k x[t, k, :]; x [tokens, topk, model_dim], y [tokens,
model_dim].

Knows this kernel's shapes, inputs, subject, baselines and reference; nothing of statistics or tiers.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from harness.kernels import aiter, inputs, stubs
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

DEFAULTS: Dims = MappingProxyType({"tokens": 16384, "topk": 8, "model_dim": 7168, "dtype": "f16"})
WORKLOADS = MappingProxyType({"captured": DEFAULTS})
CAPTURES = (
    Capture(
        "moe_reduce/att_viewer/big/ui_output_agent_42768_dispatch_39/code.json",
        "captured",
        "moe_reduction_kernel_0",
    ),
)
REGION = Region(
    inside=("host dispatch of one launch", "the kernel"),
    outside=("building and JIT", "allocation of x, y and the (empty) mask"),
)
UNKNOWN = (
    "the report calls the captured launch a small one; its grid and listing are those of the full shape",
)


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions of one launch. HarnessError where the kernel cannot run them."""
    out = fill(DEFAULTS, dims)
    out["dtype"] = {"fp16": "f16", "fp32": "f32"}.get(out["dtype"], out["dtype"])
    integer(out, "tokens")
    integer(out, "topk")
    integer(out, "model_dim", multiple_of=8)
    inputs.known(out, "dtype", ("f32", "f16", "bf16"))
    return out


def traffic(dims: Dims) -> Traffic:
    """x once in, y once out; one addition an element of x counts an operation."""
    d = resolve(dims)
    t, k, n = d["tokens"], d["topk"], d["model_dim"]
    return Traffic(
        int(t * (k + 1) * n * BYTES[d["dtype"]]),
        t * k * n,
        "tokens*(topk+1)*model_dim*sizeof(dtype)",
        "tokens*topk*model_dim",
    )


def memory_bytes(dims: Dims) -> int:
    """x, y and a baseline's y."""
    d = resolve(dims)
    return traffic(dims).bytes + int(d["tokens"] * d["model_dim"] * BYTES[d["dtype"]])


def small(dims: Dims) -> dict[str, Any]:
    """Two tokens: the ISA does not depend on their number."""
    return {**resolve(dims), "tokens": 2}


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """x standard normal; y poisoned; the mask has no rows (every expert counts)."""
    import torch

    d = resolve(dims)
    t, k, n = d["tokens"], d["topk"], d["model_dim"]
    return {
        "x": inputs.normal("x", (t, k, n), d["dtype"], device=device, seed=seed),
        "mask": torch.empty((0, k), device=device, dtype=torch.uint8),
        "y": inputs.poison((t, n), d["dtype"], device=device),
    }


def outputs(tensors: Tensors) -> Tensors:
    """What the kernel writes."""
    return {"y": tensors["y"]}


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """Upstream's kernel for these dimensions, without a mask."""
    d = resolve(dims)
    launch = stubs.upstream("kernels.moe_gemm_2stage").compile_moe_reduction(
        topk=d["topk"], model_dim=d["model_dim"], dtype_str=d["dtype"], use_mask=False
    )
    at = stubs.fly_stream(stream)
    t, tokens = tensors, d["tokens"]
    return lambda: launch(t["x"], t["y"], t["mask"], tokens, at)


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64 sum over topk."""
    import torch

    return {"y": tensors["x"].cpu().to(torch.float64).sum(dim=1)}


def tolerance(dims: Dims) -> Tolerance:
    """One rounding of a float32 sum of topk values of magnitude below 8; the sum may cancel."""
    d = resolve(dims)
    return inputs.rounded(d["dtype"], terms=d["topk"], atol=d["topk"] * 8 * 2.0**-23, why="terms may cancel")


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """The claim's: torch.sum into a given output, which AITER's moe_sum falls through to at this topk."""

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        t = tensors
        t["y_torch"] = torch.empty_like(t["y"])

        def launch() -> None:
            torch.sum(t["x"], dim=1, out=t["y_torch"])

        return launch

    def of_aiter(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        call, t = aiter.load("moe-sum"), tensors
        t["y_aiter"] = torch.empty_like(t["y"])
        return lambda: call(t["x"], t["y_aiter"])

    return (
        inputs.torch_baseline("torch-sum", "claim", "torch:sum", of_torch, {"y": "y_torch"}),
        aiter.baseline("moe-sum", "other", of_aiter, {"y": "y_aiter"}),
    )
