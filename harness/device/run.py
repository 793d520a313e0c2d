"""The parent: holds the clock and the decision, starts one fresh process a replicate, keeps all that they
wrote.

A run is a directory: `plan.json`, `processes/<shape>.<index>.jsonl`, logs. It can be killed at any moment and
resumed from its directory: whole process files count, one cut short is kept, marked and measured again.
Knows nothing of torch (children do) and nothing of claims: what may stop a shape is asked of a `Decide`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.command import Reporter
from harness.device.plan import Plan, Shape, plan_from_json
from harness.device.processes import Starter, starter
from harness.device.provenance import provenance
from harness.device.samples import read_process
from harness.errors import HarnessError
from harness.verdict import ExitCode

__all__ = ["Decide", "Decision", "Run", "measure", "open_run", "replicates", "require_torch", "write_text"]

FATAL = ("arch", "branch", "device")
"""Faults that no other process of the run can be free of: the run ends at once."""

MAX_FAULTS = 2
"""Processes of a shape that may fail before the shape is given up."""


@dataclass(frozen=True)
class Decision:
    """What the judge says at a look: is it decided, and one line for the person who waits."""

    done: bool
    line: str


Decide = Callable[[Plan, Shape, Sequence[Mapping[str, Any]]], Decision]
"""(plan, shape, whole processes so far) -> Decision. Pure."""


@dataclass
class Run:
    """A run's directory and plan, and what its processes wrote so far: by shape, in order of index."""

    directory: Path
    plan: Plan
    processes: dict[str, list[dict[str, Any]]]
    interrupted: bool = False

    def whole(self, shape: str) -> list[dict[str, Any]]:
        """The processes of `shape` that count: complete and without a fault."""
        return replicates(self.processes[shape])


