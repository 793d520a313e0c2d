"""What the text of gfx9 instructions says: the registers they name, and which resource a stall waits for.

Pure text. Two taxonomies: this project's, which splits a wait on two counters between them, and the study's
own, kept so that its published shares can be derived again. Must not know a capture.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["Registers", "classes", "listing_sha256", "registers", "study_class", "uses_lds", "writes_memory"]

_OPERAND = re.compile(r"(?<![\w.$])([vas])(?:\[(\d+):(\d+)\]|(\d+))(?![\w.])")
_LDS_FREE = ("ds_bpermute", "ds_permute", "ds_swizzle", "ds_nop", "ds_gws")


@dataclass(frozen=True)
class Registers:
    """Highest register index + 1 by file; 0 where none is named. Both ends of a range count."""

    vgpr: int
    agpr: int
    sgpr: int


def registers(isa: Iterable[str]) -> Registers:
    """The registers that instructions name."""
    top = {"v": 0, "a": 0, "s": 0}
    for file, _, high, single in set(_OPERAND.findall("\n".join(isa))):
        index = int(high or single)
        if top[file] <= index < 1024:
            top[file] = index + 1
    return Registers(top["v"], top["a"], top["s"])


def listing_sha256(isa: Iterable[str]) -> str:
    """sha256 of the normal form: one instruction a line, single blanks, branch operands L, no " offset:0"."""
    lines = []
    for text in isa:
        line = " ".join(text.split()) if "  " in text or "\t" in text else text.strip()
        if line.startswith(("s_branch ", "s_cbranch")):
            line = line.split(" ", 1)[0] + " L"
        elif " offset:0" in line:
            line = line.replace(" offset:0 ", " ").removesuffix(" offset:0")
        lines.append(line)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@lru_cache(maxsize=1 << 16)
def classes(isa: str) -> tuple[tuple[str, float], ...]:
    """What a stall at this instruction waits for, as (class, share) with shares that sum to 1.

    A wait is named by its counters: vmcnt VMEM-wait, lgkmcnt LDS/SMEM-wait, expcnt export-wait; one that
    names two is split in equal parts, since the trace does not tell which of them held the wave.
    """
    mnemonic = isa.split(None, 1)[0] if isa.strip() else ""
    if mnemonic.startswith("s_waitcnt"):
        text = isa[len("s_waitcnt") :]
        named = [
            name
            for name, counter in (
                ("VMEM-wait", "vmcnt"),
                ("LDS/SMEM-wait", "lgkmcnt"),
                ("export-wait", "expcnt"),
            )
            if counter in text
        ] or ["other-wait"]
        return tuple((name, 1 / len(named)) for name in named)
    return ((_unit(mnemonic), 1.0),)


def _unit(mnemonic: str) -> str:
    if mnemonic == "s_barrier":
        return "barrier"
    if mnemonic.startswith(("buffer_", "global_", "flat_", "scratch_", "tbuffer_", "image_")):
        if "atomic" in mnemonic:
            return "VMEM-atomic"
        return "VMEM-store" if "store" in mnemonic else "VMEM-load"
    if mnemonic.startswith("ds_"):
        return "LDS"
    if mnemonic.startswith(("s_load", "s_buffer_", "s_store", "s_scratch", "s_dcache", "s_memtime", "s_atc")):
        return "SMEM"
    if mnemonic.startswith(("v_mfma", "v_smfma")):
        return "MFMA"
    if mnemonic.startswith("v_"):
        return "VALU"
    if mnemonic in ("s_nop", "s_sleep"):
        return "nop"
    if mnemonic.startswith(("s_branch", "s_cbranch", "s_endpgm", "s_setpc", "s_swappc", "s_call")):
        return "branch"
    return "SALU" if mnemonic.startswith("s_") else "other"


@lru_cache(maxsize=1 << 16)
def study_class(isa: str) -> str:
    """The class that the study's analyzer gives: substring rules, vmcnt first in a combined wait.

    VALU, SALU, s_nop and branches are "other" there, and v_fmac and v_fmamk count as MFMA.
    """
    text = isa.lower()
    if "s_waitcnt" in text:
        if "vmcnt" in text:
            return "VMEM-wait"
        return "LDS/SMEM-wait" if "lgkmcnt" in text else "other"
    if "s_barrier" in text:
        return "barrier"
    if "mfma" in text or "v_fma" in text:
        return "MFMA/FMA"
    if text.startswith(("buffer_load", "global_load", "flat_load")):
        return "VMEM-load"
    if text.startswith(("buffer_store", "global_store", "flat_store")):
        return "VMEM-store"
    if text.startswith(("ds_read", "ds_write")):
        return "LDS"
    if text.startswith(("s_load", "s_buffer_load")):
        return "SMEM"
    return "other"


def writes_memory(isa: str) -> bool:
    """Whether the instruction leaves a result in memory: a store or an atomic."""
    text = isa.lstrip()
    if not text.startswith(("buffer_", "global_", "flat_", "scratch_")):
        return False
    mnemonic = text.split(None, 1)[0]
    return "store" in mnemonic or "atomic" in mnemonic


def uses_lds(isa: str) -> bool:
    """Whether the instruction touches LDS memory; lane permutes use its crossbar alone."""
    return isa.startswith("ds_") and not isa.startswith(_LDS_FREE)
