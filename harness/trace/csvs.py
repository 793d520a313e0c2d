"""The CSV files of rocprofv3, read as a stream: kernel_trace, kernel_stats, counter_collection, agent_info.

Knows their columns and units. Kernel names hold commas and quotes, files may have a byte-order mark, CRLF,
no rows, or rows cut short; a row that cannot be read is counted and named once, and the rest is still read.
Memory grows with the number of different kernels and dispatches, never with the length of the names.

Format: rocprofiler-sdk, the CSV writer. Timestamps are nanoseconds; Grid_Size is in threads, not workgroups;
LDS_Block_Size is rounded up to 512 B and knows nothing of dynamic LDS.
"""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from harness.trace.faults import Fault, ReadFault, fault, ordered

__all__ = [
    "AgentInfo",
    "Counters",
    "Dispatches",
    "KernelStats",
    "KernelTrace",
    "Readable",
    "agent_info",
    "counter_collection",
    "kernel_stats",
    "kernel_trace",
    "kind_of",
]  # fmt: skip

_AGAIN = "run rocprofv3 again with -f csv json and a fresh output directory"
NAME_LIMIT = 2**20
LINE_LIMIT = 2 * 2**20


def kind_of(name: str) -> str | None:
    """Which of the four a file called `name` is, by its ending; None for another file."""
    for kind in ("kernel_trace", "kernel_stats", "counter_collection", "agent_info"):
        if name.endswith(f"{kind}.csv"):
            return kind
    return None


