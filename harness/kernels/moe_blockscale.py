"""Expert layer, fp8 with scales a block of 128: stage 1 h = silu(x W1g^T) * (x W1u^T), stage 2 y = sum_k w_k
(a2 W2^T).

Knows this kernel's shapes, inputs, subject, baselines and reference; nothing of statistics or tiers.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from harness.kernels import aiter, inputs, routing, stubs
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
    {
        "tokens": 256,
        "model_dim": 7168,
        "inter_dim": 256,
        "experts": 8,
        "topk": 2,
        "in_dtype": "fp8",
        "out_dtype": "f16",
        "tile_m": 16,
        "tile_n": 256,
        "tile_k": 128,
        "waves_per_eu": 2,
        "stage": "1",
    }
)
WORKLOADS = MappingProxyType(
    {
        "captured": DEFAULTS,
        "stage2": MappingProxyType({**DEFAULTS, "stage": "2"}),
        "both": MappingProxyType({**DEFAULTS, "stage": "both"}),
        "both-16": MappingProxyType({**DEFAULTS, "stage": "both", "tokens": 16}),
    }
)
ASPECTS = MappingProxyType(
    {
        None: MappingProxyType({"stage": "both"}),
        "stage 1": MappingProxyType({"stage": "1"}),
        "stage 2": MappingProxyType({"stage": "2"}),
    }
)
"""What a timed claim's `stage` lays over its workload's dimensions; a claim without one is about both."""
CAPTURES = (
    Capture(
        "moe_blockscale/att_viewer/big/ui_output_agent_39345_dispatch_668/code.json",
        "captured",
        "mfma_moe1_bs_fp8_f16_cshuffle_t16x256x128_wpe2_abi8",
    ),
)
REGION = Region(
    inside=("host dispatch", "the kernel of one stage"),
    outside=(
        "building and JIT",
        "routing and sorting",
        "quantisation, of stage 2's input too",
        "preshuffling",
    ),
)
UNKNOWN = (
    "the token count of the timed row: the recipe says 16, the report stands beside 256",
    "whether the published baseline is both CK stages (the sum fits) or stage 1 alone (the report's words)",
)
BLOCK = 128
CK_BLOCK = 32
"""Rows of one block that AITER's CK stages are given in upstream's test."""


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions of one launch. `stage` is 1, 2, or both."""
    given = dict(dims)
    if isinstance(given.get("stage"), int):
        given["stage"] = str(given["stage"])
    out = fill(DEFAULTS, given)
    inputs.known(out, "stage", ("1", "2", "both"))
    inputs.known(out, "in_dtype", ("fp8",))
    inputs.known(out, "out_dtype", ("f16", "bf16"))
    integer(out, "tokens")
    need(out["tokens"] < 1 << 24, "dimension tokens: ids hold 24 bits of it")
    integer(out, "experts")
    integer(out, "topk")
    need(out["topk"] <= out["experts"], f"dimension topk: {out['topk']} of {out['experts']} experts")
    integer(out, "model_dim", multiple_of=max(BLOCK, out["tile_n"], out["tile_k"]))
    integer(out, "inter_dim", multiple_of=max(BLOCK, out["tile_n"], out["tile_k"]))
    return out


