"""The listing of a code object, instruction by instruction with its address, proved against its bytes.

No wheel has an AMDGPU disassembler, but both have the assembler: the compiler's own assembly text is
assembled again with a label before each instruction, the bytes must equal those of the code object, and
the labels give the addresses. That shows what the text alone does not: padding that the assembler adds
(`.p2align` at a loop head), and every branch displacement. Must not know claims.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness.compile.codeobject import KernelCode, symbol_addresses
from harness.compile.isa import Listing, instructions
from harness.compile.toolchain import ARCH, Toolchain
from harness.errors import HarnessError

__all__ = ["assemble_text", "assembled_listing", "code_listing", "labelled"]

PC = "harness_pc_"
GAP = "harness_gap_"
S_NOP = 0xBF800000


def labelled(source: str, symbol: str) -> str:
    """`source` with a label `harness_pc_N` before instruction N of `symbol`, `harness_gap_N` before an
    alignment.
    """
    start = re.search(rf"^{re.escape(symbol)}:.*\n", source, re.MULTILINE)
    if start is None:
        raise HarnessError(f"the assembly text has no label {symbol}")
    end = re.compile(r"^\.Lfunc_end\d+:", re.MULTILINE).search(source, start.end())
    stop = end.start() if end else len(source)
    lines, code, count = [], True, 0
    for line in source[start.end() : stop].split("\n"):
        word = line.split(None, 1)[0] if line.strip() else ""
        if word == ".section":
            code = ".text" in line
        elif word == ".text":
            code = True
        elif code and word.startswith(".p2align"):
            lines.append(f"{GAP}{count}:")
        elif code and word and word[0] not in ".;" and not word.endswith(":"):
            lines.append(f"{PC}{count}:")
            count += 1
        lines.append(line)
    return source[: start.end()] + "\n".join(lines) + source[stop:]


def assemble_text(source: str, toolchain: Toolchain, origin: str) -> bytes:
    """The object file that `source` assembles to, in a process of its own. HarnessError with the
    assembler's words.
    """
    with tempfile.TemporaryDirectory(prefix="harness-assemble-") as scratch:
        text, made = Path(scratch) / "in.s", Path(scratch) / "out.o"
        text.write_text(source)
        tool = Path(__file__).with_name("llvm_tool.py")
        command = [sys.executable, "-I", str(tool), str(toolchain.library)]
        command += ["assemble", ARCH, str(text), str(made)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode != 0 or not made.is_file():
            said = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()
            raise HarnessError(f"{origin}: does not assemble for {ARCH}: {said[0]}")
        return made.read_bytes()


def code_listing(source: str, kernel: KernelCode, toolchain: Toolchain, origin: str) -> Listing:
    """The listing of `kernel` from the assembly text that it was made of, with addresses and displacements.

    HarnessError where the text is not that of the code object: its bytes differ.
    """
    made = assemble_text(labelled(source, kernel.symbol), toolchain, origin)
    wrong = _first_differing_byte(made, symbol_addresses(made)[kernel.symbol], kernel.code)
    if wrong is not None:
        raise HarnessError(
            f"{origin}: not the listing of the code object: {kernel.symbol} differs at byte {wrong}"
        )
    return _listed(source, kernel.symbol, made, kernel.code, kernel.address, "code object", origin)


def assembled_listing(source: str, symbol: str, toolchain: Toolchain, origin: str) -> Listing:
    """The listing that `source` assembles to, padding and displacements included; addresses from 0 on."""
    from elftools.elf.elffile import ELFFile

    made = assemble_text(labelled(source, symbol), toolchain, origin)
    elf: Any = ELFFile(io.BytesIO(made))
    sized = next(entry for entry in elf.get_section_by_name(".symtab").iter_symbols() if entry.name == symbol)
    start, size = sized["st_value"], sized["st_size"]
    code = elf.get_section_by_name(".text").data()[start : start + size]
    return _listed(source, symbol, made, code, 0, "assembly", origin)


def _listed(
    source: str, symbol: str, made: bytes, code: bytes, address: int, kind: str, origin: str
) -> Listing:
    labels = symbol_addresses(made)
    base = labels[symbol]
    text = tuple(instructions(_body(source, symbol)))
    starts = [labels[f"{PC}{index}"] - base for index in range(len(text))]
    gaps = sorted(labels[name] - base for name in labels if name.startswith(GAP))
    listed: list[str] = []
    addresses: list[int] = []
    for index, instruction in enumerate(text):
        stop = starts[index + 1] if index + 1 < len(text) else len(code)
        end = min((gap for gap in gaps if starts[index] < gap < stop), default=stop)
        listed.append(_with_displacement(instruction, code, starts[index]))
        addresses.append(address + starts[index])
        for offset in range(end, stop, 4):
            word = int.from_bytes(code[offset : offset + 4], "little")
            if word & 0xFFFF0000 != S_NOP:
                where = f"{symbol} at byte {offset}"
                raise HarnessError(f"{origin}: padding of {where} is no s_nop (0x{word:08x})")
            listed.append(f"s_nop {word & 0xFFFF}")
            addresses.append(address + offset)
    return Listing(symbol, tuple(listed), tuple(addresses), kind)


def _body(source: str, symbol: str) -> str:
    start = re.search(rf"^{re.escape(symbol)}:.*\n", source, re.MULTILINE)
    assert start is not None
    end = re.compile(r"^\.Lfunc_end\d+:", re.MULTILINE).search(source, start.end())
    return source[start.end() : end.start() if end else len(source)]


def _with_displacement(instruction: str, code: bytes, offset: int) -> str:
    """A branch with its 16-bit displacement (unsigned, in dwords), as a disassembler and a trace print it."""
    if instruction.startswith(("s_cbranch", "s_branch")):
        return f"{instruction.split(' ', 1)[0]} {int.from_bytes(code[offset : offset + 2], 'little')}"
    return instruction


def _first_differing_byte(made: bytes, base: int, code: bytes) -> int | None:
    """Where the object's bytes from `base` on differ from `code`; what the linker fills in is left out."""
    from elftools.elf.elffile import ELFFile

    elf: Any = ELFFile(io.BytesIO(made))
    text = elf.get_section_by_name(".text").data()[base : base + len(code)]
    if text == code:
        return None
    filled: set[int] = set()
    relocations = elf.get_section_by_name(".rela.text")
    if relocations is not None:
        for entry in relocations.iter_relocations():
            filled.update(range(entry["r_offset"] - base, entry["r_offset"] - base + 4))
    for offset in range(max(len(text), len(code))):
        if offset not in filled and text[offset : offset + 1] != code[offset : offset + 1]:
            return offset
    return None
