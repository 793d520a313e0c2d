"""One thread-trace capture, its many files summed to what an analysis needs.

`Collector` takes the files in any order, keeps sums and never the rows of a wave, and gives a `Capture`.
Must not judge: what a figure means, and whether it may be trusted, is for `analysis` and `validity`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from harness.trace import att
from harness.trace.faults import Fault, ReadFault, ordered
from harness.trace.files import Entry
from harness.trace.shard import Part
from harness.trace.waves import STATES, WaveCollector, WaveSums

__all__ = ["Capture", "Collector", "belongs"]

_FIXED = frozenset({"code.json", "occupancy.json", "realtime.json", "filenames.json", "snapshots.json"})


def belongs(name: str) -> bool:
    """Whether a file called `name` is one of an ATT directory's."""
    return name in _FIXED or name.startswith("wstates") or att.WAVE_FILE.fullmatch(name) is not None


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
        self._directory = directory
        self._code: att.Code | None = None
        self._sha: str | None = None
        self._states: dict[int, att.States] = {}
        self._occupancy: att.OccupancyLog | None = None
        self._realtime: att.Realtime | None = None
        self._filenames: att.Filenames | None = None
        self._snapshots: dict[str, str] | None = None
        self._faults: list[Fault] = []
        self._waves = WaveCollector()
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
                self._waves.add(att.wave(data, name))
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

    def take(self, part: Part) -> None:
        """Wave files of this directory that were summed elsewhere."""
        self._waves.merge(part.waves)
        self._faults += part.faults
        self._files += part.files
        self._bytes += part.bytes

    def finish(self) -> Capture:
        """The capture so far; the same for every order of the files."""
        sums, faults = self._waves.finish()
        return Capture(
            self._directory, self._code, self._sha, sums, dict(sorted(self._states.items())), self._occupancy,
            self._realtime, self._filenames, self._snapshots, self._files, self._bytes,
            ordered([*self._faults, *faults]),
        )  # fmt: skip
