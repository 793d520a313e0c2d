"""Looking things up in `evidence/study.json`: captures, and kernel times of the study's own traces.

Pure; knows the shape of `schema/study.schema.json` and nothing of claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["KernelTime", "capture", "kernel_time", "spoiled"]


@dataclass(frozen=True)
class KernelTime:
    """Device time of one launch in a kernel trace, microseconds.

    `low` and `high` hold 98 % of the launches between them (of each form, where there are several), so that
    a cold first launch decides nothing; None where the evidence keeps only the median. `n` counts launches,
    `forms` the different grids that they came in. `median` is that of the most frequent form.
    """

    median: float
    low: float | None
    high: float | None
    n: int | None
    forms: int

    def text(self) -> str:
        """As a reason prints it."""
        if self.low is None or self.high is None:
            return f"median {self.median:g} µs"
        count = f", {self.n} launches" if self.n is not None else ""
        return f"median {self.median:g} µs ({self.low:g}-{self.high:g} µs{count})"


def capture(study: Mapping[str, Any] | None, name: str | None = None) -> Mapping[str, Any] | None:
    """The capture called `name` (its directory, or an end of it); without a name the first, which is the
    primary.

    None where the study has none.
    """
    captures: Sequence[Mapping[str, Any]] = (study or {}).get("captures", ())
    if name is None:
        return captures[0] if captures else None
    wanted = name.removeprefix("examples/").removesuffix("/code.json")
    for one in captures:
        directory = str(one["directory"])
        if directory == wanted or directory.endswith("/" + wanted) or f"/{wanted}/" in directory:
            return one
    return None


def spoiled(one: Mapping[str, Any], metric: str) -> Mapping[str, Any] | None:
    """The fault of a capture that keeps it from carrying `metric`, or None."""
    for fault in one.get("faults", ()):
        if metric in fault.get("spoils", ()):
            found: Mapping[str, Any] = fault
            return found
    return None


def kernel_time(study: Mapping[str, Any] | None, role: str, symbols: Iterable[str]) -> KernelTime | None:
    """Device time of `role` (subject or baseline): the sum over `symbols` of each kernel's own time.

    None where the traces hold no launch of one of them.
    """
    rows = [
        row
        for trace in (study or {}).get("kernel_traces", ())
        for row in trace["kernels"]
        if row["role"] == role
    ]
    parts = [_one([row for row in rows if row["symbol"] == symbol]) for symbol in symbols]
    if not parts or any(part is None for part in parts):
        return None
    times = [part for part in parts if part is not None]
    return times[0] if len(times) == 1 else _sum(times)


def _one(rows: Sequence[Mapping[str, Any]]) -> KernelTime | None:
    if not rows:
        return None
    main = max(rows, key=lambda row: row["n"] or 0)
    counts = [row["n"] for row in rows]
    return KernelTime(
        median=float(main["median_us"]),
        low=_extreme(min, [row.get("q01_us") or row["min_us"] for row in rows]),
        high=_extreme(max, [row.get("q99_us") or row["max_us"] for row in rows]),
        n=sum(counts) if None not in counts else None,
        forms=len({tuple(row["grid_workgroups"] or ()) for row in rows}),
    )


def _extreme(pick: Any, values: Sequence[float | None]) -> float | None:
    return None if None in values else float(pick(values))


def _sum(times: Sequence[KernelTime]) -> KernelTime:
    lows, highs = [t.low for t in times], [t.high for t in times]
    return KernelTime(
        median=sum(t.median for t in times),
        low=sum(x for x in lows if x is not None) if None not in lows else None,
        high=sum(x for x in highs if x is not None) if None not in highs else None,
        n=min((t.n for t in times if t.n is not None), default=None),
        forms=max(t.forms for t in times),
    )
