"""The study's benchmark rows, and the geometric means that follow from them.

Knows the columns of `benchmark_results.jsonl` and the study's own formula: per shape the best of the other
providers over FlyDSL, both correct and timed; the geometric mean over the shapes; the weighted one by the
ledger's weights. Rows are streamed. Must not know what was published.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, log

import msgspec

from harness.trace.faults import Fault, fault

__all__ = ["FLOOR_US", "Rows", "Summary", "rows", "summaries", "weights"]

SUBJECT = "flydsl"
FLOOR_US = 15.0
"""Graph timings of the study have a floor of about 12.8 µs; below this a ratio compares two floors."""


class _Row(msgspec.Struct, gc=False):
    shape_id: str
    provider: str
    benchmark_status: str = ""
    correct: bool | None = None
    median_us: float | None = None
    timing_method: str | None = None
    candidate_commit: str | None = None
    effective_gbps: float | None = None


class _Weight(msgspec.Struct, gc=False):
    baseline_time_weight: float | None = None
    traffic_weight: float | None = None


class _LedgerRow(msgspec.Struct, gc=False):
    shape_id: str
    weight: _Weight | None = None


@dataclass(frozen=True)
class Rows:
    """Rows of one operator.

    times: shape -> provider -> (median µs, timing method) where the row is correct and timed. status:
    FlyDSL's rows by status. commits: FlyDSL commits that the rows name. impossible: FlyDSL rows beyond 8
    TB/s by the study's own byte model. floor: timed pairs with a time below `FLOOR_US`.
    """

    op: str
    count: int
    times: Mapping[str, Mapping[str, tuple[float, str]]]
    status: Mapping[str, int]
    commits: tuple[str, ...]
    impossible: int
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class Summary:
    """One mean: `provider` is `best` or a baseline; weighted_shapes: those that have a weight. wins,
    losses: shapes at or above 1.05, at or below 0.95.

    floor: pairs of which one time lies below `FLOOR_US`. mixed: pairs timed by two methods.
    """

    provider: str
    shapes: int
    geomean: float
    weighted: float | None
    weighted_shapes: int
    wins: int
    losses: int
    floor: int
    mixed: int


_ROW = msgspec.json.Decoder(_Row)
_LEDGER = msgspec.json.Decoder(_LedgerRow)
LINE_LIMIT = 1 << 20


def rows(stream: Iterable[bytes], op: str) -> Rows:
    """Read benchmark_results.jsonl. A later row of the same shape and provider replaces an earlier one."""
    times: dict[str, dict[str, tuple[float, str]]] = {}
    status: dict[str, int] = {}
    commits: set[str] = set()
    count = impossible = bad = 0
    for line in stream:
        if not line.strip():
            continue
        count += 1
        try:
            if len(line) > LINE_LIMIT:
                raise ValueError("too long")
            row = _ROW.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            bad += 1
            continue
        if row.provider == SUBJECT:
            status[row.benchmark_status] = status.get(row.benchmark_status, 0) + 1
            if row.candidate_commit:
                commits.add(row.candidate_commit)
            impossible += (row.effective_gbps or 0) > 8000 and row.benchmark_status == "ok"
        good = row.benchmark_status == "ok" and row.correct is True and (row.median_us or 0) > 0
        if good and row.median_us is not None:
            times.setdefault(row.shape_id, {})[row.provider] = (row.median_us, row.timing_method or "")
        else:
            times.get(row.shape_id, {}).pop(row.provider, None)
    faults = (
        (fault("bad-rows", f"{op}: {bad} of {count} benchmark rows cannot be read", "fetch the study again"),)
        if bad
        else ()
    )
    return Rows(op, count, times, dict(sorted(status.items())), tuple(sorted(commits)), impossible, faults)


def weights(stream: Iterable[bytes]) -> dict[str, float]:
    """shape_ledger.jsonl: shape -> weight, the baseline's time where it is given, else traffic."""
    found: dict[str, float] = {}
    for line in stream:
        try:
            row = _LEDGER.decode(line)
        except (msgspec.MsgspecError, RecursionError):
            continue
        if row.weight is None:
            continue
        weight = row.weight.baseline_time_weight
        weight = row.weight.traffic_weight if weight is None else weight
        if weight is not None and weight > 0:
            found[row.shape_id] = weight
    return found


def summaries(found: Rows, weight: Mapping[str, float] | None = None) -> tuple[Summary, ...]:
    """The mean against the best baseline, then against each; only what has a pair."""
    pairs: dict[str, list[tuple[str, float, bool, bool]]] = {}
    for shape, by in sorted(found.times.items()):
        if SUBJECT not in by:
            continue
        mine, method = by[SUBJECT]
        others = {name: time for name, time in by.items() if name != SUBJECT}
        if not others:
            continue
        best = min(others, key=lambda name: (others[name][0], name))
        for name, (time, how) in (("best", others[best]), *sorted(others.items())):
            low = min(time, mine) < FLOOR_US
            pairs.setdefault(name, []).append((shape, time / mine, low, how != method))
    return tuple(_summary(name, some, weight or {}) for name, some in pairs.items())


def _summary(
    name: str, pairs: list[tuple[str, float, bool, bool]], weight: Mapping[str, float]
) -> Summary:  # fmt: skip
    logs = [log(ratio) for _, ratio, _, _ in pairs]
    weighed = [(weight[shape], log(ratio)) for shape, ratio, _, _ in pairs if shape in weight]
    total = sum(w for w, _ in weighed)
    return Summary(
        provider=name,
        shapes=len(pairs),
        geomean=exp(sum(logs) / len(logs)),
        weighted=exp(sum(w * value for w, value in weighed) / total) if total else None,
        weighted_shapes=len(weighed),
        wins=sum(ratio >= 1.05 for _, ratio, _, _ in pairs),
        losses=sum(ratio <= 0.95 for _, ratio, _, _ in pairs),
        floor=sum(low for _, _, low, _ in pairs),
        mixed=sum(mixed for _, _, _, mixed in pairs),
    )
