"""The kinds as judges of the record: each rule with a figure that holds, one that does not, one missing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import bundle, capture, claim, evidence, traced

from harness import kinds
from harness.errors import HarnessError
from harness.tiers import unavailable
from harness.verdict import TIERS, TierResult, Verdict


def judged(of: Any, found: Any, *others: Any) -> TierResult:
    result = kinds.judge("record", of, bundle(of, *others), found)
    assert result is not None
    return result


def test_every_kind_has_the_interface() -> None:
    expected = "class compiles counts geomean isa latency numerics race ratio resource throughput trace"
    assert set(expected.split()) <= set(kinds.names()) and list(kinds.names()) == sorted(kinds.names())
    for name in kinds.names():
        module = kinds.kind(name)
        assert name == module.KIND and module.TIERS and set(module.TIERS) <= set(TIERS)
        of = claim("c", name, check="identity")
        assert all(isinstance(part, str) for part in kinds.identity(of))
        for tier in set(TIERS) - set(module.TIERS):
            assert kinds.judge(tier, of, bundle(of), {}) is None


def test_an_unknown_kind_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        kinds.kind("../ratio")


def test_a_tier_that_is_unavailable_is_not_measured_with_its_remedy() -> None:
    of = claim("r", "ratio", 2.0)
    result = kinds.judge("device", of, bundle(of), unavailable("no MI350X", "run it on one"))
    assert result == TierResult(Verdict.NOT_MEASURED, None, "no MI350X", "run it on one")


def test_importing_the_registry_imports_no_kind() -> None:
    code = "import sys, harness.kinds; print([m for m in sys.modules if m.startswith('harness.kinds.')])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def ratio(published: float, regime: str = "eager-events", **rest: Any) -> Any:
    rest = {"subject_latency": "s", "baseline_latency": "b", "cache": "unstated"} | rest
    return claim("r", "ratio", published, regime=regime, **rest)


def times(subject: float | None, baseline: float | None) -> tuple[Any, Any]:
    return claim("s", "latency", subject, side="subject"), claim("b", "latency", baseline, side="baseline")


@pytest.mark.parametrize(
    ("published", "verdict"),
    [(2.05, Verdict.REPRODUCED), (2.06, Verdict.CONTRADICTED), (2.04, Verdict.CONTRADICTED)],
)
def test_a_ratio_is_the_quotient_of_its_latencies_as_printed(published: float, verdict: Verdict) -> None:
    result = judged(ratio(published), evidence(), *times(271.8, 558.0))
    assert result.verdict is verdict and result.value == 2.05298
    assert "558 µs / 271.8 µs = 2.05298" in result.reason


def test_a_ratio_without_latencies_is_not_measured() -> None:
    result = judged(ratio(2.05), evidence(), *times(271.8, None))
    assert result.verdict is Verdict.NOT_MEASURED and result.remedy


@given(subject=st.floats(0.1, 1e4), truth=st.floats(0.05, 20))
def test_a_ratio_that_is_printed_from_its_latencies_is_reproduced(subject: float, truth: float) -> None:
    subject = round(subject, 3)
    baseline = max(0.001, round(subject * truth, 3))
    result = judged(ratio(round(baseline / subject, 2)), evidence(), *times(subject, baseline))
    assert result.verdict is Verdict.REPRODUCED


@given(subject=st.floats(1, 1e3), baseline=st.floats(1, 1e3), off=st.sampled_from([-0.02, 0.02]))
def test_a_ratio_two_digits_off_never_is(subject: float, baseline: float, off: float) -> None:
    subject, baseline = round(subject, 2), round(baseline, 2)
    published = round(baseline / subject + off, 2)
    assert judged(ratio(published), evidence(), *times(subject, baseline)).verdict is Verdict.CONTRADICTED


def test_a_ratio_of_host_times_is_contradicted_as_one_of_kernel_times() -> None:
    kernels = (traced("k_0", "subject", 4.0, 0.8, 14.0), traced("other", "baseline", 3.04, 1.5, 945.0))
    result = judged(ratio(0.17, "kernel-trace"), evidence(kernels=kernels), *times(219.6, 37.5))
    assert result.verdict is Verdict.CONTRADICTED and result.value == 0.76


def test_a_kernel_ratio_without_a_baseline_in_the_trace_is_not_measured() -> None:
    found = evidence(kernels=[traced("k_0", "subject", 7.0, 6.9, 8.8)])
    result = judged(ratio(0.22, "kernel-trace"), found, *times(30.86, 6.69))
    assert result.verdict is Verdict.NOT_MEASURED and "1.54 µs" in result.reason


@pytest.mark.parametrize(
    ("published", "verdict"),
    [
        (4.1, Verdict.REPRODUCED),
        (5.0, Verdict.INCONCLUSIVE),
        (219.6, Verdict.CONTRADICTED),
        (0.5, Verdict.CONTRADICTED),
    ],
)
def test_a_latency_as_a_kernel_duration_stands_against_the_trace(published: float, verdict: Verdict) -> None:
    of = claim("l", "latency", published, side="subject", regime="kernel-trace", unit="us")
    result = judged(of, evidence(kernels=[traced("k_0", "subject", 4.0, 0.8, 9.2, n=1328)]))
    assert result.verdict is verdict and result.value == 4.0
    assert "0.8-9.2 µs, 1328 launches" in result.reason


def test_a_latency_in_the_host_regime_is_another_claim() -> None:
    of = claim("l", "latency", 219.6, side="subject", regime="eager-events", unit="us")
    result = judged(of, evidence(kernels=[traced("k_0", "subject", 4.0, 0.8, 9.2)]))
    assert result.verdict is Verdict.NOT_MEASURED and "median 4 µs" in result.reason


@pytest.mark.parametrize("regime", ["eager-events", "kernel-trace"])
def test_a_latency_that_memory_cannot_meet_is_contradicted_in_every_regime(regime: str) -> None:
    of = claim("l", "latency", 24.1, side="subject", regime=regime, unit="us")
    result = judged(of, evidence(bytes=1_073_774_592))
    assert (
        result.verdict is Verdict.CONTRADICTED and "44.5 TB/s" in result.reason and "8 TB/s" in result.reason
    )


def test_a_working_set_that_the_cache_may_hold_is_no_contradiction() -> None:
    of = claim("l", "latency", 10.0, side="subject", regime="eager-events", unit="us")
    assert judged(of, evidence(bytes=200_000_000)).verdict is Verdict.NOT_MEASURED


def test_a_trace_of_another_shape_is_not_comparable() -> None:
    of = claim("l", "latency", 155.7, side="subject", regime="kernel-trace", unit="us")
    found = evidence(kernels=[traced("k_0", "subject", 12.4, 6.5, 13.8)], dims={"M": 4096}) | {
        "captured": {"M": 16}
    }
    result = judged(of, found)
    assert result.verdict is Verdict.NOT_COMPARABLE and "M 16 against 4096" in result.reason
    found["workloads"]["w"] |= {"dims": {}, "unsaid": ["M"]}
    assert "M 16 against an unsaid one" in judged(of, found).reason
    found["workloads"]["w"] |= {"dims": {"M": 16}, "unsaid": []}
    assert judged(of, found).verdict is Verdict.CONTRADICTED


def test_a_trace_of_many_shapes_spans_the_claimed_one() -> None:
    of = claim("l", "latency", 219.6, side="subject", regime="kernel-trace", unit="us")
    rows = [traced("k_0", "subject", 4.0, 2.1, 9.2, grid=[8, n, 1]) for n in (1, 32)]
    found = evidence(kernels=rows, unsaid=["T"]) | {"captured": {"T": 32}}
    assert judged(of, found).verdict is Verdict.CONTRADICTED


def test_the_kernels_of_one_call_add_up() -> None:
    kernels = (traced("one", "subject", 73.2, 67.2, 100.1), traced("two", "subject", 41.8, 34.5, 52.9))
    of = claim("l", "latency", 111.1, side="subject", regime="kernel-trace", unit="us")
    assert judged(of, evidence(kernels=kernels)).value == 115.0
    stage = claim(
        "l", "latency", 70.8, side="subject", regime="kernel-trace", unit="us", kernel_symbols=["one"]
    )
    assert judged(stage, evidence(kernels=kernels)).value == 73.2


@pytest.mark.parametrize(
    ("published", "verdict"), [(3950.5, Verdict.REPRODUCED), (5246.7, Verdict.CONTRADICTED)]
)
def test_a_rate_follows_from_latency_and_traffic(published: float, verdict: Verdict) -> None:
    of = claim("t", "throughput", published, unit="GB/s", latency="s", quantity="bytes")
    found = evidence(bytes=1_073_741_824, bytes_formula="2*M*N*2")
    result = judged(of, found, *times(271.8, 558.0))
    assert result.verdict is verdict and result.value == 3950.49
    assert ("would need" in result.reason) is (verdict is Verdict.CONTRADICTED)


def test_a_rate_is_allowed_what_the_printed_latency_leaves_open_and_no_more() -> None:
    """91.06 TFLOPS at 70.8 µs: 70.75 µs, which also prints as 70.8, gives 91.06; 91.08 is out of reach."""
    found = evidence(flops=6_442_450_944)
    for published, verdict in ((91.06, Verdict.REPRODUCED), (91.08, Verdict.CONTRADICTED)):
        of = claim("t", "throughput", published, unit="TFLOPS", latency="s", quantity="flops")
        assert judged(of, found, *times(70.8, None)).verdict is verdict


def test_a_rate_without_latency_or_arithmetic_is_not_measured() -> None:
    of = claim("t", "throughput", 6468.37, unit="GB/s", latency=None, quantity="bytes")
    assert judged(of, evidence(bytes=122_880_000)).verdict is Verdict.NOT_MEASURED
    of = claim("t", "throughput", 6468.37, unit="GB/s", latency="s", quantity="bytes")
    assert (
        "num_tokens"
        in judged(of, evidence(missing="the study leaves num_tokens unsaid"), *times(1.0, 1.0)).reason
    )


@pytest.mark.parametrize(
    ("subject", "baseline", "name"),
    [
        (271.8, 558.0, "WIN"),
        (24.1, 24.7, "PARITY"),
        (219.6, 37.5, "HEADROOM"),
        (100.0, 105.0, "WIN"),
        (100.0, 95.0, "HEADROOM"),
    ],
)
def test_a_class_follows_from_the_ratio(subject: float, baseline: float, name: str) -> None:
    parts = (ratio(round(baseline / subject, 2)), *times(subject, baseline))
    assert judged(claim("c", "class", name, of="r"), evidence(), *parts).verdict is Verdict.REPRODUCED
    other = "PARITY" if name != "PARITY" else "WIN"
    assert judged(claim("c", "class", other, of="r"), evidence(), *parts).verdict is Verdict.CONTRADICTED


@pytest.mark.parametrize(
    ("metric", "published", "verdict"),
    [
        ("vgpr", 47, Verdict.REPRODUCED),
        ("vgpr", 24, Verdict.CONTRADICTED),
        ("agpr", 0, Verdict.REPRODUCED),
        ("lds", 512, Verdict.REPRODUCED),
        ("occupancy", 8, Verdict.REPRODUCED),
        ("occupancy", 5, Verdict.CONTRADICTED),
        ("workgroup_size", [256, 1, 1], Verdict.REPRODUCED),
        ("workgroup_size", 512, Verdict.CONTRADICTED),
        ("grid_workgroups", [32768, 1, 1], Verdict.REPRODUCED),
        ("grid_workgroups", [1024, 1, 1], Verdict.CONTRADICTED),
        ("spills", 0, Verdict.NOT_MEASURED),
    ],
)
def test_resources(metric: str, published: Any, verdict: Verdict) -> None:
    assert judged(claim("x", "resource", published, metric=metric), evidence(capture())).verdict is verdict


def test_the_wrong_architecture_is_named() -> None:
    result = judged(claim("x", "resource", 5, metric="occupancy"), evidence(capture()))
    assert "256 // 48, the rule of gfx942" in result.reason and "8 waves/SIMD on gfx950" in result.reason


def test_a_halved_register_field_is_named() -> None:
    result = judged(claim("x", "resource", 24, metric="vgpr"), evidence(capture()))
    assert "VGPR_Count of 24 is half" in result.reason


def test_occupancy_from_published_registers_where_no_capture_counts_them() -> None:
    bare = capture(vgpr={"field": None, "allocated": None, "max_index": None}, sgpr=None, lds=None)
    vgpr = claim("v", "resource", 203, metric="vgpr")
    result = judged(claim("x", "resource", 2, metric="occupancy"), evidence(bare), vgpr)
    assert result.verdict is Verdict.REPRODUCED and "208" in result.reason


def test_a_captured_grid_stands_against_the_claimed_shape() -> None:
    of = claim("g", "resource", [32768, 1, 1], metric="grid_workgroups")
    result = judged(of, evidence(capture(grid_workgroups=[1024, 1, 1])))
    assert result.verdict is Verdict.CONTRADICTED and "32768x1x1" in result.reason


@pytest.mark.parametrize(
    ("metric", "published", "verdict"),
    [
        ("instructions", 731, Verdict.REPRODUCED),
        ("instructions", 732, Verdict.REPRODUCED),
        ("instructions", 733, Verdict.CONTRADICTED),
        ("mapped", "731/732", Verdict.REPRODUCED),
        ("mapped", "730/732", Verdict.CONTRADICTED),
        ("total_cycles", "41.65M", Verdict.REPRODUCED),
        ("total_cycles", "41.66M", Verdict.CONTRADICTED),
        ("stall_cycles", "31.80M", Verdict.REPRODUCED),
        ("stall_share", 76.4, Verdict.REPRODUCED),
        ("stall_share", 76.3, Verdict.CONTRADICTED),
        ("waves", 2056, Verdict.REPRODUCED),
        ("executed", 17, Verdict.CONTRADICTED),
        ("taxonomy", {"VMEM-load": 45.9, "VMEM-store": 14.6}, Verdict.REPRODUCED),
        ("taxonomy", {"VMEM-load": 45.8}, Verdict.CONTRADICTED),
        ("dominant_stall", "VMEM-load", Verdict.REPRODUCED),
        ("dominant_stall", "barrier", Verdict.CONTRADICTED),
        ("wave_states", {"IDLE": 0.0, "EXEC": 42.3, "WAIT": 36.7, "STALL": 21.0}, Verdict.REPRODUCED),
        ("something", 1, Verdict.NOT_MEASURED),
    ],
)
def test_traces(metric: str, published: Any, verdict: Verdict) -> None:
    assert judged(claim("x", "trace", published, metric=metric), evidence(capture())).verdict is verdict


def test_shifted_wave_states_are_named() -> None:
    published = {"EXEC": 0.0, "WAIT": 42.3, "STALL": 36.7, "SLEEP": 21.0}
    result = judged(claim("x", "trace", published, metric="wave_states"), evidence(capture()))
    assert (
        result.verdict is Verdict.CONTRADICTED
        and "shifted by one" in result.reason
        and "EXEC 42.3" in result.reason
    )


def test_a_capture_that_cannot_carry_a_figure_makes_it_invalid() -> None:
    fault = {
        "rule": "no-work",
        "message": "17 of 4948 rows were executed",
        "spoils": ["stall_share"],
        "remedy": "again",
    }
    found = evidence(capture(faults=[fault]))
    result = judged(claim("x", "trace", 76.4, metric="stall_share"), found)
    assert result.verdict is Verdict.INVALID and "17 of 4948" in result.reason and result.remedy == "again"
    assert judged(claim("x", "trace", 731, metric="instructions"), found).verdict is Verdict.REPRODUCED


def test_the_hash_of_a_listing() -> None:
    check = {
        "origin": "project",
        "check": "identity",
        "capture": capture()["directory"],
        "instructions": 731,
        "sha256": "b" * 64,
    }
    assert judged(claim("x", "isa", **check), evidence(capture())).verdict is Verdict.REPRODUCED
    assert (
        judged(claim("x", "isa", **(check | {"sha256": "c" * 64})), evidence(capture())).verdict
        is Verdict.CONTRADICTED
    )
    gone = check | {"capture": "made/att_viewer/small/other"}
    assert judged(claim("x", "isa", **gone), evidence(capture())).verdict is Verdict.NOT_MEASURED


def test_a_geometric_mean_as_printed() -> None:
    found = evidence()
    found["study"]["multishape"] = [{"op": "o", "baseline_provider": "best", "shapes": 14, "geomean": 0.9353}]
    for published, shapes, verdict in (
        (0.94, 14, Verdict.REPRODUCED),
        (0.93, 14, Verdict.CONTRADICTED),
        (0.94, 13, Verdict.CONTRADICTED),
    ):
        of = claim("g", "geomean", published, op="o", baseline_provider="best", shapes=shapes)
        assert judged(of, found).verdict is verdict
    assert judged(claim("g", "geomean", 1.0, op="p"), found).verdict is Verdict.NOT_MEASURED


@pytest.mark.parametrize(
    ("ends", "verdict"), [([3.9, 6.5], Verdict.REPRODUCED), ([4.4, 6.5], Verdict.CONTRADICTED)]
)
def test_a_published_range_of_rates(ends: list[float], verdict: Verdict) -> None:
    of = claim("t", "throughput", ends, unit="TB/s", latency="s", quantity="bytes")
    result = judged(of, evidence(bytes=1_073_741_824), *times(271.8, 558.0))
    assert result.verdict is verdict and result.value == 3.95


@pytest.mark.parametrize(
    ("kind", "metric", "published", "verdict"),
    [
        ("resource", "vgpr", [40, 47], Verdict.REPRODUCED),
        ("resource", "vgpr", [40, 46], Verdict.CONTRADICTED),
        ("resource", "occupancy", [7, 8], Verdict.REPRODUCED),
        ("resource", "occupancy_limiter", "wave slots", Verdict.REPRODUCED),
        ("resource", "occupancy_limiter", "registers", Verdict.CONTRADICTED),
        ("trace", "stall_share", [58, 76], Verdict.REPRODUCED),
        ("trace", "stall_share", [58, 75], Verdict.CONTRADICTED),
    ],
)
def test_published_ranges(kind: str, metric: str, published: Any, verdict: Verdict) -> None:
    assert judged(claim("x", kind, published, metric=metric), evidence(capture())).verdict is verdict


def test_a_figure_that_is_none_is_named_with_its_line() -> None:
    with pytest.raises(HarnessError, match=r"bundle\.yaml:1: x: not a printed number: 'fast'"):
        judged(claim("x", "trace", "fast", metric="stall_share"), evidence(capture()))
