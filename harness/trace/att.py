"""The JSON files of one `ui_output_*` directory of an advanced thread trace (ATT), decoded and typed.

One function a file format; each takes the bytes of one file and raises `ReadFault` for bytes that are not
that. Must not know directories, archives or what a figure means.

Formats: rocprofiler-sdk, the thread-trace writer; header version 3.0.0. All times are shader-clock cycles.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from harness.trace.faults import METRICS, Fault, ReadFault, fault
from harness.trace.ints import LARGEST, row, rows, table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "VERSION",
    "WAVE_FILE",
    "Code",
    "CodeRow",
    "Filenames",
    "OccupancyLog",
    "Realtime",
    "States",
    "Wave",
    "code",
    "filenames",
    "occupancy",
    "realtime",
    "snapshots",
    "states",
    "wave",
]

VERSION = "3.0.0"
WAVE_FILE = re.compile(r"se(\d+)_sm(\d+)_sl(\d+)_wv(\d+)\.json")

_T = TypeVar("_T")
_NEW_TRACE = "capture again with a fresh output directory"


class CodeRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One row of code.json, in the file's order of columns (its own header line names them).

    isa: text, or a label beginning with ";". index: join key of the wave files. source: "file:line", or "".
    hits: executions by sampled waves. latency, stall, idle: cycles summed over sampled waves; the third is
    the gap before issue, so issue time is latency - stall.
    """

    isa: str
    reserved: int
    index: int
    source: str
    code_object: int
    address: int
    hits: int
    latency: int
    stall: int
    idle: int

    @property
    def is_label(self) -> bool:
        """A label row or an empty one: no instruction."""
        return self.isa.lstrip()[:1] in ("", ";")


class _CodeFile(msgspec.Struct, gc=False):
    code: list[CodeRow] | None
    version: str = ""
    header: str = ""


@dataclass(frozen=True)
class Code:
    """code.json: all rows (labels too), in file order."""

    rows: tuple[CodeRow, ...]
    version: str

    @cached_property
    def instructions(self) -> tuple[CodeRow, ...]:
        """The rows that are instructions."""
        return tuple(row for row in self.rows if not row.is_label)

    @cached_property
    def symbol(self) -> str | None:
        """The kernel's name, which the first label has; None without one."""
        labels = (row.isa.strip("; \t\r\n") for row in self.rows if row.is_label)
        return next((label for label in labels if label), None)


class _WaveBody(msgspec.Struct, gc=False):
    cu: int
    simd: int
    slot: int
    id: int
    begin: int
    end: int
    instructions: msgspec.Raw
    timeline: msgspec.Raw = msgspec.Raw(b"[]")


class _WaveFile(msgspec.Struct, gc=False):
    wave: _WaveBody
    name: str = ""
    duration: int = 0


class Wave(NamedTuple):
    """One sampled wave as text whose shape was checked; `harness.trace.waves` reads the numbers.

    instructions: rows of time, category, stall, duration, line (`CodeRow.index`); `n_instructions` of them.
    timeline: rows of state (1 IDLE, 2 EXEC, 3 WAIT, 4 STALL), cycles; `n_timeline` of them.
    """

    file: str
    begin: int
    end: int
    instructions: bytes
    n_instructions: int
    timeline: bytes
    n_timeline: int


class _StatesFile(msgspec.Struct, gc=False):
    time: msgspec.Raw
    state: msgspec.Raw
    name: str = ""


@dataclass(frozen=True)
class States:
    """wstates<N>.json: how many sampled waves are in state N from each time on; int64 (n,) each."""

    time: NDArray[np.int64]
    count: NDArray[np.int64]

    @property
    def area(self) -> int:
        """Wave-cycles in the state: the integral of the step function."""
        if self.time.size < 2:
            return 0
        return int((self.count[:-1] * (self.time[1:] - self.time[:-1])).sum())


@dataclass(frozen=True)
class OccupancyLog:
    """occupancy.json: wave starts and ends on every CU of the traced shader engines.

    events: shader engine -> int64 (n, 6): time, CU, SIMD, slot, start (1) or end (0), dispatch key.
    dispatches: key -> kernel name.
    """

    events: dict[str, NDArray[np.int64]]
    dispatches: dict[str, str]


