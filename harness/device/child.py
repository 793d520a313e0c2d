"""One process, one replicate: builds, checks, sizes, warms up, times 20 blocks, checks again, and says all
of it.

It writes JSON lines as it goes, so that what was measured before a kill is kept; the last line closes the
file with a hash of all before it. It decides nothing: the parent holds the clock and the decision.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.device.bench import Bench, Fault, pairs_of, steady
from harness.device.plan import (
    CONTROL_AA,
    EAGER,
    Plan,
    Shape,
    canonical,
    plan_from_json,
    rotating,
)

__all__ = ["Record", "main", "replicate", "steady"]


class Record:
    """JSON lines to a file, each written through at once; `close` adds the hash of all lines before it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._hash = hashlib.sha256()

    def line(self, kind: str, **data: Any) -> None:
        """One record. `data` must be JSON without NaN."""
        raw = canonical({"record": kind, **data}) + b"\n"
        self._hash.update(raw)
        self._file.write(raw)
        self._file.flush()

    def close(self, **data: Any) -> None:
        """The last record."""
        raw = canonical({"record": "end", "sha256": self._hash.hexdigest(), **data}) + b"\n"
        self._file.write(raw)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


def isolate(directory: Path) -> None:
    """Give this process caches of its own, all empty, before any of the libraries looks for one."""
    for name in (
        "TRITON_CACHE_DIR",
        "FLYDSL_RUNTIME_CACHE_DIR",
        "FLYDSL_AUTOTUNE_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "CUDA_CACHE_PATH",
        "AMD_COMGR_CACHE_DIR",
    ):
        folder = directory / name.lower()
        folder.mkdir(parents=True, exist_ok=True)
        os.environ[name] = str(folder)
    os.environ["FLYDSL_RUNTIME_ENABLE_CACHE"] = "0"