def traffic(dims: Dims) -> Traffic:
    """Every expert's weights and block scales once, activations and theirs in, results out; 2 a
    multiply-add."""
    d = resolve(dims)
    t, k, m, i = d["tokens"], d["topk"], d["model_dim"], d["inter_dim"]
    rows, size = t * k, BYTES[d["out_dtype"]]
    active = min(d["experts"], rows)
    one = (
        t * (m + 4 * m // BLOCK)
        + active * (2 * i * m + 4 * (2 * i // BLOCK) * (m // BLOCK))
        + int(rows * i * size)
    )
    two = (
        rows * (i + 4 * i // BLOCK + 4)
        + active * (i * m + 4 * (i // BLOCK) * (m // BLOCK))
        + int(t * m * size)
    )
    text_one = (
        "tokens*model_dim*(1 + 4/128) + experts*2*inter_dim*model_dim*(1 + 4/128^2) "
        "+ tokens*topk*inter_dim*sizeof(out)"
    )
    text_two = (
        "tokens*topk*(inter_dim*(1 + 4/128) + 4) + experts*inter_dim*model_dim*(1 + 4/128^2) "
        "+ tokens*model_dim*sizeof(out)"
    )
    if d["stage"] == "1":
        return Traffic(one, 4 * rows * i * m, text_one, "2*tokens*topk*(2*inter_dim)*model_dim")
    if d["stage"] == "2":
        return Traffic(two, 2 * rows * i * m, text_two, "2*tokens*topk*inter_dim*model_dim")
    return Traffic(
        one + two, 6 * rows * i * m, f"{text_one} + {text_two}", "6*tokens*topk*inter_dim*model_dim"
    )


def memory_bytes(dims: Dims) -> int:
    """Both stages' weights plain and preshuffled, and all activations twice."""
    d = resolve(dims)
    return int(
        2 * 3 * d["experts"] * d["model_dim"] * d["inter_dim"] + 4 * traffic({**dims, "stage": "both"}).bytes
    )


def small(dims: Dims) -> dict[str, Any]:
    """Two tokens: the ISA does not depend on their number."""
    return {**resolve(dims), "tokens": 2}


def _blocked(name: str, rows: int, depth: int, device: str, seed: int) -> tuple[Any, Any]:
    """fp8 activations [rows, depth] and scales [depth/128, rows] f32 (the transposed form that the kernels
    read)."""
    drawn = inputs.normal(name, (rows * depth // BLOCK, BLOCK), "f32", device=device, seed=seed)
    q, scale = inputs.quantise_rows(drawn)
    return q.view(rows, depth), scale.view(rows, depth // BLOCK).T.contiguous()


def _weight(name: str, d: Dims, rows: int, depth: int, device: str, seed: int) -> tuple[Any, Any]:
    """fp8 weights [experts, rows, depth] in full range, and scales [experts, rows/128, depth/128] f32 drawn
    so that a product has deviation about 1."""
    e = d["experts"]
    weight, _ = routing.expert_rows(name, e, rows, depth, device=device, seed=seed, scale=1.0)
    # 448 is about four deviations of a row: the weight's own deviation is then 112 of fp8's units
    unit = depth**-0.5 / 112
    blocks = (e, rows // BLOCK, depth // BLOCK)
    scale = inputs.uniform(
        f"scale_{name}", blocks, "f32", device=device, seed=seed, low=0.5 * unit, high=1.5 * unit
    )
    return weight, scale


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """Activations normal, quantised a block of 128; weights fp8 with drawn block scales; stage 2's input is
    drawn, not stage 1's output. `h` is poisoned, `y` zero: stage 2 adds into it."""
    import torch

    d = resolve(dims)
    t, k, e, m, i = d["tokens"], d["topk"], d["experts"], d["model_dim"], d["inter_dim"]
    made = routing.route(t, k, e, device=device, seed=seed)
    made.update(routing.sort(made, e, d["tile_m"]))
    if d["stage"] in ("1", "both"):
        made["x"], made["scale_x"] = _blocked("x", t, m, device, seed)
        made["w1"], made["scale_w1"] = _weight("w1", d, 2 * i, m, device, seed)
        made["w1_shuffled"] = inputs.shuffle_weight(made["w1"])
        made["h"] = inputs.poison((t, k, i), d["out_dtype"], device=device)
    if d["stage"] in ("2", "both"):
        made["a2"], made["scale_a2"] = _blocked("a2", t * k, i, device, seed)
        made["w2"], made["scale_w2"] = _weight("w2", d, m, i, device, seed)
        made["w2_shuffled"] = inputs.shuffle_weight(made["w2"])
        made["y"] = torch.zeros(t, m, device=device, dtype=inputs.dtype(d["out_dtype"]))
    return made


def reset(tensors: Tensors) -> None:
    """Before a launch whose result is checked: stage 2 by atomics adds into y, and so do AITER's."""
    for name in ("y", "y_ck", "y_asm"):
        if name in tensors:
            tensors[name].zero_()


def outputs(tensors: Tensors) -> Tensors:
    """What the kernels write."""
    return {name: tensors[name] for name in ("h", "y") if name in tensors}


def _stage(number: int, d: Dims, t: Tensors, at: Any) -> Launch:
    source = stubs.upstream("kernels.moe_blockscale_2stage")
    shape = {
        name: d[name] for name in ("model_dim", "inter_dim", "experts", "topk", "tile_m", "tile_n", "tile_k")
    }
    rest = {"scale_block_k": BLOCK, "out_dtype": d["out_dtype"], "waves_per_eu": d["waves_per_eu"]}
    if number == 1:
        jit = source.compile_moe_blockscale_gemm1(**shape, **rest, doweight_stage1=False)
        names, widths = ("h", "x", "w1_shuffled", "scale_x", "scale_w1"), (d["inter_dim"], d["model_dim"])
    else:
        jit = source.compile_moe_blockscale_gemm2(**shape, **rest, doweight_stage2=True)
        names, widths = ("y", "a2", "w2_shuffled", "scale_a2", "scale_w2"), (d["model_dim"], d["inter_dim"])
    operands = [t[name].view(-1) for name in names]
    sorting = (t["sorted_ids"], t["sorted_experts"], t["sorted_weights"], t["num_valid"])
    return stubs.launcher(jit, *operands, *sorting, d["tokens"], *widths, t["sorted_experts"].numel(), at)  # type: ignore[no-any-return]


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """Upstream's kernels of the stage; weights applied in stage 2."""
    d = resolve(dims)
    at = stubs.fly_stream(stream)
    if d["stage"] != "both":
        return _stage(int(d["stage"]), d, tensors, at)
    first, second = _stage(1, d, tensors, at), _stage(2, d, tensors, at)

    def launch() -> None:
        first()
        second()

    return launch


def _dequantised(t: Tensors, name: str, wide: Any) -> Any:
    """Activations [rows, depth] or weights [experts, rows, depth] times their block scales, in dtype
    `wide`."""
    scale = t[f"scale_{name}"].to(wide)
    if t[name].dim() == 2:
        return t[name].to(wide) * scale.T.repeat_interleave(BLOCK, dim=1)
    return t[name].to(wide) * scale.repeat_interleave(BLOCK, dim=1).repeat_interleave(BLOCK, dim=2)


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64, each stage from its own dequantised input."""
    import torch

    d = resolve(dims)
    t = {name: value.cpu() for name, value in tensors.items()}
    out: Tensors = {}
    if "x" in t:
        x = _dequantised(t, "x", torch.float64)[:, None, :].expand(-1, d["topk"], -1)
        both = routing.reduced(x, _dequantised(t, "w1", torch.float64), t["topk_ids"])
        gate, up = both.chunk(2, dim=-1)
        out["h"] = gate * torch.sigmoid(gate) * up
    if "a2" in t:
        a2 = _dequantised(t, "a2", torch.float64).view(d["tokens"], d["topk"], -1)
        each = routing.reduced(a2, _dequantised(t, "w2", torch.float64), t["topk_ids"])
        out["y"] = (each * t["topk_weights"].to(torch.float64)[..., None]).sum(dim=1)
    return out


def tolerance(dims: Dims) -> Tolerance:
    """Every product has deviation about 1 by construction and stays below 8; topk results are rounded and
    added in the output's dtype."""
    d = resolve(dims)
    one = inputs.rounded(d["out_dtype"], terms=d["model_dim"], roundings=2)
    return Tolerance(8 * d["topk"] * one.rtol, one.rtol, f"{one.reason}; results below 8 may cancel")


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """The claim's: AITER's CK stages. Others: AITER's fused assembly kernel of both stages; torch, one
    dequantised 16-bit product an expert."""
    stage = resolve(dims)["stage"]

    def sorted_for_ck(d: Dims, t: Tensors) -> Tensors:
        return routing.sort({name: t[name] for name in ("topk_ids", "topk_weights")}, d["experts"], CK_BLOCK)

    def ck(number: int) -> Any:
        def build(dims: Dims, tensors: Tensors) -> Launch:
            import torch

            call, kinds = aiter.load(f"ck-moe-stage{number}"), stubs.upstream("aiter.ops.enum")
            d, t = resolve(dims), tensors
            e, m, i = d["experts"], d["model_dim"], d["inter_dim"]
            s = sorted_for_ck(d, t)
            name = "h" if number == 1 else "y"
            t[f"{name}_ck"] = out = torch.zeros_like(t[name])
            fp8 = inputs.dtype("fp8")
            w1: Any = (
                t["w1_shuffled"]
                if "w1_shuffled" in t
                else torch.empty(e, 2 * i, m, dtype=fp8, device=t["a2"].device)
            )
            w2: Any = (
                t["w2_shuffled"]
                if "w2_shuffled" in t
                else torch.empty(e, m, i, dtype=fp8, device=t["x"].device)
            )
            for weight in (w1, w2):
                weight.is_shuffled = True  # AITER asks the tensor itself
            sorting = (s["sorted_ids"], s["sorted_experts"], s["num_valid"], out, d["topk"])
            named = {
                "block_m": CK_BLOCK,
                "quant_type": kinds.QuantType.per_1x128,
                "activation": kinds.ActivationType.Silu,
            }
            if number == 1:
                scale = t["scale_x"].T.contiguous()
                scales = {"w1_scale": t["scale_w1"], "a1_scale": scale, "dst_type": out.dtype}
                return lambda: call(t["x"], w1, w2, *sorting, sorted_weights=None, **scales, **named)
            scale = t["scale_a2"].T.contiguous()
            a2 = t["a2"].view(d["tokens"], d["topk"], i)

            def launch() -> None:
                out.zero_()
                scales = {"w2_scale": t["scale_w2"], "a2_scale": scale}
                call(a2, w1, w2, *sorting, sorted_weights=s["sorted_weights"], **scales, **named)

            return launch

        return build

    def of_both(dims: Dims, tensors: Tensors) -> Launch:
        first, second = ck(1)(dims, tensors), ck(2)(dims, tensors)

        def launch() -> None:
            first()
            second()

        return launch

    def of_asm(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        call, d, t = aiter.load("asm-moe-blockscale"), resolve(dims), tensors
        need(d["stage"] == "both", "AITER's fused kernel runs both stages; it is compared with both only")
        s = sorted_for_ck(d, t)
        t["y_asm"] = out = torch.zeros(
            d["tokens"], d["model_dim"], dtype=torch.bfloat16, device=t["x"].device
        )
        e = d["experts"]
        operands = (out, t["x"], t["w1_shuffled"], t["w2_shuffled"])
        sorting = (s["sorted_ids"], s["sorted_weights"], s["sorted_experts"], s["num_valid"], d["topk"])
        scales = (t["scale_x"], t["scale_w1"].view(e, -1), t["scale_w2"].view(e, -1))

        def launch() -> None:
            out.zero_()
            call(
                *operands, *sorting, *scales, fc_scale_blkn=BLOCK, fc_scale_blkk=BLOCK, block_size_M=CK_BLOCK
            )

        return launch

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        d, t = resolve(dims), tensors
        kind = inputs.dtype(d["out_dtype"])
        held: Tensors = {
            name: _dequantised(t, name, torch.float32).to(kind)
            for name in ("x", "w1", "a2", "w2")
            if name in t
        }
        return routing.torch_experts(held, t)

    written = {"1": {"h": "h_ck"}, "2": {"y": "y_ck"}}.get(stage, {"h": "h_ck", "y": "y_ck"})
    builder = {"1": ck(1), "2": ck(2)}.get(stage, of_both)
    name = "ck-moe-stage2" if stage == "2" else "ck-moe-stage1"
    outside = ("routing, sorting, quantisation, preshuffling",)
    inside = () if stage == "1" else ("zeroing of y, as upstream's test times it",)
    claimed = aiter.baseline(name, "claim", builder, written, inside=inside, outside=outside)
    fused = aiter.baseline(
        "asm-moe-blockscale",
        "other",
        of_asm,
        {},
        inside=inside,
        outside=outside,
        note="quantises between the stages, so its output is not the reference's",
    )
    plain = inputs.torch_baseline(
        "torch-experts", "other", "torch:mm+silu", of_torch, {}, outside=("dequantisation to 16 bits",)
    )
    return (claimed, fused, plain) if stage == "both" else (claimed, plain)
