"""Attention forward: o = softmax(q k^T / sqrt(D), causal) v per head; q, k, v, o [B, S, H, D].

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

DEFAULTS: Dims = MappingProxyType({"B": 1, "S": 2048, "H": 32, "D": 128, "dtype": "bf16", "causal": True})
WORKLOADS = MappingProxyType(
    {
        "captured-big": DEFAULTS,
        "captured-small": MappingProxyType({**DEFAULTS, "S": 1024, "H": 16}),
        "timed": MappingProxyType({**DEFAULTS, "S": 128, "H": 8}),
        "timed-2048": MappingProxyType({**DEFAULTS, "H": 8}),
    }
)
_ATT = "flash_attn_func/att_viewer"
_SYMBOL = "flash_attn_func_kernel_0"
CAPTURES = (
    Capture(f"{_ATT}/big/ui_output_agent_38430_dispatch_44/code.json", "captured-big", _SYMBOL),
    Capture(f"{_ATT}/big/ui_output_agent_55287_dispatch_44_after_loc_fix/code.json", "captured-big", _SYMBOL),
    Capture(f"{_ATT}/small/ui_output_agent_32235_dispatch_44/code.json", "captured-small", _SYMBOL),
    Capture(
        f"{_ATT}/small/ui_output_agent_58550_dispatch_44_after_loc_fix/code.json", "captured-small", _SYMBOL
    ),
)
REGION = Region(
    inside=("host dispatch of one launch", "the kernel"),
    outside=("building and JIT", "allocation of q, k, v and o"),
)
UNKNOWN = ("registers and stall class of the scoreboard come from a capture that the study does not hold",)


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions of one launch. HarnessError where the kernel cannot run them (S in tiles of 128, D of
    32)."""
    out = fill(DEFAULTS, dims)
    integer(out, "B")
    integer(out, "H")
    integer(out, "S", multiple_of=128)
    integer(out, "D", multiple_of=32, at_least=64)
    inputs.known(out, "dtype", ("bf16", "f16"))
    return out


def traffic(dims: Dims) -> Traffic:
    """q, k, v in, o out; two products of S by S by D a head, halved for the causal mask (the study's
    convention)."""
    d = resolve(dims)
    b, s, h, depth = d["B"], d["S"], d["H"], d["D"]
    flops = 4 * b * h * s * s * depth // (2 if d["causal"] else 1)
    return Traffic(
        int(4 * b * s * h * depth * BYTES[d["dtype"]]),
        flops,
        "4*B*S*H*D*sizeof(dtype)",
        "4*B*H*S*S*D (half if causal)",
    )


def memory_bytes(dims: Dims) -> int:
    """q, k, v, o and a baseline's o; torch's own operators would hold S*S scores a head, which is not
    counted."""
    return traffic(dims).bytes * 5 // 4


def small(dims: Dims) -> dict[str, Any]:
    """One tile of rows: the ISA does not depend on B and S below B*S = 4096 for H >= 32, and not at all
    below."""
    d = resolve(dims)
    return d if d["H"] >= 32 and d["B"] * d["S"] >= 4096 else {**d, "B": 1, "S": 128}


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """q, k, v uniform in [-1, 1) as in upstream's test; o poisoned."""
    d = resolve(dims)
    shape = (d["B"], d["S"], d["H"], d["D"])
    made = {
        name: inputs.uniform(name, shape, d["dtype"], device=device, seed=seed) for name in ("q", "k", "v")
    }
    return {**made, "o": inputs.poison(shape, d["dtype"], device=device)}


def outputs(tensors: Tensors) -> Tensors:
    """What the kernel writes."""
    return {"o": tensors["o"]}


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """Upstream's kernel for these dimensions; it picks 128 or 256 rows a workgroup from B*S when H >= 32."""
    d = resolve(dims)
    launch = stubs.upstream("kernels.flash_attn_func").build_flash_attn_func_module(
        num_heads=d["H"], head_dim=d["D"], causal=d["causal"], dtype_str=d["dtype"], waves_per_eu=2, daz=True
    )
    flat = [tensors[name].view(-1) for name in ("q", "k", "v", "o")]
    at = stubs.fly_stream(stream)
    return lambda: launch(*flat, d["B"], d["S"], stream=at)


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64, the mask as -infinity before the softmax."""
    import torch

    d = resolve(dims)
    q, k, v = (tensors[name].cpu().to(torch.float64).transpose(1, 2) for name in ("q", "k", "v"))
    out = torch.empty_like(q)
    later = torch.ones(d["S"], d["S"], dtype=torch.bool).triu(1)
    for batch in range(d["B"]):
        for head in range(d["H"]):  # one head's scores at a time
            scores = q[batch, head] @ k[batch, head].T / d["D"] ** 0.5
            if d["causal"]:
                scores = scores.masked_fill(later, float("-inf"))
            out[batch, head] = torch.softmax(scores, dim=-1) @ v[batch, head]
    return {"o": out.transpose(1, 2)}


def tolerance(dims: Dims) -> Tolerance:
    """Probabilities are rounded to the input's dtype before the second product: their errors, half an ulp
    each of weights that sum to 1, times |v| <= 1, are allowed absolutely; one rounding of o relatively."""
    kind = resolve(dims)["dtype"]
    one = inputs.rounded(kind)
    return Tolerance(2 * one.rtol, 2 * one.rtol, f"weights and output rounded to {kind}; |v| <= 1")


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """The claim's: AITER's CK forward. Others: its v3 assembly, torch's scaled_dot_product_attention."""
    scale = resolve(dims)["D"] ** -0.5

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        d, t = resolve(dims), tensors

        def launch() -> None:
            q, k, v = (t[name].transpose(1, 2) for name in ("q", "k", "v"))
            o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=d["causal"])
            t["o_torch"] = o.transpose(1, 2)

        return launch

    def of_ck(dims: Dims, tensors: Tensors) -> Launch:
        call, d, t = aiter.load("ck-mha"), resolve(dims), tensors
        right = 0 if d["causal"] else -1

        def launch() -> None:
            t["o_ck"] = call(t["q"], t["k"], t["v"], 0.0, scale, d["causal"], -1, right, 0, False, False)[0]

        return launch

    def of_asm(dims: Dims, tensors: Tensors) -> Launch:
        call, d, t = aiter.load("asm-mha"), resolve(dims), tensors
        right = 0 if d["causal"] else -1

        def launch() -> None:
            t["o_asm"] = call(t["q"], t["k"], t["v"], 0.0, scale, d["causal"], -1, right, False, False, 1)[0]

        return launch

    inside = ("allocation of o",)
    return (
        aiter.baseline("ck-mha", "claim", of_ck, {"o": "o_ck"}, inside=inside),
        aiter.baseline("asm-mha", "other", of_asm, {"o": "o_asm"}, inside=inside, note="bf16 only"),
        inputs.torch_baseline(
            "torch-sdpa",
            "other",
            "torch.nn.functional:scaled_dot_product_attention",
            of_torch,
            {"o": "o_torch"},
            inside=inside,
        ),
    )
