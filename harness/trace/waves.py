"""The sampled waves of a capture, summed in batches: what code.json, wstates and the validity checks
compare with.

Knows the rows of a wave and nothing of files. A batch of some hundred waves is summed by a few array
operations, since most captures are many small waves; one bad wave is found by summing its batch again wave
by wave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.trace.att import Wave
from harness.trace.faults import Fault, fault
from harness.trace.ints import tables

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["STATES", "WaveCollector", "WaveRecord", "WaveSums"]

STATES: tuple[str, ...] = ("empty", "idle", "exec", "wait", "stall")
"""The decoder's own enumeration of wave states, 0..4 (rocprofiler-sdk, trace_decoder_types.h)."""

CATEGORIES = 16
BATCH_BYTES = 1 << 20
"""Text of one batch; its numbers, about three times as many bytes, should stay near the processor's cache."""

BATCH_CELLS = 1 << 22
LONGEST = 1 << 40
"""Cycles; seven minutes of a 2.4 GHz clock. One instruction or state that lasts longer is a counter that
wrapped."""

LINES = 1 << 20
"""No kernel has more instruction rows; a wave that names one beyond is not of a kernel."""


@dataclass(frozen=True)
class WaveRecord:
    """One sampled wave, summed: `lines` are the distinct rows of the code that it executed; the rest in
    cycles."""

    file: str
    begin: int
    end: int
    lines: int
    executed: int
    latency: int
    stall: int


@dataclass(frozen=True)
class WaveSums:
    """All wave files together.

    hits, latency, stall, idle: int64 (n,) by line, to compare with code.json. states: cycles by state, 0..4.
    category_cycles: duration by the decoder's instruction category. first_gap: cycles from wave begin to the
    first instruction. uneven: waves whose timeline is not as long as the wave lives.
    """

    records: tuple[WaveRecord, ...]
    hits: NDArray[np.int64]
    latency: NDArray[np.int64]
    stall: NDArray[np.int64]
    idle: NDArray[np.int64]
    states: tuple[int, ...]
    category_cycles: tuple[int, ...]
    first_gap: int
    uneven: int


class _Bad(ValueError):
    def __init__(self, rule: str, why: str) -> None:
        super().__init__(why)
        self.rule = rule


