"""The sides of every pair in every regime of one process, sized, allocated and built once.

Knows the rig, replays and a clock; knows nothing of blocks, gates or files. A side is a call that takes one
sample.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.device.graphs import Sizing, floor_of, launch_unit, order, replay_of, size
from harness.device.plan import CONTROL_AA, CONTROL_POSITIVE, EAGER, Plan, Shape, rotating
from harness.device.rig import OutOfMemory, Rig, bytes_of, rotation_sets

__all__ = ["Bench", "Fault", "pairs_of", "steady"]

EAGER_WARM, EAGER_LAUNCHES = 10, 50
"""The study's own loop: 10 launches before, 50 between the events (FlyDSL's benchmark_common)."""


class Fault(Exception):
    """The process cannot give a replicate: `kind` in one word, the message in one line."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


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


def pairs_of(shape: Shape) -> list[str]:
    """What is timed of a shape: the ratio to each baseline, then the two controls."""
    return [f"ratio:{name}" for name in shape.baselines] + [CONTROL_AA, CONTROL_POSITIVE]


class Bench:
    """The sides of every pair in every regime, built once."""

    def __init__(self, plan: Plan, shape: Shape, seed: int, llc: int, clock: Any, stream: Any) -> None:

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
        self.replays: dict[tuple[Any, ...], Callable[[], object]] = {}

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
        if key not in self.replays:
            self.replays[key] = self._replay(regime, name, group, surplus)
        replay = self.replays[key]
        return lambda: int(self.clock.time(replay))

    def _replay(self, regime: str, name: str, group: int, surplus: int) -> Callable[[], object]:

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
