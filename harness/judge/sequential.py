"""The looks: after 5, 8, 12 and 20 processes the question is asked, and a clear answer ends the run.

The same function decides while a run goes on and when recorded samples are judged again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.judge.rule import FLOOR, LOOKS, Interval, Word, decide, interval
from harness.judge.trend import Trend, drifts, trend

__all__ = ["Decision", "judge"]


@dataclass(frozen=True)
class Decision:
    """What the values say at the last look that they reach.

    `word`: inside, outside or between the tolerance, or `drifting`; `delta` the interval of log ratio minus
    log of the published one; `settled` when no further process can change it.
    """

    word: Word
    delta: Interval
    trend: Trend
    look: int
    settled: bool


def judge(
    values: Sequence[float],
    target: float,
    tau: float,
    *,
    u0: float = 0.0,
    u0_df: float = math.inf,
    floor: float = FLOOR,
    looks: Sequence[int] = LOOKS,
) -> Decision | None:
    """Judge log ratios of processes, in their order, against `target` (log scale) with tolerance ±`tau`.

    Each look uses the values that had come by then, so that a run judged again ends at the look at which it
    ended. A drifting series is not decided: it goes on to the next look, and stays `drifting` after the
    last. None for fewer values than the first look needs.
    """
    decision = None
    for count in looks:
        if len(values) < count:
            break
        seen = values[:count]
        delta = interval(seen, floor=floor, u0=u0, u0_df=u0_df).shifted(target)
        word = "drifting" if drifts(seen, floor) else decide(delta, tau)
        settled = word in ("inside", "outside") or count == looks[-1]
        decision = Decision(word, delta, trend(seen), count, settled)
        if settled:
            break
    return decision
