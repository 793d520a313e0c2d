"""Recapture against a stand-in rocprofv3: the order of the jobs, their options, and each known failure."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.command import Silent
from harness.errors import HarnessError
from harness.trace import rocprofv3
from harness.trace.recapture import RecapturePlan, recapture
from harness.trace.rocprofv3 import Job, undocumented
from tests.captures import KERNEL
from tests.rocprofv3_standin import GRID

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, Any]:
    """The stand-in as an executable, and a decoder library to find."""
    program = tmp_path / "bin" / "rocprofv3"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -S -m tests.rocprofv3_standin "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    library = tmp_path / "lib" / "librocprof-trace-decoder.so.0.1"
    library.parent.mkdir()
    library.write_bytes(b"not a library, only its hash is taken")
    return {"rocprofv3": str(program), "decoder": library.parent}


def run(tmp_path: Path, tools: dict[str, Any], mode: str = "good", **changes: Any) -> dict[str, Any]:
    """One recapture of the stand-in's kernel."""
    environment = {"STANDIN": mode, "STANDIN_PID": str(tmp_path / "pids")}
    given: dict[str, Any] = {
        "grid": (GRID, 1, 1),
        "counters": (("SQ_WAVES", "SQ_INSTS_VALU"),),
        "limit_s": 60.0,
    }
    plan = RecapturePlan(("app", "--flag"), KERNEL, environment=environment, **{**given, **tools, **changes})
    evidence = recapture(plan, tmp_path / "out", Silent())
    json.dumps(evidence, allow_nan=False)
    return evidence


def rules(evidence: dict[str, Any]) -> set[str]:
    """The rules of all faults."""
    return {fault["rule"] for fault in evidence["faults"]}


def test_a_good_run(tmp_path: Path, tools: dict[str, Any]) -> None:
    got = run(tmp_path, tools)
    assert got["verdict"] == "VALID" and got["valid"]
    assert [job["name"] for job in got["jobs"]] == ["discover", "att-1", "pmc-1"]
    launch = got["launch"]
    # 20 launches of 7.00, 7.04, ... us: the median is 7.38, nearest to it in the later half is the 11th
    assert (launch["dispatch"], launch["iteration"], launch["median_us"]) == (11, 11, 7.38)
    assert got["trace"]["waves"] == 8 and got["trace"]["device_us"] == 7.38
    assert got["trace"]["grid_workgroups"] == [GRID, 1, 1]
    assert got["counters"] == {"SQ_WAVES": float(GRID), "SQ_INSTS_VALU": 640.0}
    assert len(got["decoder"]["sha256"]) == 64
    assert "no-counters" not in rules(got)


def test_jobs_use_documented_options_and_one_thing_each(tmp_path: Path, tools: dict[str, Any]) -> None:
    got = run(tmp_path, tools)
    for job in got["jobs"]:
        arguments = job["arguments"]
        assert undocumented(Job(job["name"], tuple(arguments), tmp_path)) == []
        assert not ("--att" in arguments and "--pmc" in arguments)
        assert arguments[arguments.index("-f") + 1 : arguments.index("-f") + 3] == ["csv", "json"]
        assert arguments[-2:] == ["app", "--flag"]
    trace = got["jobs"][1]["arguments"]
    assert trace[trace.index("--att-buffer-size") + 1] == str(256 * 2**20)
    assert trace[trace.index("--kernel-include-regex") + 1] == "^made_kernel_0$"
    assert trace[trace.index("--kernel-iteration-range") + 1] == "[11]"
    assert Path(trace[trace.index("--att-library-path") + 1]) == tools["decoder"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--att", "--att-buffer-size", "64MB", "-f", "csv", "json"), "takes bytes"),
        (("--att", "--att-target-cu", "16", "-f", "csv", "json"), "takes 0..15"),
        (("--kernel-trace", "--skip-first", "-f", "csv", "json"), "unknown option"),
        (("--att", "--pmc", "SQ_WAVES", "-f", "csv", "json"), "in one job"),
        (("--kernel-trace",), "no output format"),
        (("--kernel-iteration-range", "[6, [8-8]]", "-f", "csv", "json"), "takes [n]"),
    ],
)
def test_undocumented_command_lines_are_named(options: tuple[str, ...], said: str) -> None:
    assert any(said in text for text in undocumented(Job("x", (*options, "--", "app"), Path())))


def test_kernel_names_are_matched_whole() -> None:
    job = rocprofv3.counters(
        Path("o"), ("app",), kernel="f<a, b>(int*)", iteration=2, names=("SQ_WAVES",), number=1
    )
    at = job.arguments.index("--kernel-include-regex") + 1
    assert job.arguments[at] == r"^f<a,\ b>\(int\*\)$"


