"""Many series at once: the rule of `sequential.judge` on a matrix, for simulation.

The same decisions as the judge's, a thousand times faster; a test holds the two equal series by series. It
knows nothing of noise, bundles or devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.judge.rule import ALPHA, FLOOR, LOOKS
from harness.judge.trend import TREND_P

__all__ = ["judge_all"]

Array = Any
"""A numpy array; numpy is imported where it is needed."""


def judge_all(
    values: Array,
    targets: Array,
    tau: float,
    *,
    u0: float = 0.0,
    floor: float = FLOOR,
    looks: Sequence[int] = LOOKS,
    trend_p: float = TREND_P,
) -> tuple[Array, Array]:
    """(word, look) of each row of `values`, float64 of shape (runs, processes), against `targets`, (runs,).

    Words and arguments are those of `sequential.judge`; `trend_p` = 0 leaves the test of stationarity out.
    Each row has at least as many processes as the last look.
    """
    import numpy as np

    words = np.full(len(values), "", dtype="U8")
    ends = np.zeros(len(values), dtype=np.int64)
    left = np.arange(len(values))
    for count in looks:
        seen = values[left, :count]
        word = _decide(seen, targets[left], tau, u0, floor)
        if count >= 5:
            word = np.where(_drifts(seen, floor, trend_p), "drifting", word)
        words[left], ends[left] = word, count
        left = left[(word != "inside") & (word != "outside")]
    return words, ends


def _decide(seen: Array, targets: Array, tau: float, u0: float, floor: float) -> Array:
    """`rule.interval` and `rule.decide` of each row."""
    import numpy as np
    from scipy import special

    count = seen.shape[1]
    own = seen.var(axis=1, ddof=1) / count
    square = own + u0 * u0 + floor * floor
    with np.errstate(divide="ignore", invalid="ignore"):
        df = square * square / (own * own / (count - 1))
    quantile = np.where(own > 0, special.stdtrit(df, 1 - ALPHA), special.ndtri(1 - ALPHA))
    half = quantile * np.sqrt(square)
    delta = seen.mean(axis=1) - targets
    low, high = delta - half, delta + half
    word = np.where((low > tau) | (high < -tau), "outside", "between")
    return np.where((-tau < low) & (high < tau), "inside", word)


def _drifts(seen: Array, floor: float, trend_p: float) -> Array:
    """`trend.drifts` of each row."""
    import numpy as np
    from scipy import special

    count = seen.shape[1]
    at = np.arange(count) - (count - 1) / 2
    across = float((at * at).sum())
    off = seen - seen.mean(axis=1, keepdims=True)
    slope = off @ at / across
    left = ((off - slope[:, None] * at) ** 2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(slope) / np.sqrt(left / (count - 2) / across)
    p = np.where(left > 0, 2 * special.stdtr(count - 2, -t), np.where(slope != 0, 0.0, 1.0))
    rise = np.abs(slope) * (count - 1)
    return (p < trend_p) & (rise > floor)
