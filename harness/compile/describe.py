"""A compiled code object as figures: what its listing, metadata and descriptor say. Pure but for
reading its files.

The figures carry no path and no time, so that equal code objects give equal records.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from harness.compile.addresses import code_listing
from harness.compile.cache import write_errors
from harness.compile.codeobject import KernelCode, read_code_object
from harness.compile.isa import Listing, digest, full_digest, highest_registers, histogram
from harness.compile.request import CompiledObject
from harness.compile.toolchain import Toolchain

__all__ = ["describe", "figures", "listing_of", "remembered_description"]


def listing_of(compiled: CompiledObject, toolchain: Toolchain) -> tuple[Listing, KernelCode]:
    """The proved listing of a compiled code object, and its kernel."""
    kernel = read_code_object(compiled.hsaco.read_bytes(), compiled.hsaco.name).kernel(compiled.symbol)
    return code_listing(compiled.isa.read_text(), kernel, toolchain, compiled.isa.name), kernel


def describe(compiled: CompiledObject, toolchain: Toolchain) -> dict[str, Any]:
    """The record of one code object (schema/compiled.schema.json, `object`).

    HarnessError where it is damaged.
    """
    return figures(*listing_of(compiled, toolchain))


def remembered_description(
    compiled: CompiledObject, toolchain: Toolchain
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The record of a code object and its listing's normal form; kept beside it, since proving it takes
    a while.

    What is kept is found again only by this very code.
    """
    kept = compiled.hsaco.with_name(f"{compiled.hsaco.stem}.{_version()}.json")
    try:
        found = json.loads(kept.read_text())
        return found["figures"], tuple(found["normal"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    listing, kernel = listing_of(compiled, toolchain)
    record = figures(listing, kernel)
    aside = kept.with_name(f"{kept.name}.{os.getpid()}.part")
    with write_errors(kept):
        aside.write_text(json.dumps({"figures": record, "normal": listing.normal}))
        os.replace(aside, kept)
    return record, listing.normal


@cache
def _version() -> str:
    """Of the modules that make a record."""
    here = Path(__file__).parent
    names = ("addresses", "codeobject", "describe", "isa", "occupancy")
    content = b"".join((here / f"{name}.py").read_bytes() for name in names)
    return hashlib.sha256(content).hexdigest()[:12]


def figures(listing: Listing, kernel: KernelCode) -> dict[str, Any]:
    """The record of a kernel and its listing, which has addresses."""
    assert listing.addresses is not None
    vector, accumulator, scalar = highest_registers(listing.text)
    metadata, descriptor, fits = kernel.metadata, kernel.descriptor, kernel.occupancy()
    return {
        "symbol": kernel.symbol,
        "instructions": len(listing.text),
        "sha256": digest(listing.normal),
        "code_sha256": full_digest(listing),
        "text_sha256": hashlib.sha256(kernel.code).hexdigest(),
        "address": kernel.address,
        "size": kernel.size,
        "first_pc": listing.addresses[0],
        "last_pc": listing.addresses[-1],
        "histogram": histogram(listing.text),
        "mnemonics": dict(sorted(Counter(text.split(" ", 1)[0] for text in listing.text).items())),
        "registers": {
            "vgpr": int(metadata[".vgpr_count"]),
            "agpr": int(metadata[".agpr_count"]),
            "sgpr": int(metadata[".sgpr_count"]),
            "highest_v": vector,
            "highest_a": accumulator,
            "highest_s": scalar,
            "vgpr_allocated": descriptor.vgprs,
            "accum_offset": descriptor.accum_offset,
            "sgpr_allocated": descriptor.sgprs,
            "vgpr_spills": int(metadata[".vgpr_spill_count"]),
            "sgpr_spills": int(metadata[".sgpr_spill_count"]),
        },
        "lds_bytes": descriptor.lds_bytes,
        "scratch_bytes": descriptor.private_bytes,
        "kernarg_bytes": descriptor.kernarg_bytes,
        "workgroup_size": int(metadata[".max_flat_workgroup_size"]),
        "occupancy": {
            "waves_per_simd": fits.waves_per_simd,
            "workgroups_per_cu": fits.workgroups_per_cu,
            "limiters": list(fits.limiters),
            "limits": dict(fits.limits),
        },
    }
