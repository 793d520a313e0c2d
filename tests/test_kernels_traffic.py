"""Bytes and operations against values worked out by hand, and shapes that kernels refuse."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.kernels import IDS, get

# Each value is written out from the shape, not from the formula's code.
BY_HAND: list[tuple[str, dict[str, Any], int, int]] = [
    # 32768 * 8192 = 268,435,456 elements of 2 bytes, read and written
    ("softmax", {"M": 32768, "N": 8192, "dtype": "bf16"}, 1_073_741_824, 0),
    ("softmax", {"M": 3, "N": 5, "dtype": "f32"}, 120, 0),
    # 256 * 8192 * 2 * 2 bytes and two rows of 8192 * 2
    ("layernorm", {"M": 256, "N": 8192}, 8_388_608 + 32_768, 0),
    ("rmsnorm", {"M": 1024, "N": 8192}, 33_554_432, 0),
    # 33,554,432 elements: 2 bytes in, 1 out, and 4096 scales
    ("quant", {"M": 4096, "N": 8192}, 100_663_296 + 16_384, 0),
    ("vec-add", {"n": 10240000}, 122_880_000, 10_240_000),
    # 16384 * 128 * 2 and three outputs of 16384 * 6 * 4
    ("topk-gating", {}, 4_194_304 + 1_179_648, 0),
    # 16384 rows of 9 * 7168 * 2 bytes
    ("moe-reduce", {}, 2_113_929_216, 939_524_096),
    # a token: (2*8 + 5) heads of 128 * 2 bytes, one row of cos and sin of 128 * 2, 8 bytes of indices
    ("rope", {"num_tokens": 32}, 32 * (5376 + 256 + 8), 0),
    # 4 tensors of 2048 * 32 * 128 * 2; half of 4 * 32 * 2048^2 * 128
    ("flash-attn", {}, 67_108_864, 34_359_738_368),
    ("flash-attn", {"S": 128, "H": 8}, 1_048_576, 33_554_432),
    ("hgemm-splitk", {}, 458_752 + 5_505_024 + 24_576, 176_160_768),
    # 2 * 4096^2 bytes in, 2 * 4096^2 out, 8192 scales
    ("preshuffle-gemm", {}, 67_108_864 + 32_768, 137_438_953_472),
    ("preshuffle-gemm-v2", {"M": 4096}, 67_108_864 + 83_886_080 + 41_943_040, 343_597_383_680),
    # 16 * 2304 + 7168 * 2304 + 16 * 7168 * 2 + (16 + 56) * 18 * 4
    ("blockscale-gemm", {}, 36_864 + 16_515_072 + 229_376 + 5_184, 528_482_304),
    # x and scales 32 * 6148; weights and scales 8 * 8192 * 6148; out 64 * 4096 * 2
    ("moe-gemm", {"stage": "1"}, 196_736 + 402_915_328 + 524_288, 6_442_450_944),
    # a2, scales and weights 64 * 4104; 8 * 6144 * 4100; out 32 * 6144 * 2
    ("moe-gemm", {"stage": "2-atomic"}, 262_656 + 201_523_200 + 393_216, 3_221_225_472),
    # 256 * (7168 + 224); 8 * (512 * 7168 + 4 * 4 * 56); 512 * 256 * 2
    ("moe-blockscale", {"stage": "1"}, 1_892_352 + 29_367_296 + 262_144, 3_758_096_384),
    # 512 * (256 + 8 + 4); 8 * (256 * 7168 + 4 * 2 * 56); 256 * 7168 * 2
    ("moe-blockscale", {"stage": "2"}, 137_216 + 14_683_648 + 3_670_016, 1_879_048_192),
    # one sequence of 512 tokens, 64 heads: q 64 * 72; keys 512 * 72; table 2048 * 4
    ("mqa-logits-fp4", {"B": 1, "context": 512}, 4_608 + 36_864 + 8_192, 8_486_912),
    # 64 * 576; 128 * 576; 128 * 512 * 2
    ("mla-decode", {}, 36_864 + 73_728 + 131_072, 17_825_792),
    # 3081 tokens of 264 bytes; 24 rows of 128 * 4
    ("paged-attention", {}, 813_384 + 12_288, 12_619_776),
    (
        "fp8-gemm-4wave",
        {"M": 512, "N": 2112, "K": 7168, "tile_m": 64, "tile_n": 64},
        3_670_016 + 15_138_816 + 2_162_688 + 10_496,
        15_502_147_584,
    ),
]


@pytest.mark.parametrize(("bundle", "dims", "size", "flops"), BY_HAND)
def test_traffic_by_hand(bundle: str, dims: dict[str, Any], size: int, flops: int) -> None:
    traffic = get(bundle).traffic(dims)
    assert (traffic.bytes, traffic.flops) == (size, flops)


@pytest.mark.parametrize(
    ("bundle", "workload", "latency_us", "gbps", "tflops"),
    [
        ("moe-reduce", "captured", 382.7, 5523.9, None),
        ("quant", "captured", 16.742, 6013.49, None),
        ("hgemm-splitk", "captured", 7.0, 853.0, 25.09),
        ("moe-gemm", "captured", 70.8, None, 91.06),
        ("preshuffle-gemm", "captured", 102.0, None, 1347.41),
        ("blockscale-gemm", "timed", 155.7, None, 869.07),
        ("preshuffle-gemm-v2", "timed", 447.9, None, 767.2),
        ("flash-attn", "timed", 9.9, None, 3.4),
        ("flash-attn", "captured-big", 92.4, None, 371.7),
        ("mqa-logits-fp4", "captured-big", 29.89, None, 1189.9),
        ("mla-decode", "captured", 12.4, 20.0, 1.44),
    ],
)
def test_published_rates_follow_from_the_formulas(
    bundle: str, workload: str, latency_us: float, gbps: float | None, tflops: float | None
) -> None:
    """The study's own rates, to the digits that its rounded latencies allow."""
    module = get(bundle)
    traffic = module.traffic(module.WORKLOADS[workload])
    if gbps is not None:
        assert traffic.bytes / latency_us / 1e3 == pytest.approx(gbps, rel=0.03)
    if tflops is not None:
        assert traffic.flops / latency_us / 1e6 == pytest.approx(tflops, rel=0.01)


