"""Every bad subject ends in the right verdict and a clear line; nothing measured is lost. Real processes,
on a CPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.command import Silent
from harness.device import record
from harness.device.judging import judge_pair
from harness.device.plan import HOST_ROTATED, Plan, Shape
from harness.device.processes import Fork, Spawn
from harness.device.run import Decision, Run, measure, open_run
from harness.verdict import Verdict

KERNEL = "tests.device_subjects"
GOOD = ("none", "dies-once")


@pytest.fixture(scope="module")
def server() -> Iterator[Fork]:
    """One fork server for all tests of this module: torch is imported once."""
    fork = Fork(("torch", "harness.device.child", "harness.device.graphs", "harness.device.gates", KERNEL))
    yield fork
    fork.close()


def plan(bad: str = "none", mark: str = "", **changes: Any) -> Plan:
    """The least plan that runs every part of a process."""
    shape = Shape("tiny", {"n": 4096, "bad": bad, "mark": mark}, ("other",), judged=(HOST_ROTATED,))
    fields: dict[str, Any] = {
        "start": "fork",
        "regimes": (HOST_ROTATED,),
        "looks": (2,),
        "blocks": 3,
        "discarded": 1,
        "rotation": 0.002,
        "least_rotation": 0.002,
        "limit_s": 30.0,
    }
    return Plan("tiny", KERNEL, "cpu", (shape,), **{**fields, **changes})


def never(plan: Plan, shape: Shape, processes: Any) -> Decision:
    """Decide nothing: every look is taken."""
    return Decision(False, "")


def run_(server: Any, directory: Path, wanted: Plan) -> Run:
    """Measure `wanted` in `directory`."""
    return measure(open_run(directory, wanted), Silent(), never, server)


def test_a_good_subject_gives_whole_processes_and_evidence_that_validates(
    server: Fork, tmp_path: Path
) -> None:
    run = run_(server, tmp_path, plan())
    assert [p["fault"] for p in run.processes["tiny"]] == [None, None]
    evidence = record.assemble(run)
    record.write(tmp_path / "evidence.json", evidence)
    assert record.read(tmp_path / "evidence.json") == evidence
    process = evidence["shapes"][0]["processes"][0]
    names = [gate["name"] for gate in process["gates"]]
    assert (
        names.count("correct before (subject)") == 1 and names.count("correct on other inputs (other)") == 1
    )
    assert any(name.startswith("correct after") for name in names)
    assert (
        process["sizing"]["launches"] % 10 == 0
        and process["sizing"]["surplus"] * 10 == process["sizing"]["launches"]
    )
    pairs = process["regimes"][HOST_ROTATED]["pairs"]
    assert set(pairs) == {"ratio:other", "a/a", "positive"}
    assert all(len(p["ns"]) == len(p["order"]) == 4 for p in pairs.values())
    assert process["seconds"]["start"] >= 0 and process["wall_s"] > 0


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("wrong", "elements wrong"),
        ("partly", "NaN in 1 of"),
        ("nan", "NaN in 1 of"),
        ("inf", "infinity in 1 of"),
        ("itself", "is the memory of input x"),
        ("cached", "on other inputs"),
        ("elsewhere", "NaN in 4096 of"),
        ("baseline", "(other)"),
        ("fp8", "computes with ocp fp8"),
        ("raises", "ValueError: no such kernel"),
        ("dies", "signal 9"),
        ("memory", "out of memory"),
    ],
)
def test_a_bad_subject_is_invalid_and_said_so(server: Fork, tmp_path: Path, bad: str, said: str) -> None:
    wanted = plan(bad)
    run = run_(server, tmp_path, wanted)
    judged = judge_pair(wanted, run.processes["tiny"], HOST_ROTATED, "ratio:other", 1.0, u0=0.01)
    assert judged.verdict is Verdict.INVALID
    assert said in judged.reason
    evidence = record.assemble(run)
    record.write(tmp_path / "evidence.json", evidence)
    assert not any(p["complete"] and p["fault"] is None for p in evidence["shapes"][0]["processes"])


def alive(pid: int) -> bool:
    """Is there such a process, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_hanging_subject_is_killed_with_all_it_started(server: Fork, tmp_path: Path, start: str) -> None:
    mark = tmp_path / "pids"
    wanted = plan("hang", str(mark), limit_s=2.5 if start == "fork" else 12.0)
    begun = time.monotonic()
    run = run_(server if start == "fork" else Spawn(), tmp_path / "run", wanted)
    assert time.monotonic() - begun < 40
    assert [p["fault"] for p in run.processes["tiny"]] == ["timeout"]
    judged = judge_pair(wanted, run.processes["tiny"], HOST_ROTATED, "ratio:other", 1.0, u0=0.01)
    assert judged.verdict is Verdict.INVALID and "killed with its process group" in judged.reason
    pids = [int(pid) for pid in mark.read_text().split()]
    deadline = time.monotonic() + 5
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)
    again = open_run(tmp_path / "run", wanted)
    assert again.processes["tiny"][0]["fault"] == "timeout"


def test_a_child_killed_once_is_measured_again_and_kept(server: Fork, tmp_path: Path) -> None:
    wanted = plan("dies-once", str(tmp_path / "mark"))
    run = run_(server, tmp_path / "run", wanted)
    assert [p["fault"] for p in run.processes["tiny"]] == ["interrupted", None, None]
    assert not run.processes["tiny"][0]["complete"]
    judged = judge_pair(wanted, run.processes["tiny"], HOST_ROTATED, "ratio:other", 1.0, u0=0.01)
    assert judged.theta is not None


PARENT = """
import sys
from pathlib import Path
from harness.command import Silent
from harness.device.run import Decision, measure, open_run
from tests.test_device_subjects import never, plan
measure(open_run(Path(sys.argv[1]), plan(looks=(6,), blocks=40)), Silent(), never)
"""


def test_a_run_killed_at_any_moment_resumes_with_nothing_lost(
    server: Fork, tmp_path: Path, repo_root: Path
) -> None:
    env = {**os.environ, "PYTHONPATH": str(repo_root)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], env=env, start_new_session=True)
    files = tmp_path / "processes"
    deadline = time.monotonic() + 60
    while len(list(files.glob("*.jsonl"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.05)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    time.sleep(0.5)  # the children follow their parent
    wanted = plan(looks=(6,), blocks=40)
    before = open_run(tmp_path, wanted)
    whole = {p["file"]: p["sha256"] for p in before.whole("tiny")}
    cut = [p["file"] for p in before.processes["tiny"] if not p["complete"]]
    assert whole and len(before.processes["tiny"]) < 6
    assert not any(p["wall_s"] is None for p in before.whole("tiny")[:-1])
    after = run_(server, tmp_path, wanted)
    assert len(after.whole("tiny")) == 6
    assert {p["file"]: p["sha256"] for p in after.whole("tiny")}.items() >= whole.items()
    assert [p["file"] for p in after.processes["tiny"] if not p["complete"]] == cut
    record.write(tmp_path / "evidence.json", record.assemble(after))
