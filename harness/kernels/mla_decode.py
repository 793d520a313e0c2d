"""Latent attention, decode, fp8: 128 heads share one key of 576, whose first 512 are the value; partial
outputs and their log sums.

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
    {"B": 1, "ctx_len": 64, "nhead": 128, "decode_qlen": 1, "page_size": 1, "splits": 1, "workers": 256}
)
WORKLOADS = MappingProxyType({"captured": DEFAULTS})
CAPTURES = (
    Capture(
        "mla_decode/att_viewer/big/ui_output_agent_41578_dispatch_58/code.json",
        "captured",
        "kn_mla_fwd_decode_m16x8_fp8_fp8_0",
    ),
)
REGION = Region(
    inside=("host dispatch of one launch", "stage 1: partial outputs and log sums"),
    outside=("building and JIT", "planning", "the reduction to bf16", "allocation"),
)
UNKNOWN = (
    "how AITER's planner split the 64 tokens of the timed row; here one sequence is one piece by default",
    "the captured waves held no decode work: all of them left at the loop bound",
)
QK, V = 576, 512
LDS_BYTES = 163840
"""LDS of one CU on gfx950; upstream asks rocminfo."""


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions of one launch. The kernel has 128 heads, one query a sequence, pages of one token."""
    fixed(dims, {"nhead_kv": 1, "qk_head_dim": QK, "kv_lora_rank": V, "rope_dim": QK - V, "v_head_dim": V})
    out = fill(DEFAULTS, dims)
    for name in ("B", "ctx_len", "splits", "workers"):
        integer(out, name)
    inputs.known(out, "nhead", (128,))
    inputs.known(out, "decode_qlen", (1,))
    inputs.known(out, "page_size", (1,))
    need(out["splits"] <= ceil_div(out["ctx_len"], 16), "dimension splits: pieces of less than 16 tokens")
    return out


def traffic(dims: Dims) -> Traffic:
    """Every sequence's keys once, q in, bf16 output (the reduced one, as upstream's test counts); 2 a
    multiply-add."""
    d = resolve(dims)
    tokens, rows = d["B"] * d["ctx_len"], d["B"] * d["nhead"]
    return Traffic(
        tokens * QK + rows * QK + rows * V * 2,
        2 * tokens * d["nhead"] * (QK + V),
        "B*ctx_len*576 + B*nhead*(576 + 2*512)",
        "2*B*ctx_len*nhead*(576 + 512)",
    )


def memory_bytes(dims: Dims) -> int:
    """Keys, q, and f32 partial outputs twice (subject's and baseline's)."""
    d = resolve(dims)
    return int(traffic(dims).bytes + 2 * 4 * d["B"] * d["splits"] * d["nhead"] * (V + 1))


def small(dims: Dims) -> dict[str, Any]:
    """One worker, one sequence: the ISA depends on neither, nor on the context."""
    return {**resolve(dims), "B": 1, "workers": 1, "splits": 1}


def pieces(d: Dims) -> list[tuple[int, int, int]]:
    """(sequence, first token, end) of each piece of work, tokens counted over all sequences; pieces of whole
    16s."""
    a_piece = ceil_div(ceil_div(d["ctx_len"], d["splits"]), 16) * 16
    return [
        (
            sequence,
            sequence * d["ctx_len"] + start,
            sequence * d["ctx_len"] + min(start + a_piece, d["ctx_len"]),
        )
        for sequence in range(d["B"])
        for start in range(0, d["ctx_len"], a_piece)
    ]


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """q and keys standard normal as fp8, unscaled; pages in a drawn order; work dealt to the workers one by
    one.

    work_info [pieces, 8] i32: sequence, place of the partial output, first and end query, first and end
    token, and two zeros; work_indptr [workers + 1]: each worker's range of pieces."""
    import torch

    d = resolve(dims)
    b, tokens, h = d["B"], d["B"] * d["ctx_len"], d["nhead"]
    work = [[s, place, s, s + 1, first, end, 0, 0] for place, (s, first, end) in enumerate(pieces(d))]
    each, more = divmod(len(work), d["workers"])
    counts = [each + (worker < more) for worker in range(d["workers"])]
    ends = torch.tensor([0, *counts], dtype=torch.int32).cumsum(0).to(torch.int32)
    order = inputs.uniform("pages", (tokens,), "f32", device="cpu", seed=seed).argsort().to(torch.int32)

    def steps(by: int) -> Any:
        return torch.arange(0, (b + 1) * by, by, dtype=torch.int32, device=device)

    return {
        "q": inputs.normal("q", (b, h, QK), "fp8", device=device, seed=seed),
        "kv": inputs.normal("kv", (tokens, 1, 1, QK), "fp8", device=device, seed=seed),
        "kv_indices": order.to(device),
        "work_indptr": ends.to(device),
        "work_info": torch.tensor(work, dtype=torch.int32, device=device),
        "qo_indptr": steps(1),
        "kv_indptr": steps(d["ctx_len"]),
        "last_page": torch.ones(b, dtype=torch.int32, device=device),
        "out": inputs.poison((b, h, V), "bf16", device=device),
        "partial": inputs.poison((len(work), 1, h, V), "f32", device=device),
        "lse": inputs.poison((len(work), 1, h, 1), "f32", device=device),
    }