def test_every_kernel_file_is_torch_free_at_import_and_for_traffic() -> None:
    code = (
        "import sys\n"
        "from harness.kernels import IDS, get\n"
        "for name in IDS:\n"
        "    module = get(name)\n"
        "    for dims in module.WORKLOADS.values():\n"
        "        assert module.traffic(dims).bytes > 0 and module.memory_bytes(dims) > 0\n"
        "        module.small(dims); module.baselines(dims)\n"
        "assert not {'torch', 'numpy', 'flydsl', 'triton'} & set(sys.modules), set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_captured_listings_are_22() -> None:
    captures = [(name, capture) for name in IDS for capture in get(name).CAPTURES]
    assert len(captures) == 22
    assert all(capture.workload in get(name).WORKLOADS for name, capture in captures)


@pytest.mark.parametrize(
    ("bundle", "dims", "part"),
    [
        ("softmax", {"dtype": "fp8_fnuz"}, "dtype"),
        ("softmax", {"M": -1}, "M"),
        ("softmax", {"N": 2.5}, "N"),
        ("quant", {"N": 12}, "multiple of 8"),
        ("vec-add", {"n": 1000}, "multiple of 1024"),
        ("topk-gating", {"topk": 129}, "of 128 experts"),
        ("rope", {"rotate": "gptj"}, "rotate"),
        ("flash-attn", {"S": 100}, "multiple of 128"),
        ("hgemm-splitk", {"K": 7000}, "multiple of 3584"),
        ("preshuffle-gemm", {"N": 100}, "N"),
        ("preshuffle-gemm-v2", {"tile_k": 4096, "K": 8192}, "LDS"),
        ("blockscale-gemm", {"in_dtype": "bf16"}, "in_dtype"),
        ("moe-gemm", {"stage": "3"}, "stage"),
        ("moe-blockscale", {"inter_dim": 100}, "inter_dim"),
        ("mqa-logits-fp4", {"heads": 144}, "at most 128"),
        ("mla-decode", {"nhead": 16}, "nhead"),
        ("paged-attention", {"page_size": 16}, "page_size"),
        ("fp8-gemm-4wave", {"K": 100}, "K"),
    ],
)
def test_an_unsupported_shape_is_refused_in_one_line(bundle: str, dims: dict[str, Any], part: str) -> None:
    with pytest.raises(HarnessError) as caught:
        get(bundle).traffic(dims)
    assert part in caught.value.message and "\n" not in caught.value.message


def test_a_bundle_without_a_kernel_file_says_so() -> None:
    with pytest.raises(HarnessError, match=r"no-such-kernel: no kernel file"):
        get("no-such-kernel")
