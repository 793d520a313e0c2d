"""Code object bytes to instructions: which opcode, which raw encoding fields, where in the source.

Decoding is tinygrad's (`tinygrad.renderer.amd`, generated from AMD's machine-readable ISA); docs/adr/0011
says
why, and how it is checked against the assembler's listing. Only raw field values leave this module, so the
rest of the tier does not depend on the decoder's classes. Must not know what an opcode does.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from harness.compile.codeobject import KernelCode, read_code_object
from harness.errors import HarnessError

__all__ = ["Instruction", "Program", "base_name", "decode", "with_text"]


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    index: its position in the program. pc: ELF virtual address; size in bytes. name: mnemonic without
    encoding
    suffix (`v_add_f32`). encoding: the decoder's format (`VOP2`, `VOP3_SDST`, `SOP2_LIT`, ...). fields: raw
    field
    values by name. source: `file:line`, or "" where the code object has no line table. text: the assembler's
    line where a listing was given, else the name.
    """

    index: int
    pc: int
    size: int
    name: str
    encoding: str
    fields: Mapping[str, int]
    source: str = ""
    text: str = ""

    def where(self) -> str:
        """`PC 0x1700 (softmax_kernel.py:41): v_add_f32`, for messages."""
        at = f" ({self.source})" if self.source else ""
        return f"PC 0x{self.pc:x}{at}: {self.text or self.name}"


@dataclass(frozen=True)
class Program:
    """A kernel's instructions, and what its descriptor and metadata say."""

    kernel: KernelCode
    instructions: tuple[Instruction, ...]
    index_of: Mapping[int, int] = field(default_factory=dict)

    @property
    def symbol(self) -> str:
        """The kernel's name."""
        return self.kernel.symbol


def decode(hsaco: bytes, symbol: str, origin: str) -> Program:
    """The instructions of kernel `symbol` of a gfx950 code object, with source lines where it has them.

    HarnessError where the code object is damaged or for another processor (`read_code_object`), has no such
    kernel, or holds bytes that are no CDNA4 instruction (with the address).
    """
    code = read_code_object(hsaco, origin)
    try:
        kernel = code.kernel(symbol)
    except KeyError:
        names = ", ".join(entry.symbol for entry in code.kernels)
        raise HarnessError(f"{origin}: no kernel {symbol}", remedy=f"it holds {names}") from None
    lines = _lines(hsaco)
    made: list[Instruction] = []
    at = 0
    data = kernel.code
    while at < len(data):
        name, encoding, size, fields = _decode_one(bytes(data[at : at + 16]), kernel.address + at, origin)
        pc = kernel.address + at
        made.append(Instruction(len(made), pc, size, name, encoding, fields, _line_at(lines, pc)))
        at += size
    if at != len(data):
        raise HarnessError(f"{origin}: {symbol} ends inside an instruction at 0x{kernel.address + at:x}")
    return Program(kernel, tuple(made), {entry.pc: entry.index for entry in made})


def with_text(program: Program, listing: Sequence[str]) -> Program:
    """`program` with the assembler's text of each instruction, where listing and program agree in length and
    names.

    The assembler adds `s_nop` for alignment that its text does not show; such a listing is left out.
    """
    if len(listing) != len(program.instructions):
        return program
    made = []
    for entry, text in zip(program.instructions, listing, strict=True):
        if base_name(text.split()[0]) != entry.name:
            return program
        made.append(Instruction(**{**vars(entry), "text": text}))
    return Program(program.kernel, tuple(made), program.index_of)


_SUFFIX = re.compile(r"_(e32|e64|sdwa|dpp|dpp16)$")


def base_name(mnemonic: str) -> str:
    """A mnemonic in lower case without its encoding suffix (`V_ADD_F32_E32` -> `v_add_f32`)."""
    return _SUFFIX.sub("", mnemonic.lower())


_SCALED = 0xD3AC
"""High half of the first word of V_MFMA_SCALE_* (ISA document, "VOP3PX2")."""

_RENAMED = {
    "v_mad_mix_f32": "v_fma_mix_f32",
    "v_mad_mixlo_f16": "v_fma_mixlo_f16",
    "v_mad_mixhi_f16": "v_fma_mixhi_f16",
}
"""Where the decoder keeps an older name than the assembler (gfx906 on: fused, one rounding)."""


@lru_cache(maxsize=65536)
def _decode_one(data: bytes, pc: int, origin: str) -> tuple[str, str, int, Mapping[str, int]]:
    try:
        from tinygrad.renderer.amd import decode_inst
    except ImportError:
        raise HarnessError(
            "the execute tier needs tinygrad's CDNA decoder, which is not installed",
            remedy="pip install 'flydsl-repro[execute]'",
            exit_code=50,
        ) from None
    try:
        # The decoder knows the 16-byte scaled MFMA by its second half alone, which any MFMA two words on has
        # too.
        scaled = int.from_bytes(data[2:4], "little") == _SCALED
        inst: Any = decode_inst((data if scaled else data[:8]) + bytes(16), "cdna")
        name = base_name(inst.op.name)
        name = _RENAMED.get(name, name)
    except (ValueError, AssertionError, KeyError, IndexError) as error:
        word = int.from_bytes(data[:4], "little")
        raise HarnessError(
            f"{origin}: PC 0x{pc:x}: 0x{word:08x} is no CDNA instruction that the decoder knows ({error})"
        ) from None
    raw = inst._raw
    fields = {key: (raw >> bits.lo) & bits.mask for key, bits in inst._fields}
    return name, type(inst).__name__, inst.size(), fields


def _lines(hsaco: bytes) -> list[tuple[int, str]]:
    """(address, `file:line`) in address order, from the code object's DWARF line table; empty where it has
    none.

    Line 0 means that the compiler knows no line; the preceding entry stays in force.
    """
    from elftools.elf.elffile import ELFFile

    elf = ELFFile(io.BytesIO(hsaco))
    if not elf.has_dwarf_info():
        return []
    rows = []
    dwarf = elf.get_dwarf_info()
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        if program is None:
            continue
        version = program["version"]
        files = [entry.name.decode(errors="replace") for entry in program["file_entry"]]
        for entry in program.get_entries():
            state = entry.state
            if state is None or state.end_sequence or state.line == 0:
                continue
            number = state.file - (0 if version >= 5 else 1)
            name = files[number] if 0 <= number < len(files) else "?"
            rows.append((state.address, f"{name}:{state.line}"))
    return sorted(rows)


def _line_at(rows: list[tuple[int, str]], pc: int) -> str:
    from bisect import bisect_right

    at = bisect_right(rows, (pc, "\uffff")) - 1
    return rows[at][1] if at >= 0 else ""