@dataclass(frozen=True)
class Dispatches:
    """All dispatches of one kernel with one grid, workgroup size and set of registers.

    durations: nanoseconds, in file order; ids: dispatch ids beside them. grid: workgroups (threads ÷
    workgroup size, rounded up). vgpr, accum, sgpr, lds, scratch: the profiler's fields, as they stand.
    """

    symbol: str
    grid: tuple[int, int, int]
    workgroup: tuple[int, int, int]
    vgpr: int
    accum: int
    sgpr: int
    lds: int
    scratch: int
    durations: array[int]
    ids: array[int]

    @property
    def median_us(self) -> float:
        """Median duration in microseconds."""
        return median(self.durations) / 1000

    @property
    def waves(self) -> int:
        """Waves of one dispatch: every workgroup rounds up to whole waves of 64."""
        x, y, z = self.workgroup
        a, b, c = self.grid
        return a * b * c * -(-x * y * z // 64)


@dataclass(frozen=True)
class KernelTrace:
    """kernel_trace.csv by kernel, in order of total time.

    untimed: kernel -> dispatch ids of launches that were there but have no usable time.
    """

    kernels: tuple[Dispatches, ...]
    rows: int
    faults: tuple[Fault, ...]
    untimed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelStats:
    """kernel_stats.csv: name -> (calls, total ns)."""

    kernels: Mapping[str, tuple[int, int]]
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class Counters:
    """counter_collection.csv: (dispatch id, kernel, counter) -> value, summed over a dispatch's records."""

    values: Mapping[tuple[int, str, str], float]
    faults: tuple[Fault, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The counters that were collected."""
        return tuple(sorted({counter for _, _, counter in self.values}))


@dataclass(frozen=True)
class AgentInfo:
    """agent_info.csv: the GPUs of the machine, as (Name, Product_Name, Gfx_Target_Version, Cu_Count)."""

    gpus: tuple[tuple[str, str, int, int], ...]
    faults: tuple[Fault, ...]


def _rows(
    stream: Readable, name: str, needed: tuple[str, ...], faults: list[Fault]
) -> Iterator[dict[str, str]]:
    """Rows as dictionaries of the needed columns. ReadFault where there is no header or a column is
    missing."""
    csv.field_size_limit(NAME_LIMIT)
    raw = io.BufferedReader(_Wrapped(stream), 1 << 20)
    text = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline="")
    # a line that never ends comes in pieces, which are bad rows, and never as one
    reader = csv.reader(iter(lambda: text.readline(LINE_LIMIT), ""))
    try:
        header = next(reader, None)
    except (csv.Error, OSError, EOFError) as error:
        raise ReadFault(fault("unreadable-file", f"{name}: {error}", _AGAIN)) from None
    if not header or not any(header):
        raise ReadFault(fault("empty-table", f"{name}: is empty", _AGAIN))
    missing = [column for column in needed if column not in header]
    if missing:
        raise ReadFault(
            fault(
                "unknown-columns", f"{name}: has no column {missing[0]} (its first is {header[0]!r})", _AGAIN
            )
        )
    places = [header.index(column) for column in needed]
    width = max(places) + 1
    bad = 0
    first = ""
    while True:
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            bad += 1
            first = first or f"line {reader.line_num}: {error}"
            continue
        except (OSError, EOFError, ValueError) as error:
            faults.append(fault("unreadable-file", f"{name}: {error}; rows before it were read", _AGAIN))
            break
        if len(row) < width:
            if row:
                bad += 1
                first = first or f"line {reader.line_num}: {len(row)} columns, needs {width}"
            continue
        yield dict(zip(needed, (row[place] for place in places), strict=True))
    if bad:
        faults.append(fault("bad-rows", f"{name}: {bad} rows cannot be read, the first at {first}", _AGAIN))
    if not reader.line_num or reader.line_num == 1:
        faults.append(fault("no-rows", f"{name}: has a header and no rows", _AGAIN))


class Readable(Protocol):
    """What a reader needs of a stream."""

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes; none at the end."""


class _Wrapped(io.RawIOBase):
    """Any binary stream as a raw one, so that one wrapper serves files and archive members."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _whole(text: str) -> int:
    """A count from 0 to 2^64; ValueError otherwise."""
    value = int(text)
    if not 0 <= value < 2**64:
        raise ValueError(f"{value} is no count")
    return value


_TRACE_COLUMNS = (
    "Kernel_Name",
    "Dispatch_Id",
    "Start_Timestamp",
    "End_Timestamp",
    "LDS_Block_Size",
    "Scratch_Size",
    "VGPR_Count",
    "Accum_VGPR_Count",
    "SGPR_Count",
    "Workgroup_Size_X",
    "Workgroup_Size_Y",
    "Workgroup_Size_Z",
    "Grid_Size_X",
    "Grid_Size_Y",
    "Grid_Size_Z",
)


def kernel_trace(stream: Readable, name: str) -> KernelTrace:
    """kernel_trace.csv. A row whose end lies before its start is a wrapped clock: counted, not used."""
    faults: list[Fault] = []
    found: dict[tuple[object, ...], Dispatches] = {}
    symbols: dict[str, str] = {}
    untimed: dict[str, list[int]] = {}
    rows = wrapped = bad = 0
    for row in _rows(stream, name, _TRACE_COLUMNS, faults):
        rows += 1
        try:
            start, end = _whole(row["Start_Timestamp"]), _whole(row["End_Timestamp"])
            lds, scratch, vgpr, accum, sgpr, wx, wy, wz, gx, gy, gz = (
                _whole(row[c]) for c in _TRACE_COLUMNS[4:]
            )
            dispatch = _whole(row["Dispatch_Id"])
        except ValueError:
            bad += 1
            continue
        if end <= start or end - start >= 2**53:
            wrapped += 1
            untimed.setdefault(row["Kernel_Name"], []).append(dispatch)
            continue
        if not 0 < wx * wy * wz <= 1024 or not gx * gy * gz or dispatch >= 2**62:
            bad += 1
            continue
        symbol = symbols.setdefault(row["Kernel_Name"], row["Kernel_Name"])
        grid = (-(-gx // wx), -(-gy // wy), -(-gz // wz))
        key = (symbol, grid, wx, wy, wz, vgpr, accum, sgpr, lds, scratch)
        group = found.get(key)
        if group is None:
            group = found[key] = Dispatches(
                symbol, grid, (wx, wy, wz), vgpr, accum, sgpr, lds, scratch, array("q"), array("q")
            )
        group.durations.append(end - start)
        group.ids.append(dispatch)
    if wrapped:
        faults.append(
            fault("wrapped-time", f"{name}: {wrapped} dispatches end before they start, not used", _AGAIN)
        )
    if bad:
        faults.append(
            fault("bad-rows", f"{name}: {bad} rows hold no whole numbers where counts belong", _AGAIN)
        )
    kernels = tuple(sorted(found.values(), key=lambda d: (-sum(d.durations), d.symbol, d.grid)))
    return KernelTrace(kernels, rows, ordered(faults), {k: tuple(v) for k, v in untimed.items()})


def kernel_stats(stream: Readable, name: str) -> KernelStats:
    """kernel_stats.csv."""
    faults: list[Fault] = []
    kernels: dict[str, tuple[int, int]] = {}
    bad = 0
    for row in _rows(stream, name, ("Name", "Calls", "TotalDurationNs"), faults):
        try:
            kernels[row["Name"]] = (_whole(row["Calls"]), _whole(row["TotalDurationNs"]))
        except ValueError:
            bad += 1
    if bad:
        faults.append(fault("bad-rows", f"{name}: {bad} rows hold no whole numbers", _AGAIN))
    return KernelStats(kernels, ordered(faults))


def counter_collection(stream: Readable, name: str) -> Counters:
    """counter_collection.csv; records of one dispatch and counter are summed, as the profiler's own writer
    does."""
    faults: list[Fault] = []
    values: dict[tuple[int, str, str], float] = {}
    names: dict[str, str] = {}
    bad = 0
    for row in _rows(stream, name, ("Dispatch_Id", "Kernel_Name", "Counter_Name", "Counter_Value"), faults):
        try:
            value = float(row["Counter_Value"])
            if not 0 <= value < 2**64:
                raise ValueError
            kernel = names.setdefault(row["Kernel_Name"], row["Kernel_Name"])
            counter = names.setdefault(row["Counter_Name"], row["Counter_Name"])
            key = (_whole(row["Dispatch_Id"]), kernel, counter)
        except ValueError:
            bad += 1
            continue
        values[key] = values.get(key, 0.0) + value
    if bad:
        faults.append(fault("bad-rows", f"{name}: {bad} rows hold no counts", _AGAIN))
    return Counters(values, ordered(faults))


def agent_info(stream: Readable, name: str) -> AgentInfo:
    """agent_info.csv; CPUs are left out."""
    faults: list[Fault] = []
    gpus: list[tuple[str, str, int, int]] = []
    needed = ("Agent_Type", "Name", "Product_Name", "Gfx_Target_Version", "Cu_Count")
    for row in _rows(stream, name, needed, faults):
        if row["Agent_Type"] != "GPU":
            continue
        try:
            target, cus = _whole(row["Gfx_Target_Version"]), _whole(row["Cu_Count"])
        except ValueError:
            faults.append(fault("bad-rows", f"{name}: a GPU row holds no whole numbers", _AGAIN))
            continue
        gpus.append((row["Name"], row["Product_Name"], target, cus))
    return AgentInfo(tuple(gpus), ordered(faults))
