"""What an MI350X cannot exceed, and what that says of a published time.

Source of the cache size: AMD Instinct MI350X GPU data sheet, 256 MB of last-level cache (AMD Infinity Cache);
of the bandwidth: the same, see `harness.kernels.base`.
"""

from __future__ import annotations

from harness.kernels.base import PEAK_BYTES_PER_S

__all__ = ["LAST_LEVEL_CACHE_BYTES", "PEAK_BYTES_PER_S", "memory_floor_us"]

LAST_LEVEL_CACHE_BYTES = 256 * 2**20


def memory_floor_us(traffic_bytes: int) -> float:
    """The shortest time in which `traffic_bytes` distinct bytes can move, in microseconds.

    What the last-level cache may already hold does not count, so that a warm cache is no contradiction.
    """
    return max(0, traffic_bytes - LAST_LEVEL_CACHE_BYTES) / PEAK_BYTES_PER_S * 1e6
