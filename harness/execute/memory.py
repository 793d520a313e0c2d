"""Memory of one launch: buffers at far-apart addresses, gathers and scatters over lanes.

Every buffer owns one slot of 64 GiB of address space, so the owner of an address is one shift, and an access
that leaves its buffer falls into no other. Knows bytes and addresses; must not know opcodes or registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SLOT", "Buffer", "Fault", "Memory"]

SLOT = 36
"""Bits of one buffer's address slot."""

Array = NDArray[Any]


class Fault(Exception):
    """An access outside every buffer: flat lane index into the access, address, bytes, what lies near."""

    def __init__(self, lane: int, address: int, size: int, near: str) -> None:
        super().__init__(f"address 0x{address:x} ({size} bytes), {near}")
        self.lane, self.address, self.size, self.near = lane, address, size, near


@dataclass
class Buffer:
    """One allocation: `data` are its bytes (padded to 16), `nbytes` how many of them belong to it."""

    name: str
    base: int
    nbytes: int
    data: NDArray[np.uint8]
    writable: bool = True

    def __post_init__(self) -> None:
        self.views: dict[int, Array] = {1: self.data}
        for size, kind in ((2, np.uint16), (4, np.uint32), (8, np.uint64)):
            self.views[size] = self.data.view(kind)


