"""Published numbers as they were printed: value and the precision that the printed digits leave open.

Pure arithmetic. A derived figure agrees with a printed one when it rounds to it, and never by a wider margin.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

__all__ = ["Printed", "number", "printed", "said", "span"]

_SUFFIX = {"": Decimal(1), "K": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9}
_NUMBER = re.compile(r"^\s*([-+]?[0-9][0-9,]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)\s*([KMG]?)\s*%?\s*$")
_SLACK = 1e-12
"""Relative room for binary floats where a derived figure falls exactly on the edge of the printed
interval."""


@dataclass(frozen=True)
class Printed:
    """A printed number: `value`, and `half`, half a unit of its last printed digit."""

    value: float
    half: float

    @property
    def low(self) -> float:
        """The smallest number that prints like this."""
        return self.value - self.half

    @property
    def high(self) -> float:
        """The largest number that prints like this."""
        return self.value + self.half

    def holds(self, derived: float) -> bool:
        """Whether `derived` rounds to this printed number."""
        return abs(derived - self.value) <= self.half + _SLACK * max(abs(self.value), abs(derived))

    def meets(self, low: float, high: float) -> bool:
        """Whether some number of [low, high] rounds to this printed number."""
        slack = _SLACK * max(abs(self.value), abs(high))
        return low <= self.high + slack and high >= self.low - slack


def printed(text: str | int | float, *, decimals: int = 0) -> Printed:
    """`text` as printed: `271.8`, `"41.65M"`, `"2,056"`, `"99.9 %"`, `732`.

    A float read from YAML has lost its trailing zeros; `decimals` is the least number of decimals that the
    publication prints for such a figure (its ratios always have two). Raises ValueError for what is no
    number.
    """
    found = _NUMBER.match(repr(text) if isinstance(text, float) else str(text))
    if isinstance(text, bool) or found is None:
        raise ValueError(f"not a printed number: {text!r}")
    try:
        digits = Decimal(found.group(1).replace(",", ""))
    except InvalidOperation as error:  # pragma: no cover - the pattern lets no such text through
        raise ValueError(f"not a printed number: {text!r}") from error
    exponent = digits.as_tuple().exponent
    assert isinstance(exponent, int)  # the pattern excludes NaN and infinity
    unit = _SUFFIX[found.group(2)]
    step = Decimal(1).scaleb(min(exponent, -decimals)) if decimals else Decimal(1).scaleb(min(exponent, 0))
    return Printed(float(digits * unit), float(step * unit / 2))


def span(published: Any, *, decimals: int = 0) -> Printed:
    """`published` as printed, where it may be a range of two numbers: all that either end leaves open, and
    between."""
    if not isinstance(published, (list, tuple)):
        return printed(published, decimals=decimals)
    if len(published) != 2:
        raise ValueError(f"not a range of two numbers: {published!r}")
    low, high = (printed(end, decimals=decimals) for end in published)
    return Printed((low.low + high.high) / 2, (high.high - low.low) / 2)


def number(value: float | int) -> str:
    """`value` as a reason prints it: four significant digits, thousands separated, integers whole."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    size = abs(value)
    places = 0 if size >= 10_000 else 1 if size >= 100 else 2 if size >= 10 else 3 if size >= 0.1 else 6
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def said(published: Any, *, decimals: int = 0) -> str:
    """A published figure as a reason quotes it: a range with "to", sizes with "x", dropped zeros put back."""
    if isinstance(published, (list, tuple)):
        sizes = len(published) == 3 and all(isinstance(part, int) for part in published)
        return ("x" if sizes else " to ").join(said(part, decimals=decimals) for part in published)
    if isinstance(published, float) and decimals:
        return max(f"{published:.{decimals}f}", repr(published), key=len)
    return str(published)