def die_with_parent() -> None:
    """Ask the kernel to end this process when the one that started it ends (Linux; elsewhere nothing)."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, 9)
    except (OSError, AttributeError):
        return


def _gates_before(bench: Bench, arch: str, record: Record) -> None:
    from harness.device.gates import check_correct, check_fp8, check_other_stream, refill

    rig, slot, wait = bench.rig, bench.rig.groups[0][0], bench.clock.wait
    record.line("gate", **check_fp8(slot.tensors, arch).to_json())
    for name in rig.names:
        record.line("gate", **check_correct(rig, name, slot, slot.launches[name], "before", wait).to_json())
    refill(rig, slot, rig.seed + 104729)
    for name in rig.names:
        gate = check_correct(rig, name, slot, slot.launches[name], "on other inputs", wait)
        record.line("gate", **gate.to_json())
        if rig.device != "cpu":
            record.line("gate", **check_other_stream(slot, name, rig.outputs_of(name)).to_json())


def _gates_after(bench: Bench, record: Record) -> None:
    """The very replays that were timed must still write the right thing into poisoned outputs."""
    from harness.device.gates import check_correct

    replayed = [r for r in bench.plan.regimes if r != EAGER]
    regime = next((r for r in replayed if rotating(r)), replayed[0] if replayed else None)
    for name in bench.rig.names:
        for index in bench.checked_slots() if regime and rotating(regime) else [0]:
            slot = bench.rig.groups[0][index]
            run = slot.launches[name] if regime is None else bench.replays[(regime, name, 0, 0)]
            gate = check_correct(bench.rig, name, slot, run, f"after, set {index}", bench.clock.wait)
            record.line("gate", **gate.to_json())


def _gate_symbols(bench: Bench, record: Record) -> None:
    """Which kernels a baseline launched: another than the claim's is another comparison. After all timing,
    since a profiler in the process may leave something behind.
    """
    if bench.rig.device == "cpu":
        return
    from harness.kernels.aiter import observe

    for name in bench.rig.names:
        expects = bench.rig.expects(name)
        if expects is None:
            continue
        symbols = observe(bench.rig.groups[0][0].launches[name]).symbols
        seen = ", ".join(symbols) or "none seen"
        passed = any(re.search(expects, symbol) for symbol in symbols) if symbols else None
        record.line("gate", name=f"symbol ({name})", passed=passed, detail=seen[:400])
        if passed is False:
            raise Fault("branch", f"{name} launched {seen[:300]}, and not {expects}")


def _blocks(bench: Bench, meter: Any, record: Record, rng: random.Random) -> None:
    plan, shape = bench.plan, bench.shape
    for regime in plan.regimes:
        sides = {
            p: (bench.side(regime, p, "subject"), bench.side(regime, p, "baseline")) for p in pairs_of(shape)
        }
        if regime != EAGER and plan.slowdown:
            bench.side(regime, CONTROL_AA, "subject")  # the plain subject, for the check after
        first = sides[f"ratio:{shape.baselines[0]}"] if shape.baselines else sides[CONTROL_AA]
        calm, taken = steady(lambda first=first: first[0]() / first[1]())  # type: ignore[misc]
        record.line("steady", regime=regime, steady=calm, samples=taken)
        if not calm:
            raise Fault("unsteady", f"{regime}: two windows of samples still differ after {taken} samples")
        count = plan.blocks if regime in shape.judged else plan.blocks_beside
        for block in range(-plan.discarded, count):
            pairs = list(sides)
            rng.shuffle(pairs)
            taken_ns: dict[str, Any] = {}
            for pair in pairs:
                subject, baseline = sides[pair]
                abba = rng.random() < 0.5
                turn = (
                    (subject, baseline, baseline, subject) if abba else (baseline, subject, subject, baseline)
                )
                taken_ns[pair] = {"order": "ABBA" if abba else "BAAB", "ns": [sample() for sample in turn]}
            record.line(
                "block", regime=regime, block=block, pairs=taken_ns, meter=list(meter.read().values())
            )


def replicate(plan: Plan, shape: Shape, index: int, seed: int, record: Record, started_ns: int) -> None:
    """Measure one replicate of `shape` and write it to `record`. Raises Fault, GateFailed, ClockFault."""
    entered = time.monotonic_ns()
    import torch

    from harness.device.clock import clock_for
    from harness.device.machine import describe, host, versions
    from harness.device.telemetry import UNKNOWN, meter_for

    imported = time.monotonic_ns()
    if plan.device == "cpu":
        torch.set_num_threads(1)
    elif not torch.cuda.is_available():
        raise Fault("device", "torch sees no GPU")
    torch.manual_seed(seed)
    cuda: Any = torch.cuda
    meter = meter_for(plan.device)
    others = meter.others() if plan.device != "cpu" else []
    stream = cuda.Stream() if plan.device != "cpu" else None
    device = describe(plan.device, meter)
    record.line(
        "start",
        plan_sha256=plan.sha256,
        bundle=plan.bundle,
        shape=shape.id,
        index=index,
        seed=seed,
        pid=os.getpid(),
        device=device,
        host=host(),
        versions=versions(),
    )
    told = UNKNOWN if others is None else f"{len(others)} other processes"
    passed = None if others is None else not others
    record.line("gate", name="exclusive", passed=passed, detail=told)
    if others:
        raise Fault("busy", f"the device is in use by {len(others)} other processes")
    if plan.requires_arch is not None and device["arch"] != plan.requires_arch:
        raise Fault(
            "arch", f"the claim is about {plan.requires_arch}; this is {device['name']} ({device['arch']})"
        )
    context = time.monotonic_ns()
    clock = clock_for(plan.device)
    with torch.cuda.stream(stream) if stream is not None else _nothing():
        bench = Bench(plan, shape, seed, int(device["last_level_cache_bytes"]), clock, stream)
        bench.first_launches()
        built = time.monotonic_ns()
        _gates_before(bench, str(device["arch"]), record)
        gated = time.monotonic_ns()
        bench.allocate()
        record.line(
            "sizing", surplus=bench.surplus, slowed=bench.slowed, swapped=bench.swapped, **vars(bench.sizing)
        )
        allocated = time.monotonic_ns()
        _blocks(bench, meter, record, random.Random(seed))
        sampled = time.monotonic_ns()
        _gates_after(bench, record)
        _gate_symbols(bench, record)
    ended = time.monotonic_ns()
    stages = {
        "start": entered - started_ns,
        "import": imported - entered,
        "context": context - imported,
        "build": built - context,
        "gates": gated - built + ended - sampled,
        "allocate": allocated - gated,
        "sample": sampled - allocated,
    }
    record.line("seconds", **{k: round(v / 1e9, 4) for k, v in stages.items()})


class _nothing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def work(job: Mapping[str, Any]) -> int:
    """Do one job: {plan, shape, index, seed, result, caches, started_ns}. Returns the process's exit code.

    Whatever goes wrong becomes a `fault` record; the parent reads the file, not the exit code.
    """
    plan = plan_from_json(job["plan"])
    record = Record(Path(job["result"]))
    try:
        isolate(Path(job["caches"]))
        shape = plan.shape(job["shape"])
        replicate(plan, shape, int(job["index"]), int(job["seed"]), record, int(job["started_ns"]))
        record.close(fault=None)
        return 0
    except Exception as error:
        kind, message = _explain(error)
        if kind == "exception":
            traceback.print_exc()
        record.line("fault", fault=kind, message=message[:500])
        record.close(fault=kind)
        return 1


def _explain(error: Exception) -> tuple[str, str]:
    from harness.device.clock import ClockFault
    from harness.device.gates import GateFailed

    if isinstance(error, Fault):
        return error.kind, str(error)
    if isinstance(error, GateFailed):
        return "gate", str(error)
    if isinstance(error, ClockFault):
        return "clock", str(error)
    text = str(error).strip().splitlines()
    return "exception", f"{type(error).__name__}: {text[0] if text else ''}"


def main() -> int:
    """An interpreter of its own: one job as JSON on standard input."""
    die_with_parent()
    return work(json.load(sys.stdin))


if __name__ == "__main__":
    sys.exit(main())
