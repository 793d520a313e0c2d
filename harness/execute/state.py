"""Registers, masks and LDS of many waves at once.

Every array has a wave axis: vector registers are [register, wave, 64 lanes], scalar ones [register, wave].
One `State` holds all waves of a batch of workgroups; `select` names those that execute the next instruction.
Knows shapes only; must not know opcodes, memory or schedules.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["EXEC", "LANES", "M0", "VCC", "State", "bits_of", "lanes_of"]

LANES = 64
VCC, M0, EXEC = 106, 124, 126
"""Scalar source codes of CDNA (ISA document, "Scalar ALU operands")."""

Array = NDArray[Any]


def lanes_of(low: Array, high: Array) -> Array:
    """Lane masks as bool [waves, 64] from the two halves of SGPR pairs, uint32 [waves]."""
    words = np.empty((low.size, 2), "<u4")
    words[:, 0] = low
    words[:, 1] = high
    return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").view(np.bool_)


def bits_of(lanes: Array) -> tuple[Array, Array]:
    """The inverse of `lanes_of`."""
    packed = np.packbits(lanes, axis=1, bitorder="little").view("<u4")
    return packed[:, 0], packed[:, 1]


class State:
    """Waves of `groups` workgroups of `per_group` waves each; wave k of group g is index g * per_group + k.

    vgprs: rows of the vector file, arch and acc together; accum_offset: first row of the acc ones. lds_bytes
    of each workgroup, scratch_bytes of each lane.
    """

    def __init__(
        self,
        groups: int,
        per_group: int,
        *,
        vgprs: int,
        accum_offset: int,
        lds_bytes: int,
        scratch_bytes: int = 0,
    ) -> None:
        waves = groups * per_group
        self.groups, self.per_group, self.waves = groups, per_group, waves
        self.accum_offset = accum_offset
        self.v = np.zeros((vgprs, waves, LANES), np.uint32)
        self.vf = self.v.view(np.float32)
        self.s = np.zeros((128, waves), np.uint32)
        self.scc = np.zeros(waves, np.bool_)
        self.active = np.ones((waves, LANES), np.bool_)
        self.s[EXEC : EXEC + 2] = 0xFFFFFFFF
        self.lds_bytes = lds_bytes
        self.lds_stride = -(-max(lds_bytes, 1) // 16) * 16
        self.lds = np.zeros(groups * self.lds_stride, np.uint8)
        self.lds_base = np.repeat(np.arange(groups, dtype=np.int64) * self.lds_stride, per_group)
        self.scratch_bytes = scratch_bytes
        self.scratch = np.zeros((waves, LANES, -(-max(scratch_bytes, 1) // 16) * 16), np.uint8)
        self.pc = np.zeros(waves, np.int64)
        self.done = np.zeros(waves, np.bool_)
        self.blocked = np.zeros(waves, np.bool_)
        self.is_slice = True
        self.sel: Any = slice(0, waves, 1)
        self.ids = np.arange(waves)
        self.width = waves
        self.mask = self.active
        self.full = True

    def select(self, ids: Array) -> None:
        """Make `ids` (ascending wave indices) the waves that execute."""
        self.ids = ids
        self.width = int(ids.size)
        step = int(ids[1] - ids[0]) if ids.size > 1 else 1
        last = int(ids[-1])
        if ids.size == 1 or (
            last - int(ids[0]) == step * (ids.size - 1) and bool((np.diff(ids) == step).all())
        ):
            self.sel = slice(int(ids[0]), last + 1, step)
            self.is_slice = True
        else:
            self.sel = ids
            self.is_slice = False
        self.mask = self.active[self.sel]
        self.full = bool(self.mask.all())

    def set_exec(self, low: Array, high: Array) -> None:
        """Write EXEC of the selected waves; values uint32, [waves] or scalar."""
        self.s[EXEC, self.sel] = low
        self.s[EXEC + 1, self.sel] = high
        self.refresh_exec()

    def refresh_exec(self) -> None:
        """Bring the boolean form of EXEC up to date with its registers, for the selected waves."""
        lanes = lanes_of(self.s[EXEC, self.sel], self.s[EXEC + 1, self.sel])
        self.active[self.sel] = lanes
        self.mask = lanes
        self.full = bool(lanes.all())

    def lds_words(self) -> Array:
        """LDS of all workgroups as uint32."""
        return self.lds.view(np.uint32)
