"""`harness compile BUNDLE…`: compile the kernels of bundles for gfx950 here, and leave what came out in
a directory.

Assembly (`.s`), LLVM IR (`.ll`), code objects (`.hsaco`) and `compiled.json`. Judging is `harness reproduce`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import evidence
from harness.bundle import ROOT, Bundle, find, require_workload
from harness.command import Outcome, Reporter
from harness.compile.layers import WHEEL, full_commit
from harness.compile.tier import compilable, gather
from harness.errors import HarnessError
from harness.output import prove
from harness.report.seal import write
from harness.tiers import Context
from harness.verdict import ExitCode

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("bundles", nargs="+", metavar="BUNDLE", help="bundle ids or directories, or all")
    parser.add_argument("--workload", help="only this workload")
    parser.add_argument("--layer", help=f"FlyDSL Python layer: a commit, or {WHEEL!r} (default: pins.yaml)")
    parser.add_argument("--out", type=Path, help="leave .s, .ll, .hsaco and compiled.json here")
    parser.add_argument("--evidence", action="store_true", help="write bundles/<id>/evidence/compiled.json")
    parser.add_argument("--offline", action="store_true", help="use no network")
    parser.add_argument("--root", type=Path, default=ROOT, help="directory of bundles")


def run(args: argparse.Namespace, reporter: Reporter) -> Outcome:
    """Compile each bundle; 50 where one could not be compiled at all, 10 where a kernel as published
    does not.
    """
    if args.out is None and not args.evidence and not args.json:
        raise HarnessError("nowhere to leave the result", remedy="give --out DIR (or --json)")
    if args.evidence and (args.workload or args.layer):
        raise HarnessError(
            "--evidence is of all workloads under the pinned layer", remedy="drop --workload, --layer"
        )
    bundles = tuple(
        one for one in find(args.root, args.bundles) if "all" not in args.bundles or compilable(one)
    )
    options: dict[str, Any] = {}
    if args.layer:
        options["layer"] = full_commit(args.layer)
    if args.workload:
        options["workload"] = require_workload(bundles, args.workload)
    if args.out is not None:
        prove(args.out)
    lines: list[str] = []
    found: dict[str, Mapping[str, Any]] = {}
    for bundle in bundles:
        made = gather(bundle, Context(args.out, args.offline, reporter, args.root, options))
        found[bundle.id] = made
        lines += _text(bundle, made)
        if "unavailable" in made:
            continue
        if args.out is not None:
            write(args.out / bundle.id / "compiled.json", json.dumps(made, indent=1) + "\n")
        if args.evidence:
            evidence.write(bundle.path, "compiled", made)
    return Outcome(_exit(found), "\n".join(lines), {"bundles": found})


def _text(bundle: Bundle, made: Mapping[str, Any]) -> list[str]:
    if "unavailable" in made:
        return [f"{bundle.id}: not compiled: {made['unavailable']}", f"  remedy: {made['remedy']}"]
    lines = [f"{bundle.id}: layer {made['layer'][:8]}, source {made['source']['commit'][:8]}"]
    for launch in made["launches"]:
        shape = " ".join(f"{name}={value}" for name, value in launch["shape"].items())
        what = " ".join(
            part for part in (launch["workload"], launch["layer"][:8], launch["variant"], shape) if part
        )
        if not launch["ok"]:
            lines.append(f"  {what}: fails: {launch['error']}")
        elif not launch["objects"]:
            lines.append(f"  {what}: ok")
        for one in launch["objects"]:
            fits, used = one["occupancy"], one["registers"]
            lines.append(
                f"  {what}: {one['symbol']}: {one['instructions']} instructions, {one['sha256'][:12]}, "
                f"{used['vgpr']} VGPRs ({used['vgpr_allocated']} allocated), LDS {one['lds_bytes']} B, "
                f"{fits['waves_per_simd']} waves/SIMD ({', '.join(fits['limiters'])})"
            )
    return lines + [f"  {name}: not compiled: {reason}" for name, reason in made["unsaid"].items()]


def _exit(found: Mapping[str, Mapping[str, Any]]) -> int:
    if any("unavailable" in made for made in found.values()):
        return ExitCode.NOT_MEASURED
    published = (launch for made in found.values() for launch in made["launches"] if not launch["variant"])
    return ExitCode.OK if all(launch["ok"] for launch in published) else ExitCode.DIFFERS
