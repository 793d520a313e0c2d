"""Routing of tokens to experts, and weights too large to draw one by one.

Knows the layout that two-stage expert kernels read (sorted token ids in blocks of one expert each); nothing
of any one kernel."""

from __future__ import annotations

from typing import Any

from harness.kernels import inputs
from harness.kernels.base import Launch, Tensors, ceil_div

__all__ = ["blocks", "expert_rows", "reduced", "route", "sort", "torch_experts"]

POOL = 1021
"""Rows drawn for an expert weight; the weight repeats them. A prime, so that no two experts hold the same
matrix."""


def blocks(tokens: int, topk: int, experts: int, block: int) -> int:
    """Blocks launched: room for the worst distribution of tokens*topk rows over the experts."""
    return ceil_div(tokens * topk + experts * block - topk, block)


def route(tokens: int, topk: int, experts: int, *, device: str, seed: int) -> Tensors:
    """`topk_ids` [tokens, topk] i32: each token's experts, all different; `topk_weights` f32: softmax over
    them."""
    import torch

    score = inputs.normal("score", (tokens, experts), "f32", device="cpu", seed=seed)
    values, ids = torch.topk(score, topk, dim=1)
    return {
        "topk_ids": ids.to(torch.int32).to(device),
        "topk_weights": torch.softmax(values, dim=1).to(device),
    }


def sort(routing: Tensors, experts: int, block: int) -> Tensors:
    """The sorted form: rows of one expert after another, each expert padded to whole blocks.

    sorted_ids [rows] i32: slot << 24 | token, padding topk << 24 | tokens; sorted_weights [rows] f32, padding
    0; sorted_experts [blocks] i32, -1 where no block is; num_valid [1] i32: rows in use, padding included.
    """
    import torch

    ids, weights = routing["topk_ids"].cpu(), routing["topk_weights"].cpu()
    tokens, topk = ids.shape
    rows = tokens * topk + experts * block - topk
    sorted_ids = torch.full((rows,), topk << 24 | tokens, dtype=torch.int32)
    sorted_weights = torch.zeros(rows, dtype=torch.float32)
    sorted_experts = torch.full((ceil_div(rows, block),), -1, dtype=torch.int32)
    at = 0
    for expert in range(experts):
        token, slot = torch.where(ids == expert)
        sorted_ids[at : at + len(token)] = (slot << 24 | token).to(torch.int32)
        sorted_weights[at : at + len(token)] = weights[token, slot]
        used = ceil_div(len(token), block)
        sorted_experts[at // block : at // block + used] = expert
        at += used * block
    device = routing["topk_ids"].device
    made = {
        "sorted_ids": sorted_ids,
        "sorted_weights": sorted_weights,
        "sorted_experts": sorted_experts,
        "num_valid": torch.tensor([at], dtype=torch.int32),
    }
    return {name: tensor.to(device) for name, tensor in made.items()}


def expert_rows(
    name: str, experts: int, rows: int, depth: int, *, device: str, seed: int, scale: float
) -> tuple[Any, Any]:
    """fp8 weights [experts, rows, depth] and their row scales [experts, rows] f32: normal with deviation
    `scale`."""
    import torch

    drawn = inputs.normal(name, (POOL, depth), "f32", device=device, seed=seed, scale=scale)
    q, row_scale = inputs.quantise_rows(drawn)
    index = torch.arange(experts * rows, device=device) % POOL
    weight = q.view(torch.uint8)[index].view(q.dtype).reshape(experts, rows, depth)
    return weight, row_scale.view(-1)[index].reshape(experts, rows).contiguous()


def reduced(x: Any, weight: Any, ids: Any) -> Any:
    """[tokens, topk, rows] float64: each (token, slot) row of `x` [tokens, topk, depth] by its expert's
    matrix [experts, rows, depth], both already float64 or convertible."""
    import torch

    tokens, topk, _ = x.shape
    out = torch.zeros(tokens, topk, weight.shape[1], dtype=torch.float64)
    for expert in ids.unique().tolist():
        token, slot = torch.where(ids == expert)
        out[token, slot] = x[token, slot].to(torch.float64) @ weight[expert].to(torch.float64).T
    return out


def torch_experts(held: Tensors, t: Tensors) -> Launch:
    """Both stages in torch, an expert at a time, from 16-bit operands `held` (x and w1, a2 and w2, or all
    four).

    Writes `h_torch` [tokens, topk, inter_dim] and `y_torch` [tokens, model_dim] into `t`.
    """
    import torch

    ids = t["topk_ids"].long()
    tokens, topk = ids.shape
    count = next(held[name].shape[0] for name in ("w1", "w2") if name in held)
    places = [torch.where(ids == expert) for expert in range(count)]

    def launch() -> None:
        if "x" in held:
            t["h_torch"] = torch.zeros_like(t["h"])
            for expert, (token, slot) in enumerate(places):
                gate, up = (held["x"][token] @ held["w1"][expert].T).chunk(2, dim=-1)
                t["h_torch"][token, slot] = torch.nn.functional.silu(gate) * up
        if "a2" in held:
            rows = held["a2"].view(tokens, topk, -1)
            each = rows.new_zeros(tokens, topk, held["w2"].shape[1])
            for expert, (token, slot) in enumerate(places):
                each[token, slot] = rows[token, slot] @ held["w2"][expert].T
            t["y_torch"] = (each * t["topk_weights"][..., None].to(each.dtype)).sum(dim=1)

    return launch
