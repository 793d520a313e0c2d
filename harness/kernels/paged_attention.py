"""Paged attention, decode, fp8 cache: 8 query heads on 1 key head of 128, pages of 1024 tokens, scales a
token.

Knows this kernel's shapes, inputs, subject, baselines and reference; nothing of statistics or tiers.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from harness.kernels import aiter, inputs, stubs
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
        "B": 3,
        "ctx_len": 1027,
        "query_length": 1,
        "num_q_heads": 8,
        "num_kv_heads": 1,
        "head_dim": 128,
        "page_size": 1024,
        "kv_dtype": "fp8",
        "quant_mode": "per_token",
        "trans_v": True,
        "sliding_window": 0,
        "context_partition_size": 256,
        "pool": 16384,
        "workers": 256,
    }
)
WORKLOADS = MappingProxyType({"captured": DEFAULTS})
CAPTURES = (
    Capture(
        "pa/att_viewer/big/ui_output_agent_10886_dispatch_209/code.json", "captured", "pa_decode_ps_kernel_0"
    ),
)
REGION = Region(
    inside=("host dispatch of upstream's launcher", "the kernel", "AITER's reduction kernel (pa_reduce_v1)"),
    outside=("building and JIT", "planning", "quantisation and layout of the cache", "allocation"),
)
UNKNOWN = (
    "how AITER's planner dealt the pages to the workers; here each page is one piece of work",
    "the study's note says eager events around upstream's launcher; the host share is not stated",
)
TILES = 4
"""Workgroups along z: quarters of a page."""


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions of one launch. `pool` is the cache's tokens a sequence (upstream's test: at least
    16384)."""
    fixed(dims, {"kv_varlen": False})
    out = fill(DEFAULTS, dims)
    for name in ("B", "ctx_len", "num_q_heads", "num_kv_heads", "workers"):
        integer(out, name)
    integer(out, "pool", multiple_of=1024)
    inputs.known(out, "query_length", (1,))
    inputs.known(out, "head_dim", (128,))
    inputs.known(out, "page_size", (1024,))
    inputs.known(out, "kv_dtype", ("fp8",))
    inputs.known(out, "quant_mode", ("per_token",))
    inputs.known(out, "trans_v", (True,))
    inputs.known(out, "sliding_window", (0,))
    need(
        out["num_q_heads"] % out["num_kv_heads"] == 0, "dimension num_q_heads: not a multiple of num_kv_heads"
    )
    need(out["num_q_heads"] // out["num_kv_heads"] <= 16, "more than 16 query heads on one key head")
    return out


def _pages(d: Dims) -> tuple[int, int]:
    """Pages in use by one sequence, and pages of the cache."""
    used = ceil_div(d["ctx_len"], d["page_size"])
    return used, d["B"] * max(used, d["pool"] // d["page_size"])


def traffic(dims: Dims) -> Traffic:
    """Keys, values and their scales of every token in use, q in, output out; 2 a multiply-add, both
    products."""
    d = resolve(dims)
    tokens, depth = d["B"] * d["ctx_len"], d["head_dim"]
    rows = d["B"] * d["query_length"] * d["num_q_heads"]
    return Traffic(
        tokens * d["num_kv_heads"] * (2 * depth + 8) + rows * depth * 4,
        4 * d["query_length"] * tokens * d["num_q_heads"] * depth,
        "B*ctx_len*num_kv_heads*(2*head_dim + 8) + B*num_q_heads*head_dim*(2 + 2)",
        "4*B*ctx_len*num_q_heads*head_dim",
    )


def memory_bytes(dims: Dims) -> int:
    """The whole cache in f32 while it is quantised, then in fp8, and the partial outputs."""
    d = resolve(dims)
    used, total = _pages(d)
    cache = total * d["page_size"] * d["num_kv_heads"] * 2
    partial = 4 * d["num_q_heads"] * (d["head_dim"] + 1) * (d["B"] * used * TILES + 1)
    return int(cache * (5 * d["head_dim"] + 4) + partial)


def small(dims: Dims) -> dict[str, Any]:
    """One sequence on one worker, the same context, no more cache than it needs: the ISA depends on none of
    these."""
    d = resolve(dims)
    return {**d, "B": 1, "workers": 1, "pool": 1024}


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """q, keys and values uniform in [-1, 1) as in upstream's test; keys and values quantised a token.

    `q` is a view of [B, q + 2 kv heads, 128], as upstream splits it. key_cache [pages, kv, 8, 1024, 16],
    value_cache [pages, kv, 64, 128, 16], scales [pages, kv, 1024, 1]. work_info [pieces, 8] i32: sequence,
    partial place, first and end query, first and end page, 0, query heads (first | end << 16). Row 0 of the
    partial outputs is unused."""
    import torch

    d = resolve(dims)
    b, qh, kh, depth, page = d["B"], d["num_q_heads"], d["num_kv_heads"], d["head_dim"], d["page_size"]
    used, total = _pages(d)
    group = qh // kh

    def cache(name: str) -> tuple[Any, Any]:
        return inputs.quantise_rows(
            inputs.uniform(name, (total, kh, page, depth), "f32", device=device, seed=seed)
        )

    keys, key_scale = cache("keys")
    values, value_scale = cache("values")
    order = (
        inputs.uniform("pages", (total,), "f32", device="cpu", seed=seed)
        .argsort()[: b * used]
        .to(torch.int32)
    )
    work = [
        [
            sequence,
            place,
            sequence,
            sequence + 1,
            sequence * used + at,
            sequence * used + at + 1,
            0,
            head * group | (head + 1) * group << 16,
        ]
        for place, (sequence, at) in enumerate((s, p) for s in range(b) for p in range(used))
        for head in range(kh)
    ]
    each, more = divmod(len(work), d["workers"])
    counts = [each + (worker < more) for worker in range(d["workers"])]
    rows = b * used * TILES
    final = torch.tensor([[s, s + 1] for s in range(b)], dtype=torch.int32, device=device)
    ends = torch.tensor([0, *counts], dtype=torch.int32).cumsum(0).to(torch.int32)
    steps = torch.arange(b + 1, dtype=torch.int32, device=device)
    return {
        "q": inputs.uniform("q", (b, qh + 2 * kh, depth), "bf16", device=device, seed=seed)[:, :qh],
        "key_cache": keys.view(total, kh, page, depth // 16, 16).permute(0, 1, 3, 2, 4).contiguous(),
        "value_cache": values.view(total, kh, page // 16, 16, depth).permute(0, 1, 2, 4, 3).contiguous(),
        "key_scale": key_scale,
        "value_scale": value_scale,
        "context": torch.full((b,), d["ctx_len"], dtype=torch.int32, device=device),
        "page_indices": order.to(device),
        "kv_indptr": steps * used,
        "block_table": order.reshape(b, used).contiguous().to(device),
        "work_indptr": ends.to(device),
        "work_info": torch.tensor(work, dtype=torch.int32, device=device),
        "reduce_indptr": steps * (used * TILES),
        "reduce_final": final,
        "reduce_partial": inputs.ramp(rows, "i32", device=device),
        "partial": inputs.poison((rows + 1, 1, qh, depth), "f32", device=device),
        "lse": inputs.poison((rows + 1, 1, qh, 1), "f32", device=device),
        "out": inputs.poison((b, qh, depth), "bf16", device=device),
    }


def merged(tensors: Tensors) -> Any:
    """The partial outputs brought together in float64 by their log sums, [B, heads, 128]: what the reduction
    does."""
    import torch

    partial = tensors["partial"][1:, 0].cpu().to(torch.float64)
    lse = tensors["lse"][1:, 0].cpu().to(torch.float64)
    b, qh, depth = tensors["out"].shape
    lse, partial = lse.view(b, -1, qh, 1), partial.view(b, -1, qh, depth)
    weight = torch.softmax(lse, dim=1)
    return torch.where(weight > 0, weight * partial, torch.zeros_like(partial)).sum(dim=1)


def outputs(tensors: Tensors) -> Tensors:
    """The output; where AITER's reduction did not run (no GPU), the partial outputs merged here."""
    return {"out": tensors["out"] if tensors.get("reduced") is not None else merged(tensors)}


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """Upstream's launcher with a plan of our own. Where no GPU is, AITER's reduction is stood in for by
    nothing."""
    import torch

    d = resolve(dims)
    launch = stubs.upstream("kernels.pa_decode_fp8").pa_decode_ps_launch
    t = tensors
    qh, depth = d["num_q_heads"], d["head_dim"]
    plan = {
        "work_indptr": t["work_indptr"],
        "work_info_flat": t["work_info"].view(-1),
        "reduce_indptr": t["reduce_indptr"],
        "reduce_final_map": t["reduce_final"],
        "reduce_partial_map": t["reduce_partial"],
        "num_sm": d["workers"],
        "partial_output": t["partial"],
        "partial_lse": t["lse"],
        "stride_po_partial": qh * depth,
        "stride_pl_partial": qh,
        "stride_po_ql": qh * depth,
        "stride_pl_ql": qh,
        "query_length": d["query_length"],
    }
    positional = (
        t["out"],
        t["q"],
        t["key_cache"],
        t["value_cache"],
        t["context"],
        t["page_indices"],
        t["kv_indptr"],
    )
    named = {
        "key_scale": t["key_scale"],
        "value_scale": t["value_scale"],
        "sliding_window": 0,
        "metadata": plan,
        "block_tables": t["block_table"],
        "stream": stubs.fly_stream(stream),
    }
    if stubs.gpu_present():
        aiter.load("paged-reduce")
        t["reduced"] = torch.ones(1)

        def reduced() -> None:
            launch(*positional, depth**-0.5, **named)

        return reduced

    def alone() -> None:
        with stubs.without_aiter():
            launch(*positional, depth**-0.5, **named)

    return alone


def _natural(t: Tensors, name: str, d: Dims) -> Any:
    """Keys or values [pages, kv heads, 1024, 128] float64, out of the cache's layout and dequantised."""
    import torch

    cache = t[f"{name}_cache"].cpu().to(torch.float64)
    plain = cache.permute(0, 1, 3, 2, 4) if name == "key" else cache.permute(0, 1, 2, 4, 3)
    plain = plain.reshape(*cache.shape[:2], d["page_size"], d["head_dim"])
    return plain * t[f"{name}_scale"].cpu().to(torch.float64)


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64 attention of each sequence over its pages' tokens below ctx_len."""
    import torch

    d = resolve(dims)
    keys, values = (_natural(tensors, name, d) for name in ("key", "value"))
    q, table = tensors["q"].cpu().to(torch.float64), tensors["block_table"].cpu().long()
    group = d["num_q_heads"] // d["num_kv_heads"]
    out = torch.empty(q.shape, dtype=torch.float64)
    for sequence in range(d["B"]):
        k, v = (c[table[sequence]].transpose(0, 1).flatten(1, 2)[:, : d["ctx_len"]] for c in (keys, values))
        rows = q[sequence].view(d["num_kv_heads"], group, -1)
        weights = torch.softmax(rows @ k.transpose(1, 2) * d["head_dim"] ** -0.5, dim=-1)
        out[sequence] = (weights @ v).reshape(d["num_q_heads"], -1)
    return {"out": out}


def tolerance(dims: Dims) -> Tolerance:
    """q and the weights are rounded to fp8 (2^-4 of themselves at most). Over ctx_len tokens of alike weight
    and random |v| < 1 these errors average out: six standard deviations of 2^-4 * 0.58 / sqrt(ctx_len), never
    above 2^-4."""
    d = resolve(dims)
    atol = min(1.0, 6 * 0.58 / d["ctx_len"] ** 0.5) * 2.0**-4
    return Tolerance(atol, 2.0**-7, "q and weights rounded to fp8 (3 bits), averaged over the context")


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """The claim's: AITER's Gluon kernel, persistent. Another: torch over the dequantised cache, in bf16."""

    def of_aiter(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        call, splits = aiter.load("gluon-paged-attention"), aiter.load("gluon-splits")
        d, t = resolve(dims), tensors
        part = d["context_partition_size"]
        count = splits(d["B"], d["num_kv_heads"], ceil_div(d["page_size"], part))
        group = d["query_length"] * d["num_q_heads"] // d["num_kv_heads"]
        shape, device = (d["B"], d["num_kv_heads"], count, group), t["q"].device
        t["out_gluon"] = torch.empty_like(t["out"])
        room = {
            "exp_sums": torch.empty(shape, device=device),
            "max_logits": torch.empty(shape, device=device),
            "temporary_output": torch.empty(*shape, d["head_dim"], dtype=torch.bfloat16, device=device),
        }
        front = (t["out_gluon"], t["q"], t["key_cache"], t["value_cache"], t["context"], t["block_table"])
        sizes = (d["head_dim"] ** -0.5, d["query_length"], count, part, torch.bfloat16)
        scales = (None, t["key_scale"], t["value_scale"])
        rest = {"alibi_slopes": None, "sinks": None, "sliding_window": 0, "ps": True}
        return lambda: call(*front, *sizes, *scales, **room, **rest)

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        d, t = resolve(dims), tensors
        device = t["q"].device
        table = t["block_table"].cpu().long()
        rows = []
        for name in ("key", "value"):
            cache = _natural(t, name, d)
            each = [cache[pages].transpose(0, 1).flatten(1, 2)[:, : d["ctx_len"]] for pages in table]
            rows.append(torch.stack(each).to(torch.bfloat16).to(device))
        q = t["q"].view(d["B"], d["num_q_heads"], 1, d["head_dim"])
        group = d["num_q_heads"] // d["num_kv_heads"]

        def launch() -> None:
            k, v = (tensor.repeat_interleave(group, dim=1) for tensor in rows)
            t["out_torch"] = torch.nn.functional.scaled_dot_product_attention(q, k, v)[:, :, 0]

        return launch

    return (
        aiter.baseline("gluon-paged-attention", "claim", of_aiter, {"out": "out_gluon"}),
        inputs.torch_baseline(
            "torch-sdpa",
            "other",
            "torch.nn.functional:scaled_dot_product_attention",
            of_torch,
            {"out": "out_torch"},
            outside=("gathering and dequantisation to bf16",),
        ),
    )
