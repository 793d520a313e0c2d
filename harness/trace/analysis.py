"""The figures of one capture: totals, what stalls wait for, wave states, hotspots, registers, occupancy,
clock.

Pure: takes a `Capture` and what is known beside it, gives an `Analysis`. Must not read files nor know
published figures. Cycles are shader-clock cycles summed over the sampled waves; shares are percent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from harness.trace.att import CodeRow, OccupancyLog, Realtime
from harness.trace.capture import Capture
from harness.trace.csvs import Dispatches
from harness.trace.faults import Fault, fault, ordered
from harness.trace.isa import Registers, classes, listing_sha256, registers, study_class, uses_lds
from harness.trace.resources import Beside, limit, vgprs
from harness.trace.validity import faults as validity_faults
from harness.trace.validity import ran_body
from harness.trace.waves import STATES

__all__ = ["Analysis", "Hotspot", "analyse", "clock_ghz", "observed_occupancy"]

HOTSPOTS = 10


@dataclass(frozen=True)
class Hotspot:
    """One instruction or source line: where, cycles, stall cycles, hits, and its share of all stall
    cycles."""

    where: str
    what: str
    text: str
    hits: int
    cycles: int
    stall: int
    share: float

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "where": self.where,
            "what": self.what,
            "text": self.text,
            "hits": self.hits,
            "cycles": self.cycles,
            "stall": self.stall,
            "share": round(self.share, 2),
        }


@dataclass(frozen=True)
class Analysis:
    """Every figure that a capture carries; None where its file is missing."""

    directory: str
    code_sha256: str | None
    listing_sha256: str | None
    arch: str | None
    symbol: str | None
    instructions: int | None
    executed: int | None
    mapped: int | None
    total: int | None
    stall: int | None
    idle: int | None
    taxonomy: Mapping[str, float] | None
    study_taxonomy: Mapping[str, float] | None
    combined_share: float
    waves: int
    body_waves: int
    wave_states: Mapping[str, float] | None
    states_confirmed: bool
    registers: Registers
    beside: Beside
    allocated: int | None
    allocation_rule: str
    occupancy_limit: int | None
    limited_by: str | None
    observed: int | None
    wave_starts: int | None
    clock_ghz: float | None
    device: Dispatches | None
    by_instruction: tuple[Hotspot, ...]
    by_line: tuple[Hotspot, ...]
    files: int
    bytes: int
    faults: tuple[Fault, ...]

    @property
    def valid(self) -> bool:
        """Whether the capture carries everything that it should."""
        return not any(f.spoils for f in self.faults)

    def to_json(self) -> dict[str, Any]:
        """JSON form of `harness trace --json`."""
        size = self.beside.workgroup
        return {
            "directory": self.directory,
            "code_sha256": self.code_sha256,
            "listing_sha256": self.listing_sha256,
            "arch": self.arch,
            "symbol": self.symbol,
            "instructions": self.instructions,
            "executed": self.executed,
            "mapped": self.mapped,
            "cycles": {"total": self.total, "stall": self.stall, "idle": self.idle},
            "taxonomy": _rounded(self.taxonomy),
            "taxonomy_study_rule": _rounded(self.study_taxonomy),
            "combined_wait_share": round(self.combined_share, 2),
            "waves": self.waves,
            "waves_with_work": self.body_waves,
            "wave_states": _rounded(self.wave_states),
            "vgpr": {
                "field": self.beside.vgpr,
                "allocated": self.allocated,
                "max_index": self.registers.vgpr if self.instructions else None,
                "agpr_max_index": self.registers.agpr if self.instructions else None,
                "rule": self.allocation_rule,
            },
            "lds": self.beside.lds,
            "sgpr": self.registers.sgpr if self.instructions else None,
            "occupancy": {
                "limit": self.occupancy_limit,
                "limited_by": self.limited_by,
                "observed": self.observed,
                "wave_starts": self.wave_starts,
            },
            "workgroup_size": list(size) if size else None,
            "grid_workgroups": list(self.beside.grid) if self.beside.grid else None,
            "effective_clock_ghz": round(self.clock_ghz, 3) if self.clock_ghz is not None else None,
            "device_us": round(self.device.median_us, 3) if self.device is not None else None,
            "hotspots": [h.to_json() for h in self.by_instruction],
            "source_lines": [h.to_json() for h in self.by_line],
            "files": self.files,
            "bytes": self.bytes,
            "valid": self.valid,
            "faults": [f.to_json() for f in self.faults],
        }


def _rounded(shares: Mapping[str, float] | None) -> dict[str, float] | None:
    return None if shares is None else {name: round(share, 2) for name, share in shares.items()}


def analyse(
    capture: Capture, beside: Beside, device: Dispatches | None = None, more: tuple[Fault, ...] = ()
) -> Analysis:
    """All figures of `capture`. `more` are faults of the files beside it."""
    found = [*validity_faults(capture), *more]
    rows = capture.code.instructions if capture.code is not None else ()
    text = [row.isa for row in rows]
    named = registers(text)
    size = vgprs(beside, named)
    if size.fault is not None:
        found.append(size.fault)
    if beside.lds == 0 and any(map(uses_lds, text)):
        found.append(
            fault(
                "lds-dynamic",
                "the profiler says 0 B of LDS, the code uses it: allocated at launch, size unknown",
                "take LDS from the launch's own arguments",
            )
        )
        beside = Beside(**{**vars(beside), "lds": None})
    bound = limit(beside, size.allocated, named)
    states = capture.waves.states
    lived = sum(states[1:])
    body, sampled = ran_body(capture)
    if any(f.rule == "no-work" for f in found):
        body = 0
    category = capture.waves.category_cycles
    log = capture.occupancy
    return Analysis(
        directory=capture.directory,
        code_sha256=capture.code_sha256,
        listing_sha256=listing_sha256(text) if rows else None,
        arch=beside.gfx,
        symbol=capture.code.symbol if capture.code is not None else None,
        instructions=len(rows) if capture.code is not None else None,
        executed=sum(row.hits > 0 for row in rows) if rows else None,
        mapped=sum(bool(row.source) for row in rows) if rows else None,
        total=sum(row.latency for row in rows) if rows else None,
        stall=sum(row.stall for row in rows) if rows else None,
        idle=sum(row.idle for row in rows) if rows else None,
        taxonomy=_taxonomy(rows),
        study_taxonomy=_study_taxonomy(rows),
        combined_share=_combined(rows),
        waves=sampled,
        body_waves=body,
        wave_states={n: 100 * c / lived for n, c in zip(STATES[1:], states[1:], strict=True)}
        if lived
        else None,
        states_confirmed=bool(lived) and states[3] == category[9] + category[11],
        registers=named,
        beside=beside,
        allocated=size.allocated,
        allocation_rule=size.rule,
        occupancy_limit=bound.waves_per_simd if bound is not None else None,
        limited_by=", ".join(bound.limiters) if bound is not None else None,
        observed=observed_occupancy(log) if log is not None else None,
        wave_starts=sum(int(e[:, 4].sum()) for e in log.events.values()) if log is not None else None,
        clock_ghz=clock_ghz(capture.realtime) if capture.realtime is not None else None,
        device=device,
        by_instruction=_hot_rows(rows),
        by_line=_hot_lines(rows),
        files=capture.files,
        bytes=capture.bytes,
        faults=ordered(found),
    )


def _shares(cycles: dict[str, float]) -> dict[str, float] | None:
    total = sum(cycles.values())
    if not total:
        return None
    shares = {name: 100 * part / total for name, part in cycles.items() if part}
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


def _taxonomy(rows: tuple[CodeRow, ...]) -> dict[str, float] | None:
    cycles: dict[str, float] = {}
    for row in rows:
        if row.stall:
            for name, share in classes(row.isa):
                cycles[name] = cycles.get(name, 0.0) + share * row.stall
    return _shares(cycles)


def _study_taxonomy(rows: tuple[CodeRow, ...]) -> dict[str, float] | None:
    cycles: dict[str, float] = {}
    for row in rows:
        if row.stall:
            name = study_class(row.isa)
            cycles[name] = cycles.get(name, 0.0) + row.stall
    return _shares(cycles)


def _combined(rows: tuple[CodeRow, ...]) -> float:
    total = sum(row.stall for row in rows)
    split = sum(row.stall for row in rows if row.stall and len(classes(row.isa)) > 1)
    return 100 * split / total if total else 0.0


def _hot_rows(rows: tuple[CodeRow, ...]) -> tuple[Hotspot, ...]:
    total = sum(row.stall for row in rows) or 1
    top = sorted((row for row in rows if row.latency), key=lambda row: (-row.stall, row.address))[:HOTSPOTS]
    return tuple(
        Hotspot(
            f"0x{row.address:x}",
            row.isa.split()[0],
            row.isa,
            row.hits,
            row.latency,
            row.stall,
            100 * row.stall / total,
        )
        for row in top
    )


def _hot_lines(rows: tuple[CodeRow, ...]) -> tuple[Hotspot, ...]:
    total = sum(row.stall for row in rows) or 1
    lines: dict[str, list[int]] = {}
    for row in rows:
        if row.source and row.latency:
            sums = lines.setdefault(row.source, [0, 0, 0, 0])
            sums[0] += row.hits
            sums[1] += row.latency
            sums[2] += row.stall
            sums[3] += 1
    top = sorted(lines.items(), key=lambda item: (-item[1][2], item[0]))[:HOTSPOTS]
    return tuple(
        Hotspot(
            "/".join(where.split("/")[-2:]), f"{n} instructions", "", hits, cycles, stall, 100 * stall / total
        )
        for where, (hits, cycles, stall, n) in top
    )


def observed_occupancy(log: OccupancyLog) -> int | None:
    """The most waves that were on one SIMD at once; an end at the same time as a start frees its slot
    first."""
    import numpy as np

    peak = 0
    seen = False
    for events in log.events.values():
        if not len(events):
            continue
        seen = True
        simd = events[:, 1] * 64 + events[:, 2]
        order = np.lexsort((events[:, 4], events[:, 0], simd))
        steps = np.where(events[order, 4] == 1, 1, -1)
        level = np.cumsum(steps)
        first = np.flatnonzero(np.diff(simd[order], prepend=-1))
        base = np.repeat(level[first] - steps[first], np.diff(np.append(first, len(order))))
        peak = max(peak, int((level - base).max()))
    return peak if seen else None


def clock_ghz(log: Realtime) -> float | None:
    """Shader clock over the capture in GHz: the median over the traced engines; None without two readings."""
    rates = [
        float(pairs[-1, 0] - pairs[0, 0]) / (float(pairs[-1, 1] - pairs[0, 1]) / log.frequency) / 1e9
        for pairs in log.pairs.values()
        if len(pairs) > 1 and pairs[-1, 1] > pairs[0, 1] and pairs[-1, 0] > pairs[0, 0]
    ]
    return median(rates) if rates else None
