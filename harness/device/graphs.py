"""Samples: one replay of m launches over distinct input sets, long enough for the clock.

On a GPU a replay is an unrolled graph (no host between the launches); on a CPU it is a plain loop. The number
of launches is fixed by a plan's floor and minimum; nothing here reads a result or judges a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from harness.device.clock import Clock

__all__ = ["Side", "Sizing", "floor_of", "launch_unit", "order", "replay_of", "size"]


@dataclass(frozen=True)
class Sizing:
    """How a sample is made: `launches` (m) over `sets` input sets, and what was measured to choose m.

    floor_ns: one replay of a graph that holds a single tiny launch. launch_ns: one launch of the subject in a
    replay. bytes_per_launch and rotation_bytes: compulsory traffic, and what a whole rotation holds.
    rotation: rotation_bytes over the last-level cache.
    """

    sets: int
    launches: int
    floor_ns: int
    launch_ns: float
    bytes_per_launch: int
    rotation_bytes: int
    rotation: float


@dataclass(frozen=True)
class Side:
    """One side of a pair, ready to be timed: `replay` runs it; `launches` counts what one replay launches."""

    replay: Callable[[], object]
    launches: int


def launch_unit(extra: float, slowdown: float) -> int:
    """m must be a multiple of this for `extra` and `slowdown` to add whole launches.

    extra 0.10 gives 10; slowdown 0.06 makes 47 launches into 50.
    """
    surplus = Fraction(str(extra)).denominator
    slowed = (1 / (1 - Fraction(str(slowdown)))).denominator
    return math.lcm(surplus, slowed)


def order(launches: int, sets: int, surplus: int, spare: int) -> list[int]:
    """The set of each launch of one replay: m in rotation, then `surplus` on `spare` sets of their own.

    The surplus has sets of its own so that the replay after it finds set 0 as cold as ever.
    """
    rotation = [i % sets for i in range(launches)]
    return rotation + [sets + i % spare for i in range(surplus)]


def replay_of(
    launches: Sequence[Callable[[], object]], device: str, stream: Any = None
) -> Callable[[], object]:
    """A call that runs `launches` in order: a captured graph on a GPU, a loop on a CPU."""
    if device == "cpu":

        def loop() -> None:
            for launch in launches:
                launch()

        return loop
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for launch in launches:
            launch()
    replay: Callable[[], object] = graph.replay
    return replay


def floor_of(clock: Clock, device: str, stream: Any = None, tries: int = 25) -> int:
    """Nanoseconds that a replay takes which does next to nothing (one 4-byte fill); the least of `tries`."""
    if device == "cpu":
        replay = replay_of([lambda: None], device)
    else:
        import torch

        cell = torch.zeros(1, device=device)
        replay = replay_of([lambda: cell.zero_()], device, stream)
        for _ in range(3):
            replay()
        clock.wait()
    return min(clock.time(replay) for _ in range(tries))


def size(launch_ns: float, floor_ns: int, sets: int, unit: int, minimum_us: float, floors: float) -> int:
    """m: a multiple of the rotation and of `unit`, at least `minimum_us` and `floors` empty replays long."""
    base = math.lcm(sets, unit)
    wanted = max(minimum_us * 1e3, floors * floor_ns)
    return base * max(1, math.ceil(wanted / max(launch_ns * base, 1e-9)))
