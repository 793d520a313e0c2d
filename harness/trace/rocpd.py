"""rocpd, rocprofv3's SQLite output and its default format: kernels and counters of schema version 3.

Knows the views of version 3 and refuses another version by name. It is opened read-only; one
that another process holds is refused with one line. Must not know what a figure means.

Format: rocprofiler-sdk, rocpd schema (tables `rocpd_*`, views `kernels`, `counters_collection`).
"""

from __future__ import annotations

import sqlite3
from array import array
from contextlib import closing
from pathlib import Path

from harness.trace.csvs import Counters, Dispatches, KernelTrace
from harness.trace.faults import Fault, ReadFault, fault, ordered

__all__ = ["KNOWN_VERSION", "read"]

KNOWN_VERSION = "3"
_AGAIN = "run rocprofv3 again with -f csv json"


def _version(database: sqlite3.Connection) -> str | None:
    for query in (
        "SELECT value FROM rocpd_metadata WHERE tag = 'schema_version'",
        "SELECT value FROM rocpd_metadata WHERE tag LIKE '%version%'",
    ):
        row = database.execute(query).fetchone()
        if row is not None:
            return str(row[0])
    return None


def _columns(database: sqlite3.Connection, view: str) -> set[str]:
    return {str(row[1]) for row in database.execute(f"PRAGMA table_info({view})")}


def _count(value: object) -> int:
    if isinstance(value, (int, float)) and 0 <= value < 2**62:
        return int(value)
    raise ValueError(f"{value!r} is no count")


def read(path: Path, name: str | None = None, *, timeout: float = 2.0) -> tuple[KernelTrace, Counters]:
    """Kernels and counters of the database at `path`. ReadFault: no database, locked, or another schema
    version."""
    shown = name or path.name
    try:
        with closing(
            sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=timeout)
        ) as database:
            database.text_factory = lambda raw: raw.decode("utf-8", "replace")
            database.execute("PRAGMA query_only = ON")
            version = _version(database)
            if version is None or version.split(".")[0] != KNOWN_VERSION:
                raise ReadFault(
                    fault(
                        "unknown-version",
                        f"{shown}: rocpd schema version {version or 'unstated'}, known is {KNOWN_VERSION}",
                        f"{_AGAIN}, or read it with the rocpd tools of its own ROCm",
                    )
                )
            return _kernels(database, shown), _counters(database, shown)
    except (sqlite3.Error, OverflowError, UnicodeDecodeError, MemoryError) as error:
        busy = "locked" in str(error) or "busy" in str(error)
        remedy = "wait until the profiler has ended, or copy the file" if busy else _AGAIN
        raise ReadFault(fault("unreadable-file", f"{shown}: SQLite: {error}", remedy)) from None


_FIELDS = {
    "name": ("name", "kernel_name"),
    "dispatch": ("dispatch_id", "id"),
    "start": ("start",),
    "end": ("end",),
    "vgpr": ("vgpr_count", "arch_vgpr_count"),
    "accum": ("accum_vgpr_count",),
    "sgpr": ("sgpr_count",),
    "lds": ("lds_size", "lds_block_size", "group_segment_size"),
    "scratch": ("scratch_size", "private_segment_size"),
    "wx": ("workgroup_x", "workgroup_size_x"),
    "wy": ("workgroup_y", "workgroup_size_y"),
    "wz": ("workgroup_z", "workgroup_size_z"),
    "gx": ("grid_x", "grid_size_x"),
    "gy": ("grid_y", "grid_size_y"),
    "gz": ("grid_z", "grid_size_z"),
}
_OPTIONAL = frozenset({"vgpr", "accum", "sgpr", "lds", "scratch"})


def _kernels(database: sqlite3.Connection, shown: str) -> KernelTrace:
    have = _columns(database, "kernels")
    chosen: list[str] = []
    for field, options in _FIELDS.items():
        column = next((o for o in options if o in have), None)
        if column is None and field not in _OPTIONAL:
            raise ReadFault(
                fault("unknown-columns", f"{shown}: view kernels has no column {options[0]}", _AGAIN)
            )
        chosen.append(f'"{column}"' if column else "0")
    groups: dict[tuple[object, ...], Dispatches] = {}
    faults: list[Fault] = []
    rows = bad = wrapped = 0
    for row in database.execute(f"SELECT {', '.join(chosen)} FROM kernels"):
        rows += 1
        try:
            symbol = str(row[0])
            dispatch, start, end, vgpr, accum, sgpr, lds, scratch, wx, wy, wz, gx, gy, gz = map(
                _count, row[1:]
            )
            if not 0 < wx * wy * wz <= 1024 or not gx * gy * gz:
                raise ValueError("no workgroup")
        except ValueError:
            bad += 1
            continue
        if end <= start:
            wrapped += 1
            continue
        grid = (-(-gx // wx), -(-gy // wy), -(-gz // wz))
        key = (symbol, grid, wx, wy, wz, vgpr, accum, sgpr, lds, scratch)
        group = groups.setdefault(
            key,
            Dispatches(symbol, grid, (wx, wy, wz), vgpr, accum, sgpr, lds, scratch, array("q"), array("q")),
        )
        group.durations.append(end - start)
        group.ids.append(dispatch)
    if bad:
        faults.append(fault("bad-rows", f"{shown}: {bad} kernel rows hold no counts", _AGAIN))
    if wrapped:
        faults.append(fault("wrapped-time", f"{shown}: {wrapped} dispatches end before they start", _AGAIN))
    if not rows:
        faults.append(
            fault(
                "no-dispatches",
                f"{shown}: no kernel dispatch",
                "a thread trace records none by design: run --kernel-trace in a job of its own",
            )
        )
    kernels = tuple(sorted(groups.values(), key=lambda d: (-sum(d.durations), d.symbol, d.grid)))
    return KernelTrace(kernels, rows, ordered(faults))


def _counters(database: sqlite3.Connection, shown: str) -> Counters:
    have = _columns(database, "counters_collection")
    name = "counter_name" if "counter_name" in have else "name"
    if not {"dispatch_id", name, "value"} <= have:
        return Counters({}, ())
    kernel = '"kernel_name"' if "kernel_name" in have else "''"
    values: dict[tuple[int, str, str], float] = {}
    bad = 0
    query = f'SELECT dispatch_id, {kernel}, "{name}", value FROM counters_collection'
    for dispatch, symbol, counter, value in database.execute(query):
        if not isinstance(dispatch, int) or not isinstance(value, (int, float)) or not 0 <= value < 2**64:
            bad += 1
            continue
        key = (dispatch, str(symbol), str(counter))
        values[key] = values.get(key, 0.0) + value
    faults = (fault("bad-rows", f"{shown}: {bad} counter rows hold no counts", _AGAIN),) if bad else ()
    return Counters(values, faults)