INVALID = [
    ("decoder-37", "decoder-mismatch"),
    ("null-code", "no-code"),
    ("no-ui", "no-trace"),
    ("crash", "no-trace"),
    ("data-lost", "data-lost"),
    ("packets-lost", "packets-lost"),
    ("wrong-dispatch", "wrong-dispatch"),
    ("other-kernel", "wrong-dispatch"),
    ("no-work", "no-work"),
    ("partial", "partial-work"),
    ("no-counters", "no-counters"),
    ("zero-counters", "zero-counters"),
    ("many-waves", "waves-differ"),
    ("other-name", "no-launch"),
    ("other-grid", "wrong-shape"),
    ("rocpd-v4", "unknown-version"),
]


@pytest.mark.parametrize(("mode", "rule"), INVALID)
def test_known_failures_end_invalid_with_a_remedy(
    mode: str, rule: str, tmp_path: Path, tools: dict[str, Any]
) -> None:
    changes = {} if rule in ("no-counters", "zero-counters", "waves-differ") else {"counters": ()}
    got = run(tmp_path, tools, mode, targets=((1, 0xF),), **changes)
    assert rule in rules(got)
    assert got["verdict"] == "INVALID"
    assert all(fault["remedy"] for fault in got["faults"])


@pytest.mark.parametrize(
    ("mode", "rule"), [("perfmon", "no-permission"), ("slow-first", "outliers"), ("wrapped", "wrapped-time"),
                       ("no-source", "no-source")]
)  # fmt: skip
def test_lesser_faults_are_said_and_spoil_nothing(
    mode: str, rule: str, tmp_path: Path, tools: dict[str, Any]
) -> None:
    got = run(tmp_path, tools, mode)
    assert rule in rules(got) and got["verdict"] == "VALID"


def test_jitter_of_waves_is_tolerated(tmp_path: Path, tools: dict[str, Any]) -> None:
    assert run(tmp_path, tools, "jitter")["verdict"] == "VALID"


def test_an_empty_cu_is_left_for_another(tmp_path: Path, tools: dict[str, Any]) -> None:
    got = run(tmp_path, tools, "cu-1-null", counters=())
    assert [(a["cu"], a["valid"]) for a in got["attempts"]] == [(1, False), (0, True)]
    assert got["verdict"] == "VALID" and got["trace"]["waves"] == 8


def test_a_set_that_does_not_fit_is_split(tmp_path: Path, tools: dict[str, Any]) -> None:
    names = ("SQ_WAVES", "SQ_INSTS_VALU", "SQ_INSTS_SALU", "SQ_INSTS_MFMA")
    got = run(tmp_path, tools, "too-many", counters=(names,))
    assert set(got["counters"]) == set(names)
    assert [job["name"] for job in got["jobs"]][-3:] == ["pmc-1", "pmc-11", "pmc-12"]
    assert "too-many-counters" in rules(got) and got["verdict"] == "VALID"


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
@pytest.mark.parametrize("mode", ["hang-att", "hang-pmc"])
def test_a_hanging_job_is_ended_with_its_whole_group(
    mode: str, tmp_path: Path, tools: dict[str, Any]
) -> None:
    got = run(tmp_path, tools, mode, limit_s=2.5, **{"hang-att": {"counters": ()}}.get(mode, {}))
    assert "timeout" in rules(got) and got["verdict"] == "INVALID"
    pids = [int(pid) for pid in (tmp_path / "pids").read_text(encoding="utf-8").split()]
    for _ in range(50):
        if not any(map(alive, pids)):
            break
        time.sleep(0.05)
    assert not any(map(alive, pids))


def test_the_debug_cache_is_cold_and_the_environment_clean(
    tmp_path: Path, tools: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCPROF_ATT_LIBRARY_PATH", "/nowhere")
    monkeypatch.setenv("FLYDSL_RUNTIME_CACHE_DIR", "/warm")
    run(tmp_path, tools)
    caches = sorted(p.name for p in (tmp_path / "out" / "cache").iterdir())
    assert caches == ["att-1", "discover", "pmc-1"]


def test_means_that_are_missing_are_named(tmp_path: Path, tools: dict[str, Any]) -> None:
    with pytest.raises(HarnessError, match="not found"):
        run(tmp_path, {**tools, "rocprofv3": str(tmp_path / "none")})
    with pytest.raises(HarnessError, match="librocprof-trace-decoder"):
        run(tmp_path, {**tools, "decoder": tmp_path / "empty"})
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old.log").write_text("old", encoding="utf-8")
    with pytest.raises(HarnessError, match="not empty"):
        run(tmp_path, tools)
