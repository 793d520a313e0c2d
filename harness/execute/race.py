"""Races between the waves of one workgroup, found by happens-before on one execution.

Two accesses to one byte by different waves, one of them a plain write, are ordered only if a barrier stands
between
them and the earlier one was waited for (S_WAITCNT) before it: LDS and vector memory operations of different
waves
may be reordered until their counter says that they are done (LLVM AMDGPUUsage, "Memory Model gfx942"). So an
access spans the barrier intervals from its issue to its wait, and two accesses race if their spans share an
interval. Two waves that write the same value to a place are
not reported. Within one wave the same holds for LDS filled by a load that was not waited for.

Nothing here depends on the order in which the waves happened to run. Must not know opcodes or schedules.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.execute.decode import Instruction
from harness.execute.state import Array, State

__all__ = ["Race", "RaceDetector", "Site", "wait_counts"]

_LIMIT = 64
"""Distinct pairs of instructions kept; more of them say nothing new."""


@dataclass(frozen=True)
class Site:
    """One side of a race: instruction, wave, and what it does (r, w, a)."""

    pc: int
    source: str
    text: str
    wave: int
    kind: str

    def describe(self) -> str:
        """`wave 2 writes at PC 0x2210 (softmax_kernel.py:99, ds_write_b32 v1, v0)`."""
        verb = {"r": "reads", "w": "writes", "a": "updates"}[self.kind]
        at = f"{self.source}, " if self.source else ""
        return f"wave {self.wave} {verb} at PC 0x{self.pc:x} ({at}{self.text})"


@dataclass(frozen=True)
class Race:
    """Two unordered accesses. `first` came first in the observed execution. epoch: barrier interval, from 0.

    reason: "no barrier between", or "no wait before the barrier". count: bytes or words at which this pair
    meets.
    """

    space: str
    first: Site
    second: Site
    workgroup: int
    epoch: int
    address: int
    reason: str
    count: int

    def describe(self) -> str:
        """One line for a person."""
        name = {"rw": "write after read", "wr": "read after write", "ww": "write after write"}
        pair = ("r" if self.first.kind == "r" else "w") + ("r" if self.second.kind == "r" else "w")
        return (
            f"{name[pair]} in {self.space} at 0x{self.address:x}, {self.reason}: {self.first.describe()}; "
            f"{self.second.describe()}; workgroup {self.workgroup}, barrier interval {self.epoch}"
        )


@dataclass
class _Access:
    entry: Instruction
    space: str
    waves: Array
    address: Array
    mask: Array | None
    size: int
    kind: str
    epoch: int
    order: Array
    done: Array = field(default_factory=lambda: np.zeros(0))
    values: list[Array] | None = None

    @property
    def by_load(self) -> bool:
        """LDS written by a vector load: its wait is vmcnt's."""
        return self.space == "lds" and not self.entry.encoding.startswith("DS")


_NEVER = np.iinfo(np.int64).max


def wait_counts(immediate: int) -> tuple[int, int]:
    """(vmcnt, lgkmcnt) of S_WAITCNT's immediate on gfx9 (ISA document, "S_WAITCNT")."""
    return (immediate & 15) | ((immediate >> 14) & 3) << 4, (immediate >> 8) & 15


