"""Each reference against a formula written apart from it, and each torch baseline against the reference, on a
CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from harness.errors import HarnessError
from harness.kernels import get, inputs, routing
from harness.kernels.base import Tolerance

F64 = torch.float64
MOE = {
    "tokens": 5,
    "model_dim": 64,
    "inter_dim": 64,
    "experts": 4,
    "topk": 2,
    "tile_m": 16,
    "tile_n": 32,
    "tile_k": 32,
    "tile_n2": 32,
    "tile_k2": 32,
}
MOE_BLOCKS = {"tokens": 5, "model_dim": 256, "inter_dim": 256, "experts": 3, "topk": 2}
SHAPES: dict[str, dict[str, Any]] = {
    "softmax": {"M": 3, "N": 100},
    "layernorm": {"M": 3, "N": 64},
    "rmsnorm": {"M": 3, "N": 64},
    "quant": {"M": 3, "N": 64},
    "vec-add": {"n": 2048},
    "topk-gating": {"tokens": 9, "experts": 16, "topk": 3},
    "moe-reduce": {"tokens": 4, "topk": 3, "model_dim": 16},
    "rope": {"num_tokens": 19, "head_dim": 64, "num_q_heads": 2, "num_kv_heads": 2, "max_pos": 50},
    "flash-attn": {"B": 2, "S": 128, "H": 2, "D": 64},
    "hgemm-splitk": {"M": 5, "N": 64, "K": 512, "SPLIT_K": 2},
    "preshuffle-gemm": {"M": 5, "N": 128, "K": 128},
    "preshuffle-gemm-v2": {"M": 5, "N": 128, "K": 128},
    "blockscale-gemm": {"M": 5, "N": 256, "K": 512},
    "moe-gemm": {**MOE, "stage": "both"},
    "moe-blockscale": {**MOE_BLOCKS, "stage": "both"},
    "mqa-logits-fp4": {"B": 2, "ctx_len": 512, "context": 192, "heads": 32},
    "mla-decode": {"B": 2, "ctx_len": 40, "splits": 3, "workers": 4},
    "paged-attention": {
        "B": 2,
        "ctx_len": 1030,
        "num_q_heads": 4,
        "num_kv_heads": 2,
        "pool": 2048,
        "workers": 3,
    },
    "fp8-gemm-4wave": {"M": 5, "N": 64, "K": 256, "tile_m": 64, "tile_n": 64},
}


def made(bundle: str, **more: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """(kernel file, full dimensions, tensors on the CPU)."""
    module = get(bundle)
    dims = module.resolve({**SHAPES[bundle], **more})
    return module, dims, module.make_inputs(dims, device="cpu", seed=7)


def near(got: torch.Tensor, want: torch.Tensor) -> None:
    """Two float64 computations of one thing."""
    torch.testing.assert_close(got.to(F64), want.to(F64), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("bundle", SHAPES)
def test_inputs_are_seeded_poisoned_and_within_the_named_memory(bundle: str) -> None:
    module, dims, first = made(bundle)
    second = module.make_inputs(dims, device="cpu", seed=7)
    other = module.make_inputs(dims, device="cpu", seed=8)
    same = [
        torch.equal(first[n].reshape(-1).view(torch.uint8), second[n].reshape(-1).view(torch.uint8))
        for n in first
    ]
    assert all(same)
    assert any(
        not torch.equal(first[n].reshape(-1).view(torch.uint8), other[n].reshape(-1).view(torch.uint8))
        for n in first
    )
    reference = module.reference(dims, first)
    written = module.outputs(first)
    assert set(reference) <= set(written)
    fails = [c for c in inputs.check(written, reference, module.tolerance(dims)) if not c.passed]
    assert fails, "outputs nobody has written pass the check"


@pytest.mark.parametrize("bundle", SHAPES)
def test_torch_baselines_agree_with_the_reference(bundle: str) -> None:
    module, dims, tensors = made(bundle)
    ran = 0
    for baseline in module.baselines(dims):
        if baseline.requires != "torch":
            continue
        baseline.build(dims, tensors)()
        ran += 1
        reference = module.reference(dims, tensors)
        for name, other in baseline.outputs.items():
            if name not in reference:
                continue
            tolerance = module.tolerance(dims)
            (result,) = inputs.check({name: tensors[other]}, {name: reference[name]}, tolerance)
            assert result.passed, (baseline.id, result)
    assert ran


def test_torch_baselines_whose_rounding_differs_stay_close() -> None:
    """Baselines without comparable outputs carry more roundings: within 5 % of the largest value."""
    for bundle, name, other in (
        ("blockscale-gemm", "c", "c_torch"),
        ("moe-gemm", "h", "h_torch"),
        ("moe-gemm", "y", "y_torch"),
        ("moe-blockscale", "h", "h_torch"),
        ("moe-blockscale", "y", "y_torch"),
    ):
        module, dims, tensors = made(bundle)
        next(b for b in module.baselines(dims) if b.requires == "torch").build(dims, tensors)()
        want = module.reference(dims, tensors)[name]
        assert (tensors[other].to(F64) - want).abs().max() < 0.05 * want.abs().max()


def test_check_fails_on_nan_on_a_changed_element_and_on_another_shape() -> None:
    module, dims, tensors = made("softmax")
    reference = module.reference(dims, tensors)
    good = reference["y"].to(torch.bfloat16)
    tolerance = module.tolerance(dims)
    assert inputs.check({"y": good}, reference, tolerance)[0].passed
    for value in (float("nan"), float("inf"), good[1, 3].item() * 1.02):
        bad = good.clone()
        bad[1, 3] = value
        (result,) = inputs.check({"y": bad}, reference, tolerance)
        assert not result.passed and result.worst > 1
    with pytest.raises(HarnessError, match="shape"):
        inputs.check({"y": good[:2]}, reference, tolerance)
    exact = Tolerance(1.0, 1.0, "", exact=("y",))
    assert not inputs.check({"y": good.to(F64)}, reference, exact)[0].passed
    infinite = torch.tensor([float("-inf"), 1.0])
    assert inputs.check({"y": infinite}, {"y": infinite}, Tolerance(0.0, 0.0, ""))[0].passed


def test_softmax() -> None:
    module, dims, t = made("softmax")
    rows = [[math.exp(v) for v in row] for row in t["x"].to(F64).tolist()]
    near(
        module.reference(dims, t)["y"], torch.tensor([[v / sum(row) for v in row] for row in rows], dtype=F64)
    )


def test_layernorm() -> None:
    module, dims, t = made("layernorm")
    want = torch.nn.functional.layer_norm(t["x"].to(F64), (64,), t["gamma"].to(F64), t["beta"].to(F64), 1e-5)
    near(module.reference(dims, t)["y"], want)


def test_rmsnorm() -> None:
    module, dims, t = made("rmsnorm")
    near(
        module.reference(dims, t)["y"],
        torch.nn.functional.rms_norm(t["x"].to(F64), (64,), t["gamma"].to(F64), 1e-5),
    )


def test_quant() -> None:
    module, dims, t = made("quant")
    reference = module.reference(dims, t)
    for row, scale, values in zip(
        t["x"].tolist(), reference["s"].tolist(), reference["q"].tolist(), strict=True
    ):
        assert scale == pytest.approx(max(map(abs, row)) / 127)
        assert values == pytest.approx([v / scale for v in row])


def test_topk_gating() -> None:
    module, dims, t = made("topk-gating")
    reference = module.reference(dims, t)
    for token, row in enumerate(t["logits"].to(F64).tolist()):
        best = sorted(range(16), key=lambda e: -row[e])[:3]
        assert reference["indices"][token].tolist() == best
        powers = [math.exp(row[e]) for e in best]
        assert reference["weights"][token].tolist() == pytest.approx([p / sum(powers) for p in powers])
        assert reference["token_expert"][token].tolist() == [token, 9 + token, 18 + token]


def test_gating_logits_are_all_different_in_every_dtype() -> None:
    for kind in ("bf16", "f16", "f32"):
        _, _, t = made("topk-gating", dtype=kind, experts=128, topk=6)
        assert all(len(row.unique()) == 128 for row in t["logits"])
    with pytest.raises(HarnessError, match="do not fit"):
        inputs.distinct(4096, "bf16")


@pytest.mark.parametrize("layout", ["flash", "non-flash"])
def test_rope(layout: str) -> None:
    """The rotation as a product of complex numbers; the caches read back slot by slot."""
    module, dims, t = made("rope", kv_layout=layout)
    reference = module.reference(dims, t)
    turn = torch.complex(t["cos"].to(F64), t["sin"].to(F64))[t["positions"].long()][:, None, :]
    for name in ("q", "k"):
        x = t[name].to(F64)
        turned = torch.complex(x[..., :32], x[..., 32:]) * turn
        near(reference[f"{name}_out"], torch.cat([turned.real, turned.imag], dim=-1))
    for slot in range(19):
        block, place = divmod(slot, 16)
        for name, rows in (("key", reference["k_out"]), ("value", t["v"].to(F64))):
            cache = reference[f"{name}_cache"]
            flash = layout == "flash"
            near(cache[block, place] if flash else cache[block, :, :, place].flatten(1), rows[slot])
    used = 19 * 2 * 64
    assert (reference["key_cache"] != 0).sum() <= used and (reference["value_cache"] != 0).sum() <= used


@pytest.mark.parametrize("causal", [True, False])
def test_flash_attn(causal: bool) -> None:
    module, dims, t = made("flash-attn", causal=causal)
    q, k, v = (t[name].to(F64).transpose(1, 2) for name in ("q", "k", "v"))
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    near(module.reference(dims, t)["o"], want.transpose(1, 2))


@pytest.mark.parametrize(
    ("bundle", "more"),
    [
        ("hgemm-splitk", {}),
        ("preshuffle-gemm", {}),
        ("preshuffle-gemm", {"in_dtype": "bf16"}),
        ("preshuffle-gemm-v2", {}),
        ("preshuffle-gemm-v2", {"in_dtype": "fp8"}),
        ("fp8-gemm-4wave", {}),
    ],
)
def test_products(bundle: str, more: dict[str, Any]) -> None:
    """Operands dequantised first, then one product; the reference scales afterwards."""
    module, dims, t = made(bundle, **more)
    a, b = t["a"].to(F64), t["b"].to(F64)
    if t.get("scale_a") is not None and t["scale_a"].numel():
        a, b = a * t["scale_a"].to(F64)[:, None], b * t["scale_b"].to(F64)[:, None]
    near(module.reference(dims, t)["c"], torch.einsum("mk,nk->mn", a, b))


def test_fp8_operands_keep_the_drawn_values() -> None:
    drawn = inputs.uniform("a", (8, 256), "f32", device="cpu", seed=1)
    q, scale = inputs.quantise_rows(drawn)
    error = (q.to(torch.float32) * scale - drawn).abs()
    assert (error <= drawn.abs() * 2.0**-4 + scale * 2.0**-10).all()
    assert (q.to(torch.float32).abs().amax(dim=1) == 448).all()
    zero, one = inputs.quantise_rows(torch.zeros(1, 32))
    assert zero.to(torch.float32).abs().max() == 0 and one.item() == 1


@pytest.mark.parametrize("kind", ["fp8", "bf16"])
def test_preshuffled_weights_address_by_address(kind: str) -> None:
    """Byte by byte: block of 16 rows, then 32-byte block of K, then 16-byte half, then row."""
    weight = torch.arange(32 * 64).remainder(97).to(torch.float32).reshape(32, 64).to(inputs.dtype(kind))
    size = weight.element_size()
    flat = inputs.shuffle_weight(weight).reshape(-1).view(torch.uint8)
    plain = weight.view(torch.uint8).reshape(32, 64 * size)
    for n in range(32):
        for byte in range(64 * size):
            at = (n // 16) * 16 * 64 * size + (byte // 16) * 16 * 16 + (n % 16) * 16 + byte % 16
            assert flat[at] == plain[n, byte]
    with pytest.raises(HarnessError, match="cannot be preshuffled"):
        inputs.shuffle_weight(weight[:20])


def test_blockscale_product() -> None:
    module, dims, t = made("blockscale-gemm")
    a, b = t["a"].to(F64).clone(), t["b"].to(F64).clone()
    for row in range(5):
        for block in range(4):
            a[row, block * 128 : block * 128 + 128] *= t["scale_a"][block, row].item()
    for n in range(2):
        for block in range(4):
            b[n * 128 : n * 128 + 128, block * 128 : block * 128 + 128] *= t["scale_b"][n, block].item()
    near(module.reference(dims, t)["c"], a @ b.T)


def experts(dims: dict[str, Any], t: dict[str, Any], wide: Callable[[str], Any]) -> tuple[Any, Any]:
    """Both stages token by token, from operands that `wide` dequantises."""
    x, w1, a2, w2 = (wide(name) for name in ("x", "w1", "a2", "w2"))
    h = torch.empty(dims["tokens"], dims["topk"], dims["inter_dim"], dtype=F64)
    y = torch.zeros(dims["tokens"], dims["model_dim"], dtype=F64)
    for token in range(dims["tokens"]):
        for slot in range(dims["topk"]):
            expert = int(t["topk_ids"][token, slot])
            both = w1[expert] @ x[token]
            gate, up = both[: dims["inter_dim"]], both[dims["inter_dim"] :]
            h[token, slot] = gate / (1 + torch.exp(-gate)) * up
            y[token] += t["topk_weights"][token, slot].to(F64) * (
                w2[expert] @ a2[token * dims["topk"] + slot]
            )
    return h, y


def test_moe_gemm() -> None:
    module, dims, t = made("moe-gemm")
    h, y = experts(dims, t, lambda name: t[name].to(F64) * t[f"scale_{name}"].to(F64)[..., None])
    reference = module.reference(dims, t)
    near(reference["h"], h)
    near(reference["y"], y)
    module.reset(t)
    assert t["y"].abs().max() == 0


def test_moe_blockscale() -> None:
    module, dims, t = made("moe-blockscale")

    def wide(name: str) -> Any:
        out = t[name].to(F64).clone()
        scale = t[f"scale_{name}"].to(F64)
        for block in range(out.shape[-1] // 128):
            part = slice(block * 128, block * 128 + 128)
            if out.dim() == 2:
                out[:, part] *= scale[block][:, None]
            else:
                for n in range(out.shape[1] // 128):
                    out[:, n * 128 : n * 128 + 128, part] *= scale[:, n, block][:, None, None]
        return out

    h, y = experts(dims, t, wide)
    reference = module.reference(dims, t)
    near(reference["h"], h)
    near(reference["y"], y)
    assert 0.3 < h.std() < 3 and 0.2 < y.std() < 3


def test_routing_covers_each_token_and_slot_once() -> None:
    made_route = routing.route(50, 3, 7, device="cpu", seed=3)
    assert all(len(row.unique()) == 3 for row in made_route["topk_ids"])
    torch.testing.assert_close(made_route["topk_weights"].sum(dim=1), torch.ones(50))
    plan = routing.sort(made_route, 7, 16)
    assert len(plan["sorted_experts"]) == routing.blocks(50, 3, 7, 16)
    seen = set()
    for place in range(int(plan["num_valid"])):
        value = int(plan["sorted_ids"][place])
        slot, token = value >> 24, value & 0xFFFFFF
        if (slot, token) == (3, 50):
            assert plan["sorted_weights"][place] == 0
            continue
        assert made_route["topk_ids"][token, slot] == plan["sorted_experts"][place // 16]
        assert plan["sorted_weights"][place] == made_route["topk_weights"][token, slot]
        seen.add((slot, token))
    assert len(seen) == 150
    assert (plan["sorted_experts"][int(plan["num_valid"]) // 16 :] == -1).all()


def test_mqa_logits() -> None:
    """One logit at a time, straight out of the kernel's own layouts."""
    module, dims, t = made("mqa-logits-fp4")
    reference = module.reference(dims, t)["out"]
    magnitudes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]

    def number(byte: int, high: int) -> float:
        code = byte >> 4 if high else byte & 15
        return -magnitudes[code & 7] if code & 8 else magnitudes[code]

    for sequence, token in ((0, 0), (0, 17), (1, 70), (1, 191)):
        block = int(t["block_table"][sequence, token // 64])
        at = token % 64
        total = 0.0
        for head in range(32):
            dot = 0.0
            for d in range(128):
                key = number(int(t["kv"][block, 0, d // 32, at, d % 32 // 2]), d % 2)
                place = at % 16 * 4 + at // 16
                key *= 2.0 ** (int(t["kv_scale"][block, 0, d // 32, place]) - 127)
                query = number(int(t["q"][sequence, 0, head, d // 2]), d % 2)
                query *= 2.0 ** (int(t["q_scale"][sequence, 0, 0, d // 32, head % 16, head // 16]) - 127)
                dot += key * query
            total += max(dot, 0.0) * float(t["weights"][sequence, head])
        assert reference[sequence, token].item() == pytest.approx(total, rel=1e-9)
    assert torch.isneginf(reference[:, 192:]).all() and torch.isfinite(reference[:, :192]).all()


@pytest.mark.parametrize(
    ("workload", "chunks", "groups"), [("captured-big", 17, 507), ("captured-small", 1, 69)]
)
def test_mqa_schedule_is_the_captured_one(workload: str, chunks: int, groups: int) -> None:
    from harness.kernels import mqa_logits_fp4 as kernel

    dims = kernel.resolve(kernel.WORKLOADS[workload])
    most, rows = kernel.schedule(dims)
    assert (most, len(rows)) == (chunks, groups)
    sizes = kernel.lengths(dims)
    assert sum(sizes) == kernel._TOKENS[dims["B"], dims["ctx_len"]]
    for sequence, size in enumerate(sizes):
        mine = [(start, count) for s, start, count, length in rows if s == sequence and length == size]
        assert [start for start, _ in mine] == [sum(c for _, c in mine[:i]) for i in range(len(mine))]
        assert sum(count for _, count in mine) == -(-size // 256)


def test_mla_decode_pieces_merge_to_whole_attention() -> None:
    module, dims, t = made("mla-decode")
    reference = module.reference(dims, t)
    partial, lse = reference["partial"][:, 0], reference["lse"][:, 0]
    work = t["work_info"].tolist()
    keys = t["kv"].to(F64).view(-1, 576)[t["kv_indices"].long()].view(2, 40, 576)
    for sequence in range(2):
        mine = [row[1] for row in work if row[0] == sequence]
        assert len(mine) == 3
        weight = torch.softmax(lse[mine], dim=0)
        merged = (weight * partial[mine]).sum(dim=0)
        scores = torch.einsum("hd,kd->hk", t["q"][sequence].to(F64), keys[sequence]) / 24.0
        near(merged, torch.softmax(scores, dim=-1) @ keys[sequence][:, :512])
    assert t["work_indptr"].tolist() == [0, 2, 4, 5, 6]
    assert [row[4:6] for row in work] == [[0, 16], [16, 32], [32, 40], [40, 56], [56, 72], [72, 80]]


def test_paged_attention() -> None:
    """Token by token out of the cache's layout; and the merge of partial outputs."""
    module, dims, t = made("paged-attention")
    want = torch.empty(2, 4, 128, dtype=F64)
    for sequence in range(2):
        for head in range(4):
            kv = head // 2
            rows, values = [], []
            for token in range(1030):
                page, at = int(t["block_table"][sequence, token // 1024]), token % 1024
                rows.append(
                    t["key_cache"][page, kv, :, at].reshape(-1).to(F64) * t["key_scale"][page, kv, at].to(F64)
                )
                value = t["value_cache"][page, kv, at // 16, :, at % 16].to(F64)
                values.append(value * t["value_scale"][page, kv, at].to(F64))
            scores = torch.stack(rows) @ t["q"][sequence, head].to(F64) / math.sqrt(128)
            want[sequence, head] = torch.softmax(scores, dim=0) @ torch.stack(values)
    near(module.reference(dims, t)["out"], want)
    t["lse"][1:].fill_(float("-inf"))
    t["partial"][1:].fill_(float("nan"))
    for sequence in range(2):
        first = 1 + sequence * 8
        t["lse"][first], t["lse"][first + 3] = 1.0, 2.0
        t["partial"][first], t["partial"][first + 3] = 10.0, 20.0
    share = math.exp(2.0) / (math.exp(1.0) + math.exp(2.0))
    merged = module.outputs(t)["out"]
    near(merged, torch.full_like(merged, 10.0 + 10.0 * share))


def test_large_tensors_repeat_without_two_equal_rows() -> None:
    rows = inputs.uniform("big", (1100, 8192), "bf16", device="cpu", seed=0)
    assert len({row.view(torch.uint8).numpy().tobytes() for row in rows}) == 1100


def test_fp8_of_another_architecture_is_refused() -> None:
    with pytest.raises(HarnessError, match="fp8_fnuz") as caught:
        inputs.dtype("fp8_fnuz")
    assert "gfx942" in (caught.value.remedy or "")


@pytest.mark.parametrize("bundle", ["rope", "mqa-logits-fp4", "moe-gemm", "moe-blockscale"])
def test_reset_puts_back_what_a_launch_may_not_find_changed(bundle: str) -> None:
    module, _, t = made(bundle)
    fresh = {name: tensor.clone() for name, tensor in module.outputs(t).items()}
    for tensor in module.outputs(t).values():
        tensor.fill_(5.0)
    module.reset(t)
    changed = {"rope": ("key_cache", "value_cache"), "mqa-logits-fp4": ("out",)}.get(bundle, ("y",))
    for name in changed:
        torch.testing.assert_close(t[name], fresh[name], rtol=0, atol=0, equal_nan=True)
