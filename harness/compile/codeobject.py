"""Reads an AMDGPU code object (HSACO): its metadata note, its kernel descriptors, its code.

The layouts are those of LLVM's AMDGPUUsage: "Code Object V3 and above" (ELF header, note records,
metadata) and "Kernel Descriptor" (64 bytes, `<kernel>.kd`). Must not know FlyDSL, Triton or claims.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.compile.occupancy import Occupancy, occupancy
from harness.errors import HarnessError

__all__ = ["CodeObject", "Descriptor", "KernelCode", "read_code_object", "symbol_addresses"]

EM_AMDGPU = 224
MACH_MASK = 0xFF
MACHS: Mapping[int, str] = {0x3F: "gfx90a", 0x4C: "gfx942", 0x4F: "gfx950", 0x30: "gfx908", 0x2F: "gfx906"}
NT_AMDGPU_METADATA = 32


@dataclass(frozen=True)
class Descriptor:
    """What the hardware allocates by. Registers per lane (vgprs) and per wave (sgprs), bytes otherwise.

    vgprs: allocated from the unified file, arch and acc together; accum_offset: where the acc ones begin.
    float_mode: rounding (4 bits) and denormals (4 bits: f32, f16 and f64; 0 flushes). properties: which user
    SGPRs are set up, and the rest of the kernel code properties. preload: kernarg dwords put into SGPRs.
    """

    vgprs: int
    accum_offset: int
    sgprs: int
    lds_bytes: int
    private_bytes: int
    kernarg_bytes: int
    entry_offset: int
    user_sgprs: int
    workgroup_ids: tuple[bool, bool, bool]
    workitem_ids: int
    float_mode: int = 0
    dx10_clamp: bool = True
    properties: int = 0
    preload: int = 0


@dataclass(frozen=True)
class KernelCode:
    """One kernel of a code object: its symbol's address and size (bytes), its code, what is allocated
    for it.
    """

    symbol: str
    address: int
    size: int
    code: bytes
    descriptor: Descriptor
    metadata: Mapping[str, Any]

    def occupancy(self, workgroup_size: int | None = None) -> Occupancy:
        """Occupancy by what the descriptor allocates; `workgroup_size` defaults to the kernel's maximum."""
        size = int(self.metadata[".max_flat_workgroup_size"]) if workgroup_size is None else workgroup_size
        return occupancy(
            vgprs=self.descriptor.vgprs,
            sgprs=int(self.metadata[".sgpr_count"]),
            lds_bytes=self.descriptor.lds_bytes,
            workgroup_size=size,
        )


@dataclass(frozen=True)
class CodeObject:
    """A code object: its processor (`gfx950`) and its kernels in the order of the metadata."""

    processor: str
    kernels: tuple[KernelCode, ...]

    def kernel(self, symbol: str) -> KernelCode:
        """The kernel called `symbol`. Raises KeyError."""
        for kernel in self.kernels:
            if kernel.symbol == symbol:
                return kernel
        raise KeyError(symbol)


