"""AITER's entry points at the pinned commit: which function, called how, and which kernel it is expected to
run.

Knows AITER's names and nothing of any one kernel's tensors. AITER is imported only when a baseline is built.

Every entry names the parameters that an adapter passes, so that a test can hold them against AITER's source
at the pin (`COMMIT`) without importing it. At run time `observe` records the kernel symbols of one untimed
launch and what AITER logs of its tuned configuration; `agreed` compares them with what the claim's branch
runs."""

from __future__ import annotations

import importlib
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from harness.errors import HarnessError
from harness.kernels.base import Baseline, Dims, Launch, Region, Tensors

__all__ = [
    "COMMIT",
    "ENTRIES",
    "Entry",
    "Observation",
    "agreed",
    "baseline",
    "load",
    "observe",
    "without_flydsl",
]

COMMIT = "32e1e6d76988e4fbc67cabd9eb72a45a3c6a1bab"
"""The AITER that the study's rows name (pins.yaml)."""


@dataclass(frozen=True)
class Entry:
    """One entry point: `module:function`, the parameters passed by position and by name, its backend, and a
    regular expression for the kernel symbol of the branch that the claim is about (None: not known before a
    run)."""

    module: str
    function: str
    positional: tuple[str, ...]
    keywords: tuple[str, ...]
    backend: str
    expects: str | None
    branch: str

    @property
    def file(self) -> str:
        """Its source file in AITER's repository."""
        return self.module.replace(".", "/") + ".py"


def _entry(
    where: str, positional: str, keywords: str, backend: str, expects: str | None, branch: str
) -> Entry:
    module, function = where.split(":")
    return Entry(
        module, function, tuple(positional.split()), tuple(keywords.split()), backend, expects, branch
    )


_CK = r"\bck(_tile)?::|_ZN(2ck|7ck_tile)"
"""A kernel of Composable Kernel, demangled or not."""
_MOE_1 = "hidden_states w1 w2 sorted_token_ids sorted_expert_ids num_valid_ids out topk"
_MOE_2 = "inter_states w1 w2 sorted_token_ids sorted_expert_ids num_valid_ids out topk"

