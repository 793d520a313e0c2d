"""Orders in which the waves of a workgroup may run. Each is legal: a wave stops only at barriers and its end.

A schedule gives the turns of each round; every workgroup of a batch runs the same turns, so results do not
depend on how workgroups are batched. A round ends when its turns are over; then full barriers open. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness.errors import HarnessError

__all__ = ["NAMES", "Fair", "Leader", "RandomOrder", "RunAhead", "Schedule", "parse_schedule"]

NAMES = ("fair", "ahead", "reversed", "random:SEED", "leader:WAVE@EPOCH")

Turn = tuple[tuple[int, ...], int | None]
"""Waves that run together, and for how many instructions (None: until each is at a barrier or has ended)."""


class Schedule:
    """The interface of a schedule. `name` is what the command line calls it."""

    name = ""

    def turns(self, number: int, waves: int) -> Iterator[Turn]:
        """The turns of round `number` for workgroups of `waves` waves."""
        raise NotImplementedError


@dataclass(frozen=True)
class Fair(Schedule):
    """All waves in step, instruction by instruction."""

    name: str = "fair"

    def turns(self, number: int, waves: int) -> Iterator[Turn]:
        yield tuple(range(waves)), None


@dataclass(frozen=True)
class RunAhead(Schedule):
    """One wave after the other runs to its next barrier; backwards: the last wave first."""

    backwards: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        return "reversed" if self.backwards else "ahead"

    def turns(self, number: int, waves: int) -> Iterator[Turn]:
        order = range(waves - 1, -1, -1) if self.backwards else range(waves)
        for wave in order:
            yield (wave,), None


@dataclass(frozen=True)
class RandomOrder(Schedule):
    """A random order and a random number of instructions for each wave, drawn from (seed, round)."""

    seed: int = 0

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"random:{self.seed}"

    def turns(self, number: int, waves: int) -> Iterator[Turn]:
        drawn = np.random.default_rng([self.seed, number])
        for wave in drawn.permutation(waves):
            steps = int(drawn.integers(0, 9))
            yield (int(wave),), None if steps == 8 else 4**steps // 4 + 1


@dataclass(frozen=True)
class Leader(Schedule):
    """Fair, but in barrier interval `epoch` one wave runs alone to its next barrier before the others start.

    The smallest departure from fairness that turns a hazard between two waves into a wrong result.
    """

    wave: int = 0
    epoch: int = 0

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"leader:{self.wave}@{self.epoch}"

    def turns(self, number: int, waves: int) -> Iterator[Turn]:
        if number == self.epoch:
            yield (self.wave,), None
        yield tuple(range(waves)), None


def parse_schedule(text: str) -> Schedule:
    """The schedule that the command line calls `text`. HarnessError for any other word."""
    try:
        if text == "fair":
            return Fair()
        if text in ("ahead", "reversed"):
            return RunAhead(text == "reversed")
        if text.startswith("random:"):
            return RandomOrder(int(text.split(":", 1)[1]))
        if text.startswith("leader:"):
            wave, epoch = text.split(":", 1)[1].split("@")
            return Leader(int(wave), int(epoch))
    except ValueError:
        pass
    raise HarnessError(f"no schedule {text!r}", remedy=f"choose one of {', '.join(NAMES)}")