def read_code_object(data: bytes, origin: str, *, processor: str | None = "gfx950") -> CodeObject:
    """The code object in `data`; `origin` names it in errors.

    HarnessError where it is no ELF file, not for AMDGPU, for another processor than `processor` (None:
    any), or truncated or damaged.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    if not data.startswith(b"\x7fELF"):
        raise HarnessError(f"{origin}: not an ELF file, so no code object", remedy="name an HSACO file")
    try:
        elf = ELFFile(io.BytesIO(data))
        if elf["e_machine"] not in (EM_AMDGPU, "EM_AMDGPU"):
            raise HarnessError(f"{origin}: an ELF file for {elf['e_machine']}, not for AMDGPU")
        mach = elf["e_flags"] & MACH_MASK
        found = MACHS.get(mach, f"machine 0x{mach:x}")
        if processor is not None and found != processor:
            raise HarnessError(f"{origin}: compiled for {found}, not for {processor}")
        return CodeObject(found, _kernels(elf, data))
    except HarnessError:
        raise
    except (ELFError, ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error) as error:
        raise HarnessError(f"{origin}: damaged code object ({type(error).__name__}: {error})") from error
    except (
        Exception
    ) as error:  # the ELF and MessagePack parsers raise types of their own for a truncated file
        raise HarnessError(f"{origin}: damaged code object ({type(error).__name__})") from error


def symbol_addresses(data: bytes) -> dict[str, int]:
    """Value of every named symbol in the symbol table of an ELF object (`data`)."""
    from elftools.elf.elffile import ELFFile

    table: Any = ELFFile(io.BytesIO(data)).get_section_by_name(".symtab")
    return {symbol.name: symbol["st_value"] for symbol in table.iter_symbols() if symbol.name}


def _kernels(elf: Any, data: bytes) -> tuple[KernelCode, ...]:
    metadata = _metadata(elf)
    table = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
    if table is None:
        raise ValueError("no symbol table")
    symbols = {symbol.name: symbol for symbol in table.iter_symbols() if symbol.name}
    kernels = []
    for entry in metadata["amdhsa.kernels"]:
        name = entry[".name"]
        code, descriptor = symbols[name], symbols[entry[".symbol"]]
        kernels.append(
            KernelCode(
                name,
                code["st_value"],
                code["st_size"],
                _bytes(elf, data, code, code["st_size"]),
                _descriptor(_bytes(elf, data, descriptor, 64)),
                entry,
            )
        )
    return tuple(kernels)


def _metadata(elf: Any) -> Mapping[str, Any]:
    import msgpack

    for section in elf.iter_sections():
        if section["sh_type"] != "SHT_NOTE":
            continue
        for note in section.iter_notes():
            kind = note["n_type"]
            if note["n_name"] == "AMDGPU" and kind in (NT_AMDGPU_METADATA, "NT_AMDGPU_METADATA"):
                raw = note["n_descdata"] if "n_descdata" in note else note["n_desc"]
                if isinstance(raw, str):
                    raw = raw.encode("latin-1")
                unpacked = msgpack.unpackb(raw)
                if not isinstance(unpacked, dict):
                    raise ValueError("the metadata note is no map")
                return unpacked
    raise ValueError("no AMDGPU metadata note")


def _bytes(elf: Any, data: bytes, symbol: Any, size: int) -> bytes:
    """`size` bytes of `symbol` from its section, by virtual address in a linked object."""
    section = elf.get_section(symbol["st_shndx"])
    start = section["sh_offset"] + symbol["st_value"] - section["sh_addr"]
    if start < section["sh_offset"] or start + size > section["sh_offset"] + section["sh_size"]:
        raise ValueError(f"symbol {symbol.name} lies outside its section")
    if start + size > len(data):
        raise ValueError(f"symbol {symbol.name} lies beyond the end of the file")
    return data[start : start + size]


def _descriptor(raw: bytes) -> Descriptor:
    lds, private, kernarg = struct.unpack_from("<III", raw, 0)
    (entry,) = struct.unpack_from("<q", raw, 16)
    resources3, resources1, resources2 = struct.unpack_from("<III", raw, 44)
    properties, preload = struct.unpack_from("<HH", raw, 56)
    return Descriptor(
        vgprs=((resources1 & 0x3F) + 1) * 8,
        accum_offset=((resources3 & 0x3F) + 1) * 4,
        sgprs=(((resources1 >> 6) & 0xF) // 2 + 1) * 16,
        lds_bytes=lds,
        private_bytes=private,
        kernarg_bytes=kernarg,
        entry_offset=entry,
        user_sgprs=(resources2 >> 1) & 0x1F,
        workgroup_ids=(bool(resources2 >> 7 & 1), bool(resources2 >> 8 & 1), bool(resources2 >> 9 & 1)),
        workitem_ids=(resources2 >> 11) & 3,
        float_mode=(resources1 >> 12) & 0xFF,
        dx10_clamp=bool(resources1 >> 21 & 1),
        properties=properties,
        preload=preload & 0x7F,
    )