ENTRIES: Mapping[str, Entry] = MappingProxyType(
    {
        "triton-softmax": _entry(
            "aiter.ops.triton.softmax:softmax",
            "x",
            "",
            "triton",
            "^_softmax_kernel_online",
            "the only one: Triton row softmax",
        ),
        "triton-layernorm": _entry(
            "aiter.ops.triton.normalization.norm:layer_norm",
            "input weight bias eps",
            "",
            "triton",
            "^_layernorm_kernel",
            "forward without x_bias",
        ),
        "ck-layernorm": _entry(
            "aiter.ops.norm:layer_norm", "input weight bias epsilon", "", "ck", None, "CK layernorm2d"
        ),
        "triton-rmsnorm": _entry(
            "aiter.ops.triton.normalization.rmsnorm:rms_norm",
            "input weight epsilon",
            "",
            "triton",
            "^_rms_?norm_kernel",
            "forward",
        ),
        "ck-rmsnorm": _entry(
            "aiter.ops.rmsnorm:rms_norm", "input weight epsilon", "", "ck", None, "CK rmsnorm2d"
        ),
        "hip-per-token-quant": _entry(
            "aiter.ops.quant:per_token_quant_hip",
            "x",
            "quant_dtype",
            "hip",
            "dynamic_per_token_scaled_quant",
            "dynamic scales, int8",
        ),
        "hip-topk-softmax": _entry(
            "aiter.ops.moe_op:topk_softmax",
            "topk_weights topk_indices token_expert_indices gating_output need_renorm",
            "",
            "hip",
            "topkGatingSoftmax",
            "a power of two of experts",
        ),
        "asm-topk-softmax": _entry(
            "aiter.ops.moe_op:topk_softmax_asm",
            "topk_weights topk_indices token_expert_indices gating_output need_renorm",
            "",
            "asm",
            None,
            "hand-written assembly",
        ),
        "moe-sum": _entry(
            "aiter.ops.moe_op:moe_sum", "input output", "", "hip", None, "at::sum_out for most topk"
        ),
        "triton-rope": _entry(
            "aiter.ops.triton.fusions.fused_kv_cache:fused_qk_rope_reshape_and_cache",
            "q k v key_cache value_cache slot_mapping pos cos sin k_scale v_scale is_neox flash_layout",
            "apply_scale offs q_out k_out output_zeros",
            "triton",
            "_fused_qk_rope_reshape_and_cache_kernel",
            "no offsets, no zeros",
        ),
        "ck-mha": _entry(
            "aiter.ops.mha:mha_fwd",
            "q k v dropout_p softmax_scale is_causal window_size_left window_size_right sink_size "
            "return_softmax_lse return_dropout_randval",
            "out",
            "ck",
            _CK,
            "CK FMHA forward",
        ),
        "asm-mha": _entry(
            "aiter.ops.mha:fmha_v3_fwd",
            "q k v dropout_p softmax_scale is_causal window_size_left window_size_right return_softmax_lse "
            "return_dropout_randval how_v3_bf16_cvt",
            "out",
            "asm",
            "fmha.*fwd",
            "v3 assembly",
        ),
        "tuned-gemm": _entry(
            "aiter.tuned_gemm:gemm_a16w16", "A B", "", "csv-chosen", None, "whatever AITER's table picks"
        ),
        "ck-gemm-a8w8": _entry(
            "aiter.ops.gemm_op_a8w8:gemm_a8w8_bpreshuffle",
            "XQ WQ x_scale w_scale",
            "dtype",
            "ck",
            _CK,
            "CK with the configuration that AITER's table gives for M, N, K, or its default",
        ),
        "ck-gemm-blockscale": _entry(
            "aiter.ops.gemm_op_a8w8:gemm_a8w8_blockscale_bpreshuffle",
            "XQ WQ x_scale w_scale",
            "dtype",
            "ck",
            _CK,
            "CK with the configuration that AITER's table gives",
        ),
        "ck-moe-stage1": _entry(
            "aiter.ops.moe_op:ck_moe_stage1_fwd",
            _MOE_1,
            "w1_scale a1_scale block_m sorted_weights quant_type activation dst_type",
            "ck",
            _CK,
            "CK two-stage, stage 1",
        ),
        "ck-moe-stage2": _entry(
            "aiter.ops.moe_op:ck_moe_stage2_fwd",
            _MOE_2,
            "w2_scale a2_scale block_m sorted_weights quant_type activation",
            "ck",
            _CK,
            "CK two-stage, stage 2",
        ),
        "asm-moe-blockscale": _entry(
            "aiter.ops.moe_op:fmoe_fp8_blockscale_g1u1",
            "out input gate down sorted_token_ids sorted_weights sorted_expert_ids num_valid_ids topk "
            "input_scale fc1_scale fc2_scale",
            "fc_scale_blkn fc_scale_blkk block_size_M",
            "asm",
            None,
            "gfx950 has a branch of its own",
        ),
        "hk-mla-decode": _entry(
            "aiter.ops.attention:hk_mla_decode_fwd",
            "query kv_buffer qo_indptr kv_indptr kv_page_indices kv_last_page_lens work_indptr work_info_set "
            "max_seqlen_q softmax_scale split_output split_lse final_output",
            "",
            "hipkittens",
            None,
            "HipKittens stage 1",
        ),
        "gluon-splits": _entry(
            "aiter.ops.triton.gluon.pa_decode_gluon:get_recommended_splits",
            "num_sequences num_kv_heads split_kv_blocks",
            "",
            "host",
            None,
            "planning, outside the timed region",
        ),
        "paged-reduce": _entry(
            "aiter.ops.attention:pa_reduce_v1",
            "partial_output partial_lse reduce_indptr reduce_final_map reduce_partial_map "
            "max_seqlen_q final_output final_lse",
            "",
            "hip",
            "kn_mla_reduce_v1",
            "upstream's launcher calls it after the kernel",
        ),
        "gluon-paged-attention": _entry(
            "aiter.ops.triton.gluon.pa_decode_gluon:pa_decode_gluon",
            "output query key_cache value_cache context_lengths block_tables softmax_scale query_length "
            "max_context_partition_num context_partition_size compute_type query_scale key_scale value_scale",
            "exp_sums max_logits temporary_output alibi_slopes sinks sliding_window ps",
            "triton gluon",
            "paged_attention_decode_sliding_window_head_1",
            "ps=True, persistent",
        ),
    }
)


