"""From a process's values to an interval and a word: the numbers behind a device verdict.

Pure: lists of log ratios in, intervals and decisions out. The rule is that of docs/measuring.md: two
one-sided tests by interval inclusion on the log scale, the process as the unit of replication, an
instrument floor.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "ALPHA",
    "FLOOR",
    "LOOKS",
    "Interval",
    "Word",
    "classes",
    "decide",
    "interval",
    "last_look",
]

ALPHA = 0.0125
"""Error per direction and look: 0.05 over four looks, Bonferroni."""

FLOOR = 0.005
"""u_i, on the log scale: error that all processes of a run share, as from clocks and memory placement, so
that more of them do not average it away."""

LOOKS = (5, 8, 12, 20)
"""Processes after which the question is asked."""

Word = str
"""`inside`, `outside` or `between` the tolerated range (`sequential` adds `drifting`)."""


@dataclass(frozen=True)
class Interval:
    """mean ± half on the log scale, from `count` processes; `df` by Welch-Satterthwaite, `error` the
    standard error."""

    mean: float
    half: float
    count: int
    df: float
    error: float

    @property
    def low(self) -> float:
        """Lower end."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end."""
        return self.mean + self.half

    def shifted(self, by: float) -> Interval:
        """The same interval `by` lower."""
        return Interval(self.mean - by, self.half, self.count, self.df, self.error)


def interval(
    values: Sequence[float],
    *,
    alpha: float = ALPHA,
    floor: float = FLOOR,
    u0: float = 0.0,
    u0_df: float = math.inf,
) -> Interval:
    """The interval of the mean of `values` (at least 2) with error `alpha` at each end.

    SE² = s²/K + u0² + floor²; the floor has infinite degrees of freedom, u0 those of whoever estimated it.
    """
    from scipy import special

    count = len(values)
    own = statistics.variance(values) / count
    square = own + u0 * u0 + floor * floor
    mean = math.fsum(values) / count
    if square == 0:
        return Interval(mean, 0.0, count, math.inf, 0.0)
    spent = own * own / (count - 1) + (u0**4 / u0_df if math.isfinite(u0_df) else 0.0)
    df = square * square / spent if spent > 0 else math.inf
    quantile = float(special.ndtri(1 - alpha) if math.isinf(df) else special.stdtrit(df, 1 - alpha))
    error = math.sqrt(square)
    return Interval(mean, quantile * error, count, df, error)


def decide(delta: Interval, tau: float) -> Word:
    """Where the interval of δ lies against (-tau, tau)."""
    if -tau < delta.low and delta.high < tau:
        return "inside"
    if delta.low > tau or delta.high < -tau:
        return "outside"
    return "between"


def last_look(count: int, looks: Sequence[int]) -> int:
    """The last look that `count` processes reach, or 0."""
    return max((k for k in looks if k <= count), default=0)


def classes(theta: Interval) -> str:
    """WIN (low end >= log 1.05), HEADROOM (high end <= log 0.95), PARITY (inside), else BORDERLINE."""
    win, headroom = math.log(1.05), math.log(0.95)
    if theta.low >= win:
        return "WIN"
    if theta.high <= headroom:
        return "HEADROOM"
    if headroom < theta.low and theta.high < win:
        return "PARITY"
    return "BORDERLINE"