def replicates(processes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that count: complete, without a fault."""
    return [p for p in processes if p["complete"] and p["fault"] is None]


def write_text(path: Path, text: str) -> None:
    """Replace `path` in one step."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def open_run(directory: Path, plan: Plan | None) -> Run:
    """Open or begin the run in `directory`. With a plan, a run that is there must have the same one.

    HarnessError where there is no run to resume, or it belongs to another plan.
    """
    file = directory / "plan.json"
    if file.exists():
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise HarnessError(f"{file}: not JSON ({error})") from error
        found = plan_from_json(data)
        if plan is not None and found.sha256 != plan.sha256:
            raise HarnessError(
                f"{directory}: a run of another plan ({found.bundle}, {found.sha256[:12]}; this is "
                f"{plan.bundle}, {plan.sha256[:12]})",
                remedy="give an empty directory, or resume with the options that it was begun with",
            )
        plan = found if plan is None else plan
    elif plan is None:
        raise HarnessError(f"{directory}: no run to resume (no plan.json)", remedy="start one with --out DIR")
    else:
        (directory / "processes").mkdir(parents=True, exist_ok=True)
        write_text(directory / "provenance.json", json.dumps(provenance(), indent=1) + "\n")
        write_text(file, json.dumps(plan.to_json(), indent=1) + "\n")
    found_processes = {shape.id: _read(directory, plan, shape.id) for shape in plan.shapes}
    return Run(directory, plan, found_processes)


def _read(directory: Path, plan: Plan, shape: str) -> list[dict[str, Any]]:
    files = sorted((directory / "processes").glob(f"{shape}.*.jsonl"))
    walls = _json(directory / "walls.json")
    return [{**read_process(path, plan.sha256), "wall_s": walls.get(path.name)} for path in files]


def _json(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return data


def measure(run: Run, reporter: Reporter, decide: Decide, start: Starter | None = None) -> Run:
    """Start processes until each shape is decided or its last look is over. The run is complete or
    interrupted.

    On an interrupt (SIGINT) the child's group is killed and what there is stays; `run.interrupted` is then
    true.
    """
    plan = run.plan
    own = start is None
    start = starter(plan.start, plan.kernel) if start is None else start
    try:
        for shape in plan.shapes:
            _shape(run, shape, reporter, decide, start)
    except KeyboardInterrupt:
        run.interrupted = True
        reporter.say(f"interrupted; resume with --resume {run.directory}")
    finally:
        if own:
            start.close()
    return run


def _shape(run: Run, shape: Shape, reporter: Reporter, decide: Decide, start: Starter) -> None:
    plan = run.plan
    last = plan.looks[-1]
    died = 0
    with reporter.task(f"{plan.bundle} {shape.id}", last) as task:
        while True:
            whole = run.whole(shape.id)
            verdict = Decision(False, "")
            if len(whole) >= plan.looks[0]:
                verdict = decide(plan, shape, whole)
            at_look = len(whole) in plan.looks
            if len(whole) >= last or (at_look and verdict.done and not plan.all_looks):
                reporter.say(f"{shape.id}: {len(whole)} processes, {verdict.line}")
                return
            if len(_faulty(run, shape.id)) > MAX_FAULTS or _hopeless(run, shape.id):
                reporter.say(f"{shape.id}: given up, {_faulty(run, shape.id)[-1]['message']}")
                return
            begun = time.monotonic()
            process = _one(run, shape, start, last_try=died >= MAX_FAULTS)
            died = died + 1 if process["fault"] == "interrupted" else 0
            seconds = time.monotonic() - begun
            left = last - len(run.whole(shape.id))
            note = (
                f"{verdict.line + ', ' if verdict.line else ''}at worst {left} more, {left * seconds:.0f} s"
            )
            if process["fault"] is not None:
                note = f"{process['fault']}: {process['message']}"
            task.advance(note=note)


def _faulty(run: Run, shape: str) -> list[dict[str, Any]]:
    """Processes that failed by themselves; an interrupted one is nobody's fault."""
    return [p for p in run.processes[shape] if p["fault"] not in (None, "interrupted")]


def _hopeless(run: Run, shape: str) -> bool:
    faulty = _faulty(run, shape)
    same_gate = [p for p in faulty if p["fault"] in ("gate", "timeout", "died", "memory")]
    return any(p["fault"] in FATAL for p in faulty) or len(same_gate) >= 1


def _one(run: Run, shape: Shape, start: Starter, *, last_try: bool = False) -> dict[str, Any]:
    plan = run.plan
    index = len(run.processes[shape.id])
    result = run.directory / "processes" / f"{shape.id}.{index:03d}.jsonl"
    log = run.directory / "processes" / f"{shape.id}.{index:03d}.log"
    caches = run.directory / "caches" / f"{shape.id}.{index:03d}"
    job = {
        "plan": plan.to_json(),
        "shape": shape.id,
        "index": index,
        "seed": plan.seed * 1_000_003 + index * 101 + sum(shape.id.encode()),
        "result": str(result.resolve()),
        "caches": str(caches.resolve()),
        "started_ns": time.monotonic_ns(),
    }
    result.touch()
    begun = time.monotonic()
    how = "interrupted"
    try:
        how = start.run(job, plan.limit_s, log)
    finally:
        shutil.rmtree(caches, ignore_errors=True)
        process = read_process(result, plan.sha256)
        process["wall_s"] = round(time.monotonic() - begun, 4)
        process["index"] = index
        if process["fault"] == "interrupted" and how == "timeout":
            process["fault"] = "timeout"
            process["message"] = f"no end within {plan.limit_s:g} s: killed with its process group"
            _mark(result, process)
        elif process["fault"] == "interrupted" and how != "interrupted":
            process["fault"] = "died" if last_try else "interrupted"
            process["message"] = f"the process ended before its last line ({how}); see {log.name}"
            _mark(result, process)
        _walls(run, result.name, process["wall_s"])
        run.processes[shape.id].append(process)
    return process


def _mark(result: Path, process: Mapping[str, Any]) -> None:
    """Say in the file itself why it has no end, so that a resumed run knows."""
    with result.open("ab") as file:
        file.write(
            b"\n"
            + json.dumps(
                {"record": "fault", "fault": process["fault"], "message": process["message"]}
            ).encode()
            + b"\n"
        )


def _walls(run: Run, name: str, seconds: float) -> None:
    """Wall seconds of each process as the parent saw them, beside the files."""
    path = run.directory / "walls.json"
    walls = _json(path)
    walls[name] = seconds
    write_text(path, json.dumps(walls, indent=1, sort_keys=True) + "\n")


def require_torch(exit_code: int = ExitCode.NOT_MEASURED) -> str:
    """The torch device type here: `cuda` or `cpu`. HarnessError where there is no torch."""
    try:
        import torch
    except ImportError as error:
        raise HarnessError(
            "the device tier needs torch", remedy="pip install 'flydsl-repro[device]'", exit_code=exit_code
        ) from error
    return "cuda" if torch.cuda.is_available() else "cpu"
