"""Binds a whole program to one state: a list of functions, one an instruction, each ready to run.

Decides by the table's unit; an opcode that is not in the table, or a form of one that is not implemented,
gives a step that stops the run with its name, PC and source line when (and only when) it is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.errors import HarnessError
from harness.execute.bind_alu import bind_scalar, bind_vector
from harness.execute.bind_memory import Hook, bind_memory
from harness.execute.decode import Instruction, Program
from harness.execute.memory import Memory
from harness.execute.opcodes import OPS
from harness.execute.opcodes_control import CONTROL, Action
from harness.execute.opcodes_mfma import SHAPES, matmul
from harness.execute.operands import fetch_scalar, fetch_vector, store_row, store_scalar, store_vector
from harness.execute.state import Array, State
from harness.execute.table import Op

__all__ = ["Bound", "bind_program"]

Step = Callable[[], Any]


@dataclass(frozen=True)
class Bound:
    """A program bound to a state. steps[i] runs instruction i and returns None, or an `Action` for
    control.
    """

    program: Program
    steps: tuple[Step, ...]
    hook: Hook


def bind_program(program: Program, st: State, memory: Memory) -> Bound:
    """Bind every instruction of `program` to `st` and `memory`."""
    hook = Hook()
    mode = program.kernel.descriptor.float_mode
    flush32 = (mode >> 4) & 3 != 3
    steps: list[Step] = []
    for entry in program.instructions:
        op = OPS.get(entry.name)
        if op is None:
            steps.append(_stop(entry, "an opcode that the table does not have"))
            continue
        try:
            steps.append(_bind(program, st, memory, hook, entry, op, flush32))
        except (KeyError, IndexError) as error:
            what = error.args[0] if error.args else error
            steps.append(_stop(entry, f"a form of it that is not implemented: {what}"))
    return Bound(program, tuple(steps), hook)


def _stop(entry: Instruction, why: str) -> Step:
    def step() -> None:
        raise HarnessError(
            f"{entry.where()} [{entry.name}, {entry.encoding}]: {why}",
            remedy="add it to harness/execute/opcodes_*.py with a test, as docs/execute.md says",
            exit_code=50,
        )

    return step


def _bind(
    program: Program, st: State, memory: Memory, hook: Hook, entry: Instruction, op: Op, flush32: bool
) -> Step:
    if op.unit == "salu":
        return bind_scalar(st, entry, op)
    if op.unit in ("valu", "packed", "packed_mov", "mix", "dot"):
        return bind_vector(st, entry, op, flush32=flush32)
    if op.unit in ("vmem", "lds", "smem"):
        return bind_memory(st, memory, hook, entry)
    if op.unit == "mfma":
        return _bind_mfma(st, entry)
    if op.unit == "swap":
        return _bind_swap(st, entry, op)
    if op.unit == "lanes":
        return _bind_lanes(st, entry, op)
    if op.unit == "readlane":
        return _bind_readlane(st, entry, op)
    if op.unit == "acc":
        return _bind_acc(st, entry)
    return _bind_control(program, st, entry)


def _bind_control(program: Program, st: State, entry: Instruction) -> Step:
    kind, condition = CONTROL[entry.name]
    if kind == "none":
        return lambda: None
    if kind in ("end", "barrier", "wait"):
        action = Action(kind, value=entry.fields["simm16"])
        return lambda: action
    if kind == "setpc":
        base = fetch_scalar(st, entry.fields["ssrc0"], "u64")
        return lambda: Action("jump", addresses=base())
    if kind == "getpc":
        after = np.array(entry.pc + entry.size, np.uint64)
        store = store_scalar(st, entry.fields["sdst"], "u64")
        return lambda: store(after)
    offset = entry.fields["simm16"]
    offset = offset - 0x10000 if offset & 0x8000 else offset
    address = entry.pc + entry.size + 4 * offset
    if address not in program.index_of:
        raise KeyError(f"branch target 0x{address:x}")
    target = program.index_of[address]
    always = Action("branch", target=target)
    if condition is None:
        return lambda: always
    test = condition

    def branch() -> Action | None:
        taken = test(st)
        if taken.all():
            return always
        if not taken.any():
            return None
        return Action("split", target=target, taken=taken)

    return branch


def _bind_mfma(st: State, entry: Instruction) -> Step:
    shape = SHAPES[entry.name]
    fields = entry.fields
    forms = (shape.a, shape.b)
    if shape.a == "f8f6f4":
        names = {0: "fp8", 1: "bf8", 2: "fp6", 3: "bf6", 4: "fp4"}
        forms = (names[fields["cbsz"]], names[fields["blgp"]])
    elif fields.get("cbsz") or fields.get("abid") or fields.get("blgp"):
        raise KeyError("MFMA broadcast (CBSZ, ABID, BLGP)")
    if fields.get("neg") and not shape.scaled:
        raise KeyError("MFMA negation")
    per_lane = shape.depth * shape.rows // 64
    widths = []
    for form in forms:
        bits = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4, "bf16": 16, "f16": 16, "f32": 32, "i8": 8}[
            form
        ]
        widths.append(max(1, per_lane * bits // 32))
    count = shape.rows * shape.rows // 64
    acc = fields.get("acc", 0)
    a = _tile(st, fields["src0"], widths[0], acc & 1)
    b = _tile(st, fields["src1"], widths[1], acc >> 1 & 1)
    c = _tile(st, fields["src2"], count, fields.get("acc_cd", 0))
    first = fields["vdst"] + (st.accum_offset if fields.get("acc_cd") else 0)
    # MFMA ignores EXEC (ISA document, "Matrix Arithmetic Instructions").
    rows = [st.v[first + index] for index in range(count)]
    scales: Any = None
    if shape.scaled:
        opsel, opsel_hi = fields["opsel"], fields["opsel_hi"]
        scales = [
            _scale(st, fields[f"scale_src{index}"], (opsel >> index & 1) | ((opsel_hi >> index & 1) << 1))
            for index in (0, 1)
        ]

    def step() -> None:
        used = None if scales is None else (scales[0](), scales[1]())
        out = matmul(shape, a(), b(), c(), forms, used)
        sel = st.sel
        for row, value in zip(rows, out, strict=True):
            row[sel] = value

    return step


def _tile(st: State, code: int, count: int, acc: int) -> Callable[[], list[Array]]:
    if code < 256:
        fixed = fetch_vector(st, code, "f32")
        return lambda: [np.broadcast_to(np.asarray(fixed()).view(np.uint32), (st.width, 64))] * count
    first = code - 256 + (st.accum_offset if acc else 0)
    if first + count > st.v.shape[0]:
        raise KeyError(f"vector register {first + count - 1} of {st.v.shape[0]} allocated")
    rows = [st.v[first + index] for index in range(count)]
    return lambda: [row[st.sel] for row in rows]


def _scale(st: State, code: int, byte: int) -> Callable[[], Array]:
    fetch = fetch_vector(st, code, "u32")
    return lambda: np.broadcast_to((fetch() >> np.uint32(8 * byte)) & np.uint32(0xFF), (st.width, 64))


def _bind_swap(st: State, entry: Instruction, op: Op) -> Step:
    first, second = st.v[entry.fields["vdst"]], st.v[entry.fields["src0"] - 256]
    store_first, store_second = store_row(st, first), store_row(st, second)

    def step() -> None:
        x, y = op.function(first[st.sel], second[st.sel])
        store_first(x)
        store_second(y)

    return step


def _bind_lanes(st: State, entry: Instruction, op: Op) -> Step:
    fields = entry.fields
    offset = fields["offset0"] | (fields["offset1"] << 8)
    store = store_vector(st, fields["vdst"], "u32")
    if entry.name == "ds_swizzle_b32":
        row = st.v[fields["addr"]]
        op.function(
            np.zeros((1, 64), np.uint32), np.ones((1, 64), np.bool_), offset
        )  # KeyError now, not later
        return lambda: store(op.function(row[st.sel], st.mask, offset))
    index, data = st.v[fields["addr"]], st.v[fields["data0"]]
    return lambda: store(op.function(index[st.sel], data[st.sel], st.mask, offset))


def _bind_readlane(st: State, entry: Instruction, op: Op) -> Step:
    fields = entry.fields
    if entry.name == "v_writelane_b32":
        row = st.v[fields["vdst"]]
        value = fetch_scalar(st, fields["src0"], "u32", fields.get("literal"))
        lane = fetch_scalar(st, fields["src1"], "u32")

        def write() -> None:
            row[st.sel] = op.function(row[st.sel], value(), lane())

        return write
    source = fetch_vector(st, fields["src0"], "u32", fields.get("literal"), acc=bool(fields.get("acc")))
    store = store_scalar(st, fields["vdst"], "u32")

    def whole() -> Array:
        return np.broadcast_to(source(), (st.width, 64))

    if entry.name == "v_readfirstlane_b32":
        return lambda: store(op.function(whole(), st.mask))
    lane = fetch_scalar(st, fields["src1"], "u32")
    return lambda: store(op.function(whole(), lane()))


def _bind_acc(st: State, entry: Instruction) -> Step:
    """V_ACCVGPR_READ, WRITE and MOV: between the two halves of the unified register file."""
    fields = entry.fields
    to_acc = entry.name != "v_accvgpr_read"
    source = fetch_vector(
        st, fields["src0"], "u32", fields.get("literal"), acc=entry.name != "v_accvgpr_write"
    )
    store = store_vector(st, fields["vdst"], "u32", acc=to_acc)
    return lambda: store(source())