class Memory:
    """The buffers of one launch."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []

    def add(self, name: str, data: NDArray[np.uint8], *, copy: bool = False, writable: bool = True) -> Buffer:
        """A buffer over `data` (1-D bytes); in place where it can be, else (`copy`, or an odd size) over
        a copy.
        """
        nbytes = int(data.size)
        if copy or nbytes % 16 or not data.flags.c_contiguous:
            padded = np.zeros(-(-max(nbytes, 1) // 16) * 16, np.uint8)
            padded[:nbytes] = data
            data = padded
        made = Buffer(name, (len(self.buffers) + 1) << SLOT, nbytes, data, writable)
        self.buffers.append(made)
        return made

    def owner(self, address: int) -> Buffer | None:
        """The buffer whose slot `address` is in."""
        slot = (address >> SLOT) - 1
        return self.buffers[slot] if 0 <= slot < len(self.buffers) else None

    def near(self, address: int) -> str:
        """What lies at or near `address`, for a message."""
        buffer = self.owner(address)
        if buffer is None:
            beyond = self.owner(address + (1 << SLOT))
            if beyond is not None and (1 << SLOT) - (address & ((1 << SLOT) - 1)) < 1 << 32:
                return f"{beyond.base - address} bytes before {beyond.name}"
            return "in no buffer"
        offset = address - buffer.base
        if offset < buffer.nbytes:
            return f"byte {offset} of {buffer.name} ({buffer.nbytes} bytes)"
        return f"{offset - buffer.nbytes} bytes beyond the end of {buffer.name} ({buffer.nbytes} bytes)"

    def _check(
        self, address: Array, mask: Array | None, size: int
    ) -> list[tuple[Buffer, Array | None, Array]]:
        """Split an access by buffer: (buffer, lanes or None for all of them, byte offsets)."""
        flat = address.reshape(-1)
        if mask is not None:
            lanes = np.flatnonzero(mask.reshape(-1))
            if lanes.size == 0:
                return []
            flat = flat[lanes]
        else:
            lanes = None
        low, high = int(flat.min()), int(flat.max())
        first = self.owner(low)
        if first is not None and low >= first.base and high + size <= first.base + first.nbytes:
            return [(first, lanes, flat - np.int64(first.base))]
        parts: list[tuple[Buffer, Array | None, Array]] = []
        slots = (flat >> SLOT) - 1
        for slot in np.unique(slots):
            chosen = np.flatnonzero(slots == slot)
            where = chosen if lanes is None else lanes[chosen]
            if not 0 <= slot < len(self.buffers):
                bad = int(flat[chosen[0]])
                raise Fault(int(where[0]), bad, size, self.near(bad))
            buffer = self.buffers[int(slot)]
            offset = flat[chosen] - np.int64(buffer.base)
            beyond = np.flatnonzero(offset + size > buffer.nbytes)
            if beyond.size:
                bad = int(flat[chosen[beyond[0]]])
                raise Fault(int(where[beyond[0]]), bad, size, self.near(bad))
            parts.append((buffer, where, offset))
        return parts

    def load(self, address: Array, mask: Array | None, unit: int, count: int) -> list[Array]:
        """`count` consecutive units of `unit` bytes (1, 2, 4, 8) at each address, each shaped like `address`.

        Inactive lanes give 0. Raises `Fault`.
        """
        shape = address.shape
        parts = self._check(address, mask, unit * count)
        kind = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[unit]
        out: list[Array] = []
        if len(parts) == 1 and parts[0][1] is None:
            buffer, _, offset = parts[0]
            index, view = _index(buffer, offset, unit)
            if view is not None:
                return [view.take(index + j if j else index).reshape(shape) for j in range(count)]
        for j in range(count):
            flat = np.zeros(int(np.prod(shape)), kind)
            for buffer, lanes, offset in parts:
                index, view = _index(buffer, offset, unit)
                if view is not None:
                    values = view.take(index + j)
                else:
                    values = _bytes_load(buffer, offset + unit * j, unit).astype(kind)
                if lanes is None:
                    flat[:] = values
                else:
                    flat[lanes] = values
            out.append(flat.reshape(shape))
        return out

    def store(self, address: Array, mask: Array | None, unit: int, values: list[Array]) -> None:
        """Store consecutive units at each address; where lanes coincide the last one stays. Raises
        `Fault`.
        """
        for buffer, lanes, offset in self._check(address, mask, unit * len(values)):
            if not buffer.writable:
                lane = 0 if lanes is None else int(lanes[0])
                raise Fault(lane, buffer.base + int(offset[0]), unit, f"{buffer.name} is read-only")
            index, view = _index(buffer, offset, unit)
            for j, value in enumerate(values):
                flat = np.broadcast_to(value, address.shape).reshape(-1)
                if lanes is not None:
                    flat = flat[lanes]
                if view is not None:
                    view[index + j] = flat
                else:
                    for byte in range(unit):
                        buffer.data[offset + unit * j + byte] = (flat >> np.uint64(8 * byte)).astype(np.uint8)

    def atomic(self, address: Array, mask: Array | None, unit: int, value: Array, function: Any) -> Array:
        """Read-modify-write of one unit per lane, in lane order: memory becomes function(old, value).

        Returns the old values. Lanes that meet at one address are served one after another. Raises `Fault`.
        """
        kind = {4: np.uint32, 8: np.uint64}[unit]
        old = np.zeros(address.size, kind)
        flat_value = np.broadcast_to(value, address.shape).reshape(-1)
        for buffer, lanes, offset in self._check(address, mask, unit):
            index, view = _index(buffer, offset, unit)
            if view is None:
                lane = 0 if lanes is None else int(lanes[0])
                raise Fault(lane, buffer.base + int(offset[0]), unit, "an atomic on a misaligned address")
            where = np.arange(address.size) if lanes is None else lanes
            rest = np.arange(index.size)
            while rest.size:
                _, first = np.unique(index[rest], return_index=True)
                turn = rest[np.sort(first)]
                at = index[turn]
                before = view[at]
                old[where[turn]] = before
                view[at] = function(before, flat_value[where[turn]])
                rest = np.setdiff1d(rest, turn, assume_unique=True)
        return old.reshape(address.shape)


def _index(buffer: Buffer, offset: Array, unit: int) -> tuple[Array, Array | None]:
    """Unit indices into the buffer's view, or None for the view where some offset is not aligned."""
    if unit == 1:
        return offset, buffer.data
    if int(np.bitwise_or.reduce(offset)) & (unit - 1):
        return offset, None
    return offset >> (unit.bit_length() - 1), buffer.views[unit]


def _bytes_load(buffer: Buffer, offset: Array, unit: int) -> Array:
    value = np.zeros(offset.shape, np.uint64)
    for byte in range(unit):
        value |= buffer.data.take(offset + byte).astype(np.uint64) << np.uint64(8 * byte)
    return value
