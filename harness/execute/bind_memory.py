"""Binds memory instructions: addresses from registers, range checks, LDS, scratch; data to and from
registers.

Knows the address rules of the ISA document's memory chapters. Every access is told to the observer, where
there is one (races, bank conflicts). Must not know schedules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from harness.errors import HarnessError
from harness.execute.decode import Instruction
from harness.execute.memory import Fault, Memory
from harness.execute.opcodes_memory import ATOMICS, MOVES, Move
from harness.execute.operands import fetch_scalar, store_row
from harness.execute.state import M0, Array, State
from harness.execute.table import OPS

__all__ = ["Observer", "bind_memory"]

U32, I64 = np.uint32, np.int64
OFF = 0x7F
"""SADDR code for "no scalar address" (ISA document, "Flat Memory Instructions")."""

Step = Callable[[], Any]


class Observer(Protocol):
    """Told of every LDS and global access before it happens."""

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
        """`address` [waves, 64] bytes (LDS: within the workgroup) for the state's selected waves; kind r,
        w or a.
        """


class Hook:
    """Holds the observer, so that it can be set after binding."""

    def __init__(self) -> None:
        self.observer: Observer | None = None


def bind_memory(st: State, memory: Memory, hook: Hook, entry: Instruction) -> Step:
    """One SMEM, MUBUF, FLAT, GLOBAL, SCRATCH or DS instruction. KeyError where a form is not supported."""
    move = MOVES[entry.name]
    kind = entry.encoding
    if kind.startswith("SMEM"):
        return _scalar(st, memory, entry, move)
    if kind.startswith("DS"):
        return _share(st, hook, entry, move)
    if kind.startswith("SCRATCH"):
        return _scratch(st, entry, move)
    address = _buffer_address(st, entry, move) if kind.startswith("MUBUF") else _flat_address(st, entry)
    if move.lds or entry.fields.get("lds"):
        return _to_lds(st, memory, hook, entry, move, address)
    return _global(st, memory, hook, entry, move, address)


def fail(st: State, entry: Instruction, fault: Fault, verb: str) -> HarnessError:
    """The error for an access outside every buffer, with workgroup, wave and lane."""
    wave = int(st.ids[fault.lane // 64])
    where = f"workgroup {wave // st.per_group}, wave {wave % st.per_group}, lane {fault.lane % 64}"
    return HarnessError(
        f"{entry.where()}: {verb} outside every buffer at 0x{fault.address:x} "
        f"({fault.size} bytes, {fault.near}); {where}",
        remedy="kernel or arguments are wrong for this launch: compare the tensors' sizes with the workload",
        exit_code=30,
    )


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


# Scalar loads


def _scalar(st: State, memory: Memory, entry: Instruction, move: Move) -> Step:
    fields = entry.fields
    base_code, target = fields["sbase"] << 1, fields["sdata"]
    base = fetch_scalar(st, base_code, "u64")
    fixed = _signed(fields["offset"], 21) if fields["imm"] else 0
    register = (
        fields["soffset"]
        if fields["soffset_en"]
        else (fields["offset"] & 0x7F if not fields["imm"] else None)
    )
    clamped = entry.name.startswith("s_buffer")
    records = st.s[base_code + 2]

    def step() -> None:
        address = base().astype(I64)
        if clamped:
            address = address & I64(0xFFFFFFFFFFFF)
        offset = np.full(st.width, fixed, I64)
        if register is not None:
            offset = offset + st.s[register][st.sel].astype(I64)
        inside = np.ones(st.width, np.bool_)
        if clamped:
            inside = offset + 4 * move.count <= records[st.sel].astype(I64)
        try:
            words = memory.load((address + offset) & ~I64(3), None if inside.all() else inside, 4, move.count)
        except Fault as fault:
            moved = Fault(fault.lane * 64, fault.address, fault.size, fault.near)
            raise fail(st, entry, moved, "scalar load") from None
        for index, word in enumerate(words):
            st.s[target + index, st.sel] = word

    return step


# Addresses of vector memory


def _buffer_address(
    st: State, entry: Instruction, move: Move
) -> Callable[[], tuple[Array, list[Array] | None]]:
    """Byte addresses, and for each unit which lanes are in the resource's range (None: all of them).

    Raw buffer (stride 0): in range while offset + bytes <= num_records - soffset, for each dword on its own.
    Structured: while index < num_records (ISA document, "Buffer range checking"). Register and instruction
    offset are added in 32 bits and may wrap: the compiler folds additions that do.
    """
    fields = entry.fields
    rsrc = fields["srsrc"] << 2
    words = [st.s[rsrc + index] for index in range(4)]
    scalar = fetch_scalar(st, fields["soffset"], "u32", fields.get("literal"))
    instant = fields["offset"]
    rows = [
        st.v[fields["vaddr"] + index] if fields["vaddr"] + index < st.v.shape[0] else None for index in (0, 1)
    ]
    offen, idxen = fields["offen"], fields["idxen"]

    def run() -> tuple[Array, list[Array] | None]:
        sel = st.sel
        high = words[1][sel].astype(I64)
        stride = (high >> 16) & 0x3FFF
        base = words[0][sel].astype(I64) | ((high & 0xFFFF) << 32)
        records = words[2][sel].astype(I64)
        extra = np.broadcast_to(np.asarray(scalar()), (st.width,)).astype(I64)
        offset = np.full((st.width, 1), instant, I64)
        if offen:
            row = rows[1 if idxen else 0]
            assert row is not None
            offset = (row[sel] + U32(instant)).astype(I64)
        if stride.any() or idxen:
            if (words[3][sel] & U32(0x00800000)).any() or (high >> 31).any():
                raise HarnessError(f"{entry.where()}: swizzled buffer resources are not implemented")
            index = np.zeros((st.width, 1), I64) if not idxen else rows[0][sel].astype(I64)  # type: ignore[index]
            address = base[:, None] + extra[:, None] + offset + index * stride[:, None]
            inside = np.where(
                stride[:, None] == 0, offset < records[:, None] - extra[:, None], index < records[:, None]
            )
            inside = np.broadcast_to(inside, (st.width, 64))
            return np.broadcast_to(address, (st.width, 64)), None if inside.all() else [inside] * move.count
        limit = (records - extra)[:, None]
        address = np.broadcast_to(base[:, None] + extra[:, None] + offset, (st.width, 64))
        end = offset + move.unit * move.count
        if (end <= limit).all():
            return address, None
        checks = [
            np.broadcast_to(offset + move.unit * (j + 1) <= limit, (st.width, 64)) for j in range(move.count)
        ]
        return address, checks

    return run


def _flat_address(st: State, entry: Instruction) -> Callable[[], tuple[Array, list[Array] | None]]:
    fields = entry.fields
    bits = 12 if entry.encoding == "FLAT" else 13
    fixed = fields["offset"] if entry.encoding == "FLAT" else _signed(fields["offset"], bits)
    low = st.v[fields["addr"]]
    if fields["saddr"] == OFF or entry.encoding == "FLAT":
        high = st.v[fields["addr"] + 1]

        def vector() -> tuple[Array, None]:
            address = low[st.sel].astype(I64)
            address |= high[st.sel].astype(I64) << 32
            address += fixed
            return address, None

        return vector
    base = fetch_scalar(st, fields["saddr"], "u64")
    return lambda: (low[st.sel].astype(I64) + (base().astype(I64) + fixed)[:, None], None)


# Global memory


def _data_rows(st: State, entry: Instruction, number: int, count: int) -> list[Array]:
    first = number + (st.accum_offset if entry.fields.get("acc") else 0)
    if first + count > st.v.shape[0]:
        raise KeyError(f"vector register {first + count - 1} of {st.v.shape[0]} allocated")
    return [st.v[first + index] for index in range(count)]


def _global(st: State, memory: Memory, hook: Hook, entry: Instruction, move: Move, address_of: Any) -> Step:
    fields = entry.fields
    source = fields["vdata"] if "vdata" in fields else fields["data"]
    target = fields["vdata"] if "vdata" in fields else fields["vdst"]
    size = move.unit * move.count

    def tell(address: Array, mask: Array | None, kind: str, values: list[Array] | None = None) -> None:
        if hook.observer is not None:
            hook.observer.access(entry, "global", address, mask, size, kind, values)

    def lanes(checks: list[Array] | None, j: int) -> Array | None:
        if checks is None:
            return None if st.full else st.mask
        return checks[j] & st.mask

    if move.kind == "load":
        write = _register_writer(st, _data_rows(st, entry, target, move.count), move)

        def load() -> None:
            address, checks = address_of()
            try:
                if checks is None:
                    mask = lanes(None, 0)
                    tell(address, mask, "r")
                    write(memory.load(address, mask, move.unit, move.count))
                else:
                    tell(address, lanes(checks, 0), "r")
                    parts = [
                        memory.load(address + move.unit * j, lanes(checks, j), move.unit, 1)[0]
                        for j in range(move.count)
                    ]
                    write(parts)
            except Fault as fault:
                raise fail(st, entry, fault, "load") from None

        return load
    if move.kind == "store":
        read = _register_reader(st, _data_rows(st, entry, source, move.count), move)

        def store() -> None:
            address, checks = address_of()
            try:
                if checks is None:
                    mask = lanes(None, 0)
                    values = read()
                    tell(address, mask, "w", values)
                    memory.store(address, mask, move.unit, values)
                else:
                    values = read()
                    tell(address, lanes(checks, 0), "w", values)
                    for j, value in enumerate(values):
                        memory.store(address + move.unit * j, lanes(checks, j), move.unit, [value])
            except Fault as fault:
                raise fail(st, entry, fault, "store") from None

        return store
    function = ATOMICS[entry.name]
    words = move.unit // 4
    rows = _data_rows(st, entry, source, words)
    returned = [store_row(st, row) for row in _data_rows(st, entry, target, words)] if fields["sc0"] else None

    def atomic() -> None:
        address, checks = address_of()
        mask = lanes(checks, 0)
        tell(address, mask, "a")
        value = rows[0][st.sel]
        if words == 2:
            value = value.astype(np.uint64) | (rows[1][st.sel].astype(np.uint64) << np.uint64(32))
        try:
            old = memory.atomic(address, mask, move.unit, value, function)
        except Fault as fault:
            raise fail(st, entry, fault, "atomic") from None
        if returned is not None:
            returned[0](old.astype(U32))
            if words == 2:
                returned[1]((old >> np.uint64(32)).astype(U32))

    return atomic


def _extend(value: Array, move: Move) -> Array:
    """A loaded unit as uint32."""
    if move.unit >= 4:
        return value
    if move.signed:
        narrow = value.view(np.int8 if move.unit == 1 else np.int16)
        return narrow.astype(np.int32).view(U32)
    return value.astype(U32)


def _register_writer(st: State, rows: list[Array], move: Move) -> Callable[[list[Array]], None]:
    if move.half is not None:
        halves = rows[0].view(np.uint16)[:, move.half :: 2]
        write_half = store_row(st, halves)
        return lambda values: write_half(_extend(values[0], move).astype(np.uint16))
    writers = [store_row(st, row) for row in rows]

    def write(values: list[Array]) -> None:
        for store, value in zip(writers, values, strict=True):
            store(_extend(value, move))

    return write


def _register_reader(st: State, rows: list[Array], move: Move) -> Callable[[], list[Array]]:
    shift = U32(16 if move.half else 0)
    if move.unit == 4:
        return lambda: [row[st.sel] for row in rows]
    kind = np.uint8 if move.unit == 1 else np.uint16
    row = rows[0]
    return lambda: [(row[st.sel] >> shift).astype(kind)]


# LDS


class Share:
    """LDS of the selected waves' workgroups, addressed within each workgroup.

    A read beyond the allocation gives 0, as on the hardware; a write there is an error here.
    """

    def __init__(self, st: State) -> None:
        self.st = st
        self.views: dict[int, Array] = {
            1: st.lds,
            2: st.lds.view(np.uint16),
            4: st.lds.view(U32),
            8: st.lds.view(np.uint64),
        }

    def place(self, address: Array) -> Array:
        base: Array = self.st.lds_base[self.st.sel][:, None]
        return address + base

    def load(self, address: Array, unit: int, count: int) -> list[Array]:
        st = self.st
        limit = st.lds_bytes - unit * count
        high = int(address.max())
        outside = None
        if high > limit or int(address.min()) < 0:
            outside = (address > limit) | (address < 0)
            address = np.where(outside, 0, address)
        place = self.place(address)
        parts = []
        if int(np.bitwise_or.reduce(place, axis=None)) & (unit - 1):
            kind = self.views[unit].dtype
            for j in range(count):
                value = np.zeros(place.shape, np.uint64)
                for byte in range(unit):
                    value |= st.lds.take(place + unit * j + byte, mode="clip").astype(np.uint64) << np.uint64(
                        8 * byte
                    )
                parts.append(value.astype(kind))
        else:
            view, index = self.views[unit], place >> (unit.bit_length() - 1)
            parts = [view.take(index + j if j else index, mode="clip") for j in range(count)]
        if outside is not None:
            parts = [np.where(outside, part.dtype.type(0), part) for part in parts]
        return parts

    def store(
        self, entry: Instruction, address: Array, mask: Array | None, unit: int, values: list[Array]
    ) -> None:
        st = self.st
        bad = (address < 0) | (address + unit * len(values) > st.lds_bytes)
        if mask is not None:
            bad = bad & mask
        if bad.any():
            lane = int(np.flatnonzero(bad.reshape(-1))[0])
            at = int(address.reshape(-1)[lane])
            fault = Fault(lane, at, unit * len(values), f"LDS of the workgroup is {st.lds_bytes} bytes")
            raise fail(st, entry, fault, "LDS store")
        place = self.place(address)
        if mask is not None:
            place = place[mask]
            values = [np.broadcast_to(value, mask.shape)[mask] for value in values]
        if place.size == 0:
            return
        if int(np.bitwise_or.reduce(place, axis=None)) & (unit - 1):
            for j, value in enumerate(values):
                for byte in range(unit):
                    st.lds[place + unit * j + byte] = (value >> (8 * byte)).astype(np.uint8)
        else:
            view, index = self.views[unit], place >> (unit.bit_length() - 1)
            for j, value in enumerate(values):
                view[index + j] = value


def _share(st: State, hook: Hook, entry: Instruction, move: Move) -> Step:
    fields = entry.fields
    share = Share(st)
    base = st.v[fields["addr"]]
    if move.pairs == 2:
        step_bytes = move.unit * move.count * move.stride
        offsets = [fields["offset0"] * step_bytes, fields["offset1"] * step_bytes]
    else:
        offsets = [fields["offset0"] | (fields["offset1"] << 8)]
    size = move.unit * move.count

    def tell(address: Array, kind: str, values: list[Array] | None = None) -> None:
        if hook.observer is not None:
            hook.observer.access(entry, "lds", address, None if st.full else st.mask, size, kind, values)

    if move.kind in ("load", "transpose"):
        rows = _data_rows(st, entry, fields["vdst"], move.count * move.pairs)
        function = OPS[entry.name].function
        write = _register_writer(st, rows, move)
        transposed = move.kind == "transpose"

        def load() -> None:
            values: list[Array] = []
            for offset in offsets:
                address = base[st.sel].astype(I64) + offset
                tell(address, "r")
                if not st.full:
                    address = np.where(st.mask, address, 0)
                values += share.load(address, move.unit, move.count)
            write(function(values) if transposed else values)

        return load
    data = [fields["data0"]] if move.pairs == 1 else [fields["data0"], fields["data1"]]
    if move.kind == "store":
        readers = [_register_reader(st, _data_rows(st, entry, number, move.count), move) for number in data]

        def store() -> None:
            mask = None if st.full else st.mask
            for offset, read in zip(offsets, readers, strict=True):
                address = base[st.sel].astype(I64) + offset
                values = read()
                tell(address, "w", values)
                share.store(entry, address, mask, move.unit, values)

        return store
    words = move.unit // 4
    rows = _data_rows(st, entry, fields["data0"], words)
    returned = (
        [store_row(st, row) for row in _data_rows(st, entry, fields["vdst"], words)] if move.returns else None
    )
    function = ATOMICS[entry.name]

    def atomic() -> None:
        address = base[st.sel].astype(I64) + offsets[0]
        tell(address, "a")
        value = rows[0][st.sel]
        if words == 2:
            value = value.astype(np.uint64) | (rows[1][st.sel].astype(np.uint64) << np.uint64(32))
        place = share.place(address).reshape(-1)
        view = share.views[move.unit]
        old = np.zeros(place.size, view.dtype)
        flat = value.reshape(-1)
        rest = np.flatnonzero(st.mask.reshape(-1))
        if rest.size and int(address.reshape(-1)[rest].max()) + move.unit > st.lds_bytes:
            lane = int(rest[np.argmax(address.reshape(-1)[rest])])
            at = int(address.reshape(-1)[lane])
            fault = Fault(lane, at, move.unit, f"LDS of the workgroup is {st.lds_bytes} bytes")
            raise fail(st, entry, fault, "LDS atomic")
        while rest.size:
            _, first = np.unique(place[rest], return_index=True)
            turn = rest[np.sort(first)]
            index = place[turn] // move.unit
            before = view[index]
            old[turn] = before
            view[index] = function(before, flat[turn])
            rest = np.setdiff1d(rest, turn, assume_unique=True)
        if returned is not None:
            shaped = old.reshape(address.shape)
            returned[0](shaped.astype(U32))
            if words == 2:
                returned[1]((shaped >> np.uint64(32)).astype(U32))

    return atomic


def _to_lds(st: State, memory: Memory, hook: Hook, entry: Instruction, move: Move, address_of: Any) -> Step:
    """Loads that write LDS at M0 + instruction offset + lane * bytes (ISA document, "Memory Buffer Load to
    LDS").

    Lanes beyond the resource's range bring zeros.
    """
    share = Share(st)
    size = max(4, move.unit * move.count)
    instant = entry.fields["offset"] if entry.encoding.startswith("MUBUF") else 0
    lane = np.arange(64, dtype=I64) * size

    def step() -> None:
        address, checks = address_of()
        active = None if st.full else st.mask
        mask = active if checks is None else checks[0] & st.mask
        target = (st.s[M0][st.sel].astype(I64) & 0x3FFFF)[:, None] + instant + lane
        if hook.observer is not None:
            hook.observer.access(entry, "global", address, mask, move.unit * move.count, "r")
            hook.observer.access(entry, "lds", target, active, size, "w")
        try:
            if checks is None:
                values = memory.load(address, mask, move.unit, move.count)
            else:
                values = [
                    memory.load(address + move.unit * j, checks[j] & st.mask, move.unit, 1)[0]
                    for j in range(move.count)
                ]
        except Fault as fault:
            raise fail(st, entry, fault, "load") from None
        share.store(entry, target, active, 4, [_extend(value, move) for value in values])

    return step


# Scratch


def _scratch(st: State, entry: Instruction, move: Move) -> Step:
    """Each lane's own bytes; addresses are offsets (architected flat scratch of gfx94x and gfx950)."""
    fields = entry.fields
    fixed = _signed(fields["offset"], 13)
    row = st.v[fields["addr"]] if fields["sve"] else None
    scalar = st.s[fields["saddr"]] if fields["saddr"] != OFF else None
    flat = st.scratch.reshape(-1)
    stride = st.scratch.shape[2]
    number = fields["vdst"] if move.kind == "load" else fields["data"]
    rows = _data_rows(st, entry, number, move.count)
    write, read = _register_writer(st, rows, move), _register_reader(st, rows, move)
    size = move.unit * move.count
    lane = np.arange(64, dtype=I64) * stride

    def step() -> None:
        offset = np.full((st.width, 64), fixed, I64)
        if row is not None:
            offset += row[st.sel].astype(I64)
        if scalar is not None:
            offset += scalar[st.sel].astype(I64)[:, None]
        bad = ((offset < 0) | (offset + size > st.scratch_bytes)) & st.mask
        if bad.any():
            at = int(np.flatnonzero(bad.reshape(-1))[0])
            near = f"a lane's scratch is {st.scratch_bytes} bytes"
            raise fail(st, entry, Fault(at, int(offset.reshape(-1)[at]), size, near), move.kind)
        place = np.where(st.mask, offset, 0) + st.ids[:, None] * (64 * stride) + lane
        kind: Any = {1: np.uint8, 2: np.uint16, 4: U32}[move.unit]
        if move.kind == "load":
            values = []
            for j in range(move.count):
                value = np.zeros(place.shape, np.uint64)
                for byte in range(move.unit):
                    value |= flat.take(place + move.unit * j + byte).astype(np.uint64) << np.uint64(8 * byte)
                values.append(value.astype(kind))
            write(values)
            return
        for j, value in enumerate(read()):
            for byte in range(move.unit):
                flat[(place + move.unit * j + byte)[st.mask]] = (value >> (8 * byte)).astype(np.uint8)[
                    st.mask
                ]

    return step