@dataclass(frozen=True)
class Realtime:
    """realtime.json: pairs (shader clock, constant clock), the latter at `frequency` Hz; int64 (n, 2) by
    engine."""

    pairs: dict[str, NDArray[np.int64]]
    frequency: float


class _FilenamesFile(msgspec.Struct, gc=False):
    wave_filenames: dict[str, dict[str, dict[str, dict[str, tuple[str, int, int]]]]] | None = None
    version: str = ""
    gfxip: int | str | None = None
    gfxv: str | None = None
    counter_names: list[str] | None = None


@dataclass(frozen=True)
class Filenames:
    """filenames.json: wave file -> (begin, end). `gfxip` is a major version and does not name the target."""

    waves: dict[str, tuple[int, int]]
    version: str
    counter_names: tuple[str, ...]


_CODE = msgspec.json.Decoder(_CodeFile)
_WAVE = msgspec.json.Decoder(_WaveFile)
_STATES = msgspec.json.Decoder(_StatesFile)
_OCCUPANCY = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NAMES = msgspec.json.Decoder(dict[str, str])
_FILENAMES = msgspec.json.Decoder(_FilenamesFile)
_TREE = msgspec.json.Decoder(dict[str, Any])


def _bad(name: str, why: object, *, rule: str = "unreadable-file", spoils: tuple[str, ...] = ()) -> ReadFault:
    return ReadFault(fault(rule, f"{name}: {why}", _NEW_TRACE, spoils))


def _decode(decode: Callable[[bytes], _T], name: str, data: bytes, spoils: tuple[str, ...] = ()) -> _T:
    """Decode, or raise ReadFault with one line that says where and why."""
    if not data.strip():
        raise _bad(name, "is empty", spoils=spoils)
    try:
        return decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise _bad(name, f"{type(error).__name__}: {error}", spoils=spoils) from None


def _version(name: str, version: str) -> Fault | None:
    if version in ("", VERSION):
        return None
    return fault(
        "unknown-version", f"{name}: format version {version!r}, known is {VERSION}",
        "read it with the harness version that knows this format", METRICS,
    )  # fmt: skip


def code(data: bytes, name: str = "code.json") -> Code:
    """code.json. A null `code` is a trace without data: ReadFault `no-code`."""
    spoils = tuple(m for m in METRICS if m not in ("waves", "wave_states", "occupancy"))
    file = _decode(_CODE.decode, name, data, spoils)
    wrong = _version(name, file.version)
    if wrong is not None:
        raise ReadFault(wrong)
    if not file.code:
        raise ReadFault(
            fault(
                "no-code",
                f"{name}: code is {'null' if file.code is None else 'empty'}: the trace holds no data",
                "change --att-shader-engine-mask or --att-target-cu, or launch a larger grid, so that the "
                "traced CU gets waves",
                METRICS,
            )
        )
    for place, entry in enumerate(file.code):
        if min(entry.hits, entry.latency, entry.stall, entry.idle, entry.address) < 0:
            raise _bad(name, f"row {place} has a negative count", rule="negative-count", spoils=spoils)
        if entry.stall > entry.latency:
            raise _bad(name, f"row {place}: stall above latency", rule="impossible-count", spoils=spoils)
    return Code(tuple(file.code), file.version)


def wave(data: bytes, name: str) -> Wave:
    """se*_sm*_sl*_wv*.json."""
    body = _decode(_WAVE.decode, name, data).wave
    instructions, timeline = bytes(body.instructions), bytes(body.timeline)
    try:
        counts = rows(instructions, 5), rows(timeline, 2)
    except ValueError as error:
        raise _bad(name, f"instructions or timeline {error}") from None
    if body.end < body.begin or body.begin <= -LARGEST or body.end >= LARGEST:
        raise _bad(name, f"wave ends at {body.end}, begins at {body.begin}", rule="wrapped-time")
    return Wave(name, body.begin, body.end, instructions, counts[0], timeline, counts[1])


