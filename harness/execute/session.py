"""One workload executed again and again: fresh inputs each time, under one schedule or another, watched or
not.

Knows the kernel file, the recorded launches and the machine. Must not know bundles or claims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.execute.abi import Launch
from harness.execute.decode import Program
from harness.execute.dispatch import Run, dispatch
from harness.execute.machine import BUDGET
from harness.execute.outputs import buffers_of, compare, snapshot, written
from harness.execute.race import Race, RaceDetector
from harness.execute.recorded import Recorded
from harness.execute.schedule import Fair, Leader, Schedule
from harness.kernels.base import Dims, KernelModule

__all__ = ["Found", "Result", "Session"]


@dataclass(frozen=True)
class Result:
    """Outputs of one execution, what it counted, and its errors against the reference."""

    outputs: dict[str, Any]
    runs: tuple[Run, ...]
    numerics: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Found:
    """Races of one launch. witness: the schedule that turned one into another result, and how far off it
    was.
    """

    watched: int
    races: tuple[Race, ...]
    witness: dict[str, Any] | None = None
    tried: tuple[str, ...] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """The form in executed.json."""
        sites = [
            {
                "space": race.space,
                "reason": race.reason,
                "epoch": race.epoch,
                "workgroup": race.workgroup,
                "address": race.address if race.space == "lds" else None,
                "first": vars(race.first),
                "second": vars(race.second),
            }
            for race in self.races
        ]
        return {
            "workgroups": self.watched,
            "found": sites,
            "witness": self.witness,
            "tried": list(self.tried),
        }


class Session:
    """Executions of `recorded` on the inputs of `module` for `dims` and `seed`."""

    def __init__(self, module: KernelModule, dims: Dims, recorded: Recorded, seed: int) -> None:
        self.module, self.dims, self.recorded, self.seed = module, dims, recorded, seed
        self._reference: Any = None

    def run(
        self,
        chosen: Sequence[Sequence[int]],
        schedule: Schedule,
        *,
        watcher: Callable[..., Any] | None = None,
        batch: int | None = None,
        budget: int = BUDGET,
        trace: Callable[[str], None] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Result:
        """Execute the workgroups `chosen` of each launch, one launch after the other, on fresh inputs."""
        tensors = self.module.make_inputs(self.dims, device="cpu", seed=self.seed)
        if self._reference is None:
            self._reference = self.module.reference(self.dims, tensors)
        outputs = self.module.outputs(tensors)
        before = snapshot(outputs)
        runs = []
        for launch, program, part in zip(self.recorded.launches, self.recorded.programs, chosen, strict=True):
            runs.append(
                dispatch(
                    program,
                    launch,
                    buffers_of(tensors, launch),
                    workgroups=part,
                    schedule=schedule,
                    watcher=watcher,
                    batch=batch,
                    budget=budget,
                    trace=trace,
                    progress=progress,
                )
            )
        outputs = self.module.outputs(tensors)  # some are computed from what the kernel left
        whole = all(
            len(part) == launch.workgroups
            for part, launch in zip(chosen, self.recorded.launches, strict=True)
        )
        masks = None if whole else written(before, outputs)
        numerics = compare(outputs, self._reference, self.module.tolerance(self.dims), masks)
        return Result(outputs, tuple(runs), numerics)

    def count(self, chosen: Sequence[Sequence[int]]) -> tuple[Run, ...]:
        """Execute for the counts alone."""
        tensors = self.module.make_inputs(self.dims, device="cpu", seed=self.seed)
        pairs = zip(self.recorded.launches, self.recorded.programs, chosen, strict=True)
        return tuple(
            dispatch(program, launch, buffers_of(tensors, launch), workgroups=part)
            for launch, program, part in pairs
        )

    def same(self, one: Result, other: Result) -> bool:
        """Whether two executions left the same bits in every output."""
        return not any(bool(mask.any()) for mask in written(one.outputs, other.outputs).values())

    def races(self, chosen: Sequence[Sequence[int]]) -> list[Found]:
        """Watch the workgroups `chosen`, and look for the smallest schedule in which a race shows.

        A race without a barrier between its two accesses is tried with each of its waves ahead in its
        interval.
        """
        detectors: list[RaceDetector] = []

        def watch(machine: Any, part: Sequence[int]) -> RaceDetector:
            made = RaceDetector(machine.st, part)
            made.symbol = machine.program.symbol
            detectors.append(made)
            return made

        fair = self.run(chosen, Fair(), watcher=watch)
        out = []
        for launch, program, part in zip(self.recorded.launches, self.recorded.programs, chosen, strict=True):
            races = self._of(detectors, launch, program)
            witness, tried = self._witness(fair, chosen, races)
            out.append(Found(len(part), races, witness, tried))
        return out

    def _of(self, detectors: Sequence[RaceDetector], launch: Launch, program: Program) -> tuple[Race, ...]:
        kept: dict[tuple[int, int, str], Race] = {}
        for detector in detectors:
            if detector.symbol == launch.symbol:
                for race in detector.races:
                    kept.setdefault((race.first.pc, race.second.pc, race.space), race)
        return tuple(kept.values())

    def _witness(
        self, fair: Result, chosen: Sequence[Sequence[int]], races: Sequence[Race]
    ) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
        tried: list[str] = []
        for race in races:
            if race.reason != "no barrier between":
                continue
            for site in (race.second, race.first):
                schedule = Leader(site.wave, race.epoch)
                if schedule.name in tried or len(tried) >= 8:
                    continue
                tried.append(schedule.name)
                other = self.run(chosen, schedule)
                if not self.same(fair, other):
                    numbers = other.numerics
                    worst = [entry["worst"] for entry in numbers.values()]
                    return {
                        "schedule": schedule.name,
                        "says": f"wave {site.wave} runs alone to its next barrier in interval {race.epoch}, "
                        "then the others",
                        "passed": all(entry["passed"] for entry in numbers.values()),
                        "worst": None if None in worst else max(worst, default=0.0),
                        "max_abs_error": max(
                            (e["max_abs_error"] or 0.0 for e in numbers.values()), default=0.0
                        ),
                        "max_rel_error": max(
                            (e["max_rel_error"] or 0.0 for e in numbers.values()), default=0.0
                        ),
                    }, tuple(tried)
        return None, tuple(tried)
