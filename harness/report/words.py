"""How a value, a verdict and a published figure are written, the same in the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.verdict import TierResult, Verdict

__all__ = ["LEGEND", "SYMBOLS", "cell", "committed", "escape", "published", "symbol", "value"]

SYMBOLS: Mapping[Verdict, str] = {
    Verdict.REPRODUCED: "✔",
    Verdict.CONTRADICTED: "✘",
    Verdict.INCONCLUSIVE: "?",
    Verdict.INVALID: "!",
    Verdict.NOT_COMPARABLE: "≠",
    Verdict.NOT_MEASURED: "–",
}

LEGEND = " ".join(f"{sign} {verdict.value}" for verdict, sign in SYMBOLS.items())

_NONE = "·"
_UNITS = {"us": "µs"}


def symbol(verdict: Verdict | None) -> str:
    """One character for a verdict; a dot where there is none."""
    return SYMBOLS[verdict] if verdict is not None else _NONE


def value(found: float | int | str | None) -> str:
    """A value that a tier found, short."""
    if found is None:
        return ""
    if isinstance(found, float):
        places = 0 if abs(found) >= 1000 else 1 if abs(found) >= 100 else 2 if abs(found) >= 10 else 3
        text = f"{found:,.{places}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(found, int):
        return f"{found:,}"
    return found if len(found) <= 24 else found[:23] + "…"


def cell(result: TierResult | None) -> str:
    """A tier's answer: symbol, and what it found."""
    if result is None:
        return _NONE
    found = "" if result.verdict is Verdict.NOT_MEASURED else value(result.value)
    return (
        f"{symbol(result.verdict)} {found}".rstrip() if found else f"{symbol(result.verdict)} {_word(result)}"
    )


def _word(result: TierResult) -> str:
    return result.verdict.value.lower().replace("_", " ")


def committed(verdicts: Mapping[str, Verdict], order: Sequence[str]) -> str:
    """The committed verdicts of the tiers of `order`, one character each."""
    return " ".join(symbol(verdicts.get(tier)) for tier in order)


def published(figure: Any, unit: str | None, kind: str | None = None) -> str:
    """A published figure with its unit; a ratio with the two decimals that YAML may have dropped."""
    if figure is None:
        return "(statement)"
    if isinstance(figure, Mapping):
        first = ", ".join(f"{name} {part}" for name, part in list(figure.items())[:2])
        return first + (", …" if len(figure) > 2 else "")
    if isinstance(figure, (list, tuple)):
        sizes = len(figure) == 3 and all(isinstance(part, int) for part in figure)
        joined = ("x" if sizes else " to ").join(str(part) for part in figure)
        return joined if sizes or not unit else f"{joined} {_UNITS.get(unit, unit)}"
    if isinstance(figure, bool):
        return "yes" if figure else "no"
    if kind in ("ratio", "geomean") and isinstance(figure, float):
        return max(f"{figure:.2f}", repr(figure), key=len)
    text = value(figure) if isinstance(figure, int) else str(figure)
    return f"{text} {_UNITS.get(unit, unit)}" if unit else text


def escape(text: str) -> str:
    """`text` inside a Markdown table or list."""
    return text.replace("|", "\\|").replace("\n", " ")
