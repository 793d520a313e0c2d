"""Code objects: what a real one says, and every way in which a bad one is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.compile.cache import Cache
from harness.compile.codeobject import read_code_object
from harness.compile.compiler import compile_kernel
from harness.compile.request import CompileRequest
from harness.compile.toolchain import Toolchain
from harness.errors import HarnessError

E_FLAGS = 48
"""Offset of e_flags in a 64-bit ELF header."""


@pytest.fixture(scope="module")
def hsaco(toolchain: Toolchain, compile_cache: Cache) -> bytes:
    made = compile_kernel(CompileRequest("harness.specimens.probe", {}), toolchain, compile_cache)
    assert made.ok, made.stderr
    return made.objects[0].hsaco.read_bytes()


def test_the_probe_says_what_it_is(hsaco: bytes) -> None:
    found = read_code_object(hsaco, "probe.hsaco")
    (kernel,) = found.kernels
    assert found.processor == "gfx950"
    assert kernel.symbol == "specimen_probe_0"
    assert kernel.size == len(kernel.code) and kernel.code.endswith(bytes.fromhex("000081bf"))  # s_endpgm
    assert kernel.address % 256 == 0
    assert kernel.metadata[".max_flat_workgroup_size"] == 256
    assert kernel.descriptor.vgprs % 8 == 0
    assert kernel.descriptor.vgprs >= kernel.metadata[".vgpr_count"]
    assert kernel.descriptor.workgroup_ids[0]
    assert kernel.occupancy().limiter == "wave slots"


def test_truncated_anywhere_it_is_refused(hsaco: bytes) -> None:
    refused = 0
    for length in range(0, len(hsaco), 61):
        try:
            read_code_object(hsaco[:length], "cut.hsaco")
        except HarnessError as error:
            assert "cut.hsaco" in error.message
            refused += 1
    assert refused == len(range(0, len(hsaco), 61))


def test_any_byte_flipped_gives_an_object_or_an_error(hsaco: bytes) -> None:
    """No exception of a parser reaches the caller, whichever byte of the headers is damaged."""
    for offset in [*range(64), *range(len(hsaco) - 900, len(hsaco), 3)]:
        damaged = bytearray(hsaco)
        damaged[offset] ^= 0xFF
        try:
            read_code_object(bytes(damaged), "flipped.hsaco")
        except HarnessError as error:
            assert "flipped.hsaco" in error.message


def test_other_machines_are_named(hsaco: bytes) -> None:
    with pytest.raises(HarnessError, match="EM_X86_64, not for AMDGPU"):
        read_code_object(Path(sys.executable).resolve().read_bytes(), "python")
    with pytest.raises(HarnessError, match="not an ELF file"):
        read_code_object(b"hello", "x")
    other = bytearray(hsaco)
    other[E_FLAGS] = 0x4C
    with pytest.raises(HarnessError, match="compiled for gfx942, not for gfx950"):
        read_code_object(bytes(other), "x.hsaco")
    assert read_code_object(bytes(other), "x.hsaco", processor=None).processor == "gfx942"
