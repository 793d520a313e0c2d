"""Executes a recorded launch: code object and buffers in, outputs, counts and findings out.

The one entry for everything above: batches workgroups, chooses a schedule, attaches watchers. Must not know
claims, bundles or torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.execute.abi import Launch, entry_index, initialise, kernarg_bytes, state_for
from harness.execute.decode import Program
from harness.execute.machine import BUDGET, Counts, Machine, Watcher
from harness.execute.memory import Memory
from harness.execute.schedule import Fair, Schedule

__all__ = ["Run", "batch_size", "dispatch"]

BATCH_BYTES = 256 << 20
"""Vector registers of one batch; larger batches gain nothing and leave the caches sooner."""


@dataclass(frozen=True)
class Run:
    """What one dispatch came to.

    executed: uint32 [instructions, waves] over all workgroups in the order given. lanes: active lanes of each
    instruction, summed. per_group: waves of one workgroup. seconds: time inside the machine.
    """

    executed: NDArray[np.uint32]
    lanes: NDArray[np.int64]
    per_group: int
    workgroups: tuple[int, ...]
    barriers: int
    seconds: float

    @property
    def lane_instructions(self) -> int:
        """Instructions times 64 lanes, over all waves."""
        return int(self.executed.sum(dtype=np.int64)) * 64


def batch_size(program: Program, launch: Launch, limit: int = BATCH_BYTES) -> int:
    """How many workgroups run together by default."""
    waves = -(-launch.threads // 64)
    each = waves * 64 * 4 * program.kernel.descriptor.vgprs + program.kernel.descriptor.lds_bytes + launch.lds
    return max(1, limit // each)


def dispatch(
    program: Program,
    launch: Launch,
    buffers: Mapping[str, NDArray[np.uint8]],
    *,
    workgroups: Sequence[int] | None = None,
    schedule: Schedule | None = None,
    batch: int | None = None,
    budget: int = BUDGET,
    watcher: Callable[[Machine, Sequence[int]], Watcher | None] | None = None,
    trace: Callable[[str], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Run:
    """Execute `workgroups` (flat ids; None: the whole grid) of `launch`.

    buffers: 1-D bytes by the names that the launch's pointers use; written in place where their size is a
    multiple of 16, and copied back otherwise. watcher: makes a watcher for each batch. HarnessError as
    `Machine.run` raises it; the buffers then hold what was written so far.
    """
    import time

    chosen = list(range(launch.workgroups)) if workgroups is None else list(workgroups)
    size = batch or batch_size(program, launch)
    executed: list[Any] = []
    lanes = np.zeros(len(program.instructions), np.int64)
    barriers = 0
    seconds = 0.0
    for start in range(0, len(chosen), size):
        part = chosen[start : start + size]
        memory = Memory()
        for name, data in buffers.items():
            memory.add(name, data)
        bases = {buffer.name: buffer.base for buffer in memory.buffers}
        st = state_for(program, launch, len(part))
        initialise(st, program, launch, memory, kernarg_bytes(program, launch, bases), part)
        machine = Machine(
            program, st, memory, first=entry_index(program), labels=part, budget=budget, trace=trace
        )
        if watcher is not None:
            machine.watcher = machine.bound.hook.observer = watcher(machine, part)
        before = time.perf_counter()
        try:
            counts: Counts = machine.run(schedule or Fair(), progress)
        finally:
            seconds += time.perf_counter() - before
            for buffer in memory.buffers:
                given = buffers.get(buffer.name)
                if given is not None and not np.shares_memory(buffer.data, given):
                    given[:] = buffer.data[: buffer.nbytes]
        executed.append(counts.executed)
        lanes += counts.lanes
        barriers += counts.barriers
    return Run(
        np.concatenate(executed, axis=1),
        lanes,
        -(-launch.threads // 64),
        tuple(chosen),
        barriers,
        seconds,
    )
