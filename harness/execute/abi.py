"""The state in which a wave starts: user and system SGPRs, workitem ids, kernarg bytes, entry point.

The rules are LLVM's AMDGPUUsage: "Kernel Descriptor", "Initial Kernel Execution State", "Kernarg Preload",
and "Code Object V5 Metadata" for hidden arguments. Must not know opcodes or schedules.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import HarnessError
from harness.execute.decode import Program
from harness.execute.memory import Memory
from harness.execute.state import Array, State

__all__ = ["Launch", "Pointer", "entry_index", "initialise", "kernarg_bytes", "state_for"]

USER_SGPRS = (
    ("private_segment_buffer", 0x01, 4),
    ("dispatch_ptr", 0x02, 2),
    ("queue_ptr", 0x04, 2),
    ("kernarg_segment_ptr", 0x08, 2),
    ("dispatch_id", 0x10, 2),
    ("flat_scratch_init", 0x20, 2),
    ("private_segment_size", 0x40, 1),
)
"""Name, bit of the kernel code properties, SGPRs; in the order in which the hardware sets them up."""


@dataclass(frozen=True)
class Pointer:
    """An argument that points into a buffer: where in the kernarg segment, which buffer, which byte of it."""

    offset: int
    buffer: str
    byte: int


@dataclass(frozen=True)
class Launch:
    """One kernel launch: symbol, workgroups (x, y, z), threads of one (x, y, z), dynamic LDS bytes, kernarg
    bytes with
    pointers still to be filled in, and files with the contents of buffers that no tensor of the workload
    names.
    """

    symbol: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    lds: int
    kernarg: bytes
    pointers: tuple[Pointer, ...]
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def workgroups(self) -> int:
        """How many workgroups the grid has."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """Threads of one workgroup."""
        return self.block[0] * self.block[1] * self.block[2]


def kernarg_bytes(program: Program, launch: Launch, bases: Mapping[str, int]) -> bytes:
    """The kernarg segment with addresses filled in, and hidden arguments where the metadata lists them.

    HarnessError where its size is not the metadata's.
    """
    metadata = program.kernel.metadata
    size = int(metadata[".kernarg_segment_size"])
    if len(launch.kernarg) != size:
        raise HarnessError(
            f"{program.symbol}: kernarg of {len(launch.kernarg)} bytes, the kernel takes {size}",
            remedy="record the launch again: it belongs to another build of this kernel",
            exit_code=30,
        )
    out = bytearray(launch.kernarg)
    for pointer in launch.pointers:
        struct.pack_into("<Q", out, pointer.offset, bases[pointer.buffer] + pointer.byte)
    hidden = {
        **{f"hidden_block_count_{axis}": value for axis, value in zip("xyz", launch.grid, strict=True)},
        **{f"hidden_group_size_{axis}": value for axis, value in zip("xyz", launch.block, strict=True)},
        "hidden_grid_dims": 3 if launch.grid[2] > 1 else 2 if launch.grid[1] > 1 else 1,
        "hidden_dynamic_lds_size": launch.lds,
    }
    for entry in metadata.get(".args", ()):
        value = hidden.get(entry[".value_kind"])
        if value is not None:
            at, width = int(entry[".offset"]), int(entry[".size"])
            out[at : at + width] = int(value).to_bytes(width, "little")
    return bytes(out)


def state_for(program: Program, launch: Launch, groups: int) -> State:
    """Registers and LDS for `groups` workgroups. HarnessError where the launch exceeds what the kernel
    declares.
    """
    descriptor = program.kernel.descriptor
    limit = int(program.kernel.metadata[".max_flat_workgroup_size"])
    if not 0 < launch.threads <= limit:
        raise HarnessError(
            f"{program.symbol}: workgroups of {launch.threads} threads, the kernel takes at most {limit}",
            exit_code=30,
        )
    if descriptor.float_mode & 0xF:
        raise HarnessError(
            f"{program.symbol}: float rounding mode {descriptor.float_mode & 0xF}, not to nearest even"
        )
    lds = descriptor.lds_bytes + launch.lds
    if lds > 163840:
        raise HarnessError(f"{program.symbol}: {lds} bytes of LDS, gfx950 has 163840", exit_code=30)
    return State(
        groups,
        -(-launch.threads // 64),
        vgprs=descriptor.vgprs,
        accum_offset=descriptor.accum_offset,
        lds_bytes=lds,
        scratch_bytes=descriptor.private_bytes,
    )


def entry_index(program: Program) -> int:
    """Index of the first instruction: with kernarg preload the hardware enters 256 bytes in, past the code
    that loads the same SGPRs for firmware without preload."""
    at = program.kernel.address + (256 if program.kernel.descriptor.preload else 0)
    if at not in program.index_of:
        raise HarnessError(f"{program.symbol}: no instruction at its entry point 0x{at:x}", exit_code=30)
    return program.index_of[at]


def initialise(
    st: State, program: Program, launch: Launch, memory: Memory, kernarg: bytes, workgroups: Sequence[int]
) -> None:
    """Set SGPRs, VGPRs and EXEC of every wave; `workgroups` are flat ids, x fastest."""
    descriptor = program.kernel.descriptor
    buffer = memory.add("kernarg", np.frombuffer(kernarg, np.uint8), copy=True, writable=False)
    at = 0
    for name, bit, count in USER_SGPRS:
        if not descriptor.properties & bit:
            continue
        if name == "kernarg_segment_ptr":
            st.s[at] = buffer.base & 0xFFFFFFFF
            st.s[at + 1] = buffer.base >> 32
        elif name == "private_segment_size":
            st.s[at] = descriptor.private_bytes
        elif name == "dispatch_ptr":
            packet = memory.add(
                "dispatch packet", np.frombuffer(_packet(launch), np.uint8), copy=True, writable=False
            )
            st.s[at] = packet.base & 0xFFFFFFFF
            st.s[at + 1] = packet.base >> 32
        at += count
    if descriptor.preload:
        words = np.frombuffer(kernarg + bytes(-len(kernarg) % 4), np.uint32)[: descriptor.preload]
        st.s[at : at + words.size] = words[:, None]
    at = descriptor.user_sgprs
    flat = np.asarray(workgroups, np.int64)
    gx, gy, _ = launch.grid
    ids = (flat % gx, flat // gx % gy, flat // (gx * gy))
    for enabled, value in zip(descriptor.workgroup_ids, ids, strict=True):
        if enabled:
            st.s[at] = np.repeat(value, st.per_group).astype(np.uint32)
            at += 1
    _workitems(st, launch)


def _workitems(st: State, launch: Launch) -> None:
    """v0 holds workitem ids packed 10 bits each; lanes beyond the workgroup are off."""
    bx, by, _ = launch.block
    thread = np.arange(st.per_group * 64)
    packed = (thread % bx) | ((thread // bx % by) << 10) | ((thread // (bx * by)) << 20)
    lanes = np.where(thread < launch.threads, packed, 0).astype(np.uint32).reshape(st.per_group, 64)
    st.v[0] = np.tile(lanes, (st.groups, 1))
    active: Array = np.tile((thread < launch.threads).reshape(st.per_group, 64), (st.groups, 1))
    if not active.all():
        from harness.execute.state import EXEC, bits_of

        st.s[EXEC], st.s[EXEC + 1] = bits_of(active)
        st.active[:] = active


def _packet(launch: Launch) -> bytes:
    """An HSA kernel dispatch packet (HSA Runtime specification, 64 bytes): sizes only."""
    grid: list[Any] = [g * b for g, b in zip(launch.grid, launch.block, strict=True)]
    return struct.pack("<HHHHHHIIIIIQQQQ", 2, 3, *launch.block, 0, *grid, 0, launch.lds, 0, 0, 0, 0)
