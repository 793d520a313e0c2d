"""Gates that need nothing but numbers: may samples of this length say anything at all.

Pure; knows nothing of regimes, plans or devices.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

__all__ = ["FLOORS", "floor_limited"]

FLOORS = 10.0
"""A sample is at least this many times as long as an empty one. At the floor every ratio is 1.00."""


def floor_limited(sides: Sequence[Sequence[float]], floor: float, floors: float = FLOORS) -> str | None:
    """Why the samples are FLOOR_LIMITED, or None: the median of the shortest side against `floor`.

    `sides` holds the samples of each side that takes part, in the unit of `floor`, the length of an empty
    sample as measured in the same process.
    """
    shortest = min(statistics.median(side) for side in sides)
    if shortest >= floors * floor:
        return None
    times = shortest / floor
    return f"FLOOR_LIMITED: a sample is {times:.1f} times an empty one, less than {floors:g}"
