"""Binds scalar and vector ALU instructions: table entry plus encoding gives one function that executes it.

Knows where each encoding keeps its operands and modifiers. Must not know what any opcode computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from harness.execute.decode import Instruction
from harness.execute.floats import flush
from harness.execute.operands import (
    Fetch,
    Store,
    fetch_mask,
    fetch_scalar,
    fetch_vector,
    store_mask,
    store_row,
    store_scalar,
    store_vector,
)
from harness.execute.state import EXEC, VCC, Array, State
from harness.execute.table import Op

__all__ = ["Step", "bind_scalar", "bind_vector", "dpp_lanes"]

Step = Callable[[], Any]
U32 = np.uint32
_FLOATS = ("f16", "f32", "f64")


def bind_scalar(st: State, entry: Instruction, op: Op) -> Step:
    """A SOP1, SOP2, SOPC or SOPK instruction."""
    fields = entry.fields
    literal = fields.get("literal")
    codes = [fields[name] for name in ("ssrc0", "ssrc1") if name in fields]
    explicit = iter(codes)
    fetches: list[Fetch] = []
    for kind in op.ins:
        fetches.append(_scalar_input(st, entry, op, kind, explicit, literal))
    stores: list[Store] = []
    for kind in op.outs:
        if kind == "scc":
            stores.append(_store_scc(st))
        elif kind == "exec":
            stores.append(store_scalar(st, EXEC, "u64"))
        else:
            stores.append(store_scalar(st, fields["sdst"], kind))
    return _compose(op.function, fetches, stores)


def _scalar_input(
    st: State, entry: Instruction, op: Op, kind: str, explicit: Any, literal: int | None
) -> Fetch:
    fields = entry.fields
    if kind == "scc":
        return lambda: st.scc[st.sel]
    if kind == "exec":
        return fetch_scalar(st, EXEC, "u64")
    if kind.startswith("dst"):
        own = kind[4:] or ("u64" if op.outs and op.outs[0] in ("u64", "i64") else "u32")
        return fetch_scalar(st, fields["sdst"], own)
    if kind in ("k16", "ku16"):
        value = fields["simm16"]
        if kind == "k16" and value & 0x8000:
            value -= 0x10000
        fixed = np.array(value & 0xFFFFFFFF, U32).view(np.int32 if kind == "k16" else U32)
        return lambda: fixed
    return fetch_scalar(st, next(explicit), kind, literal)


def _store_scc(st: State) -> Store:
    def store(value: Any) -> None:
        st.scc[st.sel] = value

    return store


def _compose(function: Callable[..., Any], fetches: list[Fetch], stores: list[Store]) -> Step:
    """One function that fetches, computes and stores; the common arities are spelled out for speed."""
    if len(stores) == 1:
        store = stores[0]
        if len(fetches) == 1:
            a = fetches[0]
            return lambda: store(function(a()))
        if len(fetches) == 2:
            a, b = fetches
            return lambda: store(function(a(), b()))
        if len(fetches) == 3:
            a, b, c = fetches
            return lambda: store(function(a(), b(), c()))
    if not stores:
        return lambda: None

    def step() -> None:
        values = function(*[fetch() for fetch in fetches])
        if len(stores) == 1:
            stores[0](values)
            return
        for store, value in zip(stores, values, strict=True):
            store(value)

    return step


def bind_vector(st: State, entry: Instruction, op: Op, *, flush32: bool = False) -> Step:
    """A VOP1, VOP2, VOPC, VOP3 or VOP3P instruction, with SDWA or DPP where the encoding has it.

    flush32: the descriptor asks for float32 denormals to be flushed on the way in and out.
    """
    if op.unit == "packed":
        return _bind_packed(st, entry, op)
    if op.unit == "packed_mov":
        return _bind_packed_mov(st, entry)
    if op.unit == "mix":
        return _bind_mix(st, entry, op)
    codes = _sources(entry)
    explicit = iter(range(len(codes)))
    function = op.function
    fetches: list[Fetch] = []
    for kind in op.ins:
        fetches.append(_vector_input(st, entry, op, kind, codes, explicit))
    if flush32 and "f32" in op.ins and op.name not in ("v_cndmask_b32",):
        fetches = [_flushed(f) if k == "f32" else f for f, k in zip(fetches, op.ins, strict=True)]
    omod, clamp = entry.fields.get("omod", 0), entry.fields.get("clmp", 0)
    stores: list[Store] = []
    for kind in op.outs:
        store = _vector_output(st, entry, op, kind)
        if kind in _FLOATS and (omod or clamp) and not op.name.startswith("v_bitop3"):
            store = _modified(store, omod, clamp)
        elif (
            clamp
            and kind not in ("mask", "execmask")
            and kind not in _FLOATS
            and not op.name.startswith("v_bitop3")
        ):
            raise KeyError("integer clamp")
        if flush32 and kind == "f32":
            store = _flushing(store)
        stores.append(store)
    return _compose(function, fetches, stores)


def _flushed(fetch: Fetch) -> Fetch:
    return lambda: flush(fetch())


def _flushing(store: Store) -> Store:
    return lambda value: store(flush(value))


def _sources(entry: Instruction) -> list[tuple[int, bool]]:
    """Source codes in the ISA's operand order; the flag says that a code is the literal slot of
    FMAMK/FMAAK.
    """
    fields = entry.fields
    special = entry.encoding.endswith(("_SDWA", "_SDWA_SDST", "_DPP16"))
    first = fields["vsrc0"] + 256 if special and "vsrc0" in fields else fields.get("src0", 128)
    codes = [(first, False)]
    if "vsrc1" in fields:
        scalar1 = special and "s1" in fields and fields["s1"]
        codes.append((fields["vsrc1"] + (0 if scalar1 else 256), False))
    if special and fields.get("s0"):
        codes[0] = (fields["vsrc0"], False)
    if "src1" in fields:
        codes.append((fields["src1"], False))
    if "src2" in fields:
        codes.append((fields["src2"], False))
    if entry.name in ("v_fmamk_f32", "v_fmamk_f16"):
        codes.insert(1, (255, True))
    elif entry.name in ("v_fmaak_f32", "v_fmaak_f16"):
        codes.append((255, True))
    return codes


def _vector_input(
    st: State, entry: Instruction, op: Op, kind: str, codes: list[tuple[int, bool]], explicit: Any
) -> Fetch:
    fields = entry.fields
    literal = fields.get("literal")
    if kind == "vcc":
        return fetch_mask(st, VCC)
    if kind == "dst":
        return fetch_vector(st, fields["vdst"] + 256, op.outs[0])
    if kind == "table":
        # {OMOD, ABS, NEG}: V_BITOP3 keeps its truth table in the modifier bits.
        table = (fields["omod"] << 6) | (fields["abs"] << 3) | fields["neg"]
        return lambda: table
    if kind == "mask":
        if entry.encoding.startswith(("VOP2", "VOP1")):
            return fetch_mask(st, VCC)
        return fetch_mask(st, codes[next(explicit)][0])
    index = next(explicit)
    code, _ = codes[index]
    half = 0
    if entry.encoding.startswith("VOP3") and "opsel" in fields and not entry.encoding.startswith("VOP3P"):
        half = fields["opsel"] >> index & 1
    if kind == "byte":
        return _byte(st, entry, code, index)
    if entry.encoding.endswith(("_SDWA", "_SDWA_SDST")):
        fetch = _sdwa(st, entry, code, kind, index)
    elif entry.encoding.endswith("_DPP16") and index == 0:
        fetch = _dpp(st, entry, code, kind)
    else:
        fetch = fetch_vector(st, code, kind, literal, half=half)
    return _modifiers(entry, index, kind, fetch)


def _modifiers(entry: Instruction, index: int, kind: str, fetch: Fetch) -> Fetch:
    """Absolute value, then negation."""
    fields = entry.fields
    if entry.name.startswith("v_bitop3"):
        return fetch
    if entry.encoding.endswith(("_SDWA", "_SDWA_SDST", "_DPP16")):
        negative, absolute = fields.get(f"src{index}_neg", 0), fields.get(f"src{index}_abs", 0)
    else:
        negative = fields.get("neg", 0) >> index & 1
        absolute = fields.get("abs", 0) >> index & 1
    if not (negative or absolute):
        return fetch
    if kind not in _FLOATS and entry.name != "v_cndmask_b32":
        raise KeyError(f"neg or abs on an operand of type {kind}")
    if kind == "u32":  # V_CNDMASK_B32 takes float modifiers on its bits
        sign = U32(0x80000000)

        def bits() -> Any:
            value = fetch()
            if absolute:
                value = value & ~sign
            return value ^ sign if negative else value

        return bits
    if absolute and negative:
        return lambda: -np.abs(fetch())
    if absolute:
        return lambda: np.abs(fetch())
    return lambda: -fetch()


def _vector_output(st: State, entry: Instruction, op: Op, kind: str) -> Store:
    fields = entry.fields
    if kind == "mask":
        if entry.encoding.endswith("_SDWA_SDST"):
            return store_mask(st, fields["sdst"] if fields["sd"] else VCC)
        if entry.encoding.startswith("VOPC") or entry.encoding.startswith("VOP2"):
            return store_mask(st, VCC)
        return store_mask(st, fields["sdst"] if "sdst" in fields else fields["vdst"])
    if kind == "execmask":
        return store_mask(st, EXEC)
    number = fields["vdst"]
    if entry.encoding.endswith("_SDWA"):
        return _sdwa_store(st, entry, number, kind)
    if entry.encoding.endswith("_DPP16"):
        return _dpp_store(st, entry, number, kind)
    opsel = fields.get("opsel", 0) if entry.encoding == "VOP3" else 0
    if kind == "u16half":
        return store_vector(st, number, "u16", half=opsel >> 3 & 1)
    if kind in ("u16", "i16", "f16") and opsel >> 3 & 1:
        return store_vector(st, number, kind, half=1)
    return store_vector(st, number, kind)


def _modified(store: Store, omod: int, clamp: int) -> Store:
    """Output modifier (1: *2, 2: *4, 3: /2), then clamp to [0, 1] with NaN to 0 (DX10 clamp)."""
    factor = {0: 1.0, 1: 2.0, 2: 4.0, 3: 0.5}[omod]

    def run(value: Any) -> None:
        value = np.asarray(value)
        if omod:
            value = value * value.dtype.type(factor)
        if clamp:
            value = np.clip(np.where(np.isnan(value), 0, value), 0, 1).astype(value.dtype)
        store(value)

    return run


# SDWA (ISA document, "Sub-Dword Addressing"): selectors 0-3 byte, 4-5 word, 6 dword.


def _select(value: Any, selector: int, signed: int) -> Any:
    if selector == 6:
        return value
    if selector < 4:
        part = (value >> U32(8 * selector)) & U32(0xFF)
        return part.astype(np.uint8).view(np.int8).astype(np.int32).view(U32) if signed else part
    part = (value >> U32(16 * (selector - 4))) & U32(0xFFFF)
    return part.astype(np.uint16).view(np.int16).astype(np.int32).view(U32) if signed else part


def _sdwa(st: State, entry: Instruction, code: int, kind: str, index: int) -> Fetch:
    selector, signed = entry.fields[f"src{index}_sel"], entry.fields[f"src{index}_sext"]
    whole = fetch_vector(st, code, "u32", None)
    if kind in ("u32", "i32", "f32"):
        target: Any = {"u32": U32, "i32": np.int32, "f32": np.float32}[kind]
        return lambda: np.asarray(_select(whole(), selector, signed)).view(target)
    if kind in ("u16", "i16", "f16"):
        narrow: Any = {"u16": np.uint16, "i16": np.int16, "f16": np.float16}[kind]
        return lambda: np.asarray(_select(whole(), selector, signed)).astype(np.uint16).view(narrow)
    raise KeyError(f"SDWA operand of type {kind}")


def _byte(st: State, entry: Instruction, code: int, index: int) -> Fetch:
    selector = 0
    if entry.encoding.endswith("_SDWA"):
        selector = entry.fields[f"src{index}_sel"]
    elif "opsel" in entry.fields:
        # op_sel[1:0] is the byte, most significant bit first (LLVM prints it so for V_CVT_F32_FP8).
        opsel = entry.fields["opsel"]
        selector = (opsel & 1) << 1 | (opsel >> 1 & 1)
    if selector == 6:
        selector = 0
    whole = fetch_vector(st, code, "u32", entry.fields.get("literal"))
    return lambda: (whole() >> U32(8 * selector)) & U32(0xFF)


def _sdwa_store(st: State, entry: Instruction, number: int, kind: str) -> Store:
    """dst_sel places the result; dst_unused 0 pads with zeros, 1 extends the sign, 2 preserves."""
    selector, unused = entry.fields["dst_sel"], entry.fields["dst_unused"]
    if selector == 6:
        return store_vector(st, number, kind)
    shift, bits = (8 * selector, 8) if selector < 4 else (16 * (selector - 4), 16)
    keep = U32(((1 << bits) - 1) << shift)
    row = st.v[number]
    write = store_row(st, row)

    def store(value: Any) -> None:
        raw = np.asarray(value)
        raw = raw.view(np.uint16).astype(U32) if raw.dtype.itemsize == 2 else raw.view(U32)
        placed = (raw << U32(shift)) & keep
        if unused == 2:
            placed = placed | (row[st.sel] & ~keep)
        elif unused == 1:
            top = (raw >> U32(bits - 1)) & U32(1)
            high = U32((0xFFFFFFFF << (shift + bits)) & 0xFFFFFFFF)
            placed = placed | np.where(top, high, U32(0))
        write(placed)

    return store


# DPP (ISA document, "Data Parallel Processing"): a lane map in rows of 16, with bounds and row and bank
# masks.


def dpp_lanes(control: int) -> tuple[Array, Array]:
    """Source lane of each lane, and whether it exists, for a DPP control value. KeyError where undefined."""
    lane = np.arange(64)
    row, at = lane // 16 * 16, lane % 16
    valid = np.ones(64, np.bool_)
    if control < 0x100:
        return lane // 4 * 4 + ((control >> (2 * (lane % 4))) & 3), valid
    count = control & 15
    if 0x101 <= control <= 0x10F:
        return np.where(at + count < 16, lane + count, lane), at + count < 16
    if 0x111 <= control <= 0x11F:
        return np.where(at >= count, lane - count, lane), at >= count
    if 0x121 <= control <= 0x12F:
        return row + (at - count) % 16, valid
    if control in (0x130, 0x134):
        source = lane + 1
        return np.where(source < 64, source, 0 if control == 0x134 else lane), (source < 64) | (
            control == 0x134
        )
    if control in (0x138, 0x13C):
        source = lane - 1
        return np.where(source >= 0, source, 63 if control == 0x13C else lane), (source >= 0) | (
            control == 0x13C
        )
    if control == 0x140:
        return row + 15 - at, valid
    if control == 0x141:
        return lane // 8 * 8 + 7 - lane % 8, valid
    if control == 0x142:
        return np.where(lane >= 16, row - 1, lane), lane >= 16
    if control == 0x143:
        return np.where(lane >= 32, 31, lane), lane >= 32
    if 0x150 <= control <= 0x15F:
        return row + count, valid
    raise KeyError(f"DPP control 0x{control:x}")


def _dpp(st: State, entry: Instruction, code: int, kind: str) -> Fetch:
    source, valid = dpp_lanes(entry.fields["dpp"])
    bound = entry.fields["bc"]
    whole = fetch_vector(st, code, kind, None)

    def fetch() -> Any:
        value = whole()[:, source]
        ok = valid[None, :]
        if not st.full:
            ok = ok & st.mask[:, source]
        return np.where(ok, value, value.dtype.type(0)) if bound or not ok.all() else value

    return fetch


def _dpp_store(st: State, entry: Instruction, number: int, kind: str) -> Store:
    """Lanes that the row or bank mask excludes, or that have no source lane without bound control, keep
    theirs.
    """
    lane = np.arange(64)
    rows, banks = entry.fields["row_mask"], entry.fields["bank_mask"]
    writes = ((rows >> (lane // 16)) & 1).astype(bool) & ((banks >> (lane % 16 // 4)) & 1).astype(bool)
    source, valid = dpp_lanes(entry.fields["dpp"])
    bound = entry.fields["bc"]
    if kind not in ("u32", "i32", "f32"):
        raise KeyError(f"DPP destination of type {kind}")
    row = st.v[number].view({"u32": U32, "i32": np.int32, "f32": np.float32}[kind])

    def store(value: Any) -> None:
        mask = writes[None, :] & st.mask
        if not bound:
            mask = mask & valid[None, :] & st.mask[:, source]
        kept = row[st.sel].copy()
        np.copyto(kept, value, where=mask, casting="unsafe")
        row[st.sel] = kept

    return store


# VOP3P


def _packed_bits(entry: Instruction) -> tuple[int, int, int, int]:
    fields = entry.fields
    high = fields["opsel_hi"] | (fields.get("opsel_hi2", 0) << 2)
    return fields["opsel"], high, fields["neg"], fields["neg_hi"]


def _bind_packed(st: State, entry: Instruction, op: Op) -> Step:
    """Both halves of packed operands: 16-bit halves of one register, or for f32 the two registers of a
    pair.
    """
    opsel, opsel_hi, neg, neg_hi = _packed_bits(entry)
    fields = entry.fields
    codes = [fields[f"src{index}"] for index in range(len(op.ins))]
    wide = op.outs[0] == "f32"
    if fields["clmp"] and op.outs[0] not in _FLOATS:
        raise KeyError("integer clamp")
    steps = []
    for half, (select, negate) in enumerate(((opsel, neg), (opsel_hi, neg_hi))):
        fetches = []
        for index, (code, kind) in enumerate(zip(codes, op.ins, strict=True)):
            pick = select >> index & 1
            fetch = _pair_source(st, code, kind, pick) if wide else fetch_vector(st, code, kind, half=pick)
            if negate >> index & 1:
                fetch = _negated(fetch)
            fetches.append(fetch)
        steps.append((fetches, half))
    number = fields["vdst"]
    if wide:
        stores = [store_vector(st, number, "f32"), store_vector(st, number + 1, "f32")]
    else:
        stores = [store_vector(st, number, op.outs[0], half=half) for half in (0, 1)]
    if fields["clmp"]:
        stores = [_modified(store, 0, 1) for store in stores]
    function = op.function
    (low, _), (high, _) = steps
    store_low, store_high = stores

    def step() -> None:
        first = function(*[fetch() for fetch in low])
        second = function(*[fetch() for fetch in high])
        store_low(first)
        store_high(second)

    return step


def _negated(fetch: Fetch) -> Fetch:
    return lambda: -fetch()


def _pair_source(st: State, code: int, kind: str, pick: int) -> Fetch:
    if 128 <= code < 256:
        return fetch_vector(st, code, kind)
    return fetch_vector(st, code + pick, kind)


def _bind_packed_mov(st: State, entry: Instruction) -> Step:
    """V_PK_MOV_B32: op_sel[0] picks the low result from src0's pair, op_sel[1] the high one from src1's."""
    fields = entry.fields
    low = _pair_source(st, fields["src0"], "u32", fields["opsel"] & 1)
    high = _pair_source(st, fields["src1"], "u32", fields["opsel"] >> 1 & 1)
    store_low = store_vector(st, fields["vdst"], "u32")
    store_high = store_vector(st, fields["vdst"] + 1, "u32")

    def step() -> None:
        first, second = low(), np.array(high())
        store_low(first)
        store_high(second)

    return step


def _bind_mix(st: State, entry: Instruction, op: Op) -> Step:
    """V_FMA_MIX*: op_sel_hi says f16 for each operand, op_sel which half; neg_hi is the absolute value
    here.
    """
    opsel, opsel_hi, neg, absolute = _packed_bits(entry)
    fields = entry.fields
    fetches = []
    for index in range(3):
        code = fields[f"src{index}"]
        if opsel_hi >> index & 1:
            fetch = _widened(fetch_vector(st, code, "f16", half=opsel >> index & 1))
        else:
            fetch = fetch_vector(st, code, "f32")
        if absolute >> index & 1:
            fetch = _absolute(fetch)
        if neg >> index & 1:
            fetch = _negated(fetch)
        fetches.append(fetch)
    kind = op.outs[0]
    number = fields["vdst"]
    if kind == "f32":
        store = store_vector(st, number, "f32")
    else:
        store = store_vector(st, number, "f16", half=0 if kind == "f16lo" else 1)
    if fields["clmp"]:
        store = _modified(store, 0, 1)
    return _compose(op.function, fetches, [store])


def _widened(fetch: Fetch) -> Fetch:
    return lambda: fetch().astype(np.float32)


def _absolute(fetch: Fetch) -> Fetch:
    return lambda: np.abs(fetch())