class RaceDetector:
    """A watcher (`harness.execute.machine`). After the run, `races` holds what was found."""

    def __init__(self, state: State, labels: Any) -> None:
        self.st = state
        self.labels = labels
        self.symbol = ""
        groups, waves = state.groups, state.waves
        self.epoch = np.zeros(groups, np.int64)
        self.clock = np.zeros(waves, np.int64)
        self.current: list[list[_Access]] = [[] for _ in range(groups)]
        self.vector: list[deque[list[tuple[_Access, int]]]] = [deque() for _ in range(waves)]
        self.local: list[deque[list[tuple[_Access, int]]]] = [deque() for _ in range(waves)]
        self.checked = np.zeros(groups, np.bool_)
        self.found: dict[tuple[int, int, str], Race] = {}

    @property
    def races(self) -> tuple[Race, ...]:
        """The races found, by address of the first instruction."""
        return tuple(sorted(self.found.values(), key=lambda race: (race.first.pc, race.second.pc)))

    def issued(self, entry: Instruction, ids: Array) -> None:
        """A memory instruction begins: one more outstanding operation of its counter in each wave."""
        queue = self.local if entry.encoding.startswith(("DS", "SMEM")) else self.vector
        self.clock[ids] += 1
        for wave in ids:
            queue[wave].append([])

    def access(
        self,
        entry: Instruction,
        space: str,
        address: Array,
        mask: Array | None,
        size: int,
        kind: str,
        values: list[Array] | None = None,
    ) -> None:
        """Remember one access of the selected waves; `values` are the units that a write stores."""
        ids = self.st.ids
        groups = ids // self.st.per_group
        queue = self.local if entry.encoding.startswith("DS") else self.vector
        for group in np.unique(groups):
            rows = np.flatnonzero(groups == group)
            waves = ids[rows]
            made = _Access(
                entry,
                space,
                waves % self.st.per_group,
                address[rows],
                None if mask is None else mask[rows],
                size,
                kind,
                int(self.epoch[group]),
                self.clock[waves].copy(),
                np.full(rows.size, _NEVER),
                None if values is None else [np.broadcast_to(value, address.shape)[rows] for value in values],
            )
            self.current[int(group)].append(made)
            for row, wave in enumerate(waves):
                queue[wave][-1].append((made, row))

    def waited(self, ids: Array, immediate: int) -> None:
        """Operations older than the counters allow are done."""
        vm, lgkm = wait_counts(immediate)
        for wave in ids:
            for queue, allowed in ((self.vector[wave], vm), (self.local[wave], lgkm)):
                while len(queue) > allowed:
                    for access, row in queue.popleft():
                        access.done[row] = self.clock[wave]

    def released(self, groups: Array) -> None:
        """A barrier opened: check the interval, and carry what is not done into the next."""
        for group in groups:
            self._check(int(group))
            self.current[int(group)] = self._undone(int(group))
            self.epoch[group] += 1

    def ended(self, groups: Array) -> None:
        """The last interval."""
        for group in groups:
            if not self.checked[group]:
                self._check(int(group))
                self.checked[group] = True
                self.current[int(group)] = []

    def _undone(self, group: int) -> list[_Access]:
        out = []
        for access in self.current[group]:
            rows = np.flatnonzero(access.done == _NEVER)
            if rows.size == access.done.size:
                out.append(access)
            elif rows.size:
                part = _Access(
                    access.entry,
                    access.space,
                    access.waves[rows],
                    access.address[rows],
                    None if access.mask is None else access.mask[rows],
                    access.size,
                    access.kind,
                    access.epoch,
                    access.order[rows],
                    access.done[rows],
                    None if access.values is None else [value[rows] for value in access.values],
                )
                self._redirect(access, part, rows)
                out.append(part)
        return out

    def _redirect(self, old: _Access, new: _Access, rows: Array) -> None:
        """Outstanding operations now belong to the part that was carried."""
        place = {int(row): index for index, row in enumerate(rows)}
        for queue in (*self.vector, *self.local):
            for operation in queue:
                for index, (access, row) in enumerate(operation):
                    if access is old and row in place:
                        operation[index] = (new, place[row])

    def _check(self, group: int) -> None:
        for space in ("lds", "global"):
            accesses = [access for access in self.current[group] if access.space == space]
            if any(access.kind != "r" for access in accesses):
                self._between_waves(group, accesses)
        self._within_waves(group)

    def _between_waves(self, group: int, accesses: list[_Access]) -> None:
        grain = 4
        for access in accesses:
            if access.size % 4 or int(np.bitwise_or.reduce(access.address, axis=None)) & 3:
                grain = 1
                break
        cells: list[Array] = []
        waves: list[Array] = []
        kinds: list[Array] = []
        numbers: list[Array] = []
        for at, access in enumerate(accesses):
            cell, wave = _cells(access, grain)
            cells.append(cell)
            waves.append(wave)
            numbers.append(np.full(cell.size, at, np.int32))
            kinds.append(np.full(cell.size, "rwa".index(access.kind), np.int8))
        cell, wave = np.concatenate(cells), np.concatenate(waves)
        if cell.size == 0:
            return
        kind, number = np.concatenate(kinds), np.concatenate(numbers)
        order = np.argsort(cell, kind="stable")
        cell, wave, kind, number = cell[order], wave[order], kind[order], number[order]
        starts = np.flatnonzero(np.concatenate(([True], cell[1:] != cell[:-1])))
        several = np.minimum.reduceat(wave, starts) != np.maximum.reduceat(wave, starts)
        written = np.maximum.reduceat((kind == 1).astype(np.int8), starts) == 1
        mixed = (np.maximum.reduceat(kind, starts) == 2) & (np.minimum.reduceat(kind, starts) == 0)
        ends = np.append(starts[1:], cell.size)
        for start in np.flatnonzero(several & (written | mixed)):
            if len(self.found) >= _LIMIT:
                return
            span = slice(int(starts[start]), int(ends[start]))
            self._pairs(group, accesses, int(cell[span.start]) * grain, wave[span], kind[span], number[span])

    def _pairs(
        self, group: int, accesses: list[_Access], address: int, wave: Array, kind: Array, number: Array
    ) -> None:
        """Every pair of instructions that meet at one cell, once each."""
        seen = set()
        for i in range(wave.size):
            for j in range(i + 1, wave.size):
                if wave[i] == wave[j] or (kind[i] == kind[j] and kind[i] in (0, 2)):
                    continue
                key = (int(number[i]), int(number[j]))
                if key in seen:
                    continue
                seen.add(key)
                a, b = accesses[key[0]], accesses[key[1]]
                if _stored(a, int(wave[i]), address) == _stored(b, int(wave[j]), address) is not None:
                    continue  # both write the same value: no order of them shows
                self._report(group, a, int(wave[i]), b, int(wave[j]), address)
            if len(seen) > 256:
                return

    def _report(self, group: int, a: _Access, wave_a: int, b: _Access, wave_b: int, address: int) -> None:
        key = (a.entry.index, b.entry.index, a.space)
        known = self.found.get(key)
        if known is not None:
            self.found[key] = Race(**{**vars(known), "count": known.count + 1})
            return
        now = int(self.epoch[group])
        reason = "no barrier between" if a.epoch == b.epoch == now else "no wait before the barrier"
        self.found[key] = Race(
            a.space,
            Site(a.entry.pc, a.entry.source, a.entry.text or a.entry.name, wave_a, a.kind),
            Site(b.entry.pc, b.entry.source, b.entry.text or b.entry.name, wave_b, b.kind),
            int(self.labels[group]),
            now,
            address,
            reason,
            1,
        )

    def _within_waves(self, group: int) -> None:
        """LDS that a load fills, touched by the same wave before that load was waited for."""
        filled = [access for access in self.current[group] if access.by_load]
        if not filled:
            return
        others = [access for access in self.current[group] if access.space == "lds" and not access.by_load]
        for load in filled:
            for other in others:
                for row, wave in enumerate(load.waves):
                    match = np.flatnonzero(other.waves == wave)
                    if not match.size or not load.order[row] < other.order[match[0]] <= load.done[row]:
                        continue
                    mine, _ = _cells(load, 4, row)
                    theirs, _ = _cells(other, 4, int(match[0]))
                    met = np.intersect1d(mine, theirs)
                    if met.size:
                        self._report(group, load, int(wave), other, int(wave), int(met[0]) * 4)


