"""Recapture: discovery, one thread trace, counters apart, each in its own process group with a time limit.

Knows the order of the jobs, how a launch is chosen and verified, and what the profiler's known failures
look like. Must not know bundles or claims. The result is JSON-able evidence whose faults say what it cannot
carry; thread trace and counters give no time, the discovery job does.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.command import Reporter
from harness.errors import HarnessError
from harness.trace import rocprofv3
from harness.trace.analysis import Analysis
from harness.trace.csvs import Counters, Dispatches
from harness.trace.faults import METRICS, Fault, fault, ordered
from harness.trace.jobs import Runner, log_faults
from harness.trace.rocprofv3 import Job
from harness.trace.session import Session, analyses, read

__all__ = ["COUNTERS", "RecapturePlan", "recapture"]

DECODER = "librocprof-trace-decoder.so"
COUNTERS: tuple[tuple[str, ...], ...] = (
    ("SQ_WAVES", "SQ_INSTS_VALU", "SQ_INSTS_SALU", "SQ_INSTS_MFMA"),
    ("SQ_INSTS_VMEM_RD", "SQ_INSTS_VMEM_WR", "SQ_INSTS_LDS", "SQ_INSTS_SMEM"),
    ("GRBM_GUI_ACTIVE",),
)
"""Sets that each fit one pass on gfx950."""

JITTER = 0.02
"""SQ_WAVES may differ from the grid's waves by this share (ROCm/rocm-systems issue 12084)."""

SPREAD = 1.5
"""A launch this many times the median is an outlier of the discovery job, said but not hidden."""


@dataclass(frozen=True)
class RecapturePlan:
    """What to capture again.

    command: an application that launches `kernel` at least `launches` times, the same way each time. grid:
    the workgroups that the claimed shape must launch, None where unknown. decoder: the directory of the trace
    decoder; None looks in the places where ROCm puts it. targets: (CU, shader-engine mask) in the order to
    try. limits in seconds a job.
    """

    command: tuple[str, ...]
    kernel: str
    grid: tuple[int, int, int] | None = None
    launches: int = 5
    counters: tuple[tuple[str, ...], ...] = COUNTERS
    rocprofv3: str = "rocprofv3"
    decoder: Path | None = None
    targets: tuple[tuple[int, int], ...] = ((1, 0xF), (0, 0xF), (2, 0xFF))
    buffer: int = 256 * 2**20
    limit_s: float = 300.0
    environment: Mapping[str, str] = field(default_factory=dict)


def recapture(plan: RecapturePlan, out: Path, reporter: Reporter) -> dict[str, Any]:
    """Run all jobs below `out`, which must be new or empty; gives the evidence, written nowhere else.

    Raises HarnessError where rocprofv3 or the decoder is not there, or `out` holds something.
    """
    program = shutil.which(plan.rocprofv3)
    if program is None:
        raise HarnessError(
            f"{plan.rocprofv3}: not found", remedy="use the pinned container, or put ROCm on PATH"
        )
    decoder = _decoder(plan)
    if out.exists() and any(out.iterdir()):
        raise HarnessError(
            f"{out}: is not empty", remedy="name a new directory: an old trace must not be read again"
        )
    out.mkdir(parents=True, exist_ok=True)
    run = Runner(program, out, plan.limit_s, plan.environment)
    faults: list[Fault] = []
    with reporter.task(f"recapture {plan.kernel}", 2 + len(plan.counters)) as task:
        found = run(rocprofv3.discovery(out, plan.command))
        session = read(found.job.directory) if found.job.directory.is_dir() else Session()
        faults += log_faults(found) + session.faults
        chosen, more = _choose(plan, session)
        faults += more
        task.advance(note="discovery")
        trace: Analysis | None = None
        attempts: list[dict[str, Any]] = []
        if chosen is not None:
            trace, attempts, more = _trace(plan, run, out, decoder, chosen, session)
            faults += more
        task.advance(note="thread trace")
        values: dict[str, float] = {}
        for number, names in enumerate(plan.counters, 1):
            if chosen is not None:
                values, more = _count(plan, run, out, chosen, names, number, values)
                faults += more
            task.advance(note=f"counters {number}")
    if trace is None and not any(f.rule in ("no-launch", "wrong-shape") for f in faults):
        faults.append(
            fault("no-trace", "no thread trace came out of any attempt", "see the logs beside it", METRICS)
        )
    return _evidence(plan, run, decoder, chosen, trace, attempts if chosen else [], values, faults)


