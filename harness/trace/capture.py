"""One thread-trace capture, its many files summed to what an analysis needs.

`Collector` takes the files in any order, keeps sums and never the rows of a wave, and gives a `Capture`.
Must not judge: what a figure means, and whether it may be trusted, is for `analysis` and `validity`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.trace import att
from harness.trace.faults import Fault, ReadFault, ordered
from harness.trace.files import Entry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["STATES", "Capture", "Collector", "WaveRecord", "WaveSums", "belongs"]

STATES: tuple[str, ...] = ("empty", "idle", "exec", "wait", "stall")
"""The decoder's own enumeration of wave states, 0..4 (rocprofiler-sdk, trace_decoder_types.h)."""

CATEGORIES = 16
_FIXED = frozenset({"code.json", "occupancy.json", "realtime.json", "filenames.json", "snapshots.json"})


def belongs(name: str) -> bool:
    """Whether a file called `name` is one of an ATT directory's."""
    return name in _FIXED or name.startswith("wstates") or att.WAVE_FILE.fullmatch(name) is not None


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


@dataclass(frozen=True)
class Capture:
    """What the files of one `ui_output_*` directory hold. A part whose file is missing or unreadable is
    None."""

    directory: str
    code: att.Code | None
    code_sha256: str | None
    waves: WaveSums
    states: Mapping[int, att.States]
    occupancy: att.OccupancyLog | None
    realtime: att.Realtime | None
    filenames: att.Filenames | None
    snapshots: Mapping[str, str] | None
    files: int
    bytes: int
    faults: tuple[Fault, ...]


class Collector:
    """Sums the files of one directory, in any order; `finish` gives the capture."""

    def __init__(self, directory: str) -> None:
        import numpy as np

        self._directory = directory
        self._code: att.Code | None = None
        self._sha: str | None = None
        self._states: dict[int, att.States] = {}
        self._occupancy: att.OccupancyLog | None = None
        self._realtime: att.Realtime | None = None
        self._filenames: att.Filenames | None = None
        self._snapshots: dict[str, str] | None = None
        self._faults: list[Fault] = []
        self._records: list[WaveRecord] = []
        self._sums: list[NDArray[np.int64]] = [np.zeros(1024, dtype=np.int64) for _ in range(4)]
        self._state_cycles = np.zeros(len(STATES), dtype=np.int64)
        self._categories = np.zeros(CATEGORIES, dtype=np.int64)
        self._first_gap = 0
        self._uneven = 0
        self._files = 0
        self._bytes = 0

    def feed(self, entry: Entry) -> None:
        """One file. What cannot be read becomes a fault; the rest is still read."""
        self._files += 1
        self._bytes += entry.size
        name = entry.name
        try:
            data = entry.read()
            if att.WAVE_FILE.fullmatch(name) is not None:
                self._wave(att.wave(data, name), name)
            elif name == "code.json":
                self._sha = hashlib.sha256(data).hexdigest()
                self._code = att.code(data)
            elif name.startswith("wstates"):
                digits = name.removeprefix("wstates").removesuffix(".json")
                if digits.isdecimal() and int(digits) < len(STATES):
                    self._states[int(digits)] = att.states(data, name)
            elif name == "occupancy.json":
                self._occupancy = att.occupancy(data)
            elif name == "realtime.json":
                self._realtime = att.realtime(data)
            elif name == "filenames.json":
                self._filenames = att.filenames(data)
            elif name == "snapshots.json":
                self._snapshots = att.snapshots(data)
        except ReadFault as error:
            self._faults.append(error.fault)

    def _wave(self, wave: att.Wave, file: str) -> None:
        import numpy as np

        rows = wave.instructions
        latency = stall = lines = 0
        if len(rows):
            time, category, stalled, duration, line = rows.T
            hits = np.bincount(line)
            self._grow(hits.size)
            cycles = np.bincount(line, weights=duration).astype(np.int64)
            stalls = np.bincount(line, weights=stalled).astype(np.int64)
            previous = np.concatenate((np.array([wave.begin], dtype=np.int64), time[:-1] + duration[:-1]))
            gaps = np.bincount(line, weights=np.maximum(time - previous, 0)).astype(np.int64)
            for total, part in zip(self._sums, (hits, cycles, stalls, gaps), strict=True):
                total[: part.size] += part
            self._categories += np.bincount(
                np.minimum(category, CATEGORIES - 1), weights=duration, minlength=CATEGORIES
            ).astype(np.int64)
            self._first_gap += int(time[0]) - wave.begin
            latency, stall, lines = int(cycles.sum()), int(stalls.sum()), int(np.count_nonzero(hits))
        if len(wave.timeline):
            by_state = np.bincount(
                wave.timeline[:, 0], weights=wave.timeline[:, 1], minlength=len(STATES)
            ).astype(np.int64)
            self._state_cycles += by_state
            self._uneven += int(int(by_state.sum()) != wave.end - wave.begin)

        self._records.append(WaveRecord(file, wave.begin, wave.end, lines, len(rows), latency, stall))

    def _grow(self, size: int) -> None:
        import numpy as np

        if size > self._sums[0].size:
            larger = max(size, 2 * self._sums[0].size)
            self._sums = [np.concatenate((s, np.zeros(larger - s.size, dtype=np.int64))) for s in self._sums]

    def finish(self) -> Capture:
        """The capture so far; the same for every order of the files."""
        used = self._sums[0].nonzero()[0]
        size = int(used[-1]) + 1 if used.size else 0
        hits, latency, stall, idle = (s[:size].copy() for s in self._sums)
        sums = WaveSums(
            tuple(sorted(self._records, key=lambda r: (r.file, r.begin, r.end))),
            hits, latency, stall, idle,
            tuple(int(s) for s in self._state_cycles), tuple(int(c) for c in self._categories),
            self._first_gap, self._uneven,
        )  # fmt: skip
        return Capture(
            self._directory, self._code, self._sha, sums, dict(sorted(self._states.items())), self._occupancy,
            self._realtime, self._filenames, self._snapshots, self._files, self._bytes, ordered(self._faults),
        )  # fmt: skip
