"""Gating: softmax over experts, then the topk largest, renormalised; logits [T, E], weights f32 and indices
i32 [T, k].

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
    need,
)

DEFAULTS: Dims = MappingProxyType(
    {"tokens": 16384, "experts": 128, "topk": 6, "dtype": "bf16", "renormalize": True}
)
WORKLOADS = MappingProxyType({"captured": DEFAULTS})
CAPTURES = (
    Capture(
        "topk_gating_softmax/att_viewer/big/ui_output_agent_23939_dispatch_37/code.json",
        "captured",
        "topk_gating_softmax_kernel_0",
    ),
)
REGION = Region(
    inside=("host dispatch of one launch", "the kernel"),
    outside=("building and JIT", "allocation of logits and outputs"),
)
UNKNOWN = (
    "the published latency is 4.4 times the kernel's own duration in the study's trace of the same shape",
)


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions of one launch. HarnessError where the kernel cannot run them."""
    out = fill(DEFAULTS, dims)
    integer(out, "tokens")
    integer(out, "experts", multiple_of=8)
    integer(out, "topk")
    inputs.known(out, "dtype", ("f32", "f16", "bf16"))
    need(out["topk"] <= out["experts"], f"dimension topk: {out['topk']} of {out['experts']} experts")
    return out


def traffic(dims: Dims) -> Traffic:
    """Logits once in; weights, indices and token-expert indices (4 bytes each) once out."""
    d = resolve(dims)
    t, e, k = d["tokens"], d["experts"], d["topk"]
    return Traffic(
        int(t * e * BYTES[d["dtype"]] + 12 * t * k), 0, "tokens*experts*sizeof(dtype) + 12*tokens*topk"
    )


def memory_bytes(dims: Dims) -> int:
    """Logits, outputs, and a baseline's outputs."""
    d = resolve(dims)
    return int(traffic(dims).bytes + 12 * d["tokens"] * d["topk"])


def small(dims: Dims) -> dict[str, Any]:
    """One whole block and one token more: the ISA does not depend on tokens."""
    return {**resolve(dims), "tokens": 33}


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """Logits: distinct within a row (a seeded permutation of evenly spaced values in [-2, 2]), so that the
    topk set is unique in every dtype; outputs poisoned."""
    import torch

    d = resolve(dims)
    t, e, k = d["tokens"], d["experts"], d["topk"]
    order = inputs.uniform("order", (t, e), "f32", device="cpu", seed=seed).argsort(dim=-1)
    grid = inputs.distinct(e, d["dtype"])
    return {
        "logits": grid[order].to(device).contiguous(),
        "weights": inputs.poison((t, k), "f32", device=device),
        "indices": inputs.poison((t, k), "i32", device=device),
        "token_expert": inputs.poison((t, k), "i32", device=device),
        "rows": torch.arange(t, device=device),
    }


def outputs(tensors: Tensors) -> Tensors:
    """What the kernel writes."""
    return {name: tensors[name] for name in ("weights", "indices", "token_expert")}


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """Upstream's kernel for these dimensions."""
    d = resolve(dims)
    launch = stubs.upstream("kernels.topk_gating_softmax_kernel").build_topk_gating_softmax_module(
        num_experts=d["experts"], topk=d["topk"], dtype_str=d["dtype"], renormalize=d["renormalize"]
    )
    at = stubs.fly_stream(stream)
    t, tokens = tensors, d["tokens"]
    return lambda: launch(t["logits"], t["weights"], t["indices"], t["token_expert"], tokens, stream=at)


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64; indices in falling order of probability; token_expert[t, j] = j * tokens + t."""
    import torch

    d = resolve(dims)
    probability = torch.softmax(tensors["logits"].cpu().to(torch.float64), dim=-1)
    weights, indices = torch.topk(probability, d["topk"], dim=-1)
    if d["renormalize"]:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    places = torch.arange(d["topk"])[None, :] * d["tokens"] + torch.arange(d["tokens"])[:, None]
    return {"weights": weights, "indices": indices.to(torch.int32), "token_expert": places.to(torch.int32)}


def tolerance(dims: Dims) -> Tolerance:
    """Weights are float32; indices are exact because no two logits of a row are equal."""
    base = inputs.rounded("f32", terms=resolve(dims)["experts"])
    return Tolerance(1e-9, base.rtol, base.reason, exact=("indices", "token_expert"))


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """The claim's: AITER's HIP topk_softmax. Others: its assembly, torch."""

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        d, t = resolve(dims), tensors

        def launch() -> None:
            weights, indices = torch.topk(
                torch.softmax(t["logits"].to(torch.float32), dim=-1), d["topk"], dim=-1
            )
            t["weights_torch"] = weights / weights.sum(dim=-1, keepdim=True) if d["renormalize"] else weights
            t["indices_torch"] = indices.to(torch.int32)

        return launch

    def of_aiter(name: str) -> Any:
        def build(dims: Dims, tensors: Tensors) -> Launch:
            import torch

            call = aiter.load(name)
            d, t = resolve(dims), tensors
            for part in ("weights", "indices", "token_expert"):
                t[f"{part}_{name}"] = torch.empty_like(t[part])
            out = [t[f"{part}_{name}"] for part in ("weights", "indices", "token_expert")]
            return lambda: call(*out, t["logits"], d["renormalize"])

        return build

    def named(name: str) -> dict[str, str]:
        return {"weights": f"weights_{name}", "indices": f"indices_{name}"}

    return (
        aiter.baseline("hip-topk-softmax", "claim", of_aiter("hip-topk-softmax"), named("hip-topk-softmax")),
        aiter.baseline("asm-topk-softmax", "other", of_aiter("asm-topk-softmax"), named("asm-topk-softmax")),
        inputs.torch_baseline(
            "torch-topk",
            "other",
            "torch:softmax+topk",
            of_torch,
            named("torch"),
            inside=("allocation of outputs",),
        ),
    )