class WaveCollector:
    """Sums waves in any order."""

    def __init__(self) -> None:
        import numpy as np

        self._pending: list[Wave] = []
        self._size = 0
        self._faults: list[Fault] = []
        self._records: list[WaveRecord] = []
        self._sums = np.zeros((4, 1024), dtype=np.int64)
        self._states = np.zeros(len(STATES), dtype=np.int64)
        self._categories = np.zeros(CATEGORIES, dtype=np.int64)
        self._first_gap = 0
        self._uneven = 0

    def add(self, wave: Wave) -> None:
        """One more wave; it is summed when its batch is full."""
        self._pending.append(wave)
        self._size += len(wave.instructions) + len(wave.timeline)
        if self._size >= BATCH_BYTES:
            self.flush()

    def finish(self) -> tuple[WaveSums, list[Fault]]:
        """The sums so far, and a fault for each wave that could not be summed."""
        self.flush()
        used = self._sums[0].nonzero()[0]
        size = int(used[-1]) + 1 if used.size else 0
        hits, latency, stall, idle = (part[:size].copy() for part in self._sums)
        records = tuple(sorted(self._records, key=lambda r: (r.file, r.begin, r.end)))
        states = tuple(int(s) for s in self._states)
        categories = tuple(int(c) for c in self._categories)
        sums = WaveSums(
            records, hits, latency, stall, idle, states, categories, self._first_gap, self._uneven
        )  # fmt: skip
        return sums, self._faults

    def merge(self, other: WaveCollector) -> None:
        """Take over what another collector has summed."""
        self.flush()
        other.flush()
        self._grow(other._sums.shape[1])
        self._sums[:, : other._sums.shape[1]] += other._sums
        self._records += other._records
        self._faults += other._faults
        self._states += other._states
        self._categories += other._categories
        self._first_gap += other._first_gap
        self._uneven += other._uneven

    def flush(self) -> None:
        """Sum what is still pending."""
        batch, self._pending, self._size = self._pending, [], 0
        if not batch:
            return
        try:
            self._sum(batch)
        except ValueError:
            for wave in batch:
                try:
                    self._sum([wave])
                except ValueError as error:
                    rule = error.rule if isinstance(error, _Bad) else "unreadable-file"
                    remedy = "capture again with a fresh output directory"
                    self._faults.append(fault(rule, f"{wave.file}: {error}", remedy))

    def _sum(self, batch: list[Wave]) -> None:
        """Add a batch, or raise ValueError and add nothing."""
        import numpy as np

        sizes = np.array([wave.n_instructions for wave in batch], dtype=np.int64)
        rows = tables([wave.instructions for wave in batch if wave.n_instructions], int(sizes.sum()), 5)
        spans = np.array([wave.n_timeline for wave in batch], dtype=np.int64)
        line_of_time = tables([wave.timeline for wave in batch if wave.n_timeline], int(spans.sum()), 2)
        begins = np.array([wave.begin for wave in batch], dtype=np.int64)
        ends = np.array([wave.end for wave in batch], dtype=np.int64)
        filled = np.flatnonzero(sizes)
        first = (np.cumsum(sizes) - sizes)[filled]
        columns = np.ascontiguousarray(rows.T)
        state, cycles = np.ascontiguousarray(line_of_time.T)
        _check(columns, state, cycles, first, begins[filled])

        per_wave = np.zeros((3, len(batch)), dtype=np.int64)
        if len(rows):
            time, category, stalled, duration, line = columns
            top = int(line.max()) + 1
            self._grow(top)
            previous = np.empty_like(time)
            previous[1:] = time[:-1] + duration[:-1]
            previous[first] = begins[filled]
            for total, weights in zip(
                self._sums[1:], (duration, stalled, np.maximum(time - previous, 0)), strict=True
            ):
                total[:top] += np.bincount(line, weights=weights, minlength=top).astype(np.int64)
            kinds = np.minimum(category, CATEGORIES - 1)
            self._categories += np.bincount(kinds, weights=duration, minlength=CATEGORIES).astype(np.int64)
            self._first_gap += int((time[first] - begins[filled]).sum())
            per_wave[1, filled] = np.add.reduceat(duration, first)
            per_wave[2, filled] = np.add.reduceat(stalled, first)
            self._hits(line, sizes, top, per_wave[0])
        if len(line_of_time):
            self._states += np.bincount(state, weights=cycles, minlength=len(STATES)).astype(np.int64)
            told = np.flatnonzero(spans)
            lived = np.add.reduceat(cycles, (np.cumsum(spans) - spans)[told])
            self._uneven += int(np.count_nonzero(lived != (ends - begins)[told]))
        for at, wave in enumerate(batch):
            lines, latency, stall = (int(part) for part in per_wave[:, at])
            self._records.append(
                WaveRecord(wave.file, wave.begin, wave.end, lines, wave.n_instructions, latency, stall)
            )

    def _hits(
        self, line: NDArray[np.int64], sizes: NDArray[np.int64], top: int, distinct: NDArray[np.int64]
    ) -> None:
        """Hits by line, and into `distinct` the number of different lines of each wave."""
        import numpy as np

        step = max(1, BATCH_CELLS // top)
        ends = np.cumsum(sizes)
        for low in range(0, len(sizes), step):
            high = min(low + step, len(sizes))
            part = line[int(ends[low] - sizes[low]) : int(ends[high - 1])]
            wave = np.repeat(np.arange(high - low), sizes[low:high])
            cells = np.bincount(wave * top + part, minlength=(high - low) * top).reshape(high - low, top)
            self._sums[0, :top] += cells.sum(axis=0)
            distinct[low:high] = np.count_nonzero(cells, axis=1)

    def _grow(self, size: int) -> None:
        import numpy as np

        have = self._sums.shape[1]
        if size > have:
            self._sums = np.pad(self._sums, ((0, 0), (0, max(size, 2 * have) - have)))


def _check(
    columns: NDArray[np.int64],
    state: NDArray[np.int64],
    cycles: NDArray[np.int64],
    first: NDArray[np.int64],
    begins: NDArray[np.int64],
) -> None:
    """Raises `_Bad` where times run backwards, counts are negative, or a state or line is none.

    columns: (5, n), the parts of an instruction row; contiguous, since a reduction over a few columns of rows
    is many times slower.
    """
    if columns.size:
        time = columns[0]
        backwards = time[1:] < time[:-1]
        backwards[first[1:] - 1] = False
        if bool(backwards.any()) or bool((time[first] < begins).any()):
            raise _Bad("wrapped-time", "instruction times run backwards")
        if int(columns[1:].min()) < 0:
            raise _Bad("negative-count", "negative category, stall, duration or line")
        longest, line = int(columns[2:4].max()), int(columns[4].max())
        if longest >= LONGEST:
            raise _Bad("wrapped-time", f"an instruction takes {longest:,} cycles")
        if line >= LINES:
            raise _Bad("unreadable-file", f"line {line} is no row of any code.json")
    if state.size and int(cycles.max()) >= LONGEST:
        raise _Bad("wrapped-time", f"a state lasts {int(cycles.max()):,} cycles")
    if state.size and (min(int(state.min()), int(cycles.min())) < 0 or int(state.max()) >= len(STATES)):
        raise _Bad("unknown-state", "timeline has a state outside 0..4 or negative cycles")