def _decoder(plan: RecapturePlan) -> Path:
    """The directory that holds the decoder library."""
    places = [plan.decoder] if plan.decoder is not None else []
    if plan.decoder is None:
        named = os.environ.get("ROCPROF_ATT_LIBRARY_PATH")
        places += [Path(named)] if named else []
        places += [Path(os.environ.get("ROCM_PATH", "/opt/rocm")) / "lib"]
    for place in places:
        if list(place.glob(f"{DECODER}*")):
            return place
    raise HarnessError(
        f"{DECODER}: in none of {', '.join(map(str, places))}",
        remedy="install rocprof-trace-decoder 0.1.x (ROCm 7.2 brings none: ROCm/rocm-systems issue 2454), "
        "or use the pinned container",
    )


@dataclass(frozen=True)
class _Chosen:
    """A launch of the discovery job: its form, dispatch id, and 1-based place among the kernel's launches."""

    form: Dispatches
    dispatch: int
    iteration: int


def _choose(plan: RecapturePlan, session: Session) -> tuple[_Chosen | None, list[Fault]]:
    """The launch to trace: of the claimed grid, late in the run, with a duration nearest to the median."""
    forms = [k for trace in session.traces.values() for k in trace.kernels if k.symbol == plan.kernel]
    if not forms:
        return None, [
            fault(
                "no-launch",
                f"the discovery job holds no launch of {plan.kernel}",
                "check the kernel's name in discover/out_kernel_trace.csv",
                METRICS,
            )
        ]
    fitting = [k for k in forms if plan.grid is None or k.grid == plan.grid]
    if not fitting:
        there = ", ".join("x".join(map(str, k.grid)) for k in forms)
        return None, [
            fault(
                "wrong-shape",
                f"the claimed shape launches {'x'.join(map(str, plan.grid or ()))} workgroups, the run "
                f"{there}",
                "launch the claimed shape",
                METRICS,
            )
        ]
    form = max(fitting, key=lambda k: len(k.ids))
    found: list[Fault] = []
    if len(form.ids) < plan.launches:
        found.append(
            fault("few-launches", f"{len(form.ids)} launches, {plan.launches} wanted", "launch it more often")
        )
    middle = form.median_us
    slow = sum(d / 1000 > SPREAD * middle for d in form.durations)
    if slow:
        found.append(
            fault(
                "outliers",
                f"{slow} of {len(form.durations)} launches took more than {SPREAD:g} times the median of "
                f"{middle:.2f} us (a cold launch, or a wrong timestamp: ROCm/rocm-systems issue 6422)",
                "use the median",
            )
        )
    late = list(zip(form.ids, form.durations, strict=True))[len(form.ids) // 2 :]
    dispatch, _ = min(late, key=lambda one: (abs(one[1] / 1000 - middle), one[0]))
    lost = [i for trace in session.traces.values() for i in trace.untimed.get(plan.kernel, ())]
    every = sorted([*lost, *(i for k in forms for i in k.ids)])
    return _Chosen(form, dispatch, every.index(dispatch) + 1), found


def _trace(
    plan: RecapturePlan, run: Runner, out: Path, decoder: Path, chosen: _Chosen, discovered: Session
) -> tuple[Analysis | None, list[dict[str, Any]], list[Fault]]:
    """Thread-trace jobs until one is valid, at most one a target; the best of them, and what was wrong with
    it."""
    attempts: list[dict[str, Any]] = []
    best: tuple[int, Analysis | None, list[Fault]] | None = None
    for number, (cu, mask) in enumerate(plan.targets, 1):
        job = rocprofv3.thread_trace(
            out, plan.command, kernel=plan.kernel, iteration=chosen.iteration, decoder=decoder, cu=cu,
            mask=mask, buffer=plan.buffer, attempt=number,
        )  # fmt: skip
        ran = run(job)
        found = log_faults(ran)
        session = read(job.directory) if job.directory.is_dir() else Session()
        found += session.faults
        seen = analyses(_joined(session, discovered), None, None)
        mine = [a for a in seen if _belongs(a, plan, chosen)]
        found += _dispatch_faults(seen, mine, plan, chosen, job)
        trace = _without_counters(mine[0]) if mine else None
        every = ordered([*found, *(trace.faults if trace is not None else ())])
        spoiled = sum(len(f.spoils) for f in every)
        attempts.append(
            {
                "cu": cu, "mask": hex(mask), "status": ran.status, "seconds": round(ran.seconds, 1),
                "waves": trace.waves if trace is not None else 0, "valid": trace is not None and not spoiled,
                "faults": [f.to_json() for f in every],
            }
        )  # fmt: skip
        score = (spoiled if trace is not None else 10**6) + (10**5 if ran.status == "timeout" else 0)
        if best is None or score < best[0]:
            best = (score, trace, found)
        # another CU cannot mend what every attempt has in common
        if not spoiled or ran.status == "timeout" or any(f.rule.startswith("decoder") for f in found):
            break
    assert best is not None  # a plan has at least one target
    return best[1], attempts, best[2]


def _without_counters(trace: Analysis) -> Analysis:
    """A thread-trace job holds no counters by design; they have jobs of their own."""
    return replace(trace, faults=tuple(f for f in trace.faults if f.rule != "no-counters"))


def _joined(trace: Session, discovered: Session) -> Session:
    """The trace with the discovery job's kernel trace beside it: a thread trace records no launch of its
    own."""
    return replace(trace, traces={**discovered.traces}, agents={**trace.agents, **discovered.agents})


_DISPATCH = re.compile(r"_dispatch_(\d+)")


def _dispatch_of(analysis: Analysis) -> int | None:
    named = _DISPATCH.search(analysis.directory)
    return int(named[1]) if named else None


def _belongs(analysis: Analysis, plan: RecapturePlan, chosen: _Chosen) -> bool:
    return _dispatch_of(analysis) == chosen.dispatch and analysis.symbol in (None, plan.kernel)


def _dispatch_faults(
    seen: list[Analysis], mine: list[Analysis], plan: RecapturePlan, chosen: _Chosen, job: Job
) -> list[Fault]:
    if mine:
        return []
    if not seen:
        kept = sorted(p.name for p in job.directory.rglob("*.att")) if job.directory.is_dir() else []
        text = f"{job.name}: no ui_output directory" + (f", {len(kept)} .att files are kept" if kept else "")
        return [
            fault(
                "no-trace",
                text,
                "change --att-target-cu or --att-shader-engine-mask; check the decoder",
                METRICS,
            )
        ]
    there = ", ".join(f"{a.symbol} dispatch {_dispatch_of(a)}" for a in seen)
    return [
        fault(
            "wrong-dispatch",
            f"{job.name}: traced {there}; chosen was {plan.kernel} dispatch {chosen.dispatch} (iteration "
            f"{chosen.iteration}, counted from process start, ROCm/rocm-systems pull 7299)",
            "make the application launch the same way in every job",
            METRICS,
        )
    ]


def _count(
    plan: RecapturePlan, run: Runner, out: Path, chosen: _Chosen, names: tuple[str, ...], number: int,
    values: dict[str, float],
) -> tuple[dict[str, float], list[Fault]]:  # fmt: skip
    """One counter job; a set that does not fit is split in two once."""
    ran = run(
        rocprofv3.counters(
            out, plan.command, kernel=plan.kernel, iteration=chosen.iteration, names=names, number=number
        )
    )
    found = log_faults(ran)
    split = any(f.rule == "too-many-counters" for f in found) and len(names) > 1
    if split:
        half = len(names) // 2
        for part, at in ((names[:half], 10 * number + 1), (names[half:], 10 * number + 2)):
            values, more = _count(plan, run, out, chosen, part, at, values)
            found += more
        return values, found
    session = read(ran.job.directory) if ran.job.directory.is_dir() else Session()
    found += session.faults
    mine = _of_launch(list(session.counters.values()), plan.kernel, chosen.dispatch)
    found += _counter_faults(mine, names, ran.job.name, chosen)
    return {**values, **mine}, found


def _of_launch(tables: list[Counters], kernel: str, dispatch: int) -> dict[str, float]:
    return {
        name: value
        for table in tables
        for (number, symbol, name), value in table.values.items()
        if symbol == kernel and number == dispatch
    }


def _counter_faults(
    mine: Mapping[str, float], names: tuple[str, ...], job: str, chosen: _Chosen
) -> Iterator[Fault]:
    missing = [name for name in names if name not in mine]
    if missing:
        yield fault(
            "no-counters",
            f"{job}: no value of {', '.join(missing)} for dispatch {chosen.dispatch}",
            "collect counters in a job of their own (pmc under jobs: in a file), fewer at a time",
            ("counters",),
        )
    if mine and not any(mine.values()):
        yield fault(
            "zero-counters",
            f"{job}: all of {', '.join(sorted(mine))} are zero: a failed collection, not an idle GPU",
            "unset HIP_VISIBLE_DEVICES on a machine with several GPUs (ROCm/rocm-systems issue 5683)",
            ("counters",),
        )
    waves = mine.get("SQ_WAVES")
    if waves and abs(waves - chosen.form.waves) > JITTER * chosen.form.waves:
        yield fault(
            "waves-differ",
            f"{job}: SQ_WAVES {waves:,.0f}, the grid has {chosen.form.waves:,} waves",
            "another launch was counted, or counters of several GPUs were summed",
            ("counters",),
        )


def _evidence(
    plan: RecapturePlan, run: Runner, decoder: Path, chosen: _Chosen | None, trace: Analysis | None,
    attempts: list[dict[str, Any]], values: dict[str, float], faults: list[Fault],
) -> dict[str, Any]:  # fmt: skip
    every = ordered([*faults, *(trace.faults if trace is not None else ())])
    library = sorted(decoder.glob(f"{DECODER}*"))[0].resolve()
    return {
        "kernel": plan.kernel,
        "command": list(plan.command),
        "decoder": {"file": library.name, "sha256": hashlib.sha256(library.read_bytes()).hexdigest()},
        "jobs": [
            {
                "name": r.job.name,
                "arguments": list(r.job.arguments),
                "status": r.status,
                "seconds": round(r.seconds, 1),
            }
            for r in run.ran
        ],
        "launch": None
        if chosen is None
        else {
            "dispatch": chosen.dispatch,
            "iteration": chosen.iteration,
            "grid_workgroups": list(chosen.form.grid),
            "workgroup_size": list(chosen.form.workgroup),
            "median_us": round(chosen.form.median_us, 3),
            "launches": len(chosen.form.ids),
            "durations_us": [round(d / 1000, 3) for d in chosen.form.durations],
        },
        "trace": trace.to_json() if trace is not None else None,
        "attempts": attempts,
        "counters": dict(sorted(values.items())),
        "valid": not any(f.spoils for f in every),
        "verdict": "INVALID" if any(f.spoils for f in every) else "VALID",
        "faults": [f.to_json() for f in every],
    }