@contextmanager
def without_flydsl() -> Iterator[None]:
    """AITER is imported here as if FlyDSL were not installed, though the subject may have imported it
    already.

    At the pin AITER carries kernels of its own for another FlyDSL (docs/adr/0007); it asks for FlyDSL by
    `importlib.util.find_spec` and by guarded imports, and both answer "absent" inside this block. Afterwards
    the modules are back, and every AITER module that asks again is answered "absent" still."""
    hidden = {n: m for n, m in sys.modules.items() if n == "flydsl" or n.startswith("flydsl.")}
    for name in hidden:
        del sys.modules[name]
    sys.modules["flydsl"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["flydsl"]
        sys.modules.update(hidden)
        for name, module in list(sys.modules.items()):
            if name.startswith("aiter.") and hasattr(module, "is_flydsl_available"):
                vars(module)["is_flydsl_available"] = lambda: False


def load(name: str) -> Callable[..., Any]:
    """The function of entry `name`, imported now. HarnessError (exit 50) naming the submodule that fails."""
    entry = ENTRIES[name]
    try:
        with without_flydsl():
            module = importlib.import_module(entry.module)
    except ModuleNotFoundError as error:
        missing = error.name or "?"
        remedy = (
            f"put AITER at {COMMIT[:12]} on the path (harness container run)"
            if missing.split(".")[0] == "aiter"
            else f"install {missing}, or rebuild AITER: its import stops at the first submodule that fails"
        )
        raise HarnessError(
            f"{entry.module}: import failed at {missing}", remedy=remedy, exit_code=50
        ) from error
    except (
        Exception
    ) as error:  # AITER compiles at import; whatever stops it is for the user to see in one line
        raise HarnessError(
            f"{entry.module}: import failed: {type(error).__name__}: {error}",
            remedy="see AITER's log above; AITER_LOG_LEVEL=DEBUG says more",
            exit_code=50,
        ) from error
    function = getattr(module, entry.function, None)
    if function is None:
        raise HarnessError(
            f"{entry.module}: has no {entry.function}",
            remedy=f"this AITER is not the pinned one ({COMMIT[:12]})",
            exit_code=40,
        )
    return function  # type: ignore[no-any-return]


def baseline(
    name: str,
    role: str,
    build: Callable[[Dims, Tensors], Launch],
    outputs: Mapping[str, str],
    *,
    inside: tuple[str, ...] = (),
    outside: tuple[str, ...] = (),
    note: str | None = None,
) -> Baseline:
    """The baseline of entry `name`; `outputs` as in `Baseline`."""
    entry = ENTRIES[name]
    region = Region(
        inside=("AITER's Python dispatch", "its kernels", *inside),
        outside=("AITER's JIT build", "allocation of inputs", *outside),
    )
    return Baseline(
        name,
        role,
        "aiter",
        f"{entry.module}:{entry.function}",
        entry.backend,
        entry.expects,
        region,
        build,
        MappingProxyType(dict(outputs)),
        note,
    )


@dataclass(frozen=True)
class Observation:
    """What one untimed launch ran: kernel symbols in order, and the lines AITER logged (tuned
    configuration)."""

    symbols: tuple[str, ...]
    log: tuple[str, ...]

    @property
    def tuned(self) -> bool | None:
        """Whether AITER found a tuned configuration; None where it logged nothing of one."""
        for line in self.log:
            if "not found tuned config" in line:
                return False
            if "is tuned on" in line:
                return True
        return None


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def observe(launch: Launch) -> Observation:
    """One launch of `launch` under torch's profiler, outside any timed region. On a CPU no symbol is seen.

    AITER logs its choice of a configuration at the first call of a shape only: observe before anything else.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    lines = _Lines()
    logger = logging.getLogger("aiter")
    logger.addHandler(lines)
    on_gpu = torch.cuda.is_available()
    try:
        if not on_gpu:
            launch()
            return Observation((), tuple(lines.lines))
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            launch()
            torch.cuda.synchronize()
        names = [
            event.name
            for event in seen.events()
            if event.device_type.name == "CUDA" and not event.name.startswith(("Mem", "hip", "cuda"))
        ]
        return Observation(tuple(names), tuple(lines.lines))
    finally:
        logger.removeHandler(lines)


def agreed(expects: str | None, seen: Observation) -> str | None:
    """None where a symbol matches `expects` (or any will do), else why the run is NOT_COMPARABLE, in one
    line."""
    if expects is None or any(re.search(expects, symbol) for symbol in seen.symbols):
        return None
    ran = ", ".join(seen.symbols) or "no kernel"
    return f"another branch ran: expected a symbol like {expects!r}, saw {ran}"
