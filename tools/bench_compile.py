"""Figures of the compile tier: cold and unchanged softmax, reading of listings; all bundles on request.

Cold means an empty cache: sources, sysroot, toolchain self-test and compile are all inside. Needs FLYDSL_SRC.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from bench import Figure

__all__ = ["figures"]

ALL = "HARNESS_BENCH_ALL"


def figures() -> Iterator[Figure]:
    """Softmax, listings, and with HARNESS_BENCH_ALL=1 every bundle."""
    yield _listing_rate()
    names = ("softmax, source to verdict, cold", "softmax, nothing changed")
    if not os.environ.get("FLYDSL_SRC"):
        yield from (Figure(name, None, "s", note="FLYDSL_SRC is not set") for name in names)
        return
    with tempfile.TemporaryDirectory() as cache:
        command = ["reproduce", "softmax", "--tier", "compile"]
        first = _wall(cache, *command)
        launches = "every launch that its claims ask for: two workloads, two layers, three patched copies"
        yield Figure(names[0], first, "s", 8.0, note=f"wall, empty cache; {launches}")
        yield Figure(
            names[1], min(_wall(cache, *command) for _ in range(3)), "s", 1.0, note="wall, least of 3"
        )
        if os.environ.get(ALL):
            yield Figure(
                "all bundles", _wall(cache, "reproduce", "--tier", "compile"), "s", 360.0, note="wall"
            )
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / (1 << 20)
            yield Figure("all bundles, largest process", peak, "GiB", 6.0, note="peak resident memory")
        else:
            yield Figure("all bundles", None, "s", 360.0, note=f"set {ALL}=1 (many minutes)")


def _wall(cache: str, *arguments: str) -> float:
    start = time.perf_counter()
    environment = {**os.environ, "HARNESS_CACHE": cache}
    command = [sys.executable, "-m", "harness", *arguments]
    subprocess.run(command, capture_output=True, check=False, env=environment)
    return time.perf_counter() - start


def _listing_rate() -> Figure:
    from harness.compile.isa import digest, histogram, parse_assembly

    pair = ["\tv_add_f32_e32 v1, v2, v3", "\ts_waitcnt vmcnt(0) lgkmcnt(0)"]
    text = "\n".join(["made:", *(pair * 50_000), "\ts_endpgm", ""])
    start = time.process_time()
    listing = parse_assembly(text, "made.s", "made")
    digest(listing.normal)
    histogram(listing.text)
    rate = len(listing.normal) / (time.process_time() - start)
    return Figure(
        "normal form and histogram of a listing", rate, "instr/s", 200_000, at_least=True, note="process time"
    )
