"""Several shapes at once: Holm's step-down over them, and the geometric mean with its interval."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from harness.judge.rule import ALPHA, Interval

__all__ = ["contradicted", "p_outside", "resampled_mean"]


def p_outside(delta: Interval, tau: float) -> float:
    """The one-sided p-value of "δ lies outside ±tau": of the end that δ is beyond; 1 where it lies inside.

    `delta.error` is the standard error that its half-width was made from.
    """
    from scipy import special

    beyond = abs(delta.mean) - tau
    if beyond <= 0:
        return 1.0
    if delta.error <= 0:
        return 0.0
    t = beyond / delta.error
    return float(special.ndtr(-t) if math.isinf(delta.df) else special.stdtr(delta.df, -t))


def contradicted(p_values: Sequence[float], alpha: float = ALPHA) -> list[bool]:
    """Holm (1979): which of many shapes are contradicted, the chance of any false one at most `alpha`.

    "All are reproduced" needs no such correction: a wrong one needs each of its tests to err.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    found = [False] * len(p_values)
    for rank, index in enumerate(order):
        if p_values[index] > alpha / (len(order) - rank):
            break
        found[index] = True
    return found


def resampled_mean(
    columns: Sequence[Sequence[float]], draws: int = 4000, seed: int = 0
) -> tuple[float, float]:
    """(mean of the columns' means, half-width at error ALPHA) by resampling the values inside each column.

    A column is one shape's processes, at least 2; shapes are fixed, since the claim is about these and no
    others. Resampling k values spreads their mean by sqrt((k - 1) / k) too little; that is put back, which
    matters for the 5 processes of a first look.
    """
    rng = random.Random(seed)
    means = [math.fsum(c) / len(c) for c in columns]
    center = math.fsum(means) / len(columns)
    scaled = [
        [(v - mean) * math.sqrt(len(c) / (len(c) - 1)) for v in c]
        for c, mean in zip(columns, means, strict=True)
    ]
    drawn = sorted(
        math.fsum(math.fsum(rng.choices(c, k=len(c))) / len(c) for c in scaled) / len(columns)
        for _ in range(draws)
    )
    low, high = drawn[int(ALPHA * draws)], drawn[min(draws - 1, math.ceil((1 - ALPHA) * draws))]
    return center, max(high, -low)
