"""From a process's values to an interval and a word: the numbers behind a device verdict.

Pure: lists of log ratios in, intervals and decisions out. The rule is that of docs/measuring.md: two one-sided
tests by interval inclusion on the log scale, the process as the unit of replication, an instrument floor.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "ALPHA",
    "FLOOR",
    "TREND_P",
    "Interval",
    "Word",
    "classes",
    "decide",
    "drifts",
    "interval",
    "last_look",
    "resampled_mean",
    "trend",
]

ALPHA = 0.0125
"""Error per direction and look: 0.05 over four looks, Bonferroni."""

FLOOR = 0.005
"""u_i: what a handful of processes cannot see (allocation luck, clock state, slow drift), on the log scale."""

TREND_P = 0.01
"""A slope over the processes as strong as chance gives once in 100 stationary runs is called a trend."""

Word = str
"""`inside`, `outside` or `between` the tolerated range."""


@dataclass(frozen=True)
class Interval:
    """mean ± half on the log scale, from `count` processes; `df` by Welch-Satterthwaite."""

    mean: float
    half: float
    count: int
    df: float

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
        return Interval(self.mean - by, self.half, self.count, self.df)


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
    from scipy import stats

    count = len(values)
    own = statistics.variance(values) / count
    square = own + u0 * u0 + floor * floor
    mean = math.fsum(values) / count
    if square == 0:
        return Interval(mean, 0.0, count, math.inf)
    spent = own * own / (count - 1) + (u0**4 / u0_df if math.isfinite(u0_df) else 0.0)
    df = square * square / spent if spent > 0 else math.inf
    quantile = float(stats.norm.ppf(1 - alpha) if math.isinf(df) else stats.t.ppf(1 - alpha, df))
    return Interval(mean, quantile * math.sqrt(square), count, df)


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


def trend(values: Sequence[float]) -> tuple[float, float]:
    """(two-sided p-value of a slope of `values` over their order, rise of that slope from first to last).

    (1, 0) for fewer than 5 values or no spread.
    """
    from scipy import stats

    if len(values) < 5 or max(values) - min(values) <= 0:
        return 1.0, 0.0
    fit = stats.linregress(range(len(values)), values)
    return float(fit.pvalue), float(fit.slope) * (len(values) - 1)


def drifts(values: Sequence[float]) -> bool:
    """Is there a trend that the instrument floor does not cover: significant, and rising by more than the floor."""
    p, rise = trend(values)
    return p < TREND_P and abs(rise) > FLOOR


def resampled_mean(
    columns: Sequence[Sequence[float]], draws: int = 4000, seed: int = 0
) -> tuple[float, float]:
    """(mean of the columns' means, half-width at error ALPHA) by resampling the values inside each column.

    A column is one shape's processes; shapes are fixed, since the claim is about these and no others.
    """
    rng = random.Random(seed)
    center = math.fsum(math.fsum(c) / len(c) for c in columns) / len(columns)
    drawn = sorted(
        math.fsum(math.fsum(rng.choices(c, k=len(c))) / len(c) for c in columns) / len(columns)
        for _ in range(draws)
    )
    low, high = drawn[int(ALPHA * draws)], drawn[min(draws - 1, math.ceil((1 - ALPHA) * draws))]
    return center, max(high - center, center - low)


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
