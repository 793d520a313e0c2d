"""Runs a batch of workgroups: many waves step together while they are at the same instruction.

Waves at one PC form a convoy; a branch that they take differently splits it, and convoys at the same PC join
again
(the one furthest behind runs first). Knows control flow, barriers, budgets and counts; must not know opcodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from harness.errors import HarnessError
from harness.execute.bind import bind_program
from harness.execute.decode import Instruction, Program
from harness.execute.floats import quiet
from harness.execute.memory import Memory
from harness.execute.schedule import Fair, Schedule
from harness.execute.state import Array, State

__all__ = ["BUDGET", "Counts", "Machine", "Watcher"]

BUDGET = 20_000_000
"""Instructions one wave may execute before the run is called endless."""

_LONG_TURN = 20_000
"""Steps after which a convoy lets others run, in case it waits for them in a loop."""


class Watcher(Protocol):
    """Told of accesses, waits, barriers and ends (the race detector, the tracer)."""

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
        """See `harness.execute.bind_memory.Observer`."""

    def issued(self, entry: Instruction, ids: Array) -> None:
        """`ids` are about to execute `entry`, which moves memory."""

    def waited(self, ids: Array, immediate: int) -> None:
        """`ids` passed S_WAITCNT with this immediate."""

    def released(self, groups: Array) -> None:
        """All waves of these workgroups passed a barrier."""

    def ended(self, groups: Array) -> None:
        """All waves of these workgroups have ended."""


@dataclass
class Counts:
    """Executions of each instruction by each wave, uint32 [instructions, waves], and active lanes in all."""

    executed: Array
    lanes: Array
    barriers: int = 0
    rounds: int = 0
    steps: int = 0
    traced: list[str] = field(default_factory=list)

    @property
    def lane_instructions(self) -> int:
        """Instructions times 64 lanes, over all waves."""
        return int(self.executed.sum(dtype=np.int64)) * 64


class Machine:
    """A program on a batch of workgroups, set up by `harness.execute.dispatch`."""

    def __init__(
        self,
        program: Program,
        state: State,
        memory: Memory,
        *,
        first: int = 0,
        labels: Any = None,
        budget: int = BUDGET,
        watcher: Watcher | None = None,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.program, self.st, self.memory = program, state, memory
        self.first = first
        self.labels = labels if labels is not None else list(range(state.groups))
        self.budget = budget
        self.watcher = watcher
        self.trace = trace
        self.bound = bind_program(program, state, memory)
        self.bound.hook.observer = watcher
        count = len(program.instructions)
        self.counts = Counts(np.zeros((count, state.waves), np.uint32), np.zeros(count, np.int64))
        self._used = np.zeros(state.waves, np.int64)
        self._moves = [
            entry.encoding.startswith(("DS", "MUBUF", "GLOBAL", "FLAT", "SMEM", "SCRATCH"))
            for entry in program.instructions
        ]
        state.pc[:] = first

    def run(self, schedule: Schedule | None = None, progress: Callable[[int], None] | None = None) -> Counts:
        """Run every wave to its end. HarnessError for what `docs/execute.md` lists under bad input."""
        schedule = schedule or Fair()
        st = self.st
        members = np.arange(st.waves).reshape(st.groups, st.per_group)
        number = 0
        done_before = 0
        with quiet():
            while not st.done.all():
                moved = False
                for waves, quantum in schedule.turns(number, st.per_group):
                    ids = members[:, list(waves)].reshape(-1)
                    ids = np.sort(ids[~(st.done[ids] | st.blocked[ids])])
                    if ids.size:
                        moved = True
                        self._advance(ids, quantum)
                number += 1
                self._release(members, moved)
                if progress is not None:
                    finished = int(st.done.reshape(members.shape).all(axis=1).sum())
                    progress(finished - done_before)
                    done_before = finished
        self.counts.rounds = number
        return self.counts

    def _release(self, members: Array, moved: bool) -> None:
        st = self.st
        blocked, done = st.blocked[members], st.done[members]
        full = (blocked | done).all(axis=1) & blocked.any(axis=1)
        uneven = full & done.any(axis=1)
        if uneven.any():
            self._deadlock(members, int(np.flatnonzero(uneven)[0]))
        if full.any():
            groups = np.flatnonzero(full)
            st.blocked[members[groups].reshape(-1)] = False
            self.counts.barriers += int(groups.size)
            if self.watcher is not None:
                self.watcher.released(groups)
        elif not moved:
            stuck = int(np.flatnonzero(blocked.any(axis=1))[0])
            self._deadlock(members, stuck)
        if self.watcher is not None:
            over = done.all(axis=1)
            if over.any():
                self.watcher.ended(np.flatnonzero(over))

    def _deadlock(self, members: Array, group: int) -> None:
        st = self.st
        said = []
        for k, wave in enumerate(members[group]):
            entry = self.program.instructions[max(int(st.pc[wave]) - (1 if st.blocked[wave] else 0), 0)]
            state = "waits at the barrier" if st.blocked[wave] else "ended" if st.done[wave] else "runs"
            said.append(f"wave {k} {state}, {entry.where()}")
        raise HarnessError(
            f"{self.program.symbol}: deadlock: a barrier that not all waves of workgroup "
            f"{self.labels[group]} reach: {'; '.join(said)}",
            remedy="every wave of a workgroup must execute every barrier",
            exit_code=30,
        )

    def _advance(self, ids: Array, quantum: int | None) -> None:
        """Run `ids` until each is blocked or done, or has executed `quantum` instructions."""
        st = self.st
        left = None if quantum is None else np.full(st.waves, quantum, np.int64)
        waiting: list[Array] = self._by_pc(ids)
        rotate = 0
        while waiting:
            if rotate and len(waiting) > 1:
                at = rotate % len(waiting)
                rotate += 1
            else:
                at = min(range(len(waiting)), key=lambda k: int(st.pc[waiting[k][0]]))
            convoy = waiting.pop(at)
            pc = int(st.pc[convoy[0]])
            limit = min((int(st.pc[other[0]]) for other in waiting), default=-1)
            if limit == pc:
                same = [k for k, other in enumerate(waiting) if int(st.pc[other[0]]) == pc]
                convoy = np.sort(np.concatenate([convoy, *(waiting[k] for k in same)]))
                waiting = [other for k, other in enumerate(waiting) if k not in same]
                limit = min((int(st.pc[other[0]]) for other in waiting), default=-1)
            steps = None
            if left is not None:
                steps = int(left[convoy].min())
            before = self.counts.steps
            self._convoy(convoy, pc, limit, steps)
            ran = self.counts.steps - before
            if ran >= _LONG_TURN:
                rotate += 1
            if left is not None:
                left[convoy] -= ran
            still = convoy[~(st.done[convoy] | st.blocked[convoy])]
            if left is not None:
                still = still[left[still] > 0]
            if still.size:
                waiting += self._by_pc(still)

    def _by_pc(self, ids: Array) -> list[Array]:
        pcs = self.st.pc[ids]
        if (pcs == pcs[0]).all():
            return [ids]
        return [ids[pcs == pc] for pc in np.unique(pcs)]

    def _convoy(self, ids: Array, pc: int, limit: int, steps: int | None) -> None:
        """Step waves that stand at instruction `pc` together until they part, block, end, or reach `limit`.

        Leaves each wave's next instruction in `st.pc`.
        """
        st = self.st
        st.select(ids)
        bound, executed = self.bound.steps, self.counts.executed
        lanes, moves, watcher, trace = self.counts.lanes, self._moves, self.watcher, self.trace
        width = 64 * st.width
        sel = st.sel
        ran = 0
        allowed = min(_LONG_TURN if limit >= 0 else self.budget, self.budget - int(self._used[ids].max()))
        if steps is not None:
            allowed = min(allowed, steps)
        try:
            while True:
                if ran >= allowed:
                    st.pc[ids] = pc
                    self._check_budget(ids, pc, ran)
                    return
                if pc >= len(bound):
                    entry = self.program.instructions[-1]
                    raise HarnessError(
                        f"{self.program.symbol}: ran past its last instruction, {entry.where()}", exit_code=30
                    )
                executed[pc, sel] += 1
                lanes[pc] += width if st.full else np.count_nonzero(st.mask)
                if watcher is not None and moves[pc]:
                    watcher.issued(self.program.instructions[pc], ids)
                if trace is not None:
                    trace(self._line(pc))
                ran += 1
                action = bound[pc]()
                pc += 1
                if action is None:
                    if pc == limit:
                        st.pc[ids] = pc
                        return
                    continue
                kind = action.kind
                if kind == "wait":
                    if watcher is not None:
                        watcher.waited(ids, action.value)
                    if pc == limit:
                        st.pc[ids] = pc
                        return
                    continue
                if kind == "branch":
                    pc = action.target
                    if limit >= 0 and pc >= limit:
                        st.pc[ids] = pc
                        return
                    continue
                if kind == "split":
                    st.pc[ids] = np.where(action.taken, action.target, pc)
                    return
                st.pc[ids] = pc
                if kind == "barrier":
                    st.blocked[ids] = True
                elif kind == "end":
                    st.done[ids] = True
                    st.pc[ids] = pc - 1
                else:
                    self._jump(ids, action.addresses, pc - 1)
                return
        finally:
            self._used[ids] += ran
            self.counts.steps += ran

    def _jump(self, ids: Array, addresses: Array, at: int) -> None:
        for wave, address in zip(ids, np.broadcast_to(addresses, ids.shape), strict=True):
            target = self.program.index_of.get(int(address))
            if target is None:
                entry = self.program.instructions[at]
                raise HarnessError(
                    f"{entry.where()}: jump to 0x{int(address):x}, outside the kernel", exit_code=30
                )
            self.st.pc[wave] = target

    def _check_budget(self, ids: Array, pc: int, ran: int) -> None:
        used = int(self._used[ids].max()) + ran
        if used >= self.budget:
            wave = int(ids[int(np.argmax(self._used[ids]))])
            entry = self.program.instructions[pc]
            group, k = self.labels[wave // self.st.per_group], wave % self.st.per_group
            raise HarnessError(
                f"{self.program.symbol}: endless: workgroup {group}, wave {k} executed {used} instructions; "
                f"it stands at {entry.where()}",
                remedy="raise --budget if the kernel is that long; a loop that waits for another workgroup "
                "needs it in the same batch",
                exit_code=30,
            )

    def _line(self, pc: int) -> str:
        st = self.st
        entry = self.program.instructions[pc]
        groups = sorted({self.labels[int(w) // st.per_group] for w in st.ids})
        waves = sorted({int(w) % st.per_group for w in st.ids})
        active = int(np.count_nonzero(st.mask))
        who = f"wg {_ranges(groups)} waves {_ranges(waves)} lanes {active}"
        return f"0x{entry.pc:x} {who} {entry.text or entry.name} {entry.source}"


def _ranges(values: list[Any]) -> str:
    if len(values) > 2 and values == list(range(values[0], values[-1] + 1)):
        return f"{values[0]}-{values[-1]}"
    return ",".join(str(value) for value in values)
