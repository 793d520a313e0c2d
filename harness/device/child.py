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
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.device.plan import (
    CONTROL_AA,
    CONTROL_POSITIVE,
    EAGER,
    Plan,
    Shape,
    canonical,
    plan_from_json,
    rotating,
)

__all__ = ["Record", "main", "replicate", "steady"]

EAGER_WARM, EAGER_LAUNCHES = 10, 50
"""The study's own loop: 10 launches before, 50 between the events (FlyDSL's benchmark_common)."""


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


class Fault(Exception):
    """The process cannot give a replicate: `kind` in one word, the message in one line."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


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


def steady(sample: Callable[[], float], limit: int = 60, window: int = 6) -> tuple[bool, int]:
    """Run `sample` until two windows in a row agree: (steady, samples taken).

    They agree when their medians differ by at most 1 %, or by no more than the noise inside them allows
    (three standard errors from the median absolute deviation). A short warm-up once cost 30 %
    (triton-lang/triton#2306).
    """
    taken = [sample() for _ in range(2 * window)]
    while True:
        older, newer = taken[-2 * window : -window], taken[-window:]
        a, b = statistics.median(older), statistics.median(newer)
        spread = statistics.median(abs(x - m) for w, m in ((older, a), (newer, b)) for x in w)
        noise = 3 * 1.4826 * spread * (2 / window) ** 0.5 * 1.2533
        if abs(a - b) <= max(0.01 * b, noise):
            return True, len(taken)
        if len(taken) >= limit:
            return False, len(taken)
        taken.extend(sample() for _ in range(window))


def _pairs(shape: Shape) -> list[str]:
    return [f"ratio:{name}" for name in shape.baselines] + [CONTROL_AA, CONTROL_POSITIVE]


class _Bench:
    """The sides of every pair in every regime, built once; each side is (call, launches)."""

    def __init__(self, plan: Plan, shape: Shape, seed: int, llc: int, clock: Any, stream: Any) -> None:
        from harness.device.graphs import launch_unit
        from harness.device.rig import Rig, bytes_of, rotation_sets

        self.plan, self.shape, self.clock, self.stream = plan, shape, clock, stream
        module = import_module(plan.kernel)
        self.rig = Rig(module, shape.dims, ("subject", *shape.baselines), plan.device, seed)
        self.llc = llc
        # Which of the two allocations plays the subject in A/A is a coin's choice: their difference is
        # luck, not bias.
        self.swapped = random.Random(seed ^ 0xAA).random() < 0.5
        self.unit = launch_unit(plan.extra, plan.slowdown)
        first = self.rig.slot(seed)
        self.rig.groups[0].append(first)
        self.per_set = min(bytes_of(first.tensors), max(1, int(self.rig.traffic.bytes)))
        self.sets = rotation_sets(self.per_set, llc, plan.rotation, self.unit) if self._rotates else 1
        self.sizing: Any = None
        self._replays: dict[tuple[Any, ...], Callable[[], object]] = {}

    @property
    def _rotates(self) -> bool:
        return any(rotating(r) for r in self.plan.regimes)

    def first_launches(self) -> None:
        """One launch of each implementation: JIT, module load."""
        for name in self.rig.names:
            self.rig.groups[0][0].launches[name]()
        self.clock.wait()

    def allocate(self) -> None:
        """Measure a launch, choose m, and build the whole rotation twice (the second for the A/A control)."""
        from harness.device.graphs import Sizing, floor_of, replay_of, size
        from harness.device.rig import OutOfMemory, rotation_sets

        floor = floor_of(self.clock, self.plan.device, self.stream)
        while True:
            try:
                self.rig.grow(0, self.sets)
                base = [s.launches["subject"] for s in self.rig.groups[0][: self.sets]]
                trial = replay_of(base * max(1, self.unit // self.sets), self.plan.device, self.stream)
                count = len(base) * max(1, self.unit // self.sets)
                times = []
                for _ in range(6):
                    times.append(self.clock.time(trial))
                launch_ns = max((min(times) - floor) / count, min(times) / count * 0.1)
                m = size(
                    launch_ns, floor, self.sets, self.unit, self.plan.minimum_us, self.plan.minimum_floors
                )
                self.surplus = round(m * self.plan.extra)
                self.slowed = round(m / (1 - self.plan.slowdown)) - m
                spare = min(max(self.surplus, self.slowed), self.sets)
                self.rig.grow(0, self.sets + spare)
                self.rig.grow(1, self.sets + min(self.slowed, self.sets), ("subject",))
                break
            except OutOfMemory as error:
                fewer = rotation_sets(self.per_set, self.llc, self.plan.least_rotation, self.unit)
                if fewer >= self.sets:
                    raise Fault("memory", f"{error}; a smaller rotation would sit in the cache") from error
                self.sets = fewer
                self.rig.clear()
        self.spare = spare
        held = self.sets * self.per_set
        self.sizing = Sizing(
            sets=self.sets,
            launches=m,
            floor_ns=floor,
            launch_ns=round(launch_ns, 1),
            bytes_per_launch=int(self.rig.traffic.bytes),
            rotation_bytes=held,
            rotation=round(held / max(1, self.llc), 3),
        )

    def side(self, regime: str, pair: str, which: str) -> Callable[[], int]:
        """A call that takes one sample, in nanoseconds: `which` is `subject` or `baseline` of `pair`."""
        name, group, surplus = "subject", 0, 0
        if pair.startswith("ratio:") and which == "baseline":
            name = pair.partition(":")[2]
        if pair == CONTROL_AA:
            group = int((which == "baseline") != self.swapped)
        if pair == CONTROL_POSITIVE and which == "baseline":
            surplus = self.surplus
        slowed = bool(self.plan.slowdown) and pair.startswith("ratio:") and which == "subject"
        if regime == EAGER:
            return self._eager(name, group, pair == CONTROL_POSITIVE and which == "baseline", slowed)
        if slowed:
            surplus = self.slowed
        key = (regime, name, group, surplus)
        if key not in self._replays:
            self._replays[key] = self._replay(regime, name, group, surplus)
        replay = self._replays[key]
        return lambda: int(self.clock.time(replay))

    def _replay(self, regime: str, name: str, group: int, surplus: int) -> Callable[[], object]:
        from harness.device.graphs import order, replay_of

        slots = self.rig.groups[group]
        m = self.sizing.launches
        indexes = (
            order(m, self.sets, surplus, max(1, self.spare)) if rotating(regime) else [0] * (m + surplus)
        )
        return replay_of([slots[i].launches[name] for i in indexes], self.plan.device, self.stream)

    def _eager(self, name: str, group: int, more: bool, slowed: bool) -> Callable[[], int]:
        launch = self.rig.groups[group][0].launches[name]
        count = EAGER_LAUNCHES + (round(EAGER_LAUNCHES * self.plan.extra) if more else 0)
        if slowed:
            count = round(EAGER_LAUNCHES / (1 - self.plan.slowdown))

        def run() -> None:
            for _ in range(count):
                launch()

        def sample() -> int:
            for _ in range(EAGER_WARM):
                launch()
            self.clock.wait()
            return int(self.clock.time(run))

        return sample

    def checked_slots(self) -> list[int]:
        """Which sets of the rotation are compared with the reference: first and last; the first alone if
        large."""
        elements = sum(getattr(t, "numel", lambda: 0)() for t in self.rig.groups[0][0].tensors.values())
        return [0] if elements > 1 << 27 or self.sets == 1 else [0, self.sets - 1]


def _gates_before(bench: _Bench, arch: str, record: Record) -> None:
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


def _gates_after(bench: _Bench, record: Record) -> None:
    """The very replays that were timed must still write the right thing into poisoned outputs."""
    from harness.device.gates import check_correct

    replayed = [r for r in bench.plan.regimes if r != EAGER]
    regime = next((r for r in replayed if rotating(r)), replayed[0] if replayed else None)
    for name in bench.rig.names:
        for index in bench.checked_slots() if regime and rotating(regime) else [0]:
            slot = bench.rig.groups[0][index]
            run = slot.launches[name] if regime is None else bench._replays[(regime, name, 0, 0)]
            gate = check_correct(bench.rig, name, slot, run, f"after, set {index}", bench.clock.wait)
            record.line("gate", **gate.to_json())


def _blocks(bench: _Bench, meter: Any, record: Record, rng: random.Random) -> None:
    plan, shape = bench.plan, bench.shape
    for regime in plan.regimes:
        sides = {
            p: (bench.side(regime, p, "subject"), bench.side(regime, p, "baseline")) for p in _pairs(shape)
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
        bench = _Bench(plan, shape, seed, int(device["last_level_cache_bytes"]), clock, stream)
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
