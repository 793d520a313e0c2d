"""Small gfx950 programs, encoded by tinygrad and run without a toolchain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.compile.codeobject import Descriptor, KernelCode
from harness.execute.abi import Launch, Pointer
from harness.execute.decode import Instruction, Program, _decode_one
from harness.execute.dispatch import Run, dispatch


def program(instructions: Sequence[Any], *, lds: int = 0, scratch: int = 0, pointers: int = 1) -> Program:
    """A kernel of these instructions (encoder objects, or raw bytes) with `pointers` 8-byte arguments."""
    code = b"".join(one if isinstance(one, bytes) else one.to_bytes() for one in instructions)
    descriptor = Descriptor(
        vgprs=32,
        accum_offset=16,
        sgprs=32,
        lds_bytes=lds,
        private_bytes=scratch,
        kernarg_bytes=8 * pointers,
        entry_offset=0,
        user_sgprs=2,
        workgroup_ids=(True, False, False),
        workitem_ids=0,
        float_mode=240,
        properties=8,
    )
    metadata = {".kernarg_segment_size": 8 * pointers, ".max_flat_workgroup_size": 1024, ".args": []}
    kernel = KernelCode("test", 0x1000, len(code), code, descriptor, metadata)
    made: list[Instruction] = []
    at = 0
    while at < len(code):
        name, encoding, size, fields = _decode_one(code[at : at + 16], 0x1000 + at, "test")
        made.append(Instruction(len(made), 0x1000 + at, size, name, encoding, fields, "test.py:1"))
        at += size
    return Program(kernel, tuple(made), {one.pc: one.index for one in made})


def run(
    made: Program,
    buffers: Sequence[np.ndarray[Any, Any]],
    *,
    threads: int = 64,
    groups: int = 1,
    **options: Any,
) -> Run:
    """Dispatch with buffers at s[0:1] onwards: argument k is the address of buffer k."""
    named = {f"b{index}": one.view(np.uint8).reshape(-1) for index, one in enumerate(buffers)}
    pointers = tuple(Pointer(8 * index, f"b{index}", 0) for index in range(len(buffers)))
    launch = Launch("test", (groups, 1, 1), (threads, 1, 1), 0, bytes(8 * len(buffers)), pointers)
    return dispatch(made, launch, named, **options)