def states(data: bytes, name: str) -> States:
    """wstates<N>.json."""
    file = _decode(_STATES.decode, name, data)
    try:
        time, count = row(bytes(file.time)), row(bytes(file.state))
    except ValueError as error:
        raise _bad(name, error) from None
    if time.size != count.size:
        raise _bad(name, f"{time.size} times but {count.size} counts")
    if time.size and (bool((time[1:] < time[:-1]).any()) or int(count.min()) < 0):
        raise _bad(name, "times run backwards or counts are negative", rule="wrapped-time")
    if time.size and (int(time[-1]) - int(time[0]) >= 1 << 42 or int(count.max()) >= 1 << 20):
        raise _bad(name, "spans more cycles or waves than any capture holds", rule="wrapped-time")
    return States(time, count)


def occupancy(data: bytes, name: str = "occupancy.json") -> OccupancyLog:
    """occupancy.json."""
    parts = _decode(_OCCUPANCY.decode, name, data, ("occupancy",))
    version = _decode(msgspec.json.Decoder(str).decode, name, bytes(parts.pop("version", msgspec.Raw(b'""'))))
    wrong = _version(name, version)
    if wrong is not None:
        raise ReadFault(wrong)
    dispatches = _decode(_NAMES.decode, name, bytes(parts.pop("dispatches", msgspec.Raw(b"{}"))))
    events: dict[str, NDArray[np.int64]] = {}
    for engine, raw in parts.items():
        if not engine.isdigit():
            continue
        try:
            events[engine] = table(bytes(raw), 6)
        except ValueError as error:
            raise _bad(name, f"shader engine {engine} {error}", spoils=("occupancy",)) from None
        if events[engine].size and int(events[engine][:, 1:].min()) < 0:
            raise _bad(name, f"shader engine {engine}: negative CU, SIMD or slot", spoils=("occupancy",))
        if events[engine].size and not set(events[engine][:, 4].tolist()) <= {0, 1}:
            raise _bad(
                name, f"shader engine {engine}: an event is neither start nor end", spoils=("occupancy",)
            )
    return OccupancyLog(events, dispatches)


def realtime(data: bytes, name: str = "realtime.json") -> Realtime:
    """realtime.json; 100 MHz where the file does not say."""
    parts = _decode(_OCCUPANCY.decode, name, data)
    meta = _decode(_TREE.decode, name, bytes(parts.pop("metadata", msgspec.Raw(b"{}"))))
    frequency = meta.get("frequency", 1e8)
    if not isinstance(frequency, (int, float)) or not 0 < frequency < 1e12:
        raise _bad(name, f"frequency is {frequency!r}")
    pairs: dict[str, NDArray[np.int64]] = {}
    for engine, raw in parts.items():
        try:
            pairs[engine] = table(bytes(raw), 2)
        except ValueError as error:
            raise _bad(name, f"{engine} {error}") from None
    return Realtime(pairs, float(frequency))


def filenames(data: bytes, name: str = "filenames.json") -> Filenames:
    """filenames.json."""
    file = _decode(_FILENAMES.decode, name, data)
    wrong = _version(name, file.version)
    if wrong is not None:
        raise ReadFault(wrong)
    waves = {
        entry[0]: (entry[1], entry[2])
        for simds in (file.wave_filenames or {}).values()
        for slots in simds.values()
        for ids in slots.values()
        for entry in ids.values()
    }
    return Filenames(waves, file.version, tuple(file.counter_names or ()))


def snapshots(data: bytes, name: str = "snapshots.json") -> dict[str, str]:
    """snapshots.json: path on the traced machine -> name of the copied source file."""
    found: dict[str, str] = {}
    stack: list[tuple[str, Any]] = [("", _decode(_TREE.decode, name, data))]
    while stack:
        path, node = stack.pop()
        if isinstance(node, str):
            found[path] = node
        elif isinstance(node, dict):
            stack += [
                (f"{path.rstrip('/')}/{key}" if key != "/" else "/", child) for key, child in node.items()
            ]
        else:
            raise _bad(name, f"{path}: is neither a directory nor a file name")
    return dict(sorted(found.items()))
