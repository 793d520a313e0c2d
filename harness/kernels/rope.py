"""Rotary embedding of q and k (NeoX halves) and the write of k and v into a paged cache; q, k, v [T, heads,
D].

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
    ceil_div,
    fill,
    fixed,
    integer,
)

DEFAULTS: Dims = MappingProxyType(
    {
        "num_tokens": 32,
        "head_dim": 128,
        "num_q_heads": 8,
        "num_kv_heads": 1,
        "dtype": "bf16",
        "kv_layout": "non-flash",
        "block_size": 16,
        "max_pos": 8192,
    }
)
WORKLOADS = MappingProxyType(
    {
        "captured": DEFAULTS,
        "timed": MappingProxyType({**DEFAULTS, "head_dim": 64, "kv_layout": "flash", "num_tokens": 1}),
    }
)
CAPTURES = (
    Capture(
        "fused_rope_cache/att_viewer/big/ui_output_agent_4253_dispatch_8781/code.json",
        "captured",
        "fused_qk_rope_reshape_and_cache_0",
    ),
)
REGION = Region(
    inside=(
        "host dispatch of one launch, with upstream's DLPack conversion of seven tensors",
        "the kernel",
    ),
    outside=("building and JIT", "allocation of everything"),
)
UNKNOWN = (
    "the token count of the timed row: upstream's test runs 1, 32 and 128",
    "the report states head_dim 64 and the flash layout; the captured listing is head_dim 128, not flash",
)
PACK = 16


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions of one launch. HarnessError where the kernel cannot run them."""
    fixed(dims, {"rotate": "neox"})
    out = fill(DEFAULTS, dims)
    for name in ("num_tokens", "num_q_heads", "num_kv_heads", "block_size", "max_pos"):
        integer(out, name)
    integer(out, "head_dim", multiple_of=2 * PACK)
    inputs.known(out, "dtype", ("bf16", "f16"))
    inputs.known(out, "kv_layout", ("flash", "non-flash"))
    return out


def _blocks(d: Dims) -> int:
    return max(32, ceil_div(d["num_tokens"], d["block_size"]) + 4)


def traffic(dims: Dims) -> Traffic:
    """q, k, v in; rotated q and k out; k and v to the cache; one row of cos and sin, a position and a slot a
    token."""
    d = resolve(dims)
    size = BYTES[d["dtype"]]
    heads = 2 * d["num_q_heads"] + 5 * d["num_kv_heads"]
    a_token = heads * d["head_dim"] * size + d["head_dim"] * size + 8
    return Traffic(
        int(d["num_tokens"] * a_token),
        0,
        "num_tokens*((2*num_q_heads + 5*num_kv_heads)*head_dim*sizeof(dtype) + head_dim*sizeof(dtype) + 8)",
    )


def memory_bytes(dims: Dims) -> int:
    """Both caches twice (subject's and baseline's), the tables, and the tokens' tensors twice."""
    d = resolve(dims)
    size = BYTES[d["dtype"]]
    cache = 2 * _blocks(d) * d["block_size"] * d["num_kv_heads"] * d["head_dim"]
    return int(2 * cache * size + d["max_pos"] * d["head_dim"] * size + 2 * traffic(dims).bytes)


