"""Indexer logits in fp4: out[b, t] = sum_h relu(q[b, h] . k[b, t]) * w[b, h]; q and the paged k in fp4 with
e8m0 scales.

Knows this kernel's shapes, inputs, subject, baselines and reference; nothing of statistics or tiers.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from harness.kernels import inputs, stubs
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
        "B": 32,
        "ctx_len": 131072,
        "block_k": 256,
        "kv_block_size": 64,
        "heads": 64,
        "head_dim": 128,
        "next_n": 1,
        "num_warps": 4,
        "parallel_units": 512,
        "context": 0,
    }
)
WORKLOADS = MappingProxyType(
    {"captured-big": DEFAULTS, "captured-small": MappingProxyType({**DEFAULTS, "B": 4, "ctx_len": 8192})}
)
SOURCE = "9120078d35d7d232b3941ded5b76a1ca92329ef0"
"""The FlyDSL commit whose kernel source gives the captured listings; the file is absent at the study's
commit."""
_ATT = "pa_mqa_logits_fp4/att_viewer"
_SYMBOL = "pa_mqa_logits_fp4_kernel_0"
CAPTURES = (
    Capture(f"{_ATT}/big/ui_output_agent_55351_dispatch_426/code.json", "captured-big", _SYMBOL, SOURCE),
    Capture(f"{_ATT}/small/ui_output_agent_32435_dispatch_197/code.json", "captured-small", _SYMBOL, SOURCE),
)
REGION = Region(
    inside=("host dispatch of one launch", "the kernel"),
    outside=(
        "building and JIT",
        "quantisation, preshuffling and the schedule of workgroups",
        "filling out with -inf",
    ),
)
UNKNOWN = ("no baseline is published for this kernel; upstream's test has torch in bf16",)
_TOKENS = {(32, 131072): 2145728, (4, 8192): 17280}
"""Sum of the context lengths that upstream's test draws, by (B, ctx_len): so that no torch is needed to
count."""
_CODES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""e2m1 magnitudes by the low three bits of a code (OCP Microscaling Formats 1.0, section 5.3.3)."""


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions of one launch. `context` is every sequence's length; 0: drawn as upstream's test draws
    them."""
    fixed(dims, {"q_dtype": "fp4", "kv_dtype": "fp4"})
    out = fill(DEFAULTS, dims)
    integer(out, "B")
    integer(out, "kv_block_size", multiple_of=16)
    integer(out, "block_k", multiple_of=max(out["kv_block_size"], 16 * out["num_warps"]))
    integer(out, "ctx_len", multiple_of=out["block_k"])
    integer(out, "context", multiple_of=out["kv_block_size"], at_least=0)
    integer(out, "heads", multiple_of=16)
    integer(out, "head_dim", multiple_of=128)
    inputs.known(out, "next_n", (1,))
    need(out["heads"] <= 128, f"dimension heads: at most 128 (got {out['heads']})")
    need(out["context"] <= out["ctx_len"], "dimension context: longer than ctx_len")
    return out


def lengths(d: Dims) -> list[int]:
    """Context length of each sequence: uniform in a half to three halves of ctx_len / 2, whole cache
    blocks."""
    if d["context"]:
        return [d["context"]] * d["B"]
    import torch

    mean = d["ctx_len"] // 2
    low, high = mean // 2, mean + mean // 2
    drawn = torch.randint(low, high + 1, (d["B"],), generator=torch.Generator().manual_seed(0)).tolist()
    return [min(ceil_div(length, d["kv_block_size"]) * d["kv_block_size"], d["ctx_len"]) for length in drawn]


def schedule(d: Dims) -> tuple[int, list[list[int]]]:
    """(chunks a workgroup at most, rows [sequence, first chunk, chunks, context length], one a workgroup):
    the fewest chunks that keep the workgroups within `parallel_units`."""
    sizes = lengths(d)
    chunks = [ceil_div(length, d["block_k"]) for length in sizes]
    most = next(
        (n for n in range(1, max(chunks) + 1) if sum(ceil_div(c, n) for c in chunks) <= d["parallel_units"]),
        max(chunks),
    )
    rows = [
        [sequence, start, min(most, count - start), sizes[sequence]]
        for sequence, count in enumerate(chunks)
        for start in range(0, count, most)
    ]
    return most, rows


def _tokens(d: Dims) -> int:
    if not d["context"] and (d["B"], d["ctx_len"]) in _TOKENS:
        return _TOKENS[d["B"], d["ctx_len"]]
    return sum(lengths(d))


def traffic(dims: Dims) -> Traffic:
    """Keys of every token in use and their scales once, q, weights, block table; one f32 a token out.
    Operations as upstream's test counts them: a product, a relu, a weight and an addition a head."""
    d = resolve(dims)
    total, h, depth = _tokens(d), d["heads"], d["head_dim"]
    row = depth // 2 + depth // 32
    table = d["B"] * (d["ctx_len"] // d["kv_block_size"]) * 4
    return Traffic(
        d["B"] * h * (row + 4) + total * (row + 4) + table,
        total * h * (2 * depth + 3),
        "B*heads*(D/2 + D/32 + 4) + tokens*(D/2 + D/32 + 4) + 4*B*ctx_len/kv_block_size",
        "tokens*heads*(2*head_dim + 3), tokens the sum of the context lengths",
    )


def memory_bytes(dims: Dims) -> int:
    """The whole cache (all of ctx_len, in use or not), its scales, and out."""
    d = resolve(dims)
    places = d["B"] * d["ctx_len"]
    return int(places * (d["head_dim"] // 2 + d["head_dim"] // 32 + 4) * 2)


def small(dims: Dims) -> dict[str, Any]:
    """One sequence of two chunks: the ISA depends on ctx_len (the table's row length), not on B or the
    schedule."""
    d = resolve(dims)
    return {**d, "B": 1, "context": 2 * d["block_k"]}


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """Every code and scale drawn as bytes: q and k codes uniform over all 16, scales 2^-2 to 2^1, weights 0.1
    normal.

    `q_scale` is padded to 4 rows of heads and ordered (K tile, K quarter, lane, row of heads); `kv` is
    [blocks, K tiles, 4, block, 16 bytes]; `kv_scale` interleaves four groups of tokens. The table gives each
    sequence its own blocks in a drawn order. `out` is NaN where a logit is due and -infinity elsewhere."""
    import torch

    d = resolve(dims)
    b, h, depth, block = d["B"], d["heads"], d["head_dim"], d["kv_block_size"]
    a_sequence = d["ctx_len"] // block
    count, tiles, rows = b * a_sequence, depth // 128, h // 16

    def draw(name: str, shape: tuple[int, ...], low: int, high: int) -> Any:
        return inputs.codes(name, shape, low, high, device=device, seed=seed)

    scale = draw("q_scale", (b, 1, rows, 16, tiles, 4), 125, 129).permute(0, 1, 4, 5, 3, 2)
    padded = torch.nn.functional.pad(scale, (0, ceil_div(rows, 4) * 4 - rows)).contiguous()
    sizes = torch.tensor(lengths(d), device=device)
    due = torch.arange(d["ctx_len"], device=device)[None, :] < sizes[:, None]
    order = inputs.uniform("blocks", (count,), "f32", device="cpu", seed=seed).argsort()
    most, cta = schedule(d)
    if not d["context"]:
        fixed(dims, {"safe_chunks_per_cta": most, "total_CTAs": len(cta)})
    return {
        "q": draw("q", (b, 1, h, depth // 2), 0, 256),
        "q_scale": padded,
        "kv": draw("kv", (count, tiles, 4, block, 16), 0, 256),
        "kv_scale": draw("kv_scale", (count, tiles, 4, block), 125, 129),
        "block_table": order.to(torch.int32).reshape(b, a_sequence).contiguous().to(device),
        "weights": inputs.normal("weights", (b, h), "f32", device=device, seed=seed, scale=0.1),
        "cta_info": torch.tensor(cta, dtype=torch.int32, device=device),
        "out": torch.where(due, float("nan"), float("-inf")).to(torch.float32).contiguous(),
    }


def outputs(tensors: Tensors) -> Tensors:
    """What the kernel writes."""
    return {"out": tensors["out"]}


def reset(tensors: Tensors) -> None:
    """Before a launch whose result is checked: NaN where a logit is due, -infinity elsewhere (the kernel
    leaves it)."""
    import torch

    out, info = tensors["out"], tensors["cta_info"].cpu()
    places = torch.arange(out.shape[1], device=out.device)
    out.fill_(float("-inf"))
    for sequence, _, _, length in info.tolist():
        out[sequence].masked_fill_(places < length, float("nan"))


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """The kernel of `SOURCE`, launched as upstream's test does, one workgroup a row of the schedule."""
    d = resolve(dims)
    most, _ = schedule(d)
    source = stubs.upstream("kernels.pa_mqa_logits_fp4")
    kernel, allocator = source.build_pa_mqa_logits_fp4_module(
        block_k=d["block_k"],
        kv_block_size=d["kv_block_size"],
        max_blocks_per_seq=d["ctx_len"] // d["kv_block_size"],
        max_chunks_per_cta=most,
        num_warps=d["num_warps"],
        next_n=d["next_n"],
        heads=d["heads"],
        head_dim=d["head_dim"],
    )
    launch = stubs.grid_launcher(kernel, allocator, threads=64 * d["num_warps"], operands=8)
    t = tensors
    names = ("out", "q", "q_scale", "kv", "kv_scale", "block_table", "weights", "cta_info")
    operands = [t[name] for name in names]
    groups = t["cta_info"].shape[0]
    at = stubs.fly_stream(stream)
    return lambda: launch(*operands, d["ctx_len"], groups, at)


def _values(packed: Any) -> Any:
    """float64 values of packed e2m1 codes: low nibble first, last dimension doubled."""
    import torch

    table = torch.tensor([*_CODES, *(-value for value in _CODES)], dtype=torch.float64)
    codes = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)
    return table[codes.long()]


def natural(dims: Dims, tensors: Tensors) -> tuple[Any, Any]:
    """(q [B, heads, D], k as a function of the sequence -> [context, D]), float64, out of the kernel's
    layouts."""
    import torch

    d = resolve(dims)
    t = {name: value.cpu() for name, value in tensors.items()}
    b, h, depth = d["B"], d["heads"], d["head_dim"]
    scale = t["q_scale"][..., : h // 16].permute(0, 1, 5, 4, 2, 3).reshape(b, h, depth // 32)
    q = _values(t["q"][:, 0]) * torch.exp2(scale.to(torch.float64) - 127).repeat_interleave(32, dim=-1)
    sizes = lengths(d)

    def k(sequence: int) -> Any:
        blocks = t["block_table"][sequence, : ceil_div(sizes[sequence], d["kv_block_size"])].long()
        codes = t["kv"][blocks].permute(0, 3, 1, 2, 4).reshape(-1, depth // 2)
        four = t["kv_scale"][blocks].unflatten(-1, (-1, 4)).transpose(-1, -2).flatten(-2)
        scales = four.permute(0, 3, 1, 2).reshape(-1, depth // 32)
        wide = _values(codes) * torch.exp2(scales.to(torch.float64) - 127).repeat_interleave(32, dim=-1)
        return wide[: sizes[sequence]]

    return q, k


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64; -infinity from the context's end on."""
    import torch

    d = resolve(dims)
    q, k = natural(d, tensors)
    weights = tensors["weights"].cpu().to(torch.float64)
    out = torch.full((d["B"], d["ctx_len"]), float("-inf"), dtype=torch.float64)
    for sequence in range(d["B"]):
        logits = (torch.relu(q[sequence] @ k(sequence).T) * weights[sequence][:, None]).sum(dim=0)
        out[sequence, : len(logits)] = logits
    return {"out": out}


def tolerance(dims: Dims) -> Tolerance:
    """float32 sums of heads * head_dim products: magnitudes of a product average 10, of a weight 0.08, so
    their sum is about heads*head_dim*0.8, and float32 keeps 2^-22 of it."""
    d = resolve(dims)
    size = d["heads"] * d["head_dim"] * 0.8
    return Tolerance(size * 2.0**-22 * 8, 2.0**-20, "float32 sums that cancel; products of fp4 are exact")


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """No claim has one; upstream's test runs torch in bf16 over the whole of ctx_len, dequantised outside."""

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        d, t = resolve(dims), tensors
        device = t["q"].device
        q, k = natural(d, t)
        keys = torch.zeros(d["B"], d["ctx_len"], d["head_dim"], dtype=torch.bfloat16, device=device)
        for sequence in range(d["B"]):
            rows = k(sequence)
            keys[sequence, : len(rows)] = rows.to(torch.bfloat16).to(device)
        queries = q.to(torch.bfloat16).to(device)
        weights = t["weights"].to(torch.bfloat16)

        def launch() -> None:
            products = torch.relu(torch.bmm(queries, keys.transpose(1, 2))) * weights[:, :, None]
            t["out_torch"] = products.sum(dim=1)

        return launch

    return (
        inputs.torch_baseline(
            "torch-bf16",
            "other",
            "torch:bmm+relu+sum",
            of_torch,
            {},
            outside=("dequantisation to bf16",),
            note="computes every place of ctx_len; its 16-bit sums are not the reference's",
        ),
    )