def _stored(access: _Access, wave: int, address: int) -> bytes | None:
    """The bytes that `wave` writes from `address` on (to the end of its access), None for anything but a
    write.
    """
    if access.kind != "w" or access.values is None:
        return None
    for row in np.flatnonzero(access.waves == wave):
        at = access.address[row]
        hit = (at <= address) & (address < at + access.size)
        if access.mask is not None:
            hit &= access.mask[row]
        lanes = np.flatnonzero(hit)
        if lanes.size:
            lane = int(lanes[-1])
            raw = b"".join(np.ascontiguousarray(value[row, lane]).tobytes() for value in access.values)
            start = address - int(at[lane])
            return raw[start : start + 4]
    return None


def _cells(access: _Access, grain: int, row: int | None = None) -> tuple[Array, Array]:
    """Cells of `grain` bytes that an access touches, and the wave of each."""
    rows = slice(None) if row is None else slice(row, row + 1)
    address = access.address[rows]
    waves = np.broadcast_to(access.waves[rows][:, None], address.shape)
    if access.mask is not None:
        mask = access.mask[rows]
        address, waves = address[mask], waves[mask]
    else:
        address, waves = address.reshape(-1), waves.reshape(-1)
    count = max(1, -(-access.size // grain))
    cell = (address // grain)[:, None] + np.arange(count)
    return cell.reshape(-1), np.repeat(waves, count)
