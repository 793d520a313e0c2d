"""One listing from whatever a user has: assembly text, a code object, or a thread trace's `code.json`.

No wheel has an AMDGPU disassembler; a code object is listed from the assembly text that it was made of, which
lies beside it or is remembered in the cache, and which must assemble to its very bytes.
"""

from __future__ import annotations

from pathlib import Path

from harness.compile.addresses import assembled_listing, code_listing
from harness.compile.cache import open_cache
from harness.compile.codeobject import read_code_object
from harness.compile.isa import Listing, parse_assembly, parse_capture
from harness.compile.remembered import remembered
from harness.compile.toolchain import assemble
from harness.errors import HarnessError

__all__ = ["load_listing"]


def load_listing(path: Path, symbol: str | None = None, *, offline: bool = False) -> Listing:
    """The listing in `path`, by what the file holds. HarnessError where it is none of the three, or
    damaged.
    """
    try:
        data = path.read_bytes()
    except IsADirectoryError:
        raise HarnessError(
            f"{path}: a directory, not a listing", remedy="name a .s, .hsaco or code.json"
        ) from None
    except OSError as error:
        raise HarnessError(f"{path}: cannot be read ({error.strerror})") from error
    origin = str(path)
    if data[:4] == b"\x7fELF":
        return _of_code_object(data, path, symbol, offline=offline)
    if data.lstrip()[:1] in (b"{", b"["):
        return parse_capture(data, origin)
    try:
        source = data.decode()
    except UnicodeDecodeError:
        raise HarnessError(
            f"{path}: neither assembly text, nor a code object, nor a code.json", remedy="name one of these"
        ) from None
    listing = parse_assembly(source, origin, symbol)
    if not listing.text:
        raise HarnessError(f"{path}: {listing.symbol} holds no instruction")
    try:
        toolchain = assemble(open_cache(), offline=offline)
    except HarnessError:
        return listing  # no assembler here: the text alone, without padding and addresses
    return assembled_listing(source, listing.symbol, toolchain, origin)


def _of_code_object(data: bytes, path: Path, symbol: str | None, *, offline: bool) -> Listing:
    found = read_code_object(data, str(path))
    names = [kernel.symbol for kernel in found.kernels]
    if symbol is None and len(names) != 1:
        raise HarnessError(
            f"{path}: {len(names)} kernels ({', '.join(names)})", remedy="choose one with --symbol"
        )
    if symbol is not None and symbol not in names:
        raise HarnessError(f"{path}: no kernel {symbol} (it has {', '.join(names)})")
    kernel = found.kernel(symbol or names[0])
    cache = open_cache()
    beside = path.with_suffix(".s")
    text = beside.read_text() if beside.is_file() else remembered(data, cache)
    if text is None:
        raise HarnessError(
            f"{path}: no assembly text to list it by",
            remedy=f"put {beside.name} beside it (harness compile writes both)",
        )
    return code_listing(
        text, kernel, assemble(cache, offline=offline), str(beside if beside.is_file() else path)
    )