def small(dims: Dims) -> dict[str, Any]:
    """Two tokens: the ISA does not depend on their number."""
    return {**resolve(dims), "num_tokens": 2}


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """Everything standard normal; positions drawn; token i goes to slot i; caches zero, so that what is not
    written stays known."""
    import torch

    d = resolve(dims)
    t, depth, kind = d["num_tokens"], d["head_dim"], d["dtype"]
    qh, kh, bs, nb = d["num_q_heads"], d["num_kv_heads"], d["block_size"], _blocks(d)
    if d["kv_layout"] == "flash":
        key_shape: tuple[int, ...] = (nb, bs, kh, depth)
        value_shape: tuple[int, ...] = (nb, bs, kh, depth)
    else:
        key_shape = (nb, kh, depth // PACK, bs, PACK)
        value_shape = (nb, kh, depth, bs)

    def normal(name: str, *shape: int) -> Any:
        return inputs.normal(name, shape, kind, device=device, seed=seed)

    position = inputs.uniform("positions", (t,), "f32", device=device, seed=seed, low=0.0)
    return {
        "q": normal("q", t, qh, depth),
        "k": normal("k", t, kh, depth),
        "v": normal("v", t, kh, depth),
        "positions": (position * d["max_pos"]).to(torch.int32),
        "cos": normal("cos", d["max_pos"], depth // 2),
        "sin": normal("sin", d["max_pos"], depth // 2),
        "slots": inputs.ramp(t, "i32", device=device),
        "key_cache": torch.zeros(key_shape, device=device, dtype=inputs.dtype(kind)),
        "value_cache": torch.zeros(value_shape, device=device, dtype=inputs.dtype(kind)),
        "q_out": inputs.poison((t, qh, depth), kind, device=device),
        "k_out": inputs.poison((t, kh, depth), kind, device=device),
        "k_scale": torch.ones(1, device=device),
        "v_scale": torch.ones(1, device=device),
    }


def outputs(tensors: Tensors) -> Tensors:
    """What the kernel writes."""
    return {name: tensors[name] for name in ("q_out", "k_out", "key_cache", "value_cache")}


def reset(tensors: Tensors) -> None:
    """Before a launch whose result is checked: caches are zero where nothing is written."""
    for name, tensor in tensors.items():
        if name.startswith(("key_", "value_")):
            tensor.zero_()


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """Upstream's kernel for these dimensions, through upstream's own launcher."""
    d = resolve(dims)
    launch = stubs.upstream("kernels.fused_rope_cache_kernel").build_fused_rope_cache_module(
        head_dim=d["head_dim"],
        num_q_heads=d["num_q_heads"],
        num_kv_heads=d["num_kv_heads"],
        block_size=d["block_size"],
        is_neox=True,
        flash_layout=d["kv_layout"] == "flash",
        dtype_str=d["dtype"],
        apply_scale=False,
        reuse_freqs_front_part=True,
        pos_dtype="i32",
    )
    at = stubs.fly_stream(stream)
    t = tensors
    before = [t[name] for name in ("q", "k", "v", "positions", "cos", "sin", "slots")]
    written = [t[name] for name in ("key_cache", "value_cache", "q_out", "k_out")]
    return lambda: launch(*before, *written, d["num_tokens"], t["k_scale"], t["v_scale"], stream=at)


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64: (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin) over the two halves; caches as they were
    elsewhere."""
    import torch

    d = resolve(dims)
    t = {name: value.cpu() for name, value in tensors.items()}
    at = t["positions"].long()
    cos, sin = (t[name].to(torch.float64)[at][:, None, :] for name in ("cos", "sin"))

    def rotated(x: Any) -> Any:
        first, second = x.to(torch.float64).chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    q, k = rotated(t["q"]), rotated(t["k"])
    keys, values = (torch.zeros_like(t[name], dtype=torch.float64) for name in ("key_cache", "value_cache"))
    block, place = t["slots"].long() // d["block_size"], t["slots"].long() % d["block_size"]
    if d["kv_layout"] == "flash":
        keys[block, place] = k
        values[block, place] = t["v"].to(torch.float64)
    else:
        keys[block, :, :, place, :] = k.reshape(*k.shape[:2], -1, PACK)
        values[block, :, :, place] = t["v"].to(torch.float64)
    return {"q_out": q, "k_out": k, "key_cache": keys, "value_cache": values}


def tolerance(dims: Dims) -> Tolerance:
    """Two products rounded once each in the input's dtype may cancel: |x cos| < 16, so 16 half-ulps
    absolutely."""
    kind = resolve(dims)["dtype"]
    one = inputs.rounded(kind, roundings=2)
    return Tolerance(
        16 * one.rtol, one.rtol, f"products rounded to {kind} before they are added, and the sum once"
    )


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """The claim's: AITER's fused Triton kernel. Another: torch's own operators (rotation and index_put)."""

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        d, t = resolve(dims), tensors
        t["key_torch"], t["value_torch"] = (
            torch.zeros_like(t["key_cache"]),
            torch.zeros_like(t["value_cache"]),
        )
        slots, positions = t["slots"].long(), t["positions"].long()
        block, place = slots // d["block_size"], slots % d["block_size"]
        flash = d["kv_layout"] == "flash"

        def launch() -> None:
            cos, sin = t["cos"][positions][:, None, :], t["sin"][positions][:, None, :]
            for name in ("q", "k"):
                first, second = t[name].chunk(2, dim=-1)
                t[name + "_torch"] = torch.cat(
                    [first * cos - second * sin, second * cos + first * sin], dim=-1
                )
            k = t["k_torch"]
            if flash:
                t["key_torch"][block, place] = k
                t["value_torch"][block, place] = t["v"]
            else:
                t["key_torch"][block, :, :, place, :] = k.reshape(*k.shape[:2], -1, PACK)
                t["value_torch"][block, :, :, place] = t["v"]

        return launch

    def of_aiter(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        call = aiter.load("triton-rope")
        d, t = resolve(dims), tensors
        t["key_aiter"], t["value_aiter"] = (
            torch.zeros_like(t["key_cache"]),
            torch.zeros_like(t["value_cache"]),
        )
        t["q_aiter"], t["k_aiter"] = torch.empty_like(t["q"]), torch.empty_like(t["k"])
        slots, positions = t["slots"].long(), t["positions"].long()
        cos, sin = (t[name][:, None, None, :] for name in ("cos", "sin"))
        flash = d["kv_layout"] == "flash"
        before = (t["q"], t["k"], t["v"], t["key_aiter"], t["value_aiter"], slots, positions, cos, sin)
        named = {
            "apply_scale": False,
            "offs": None,
            "q_out": t["q_aiter"],
            "k_out": t["k_aiter"],
            "output_zeros": False,
        }
        return lambda: call(*before, t["k_scale"], t["v_scale"], True, flash, **named)

    def names(end: str) -> dict[str, str]:
        return {
            "q_out": f"q_{end}",
            "k_out": f"k_{end}",
            "key_cache": f"key_{end}",
            "value_cache": f"value_{end}",
        }

    return (
        aiter.baseline(
            "triton-rope",
            "claim",
            of_aiter,
            names("aiter"),
            outside=("positions and slots widened to 64 bits",),
        ),
        inputs.torch_baseline("torch-rope", "other", "torch:mul+cat+index_put", of_torch, names("torch")),
    )
