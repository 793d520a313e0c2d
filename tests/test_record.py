"""Printed numbers, the study's figures, and what the record tier gathers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import bundle, capture, evidence, traced

from harness.command import Silent
from harness.errors import HarnessError
from harness.record import study, tier
from harness.record.peaks import memory_floor_us
from harness.record.printed import number, printed
from harness.record.regime import decide
from harness.tiers import Context
from harness.verdict import Verdict


@pytest.mark.parametrize(
    ("text", "value", "half"),
    [
        (271.8, 271.8, 0.05),
        ("41.65M", 41_650_000, 5_000),
        ("791.8K", 791_800, 50),
        ("2,056", 2056, 0.5),
        ("99.9 %", 99.9, 0.05),
        (853, 853, 0.5),
        (-2, -2, 0.5),
        (7.0, 7.0, 0.05),
    ],
)
def test_printed(text: Any, value: float, half: float) -> None:
    figure = printed(text)
    assert figure.value == pytest.approx(value) and figure.half == pytest.approx(half)


def test_printed_with_decimals_that_yaml_dropped() -> None:
    assert printed(1.2, decimals=2).half == pytest.approx(0.005)
    assert printed(1.234, decimals=2).half == pytest.approx(0.0005)


@pytest.mark.parametrize("text", ["", "fast", "731/732", "nan", "1_000", True, None, "1.2.3", "0x10"])
def test_what_is_no_number(text: Any) -> None:
    with pytest.raises(ValueError, match="not a printed number"):
        printed(text)


@given(value=st.floats(-1e5, 1e5), places=st.integers(1, 4))
def test_a_number_holds_what_rounds_to_it_and_nothing_else(value: float, places: int) -> None:
    text = f"{value:.{places}f}"
    figure = printed(text)
    assert figure.holds(value)
    step = 10.0**-places
    assert not figure.holds(figure.value + 0.51 * step) and not figure.holds(figure.value - 0.51 * step)


@given(value=st.floats(0, 1e12))
def test_number_reads_back_to_four_digits(value: float) -> None:
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=1e-3, abs=1e-6)


def test_memory_floor() -> None:
    assert memory_floor_us(0) == 0
    assert memory_floor_us(256 * 2**20) == 0
    assert memory_floor_us(256 * 2**20 + 8_000_000) == pytest.approx(1.0)


@given(median=st.floats(0.5, 500), spread=st.floats(1, 3), factor=st.floats(0.05, 20))
def test_decide(median: float, spread: float, factor: float) -> None:
    low, high = median / spread, median * spread
    verdict = decide(median * factor, median, low, high, None)
    if 1 / 1.04 < factor < 1.04:
        assert verdict is Verdict.REPRODUCED
    elif factor > spread * 1.06 or factor < 1 / spread / 1.06:
        assert verdict is Verdict.CONTRADICTED
    elif 1.06 < factor < spread or 1 / spread < factor < 1 / 1.06:
        assert verdict is Verdict.INCONCLUSIVE


def test_decide_without_spread() -> None:
    assert decide(169.5, 12.8, None, None, None) is Verdict.CONTRADICTED
    assert decide(20.0, 12.8, None, None, None) is Verdict.INCONCLUSIVE
    assert decide(12.9, 12.8, None, None, None) is Verdict.REPRODUCED


def test_a_capture_is_found_by_directory_or_its_end() -> None:
    small = capture(directory="made/att_viewer/small/ui_output_agent_3_dispatch_4")
    record = evidence(capture(), small)["study"]
    assert study.capture(record) == capture()
    for name in ("small", small["directory"], "examples/" + small["directory"] + "/code.json"):
        assert study.capture(record, name) == small
    assert study.capture(record, "medium") is None
    assert study.capture(None) is None


def test_kernel_times_keep_all_forms_of_a_kernel() -> None:
    rows = (
        traced("k_0", "subject", 4.0, 2.1, 9.2, n=1328, grid=[8, 32, 1]),
        traced("k_0", "subject", 4.4, 0.8, 14.0, n=221, grid=[4, 1, 1]),
    )
    record = evidence(kernels=rows)["study"]
    found = study.kernel_time(record, "subject", ["k_0"])
    assert found is not None
    assert (found.median, found.low, found.high, found.n, found.forms) == (4.0, 0.8, 14.0, 1549, 2)
    assert study.kernel_time(record, "baseline", ["k_0"]) is None
    assert study.kernel_time(record, "subject", ["k_0", "k_1"]) is None
    assert study.kernel_time(None, "subject", ["k_0"]) is None


CONTEXT = Context(None, True, Silent(), Path("nowhere"))


def test_gathering_without_evidence_gives_arithmetic_alone(tmp_path: Path) -> None:
    assert tier.gather(bundle(path=tmp_path), CONTEXT)["study"] is None


@pytest.mark.parametrize("content", ["", "{", '{"schema_version": 2}', "[]"])
def test_broken_evidence_is_a_clear_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "study.json").write_text(content)
    with pytest.raises(HarnessError, match=r"study\.json"):
        tier.gather(bundle(path=tmp_path), CONTEXT)


def committed(root: Path) -> Mapping[str, Any]:
    return {
        path.parent.parent.name: json.loads(path.read_text())
        for path in root.glob("bundles/*/evidence/study.json")
    }


def test_committed_evidence_fits_its_schema(repo_root: Path) -> None:
    from jsonschema import Draft202012Validator

    schema = json.loads((repo_root / "schema" / "study.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    found = committed(repo_root)
    assert len(found) >= 19
    for name, one in found.items():
        assert one["bundle"] == name
        Draft202012Validator(schema).validate(one)


def test_committed_evidence_keeps_its_own_rules(repo_root: Path) -> None:
    for one in committed(repo_root).values():
        for row in one["captures"]:
            vgpr = row["vgpr"]
            if vgpr["max_index"] is not None:
                assert vgpr["max_index"] <= vgpr["allocated"]
            if row["executed"] is not None:
                assert (
                    row["executed"] <= row["instructions"]
                    and row["cycles"]["stall"] <= row["cycles"]["total"]
                )
            assert sum(row["wave_states"].values()) == pytest.approx(100, abs=0.2)
            assert row["occupancy"]["observed"] is None or row["occupancy"]["observed"] <= 8
            assert row["valid"] is not any(
                "stall_share" in fault.get("spoils", ()) for fault in row["faults"]
            )
        for trace in one["kernel_traces"]:
            for row in trace["kernels"]:
                assert row["min_us"] is None or row["min_us"] <= row["median_us"] <= row["max_us"]
