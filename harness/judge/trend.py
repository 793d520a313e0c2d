"""Is a series of processes stationary: the test that a verdict needs before it may be given.

ABBA blocks cancel a drift inside a process; between processes nothing does, since their order is time's
own. A drift of ±1 sd between processes makes the plain rule give the wrong answer in up to 30 of 100 runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["TREND_P", "Trend", "drifts", "trend"]

TREND_P = 0.05
"""A slope that chance gives less often than this is called a trend."""


@dataclass(frozen=True)
class Trend:
    """A least-squares line through values in their order: two-sided p of its slope, and its rise from the
    first to the last value (log scale).
    """

    p: float
    rise: float


def trend(values: Sequence[float]) -> Trend:
    """The trend of `values`; p = 1 and rise = 0 for fewer than 5 values or no spread at all."""
    from scipy import special

    count = len(values)
    if count < 5:
        return Trend(1.0, 0.0)
    center, mean = (count - 1) / 2, math.fsum(values) / count
    across = math.fsum((i - center) ** 2 for i in range(count))
    slope = math.fsum((i - center) * (v - mean) for i, v in enumerate(values)) / across
    left = math.fsum((v - mean - slope * (i - center)) ** 2 for i, v in enumerate(values))
    rise = slope * (count - 1)
    if left <= 0:
        return Trend(0.0 if slope else 1.0, rise)
    t = abs(slope) / math.sqrt(left / (count - 2) / across)
    return Trend(2 * float(special.stdtr(count - 2, -t)), rise)


def drifts(values: Sequence[float], floor: float) -> bool:
    """Is there a trend that the instrument floor does not cover: significant, and rising by more than
    `floor`."""
    found = trend(values)
    return found.p < TREND_P and abs(found.rise) > floor
