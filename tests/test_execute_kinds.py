"""How the kinds judge an executed binary, on evidence made here; and that the generated page is current."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.execute.counts import against_capture, pack, unpack
from harness.execute.plan import profiled, sample
from harness.kinds import counts, numerics, race
from harness.verdict import Verdict


def _launch(**changes: Any) -> dict[str, Any]:
    good = {
        "elements": 8,
        "max_abs_error": 0.004,
        "max_rel_error": 0.01,
        "cosine": 0.999996,
        "worst": 0.5,
        "passed": True,
    }
    base: dict[str, Any] = {
        "workload": "w",
        "also": ["v"],
        "symbol": "k",
        "workgroups": {"executed": 2, "of": 8},
        "tolerance": {"atol": 0.0, "rtol": 0.01, "reason": "one rounding"},
        "numerics": {"y": good},
        "schedules": [{"name": "fair", "same_as_fair": True, "passed": True, "worst": 0.5}],
        "captures": {
            "c": {"equal": 7, "instructions": 7, "waves": 4, "how": "mean", "parts": 1, "first": None}
        },
        "races": {"workgroups": 2, "found": [], "witness": None, "tried": []},
    }
    return {"launches": [{**base, **changes}], "unsaid": {}}


def _claim(workload: str = "w", published: Any = None, **fields: Any) -> Any:
    return SimpleNamespace(workload=workload, published=published, fields=fields, id="x")


def _judge(kind: Any, claim: Any, evidence: Any) -> Any:
    return kind.execute(claim, None, evidence)


def test_numerics() -> None:
    correct = _claim(published=True, metric="correct")
    assert _judge(numerics, correct, _launch()).verdict is Verdict.REPRODUCED
    bad = _launch()
    bad["launches"][0]["numerics"]["y"]["passed"] = False
    assert _judge(numerics, correct, bad).verdict is Verdict.CONTRADICTED
    error = _claim(published=0.00391, metric="max_abs_error")
    assert _judge(numerics, error, _launch()).verdict is Verdict.REPRODUCED
    assert (
        _judge(numerics, _claim(published=0.001, metric="max_abs_error"), _launch()).verdict
        is Verdict.INCONCLUSIVE
    )
    assert (
        _judge(numerics, _claim(published=0.001, metric="max_abs_error"), bad).verdict is Verdict.CONTRADICTED
    )
    assert (
        _judge(numerics, _claim(published=0.99999, metric="cosine"), _launch()).verdict is Verdict.REPRODUCED
    )
    assert (
        _judge(numerics, _claim("other", True, metric="correct"), _launch()).verdict is Verdict.NOT_MEASURED
    )
    stopped = {"launches": [{"workload": "w", "also": [], "error": "PC 0x10: endless"}], "unsaid": {}}
    assert _judge(numerics, correct, stopped).verdict is Verdict.INVALID


def test_counts() -> None:
    assert _judge(counts, _claim("v", capture="c"), _launch()).verdict is Verdict.REPRODUCED
    assert _judge(counts, _claim(capture="d"), _launch()).verdict is Verdict.NOT_MEASURED
    off = {
        "equal": 6,
        "instructions": 7,
        "waves": 4,
        "how": "differs",
        "parts": 0,
        "first": "PC 0x10: captured 1, executed 2",
    }
    said = _judge(counts, _claim(capture="c"), _launch(captures={"c": off}))
    assert said.verdict is Verdict.CONTRADICTED and "PC 0x10" in said.reason


def test_races() -> None:
    assert _judge(race, _claim(), _launch()).verdict is Verdict.REPRODUCED
    site = {"pc": 16, "source": "k.py:3", "text": "ds_write_b32", "wave": 1, "kind": "w"}
    one = {
        "space": "lds",
        "reason": "no barrier between",
        "epoch": 0,
        "workgroup": 0,
        "address": 0,
        "first": site,
        "second": site,
    }
    found = {"workgroups": 2, "found": [one], "witness": None, "tried": []}
    said = _judge(race, _claim(), _launch(races=found))
    assert said.verdict is Verdict.CONTRADICTED and "k.py:3" in said.reason
    late = {**found, "found": [{**one, "reason": "no wait before the barrier"}]}
    assert _judge(race, _claim(), _launch(races=late)).verdict is Verdict.INCONCLUSIVE
    other = [{"name": "ahead", "same_as_fair": False, "passed": True, "worst": 0.1}]
    assert _judge(race, _claim(), _launch(schedules=other)).verdict is Verdict.INCONCLUSIVE


def test_captures_as_means_sums_and_neither() -> None:
    pytest.importorskip("tinygrad.renderer.amd")
    from tests.programs import program

    ins = pytest.importorskip("tinygrad.runtime.autogen.amd.cdna.ins")
    made = program([ins.s_nop(simm16=0), ins.s_nop(simm16=1), ins.s_endpgm()])
    executed = np.array([[1, 1, 1, 1], [0, 3, 5, 7], [1, 1, 1, 1]], np.uint32)
    run: Any = SimpleNamespace(executed=executed, per_group=2)
    assert against_capture(made, run, [8, 30, 8]).how == "mean"
    mixed = against_capture(made, run, [3, 8, 3])  # waves 1, 2 and 0, or the like
    assert (mixed.how, mixed.equal, mixed.waves) == ("mixture", 3, 3)
    off = against_capture(made, run, [2, 99, 2])
    assert off.how == "differs" and off.equal == 2 and off.first is not None and "captured 49.5" in off.first
    assert against_capture(made, run, [1, 1]).how == "differs"


def test_run_lengths_and_samples() -> None:
    values = [4, 4, 4, 0, 7]
    assert pack(values) == [[4, 3], [0, 1], [7, 1]] and unpack(pack(values)) == values
    assert sample(5, None, 0) == sample(5, 9, 0) == [0, 1, 2, 3, 4]
    assert sample(1000, 4, 1) == sample(1000, 4, 1) and {0, 999} <= set(sample(1000, 4, 1))
    assert sample(1000, 1, 1) == [0] and len(sample(1000, 4, 2)) == 4
    assert profiled(8) == list(range(8)) and {0, 15, 480, 511} <= set(profiled(512))


def test_the_page_is_current(repo_root: Path) -> None:
    pytest.importorskip("tinygrad.renderer.amd")
    done = subprocess.run(
        [sys.executable, "tools/execute_doc.py", "--check"],
        cwd=repo_root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
