"""`harness trace DIR`: one thread-trace capture, checked first, then read.

Knows how an `Analysis` is shown. All figures come from `harness.trace.analysis`.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterable
from pathlib import Path

from harness.command import Outcome, Reporter
from harness.trace.analysis import Analysis, Hotspot
from harness.verdict import ExitCode

__all__ = ["configure", "run", "text"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of `harness trace`."""
    parser.add_argument(
        "source", type=Path, help="a ui_output_* directory, a directory of several, or a .tar.gz"
    )
    parser.add_argument(
        "--arch", help="the GPU target, where no agent record beside the trace names it (gfx950)"
    )


def run(args: argparse.Namespace, reporter: Reporter) -> Outcome:
    """Read, check and analyse. Exit 30 where a capture is INVALID for something that it should carry."""
    from harness.trace.session import one

    collecting = gc.isenabled()
    gc.disable()  # decoded rows hold no cycles; the collector would only walk them
    try:
        found = one(args.source, args.arch)
    finally:
        if collecting:
            gc.enable()
    captures = [analysis.to_json() for analysis in found]
    data = captures[0] if len(captures) == 1 else {"captures": captures}
    code = ExitCode.OK if all(analysis.valid for analysis in found) else ExitCode.INVALID
    return Outcome(code, "\n\n".join(text(analysis) for analysis in found), data)


def text(analysis: Analysis) -> str:
    """The screen for one capture."""
    return "\n".join(map(_printable, _lines(analysis)))


def _printable(line: str) -> str:
    """Names come from files: what would steer a terminal is shown as a question mark."""
    return "".join(c if c.isprintable() else "?" for c in line)


def _lines(a: Analysis) -> Iterable[str]:
    yield f"{a.symbol or 'unknown kernel'} on {a.arch or 'an unnamed GPU'}: {a.directory or '.'}"
    yield f"  {'VALID' if a.valid else 'INVALID'}; {a.files:,} files, {a.bytes / 1e6:.1f} MB"
    for found in a.faults:
        yield f"  {'fault' if found.spoils else 'note '} {found.rule}: {found.message}"
        if found.spoils:
            yield f"        cannot carry: {', '.join(found.spoils)}"
        if found.remedy:
            yield f"        remedy: {found.remedy}"
    if a.instructions is not None and a.executed is not None:
        yield (
            f"  rows        {a.instructions:,} instructions, {a.executed:,} executed "
            f"({100 * a.executed / max(1, a.instructions):.1f} %), {a.mapped:,} mapped to source"
        )
    yield f"  waves       {a.waves:,} sampled, {a.body_waves:,} ran the kernel's body"
    if a.total is not None and a.stall is not None:
        share = 100 * a.stall / a.total if a.total else 0.0
        yield f"  cycles      {a.total:,} total, {a.stall:,} stalled ({share:.2f} %), {a.idle:,} idle"
    if a.wave_states is not None:
        shown = ", ".join(f"{name.upper()} {part:.2f} %" for name, part in a.wave_states.items())
        yield f"  wave states {shown} (decoder's enumeration 1 IDLE 2 EXEC 3 WAIT 4 STALL)"
    if a.taxonomy:
        yield "  stalls      " + ", ".join(
            f"{name} {part:.1f} %" for name, part in a.taxonomy.items() if part >= 0.05
        )
        if a.combined_share:
            yield f"              {a.combined_share:.2f} % of them at waits on two counters, split equally"
    lds = f"{a.beside.lds} B" if a.beside.lds is not None else "unknown"
    field = f"profiler's field {a.beside.vgpr}" if a.beside.vgpr is not None else "no field beside the trace"
    if a.instructions is not None:
        yield (
            f"  registers   {a.allocated} VGPRs allocated ({a.allocation_rule}; {field}), code names "
            f"v0..v{max(0, a.registers.vgpr - 1)}, {a.registers.agpr} AGPRs, "
            f"s0..s{max(0, a.registers.sgpr - 1)}"
        )
    bound = (
        f"limit {a.occupancy_limit} by {a.limited_by}" if a.occupancy_limit is not None else "limit unknown"
    )
    yield f"  occupancy   {bound}; observed {a.observed} waves/SIMD; LDS {lds}"
    if a.device is not None:
        yield (
            f"  device time {a.device.median_us:.3f} us median of {len(a.device.durations)} launches, grid "
            f"{'x'.join(map(str, a.device.grid))} workgroups (kernel trace; a thread trace times nothing)"
        )
    if a.clock_ghz is not None:
        yield f"  clock       {a.clock_ghz:.3f} GHz effective"
    yield from _hot("hottest instructions", a.by_instruction)
    yield from _hot("hottest source lines", a.by_line)


def _hot(title: str, spots: tuple[Hotspot, ...]) -> Iterable[str]:
    if spots:
        yield f"  {title} (share of stall cycles, stall, hits)"
        for spot in spots[:5]:
            what = spot.text or spot.what
            yield f"    {spot.share:5.1f} % {spot.stall:>12,} {spot.hits:>9,}  {spot.where}  {what}"