def outputs(tensors: Tensors) -> Tensors:
    """What stage 1 writes: one normalised output and one log sum a piece and head. `out` is the
    reduction's."""
    return {"partial": tensors["partial"], "lse": tensors["lse"]}


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """Upstream's kernel, called below its wrapper (which asks AITER and rocminfo for the device)."""
    d = resolve(dims)
    source = stubs.upstream("kernels.mla_fwd_decode_m16x8_fp8_fp8")
    t = tensors
    flat = (
        t["q"].view(-1, QK),
        t["kv"].view(-1, QK),
        t["kv_indices"],
        t["work_indptr"],
        t["work_info"].view(-1),
        t["out"].view(-1, V),
        t["partial"].view(-1, V),
        t["lse"].view(-1),
    )
    lds = LDS_BYTES // source.OCCUPANCY
    at = stubs.fly_stream(stream)
    launch = source.launch_mla_fwd_decode_m16x8_fp8_fp8
    return lambda: launch(*flat, QK**-0.5, d["workers"], lds, stream=at)


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64: for each piece and head, softmax(q k^T / sqrt(576)) v over the piece, and the log of its
    sum."""
    import torch

    d = resolve(dims)
    q, kv = (tensors[name].cpu().to(torch.float64) for name in ("q", "kv"))
    pages = tensors["kv_indices"].cpu().long()
    partial, lse = [], []
    for sequence, first, end in pieces(d):
        keys = kv.view(-1, QK)[pages[first:end]]
        scores = q[sequence] @ keys.T * QK**-0.5
        partial.append(torch.softmax(scores, dim=-1) @ keys[:, :V])
        lse.append(torch.logsumexp(scores, dim=-1))
    return {"partial": torch.stack(partial)[:, None], "lse": torch.stack(lse)[:, None, :, None]}


def tolerance(dims: Dims) -> Tolerance:
    """Weights are rounded to fp8 before the second product: each by at most 2^-4 of itself, so an output by
    at most 2^-4 of the weighted mean of |v|, which for normal v stays below 1.2. The log sum is float32 with
    a fast log2."""
    return Tolerance(
        1.2 * 2.0**-4,
        2.0**-7,
        "weights rounded to fp8 (3 bits), mean |v| < 1.2",
        special={"lse": (2.0**-12, 2.0**-12)},
    )


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """The claim's: AITER's HipKittens stage 1 on the same plan. Another: torch over whole sequences, in
    bf16."""

    def of_aiter(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        call, t = aiter.load("hk-mla-decode"), tensors
        t["partial_hk"], t["lse_hk"] = torch.empty_like(t["partial"]), torch.empty_like(t["lse"])
        plan = (
            t["qo_indptr"],
            t["kv_indptr"],
            t["kv_indices"],
            t["last_page"],
            t["work_indptr"],
            t["work_info"],
        )
        written = (t["partial_hk"], t["lse_hk"], torch.empty_like(t["out"]))
        return lambda: call(t["q"], t["kv"], *plan, 1, QK**-0.5, *written)

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        d, t = resolve(dims), tensors
        pages = t["kv_indices"].long()
        keys = t["kv"].view(-1, QK).to(torch.bfloat16)[pages].view(d["B"], 1, d["ctx_len"], QK)
        q = t["q"].to(torch.bfloat16)[:, :, None, :]

        def launch() -> None:
            k = keys.expand(-1, d["nhead"], -1, -1)
            t["out_torch"] = torch.nn.functional.scaled_dot_product_attention(
                q, k, k[..., :V], scale=QK**-0.5
            )

        return launch

    return (
        aiter.baseline("hk-mla-decode", "claim", of_aiter, {"partial": "partial_hk", "lse": "lse_hk"}),
        inputs.torch_baseline(
            "torch-sdpa",
            "other",
            "torch.nn.functional:scaled_dot_product_attention",
            of_torch,
            {},
            outside=("gathering the pages and widening to bf16",),
            note="gives the reduced output, not the partial ones",
        ),
    )
