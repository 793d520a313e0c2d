"""Nested JSON arrays of whole numbers as NumPy arrays, checked, at more than 100 MB/s.

A thread trace is mostly rows of five whole numbers. The JSON decoder has already checked the syntax of the
slice (`msgspec.Raw`); here its skeleton of brackets and commas must be that of equally wide rows, so
nothing but integers of the right shape gets through, and NumPy reads the digits.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LARGEST", "keep_freed", "row", "rows", "table", "tables"]

LARGEST = 2**53
"""Values at or beyond this are no cycle counts (2^53 cycles at 2.4 GHz are 43 days) but counters that
wrapped."""

_DIGITS = b"0123456789- \t\r\n"


KEPT = (32 << 20) - (64 << 10)
"""Bytes; just below the largest block for which glibc moves its threshold (mallopt(3), M_MMAP_THRESHOLD)."""


def keep_freed() -> None:
    """Let the C library keep freed blocks of a few MB instead of giving them back to the system.

    glibc learns from the largest mapped block that was freed. Without this each batch of numbers is paid for
    in page faults again, a quarter of the time of reading a capture. The block is never touched; other C
    libraries ignore it.
    """
    import numpy as np

    np.empty(KEPT, dtype=np.uint8)


def rows(raw: bytes, width: int) -> int:
    """How many rows `[[a, b, ...], ...]` has. Raises ValueError unless all are `width` whole numbers wide."""
    skeleton = raw.translate(None, _DIGITS)
    if skeleton == b"[]":
        return 0
    one = b"[" + b"," * (width - 1) + b"]"
    count = (len(skeleton) - 1) // (width + 2)
    if skeleton != b"[" + (one + b",") * (count - 1) + one + b"]":
        raise ValueError(f"is not a list of rows of {width} whole numbers")
    return count


def tables(raws: list[bytes], count: int, width: int) -> NDArray[np.int64]:
    """Several such lists, already checked by `rows` and `count` rows together, as one int64 array (count,
    width).

    None of them may be empty. Raises ValueError with one line.
    """
    import numpy as np

    if not count:
        return np.empty((0, width), dtype=np.int64)
    return _numbers(b",".join(raws), count * width).reshape(count, width)


def table(raw: bytes, width: int) -> NDArray[np.int64]:
    """`[[a, b, ...], ...]` as an int64 array of shape (rows, width). Raises ValueError with one line."""
    return tables([raw], rows(raw, width), width)


def row(raw: bytes) -> NDArray[np.int64]:
    """`[a, b, ...]` as an int64 array of shape (n,). Raises ValueError with one line."""
    import numpy as np

    skeleton = raw.translate(None, _DIGITS)
    if skeleton == b"[]" and not raw.strip(b"[] \t\r\n"):
        return np.empty(0, dtype=np.int64)
    if skeleton != b"[" + b"," * (len(skeleton) - 2) + b"]":
        raise ValueError("is not a list of whole numbers")
    return _numbers(raw, len(skeleton) - 1)


def _numbers(raw: bytes, expected: int) -> NDArray[np.int64]:
    import numpy as np

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # unreadable rest: the size tells it, below
        values = np.fromstring(raw.translate(None, b"[]"), dtype=np.int64, sep=",")
    if values.size != expected:
        raise ValueError("holds something that is no whole number")
    if values.size and (int(values.max()) >= LARGEST or int(values.min()) <= -LARGEST):
        raise ValueError(f"holds a number beyond 2^53 (a counter that wrapped): {int(values.max())}")
    return values
