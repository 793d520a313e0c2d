"""`harness execute BUNDLE…`: run the compiled gfx950 binary on this CPU, and show what it did.

Judging is `harness reproduce`; this shows numerics, counts, schedules and races of each launch, and can
leave them as evidence. Knows how executed.json is shown; must not know opcodes.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from harness import evidence
from harness.bundle import ROOT, Bundle, find, require_workload
from harness.command import Outcome, Reporter
from harness.compile.layers import full_commit
from harness.errors import HarnessError
from harness.execute.schedule import NAMES, Fair, parse_schedule
from harness.tiers import Context
from harness.verdict import ExitCode

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("bundles", nargs="+", metavar="BUNDLE", help="bundle ids or directories, or all")
    parser.add_argument("--workload", help="only this workload")
    parser.add_argument("--workgroups", type=int, help="how many workgroups to execute (sampled with --seed)")
    parser.add_argument("--schedule", help=f"schedules beside fair, by comma: {', '.join(NAMES)}")
    parser.add_argument("--seed", type=int, default=0, help="of inputs, sampled workgroups, random schedule")
    parser.add_argument("--layer", help="FlyDSL Python layer (default: pins.yaml)")
    parser.add_argument("--trace", type=Path, help="write one line an instruction of one workgroup here")
    parser.add_argument("--evidence", action="store_true", help="write bundles/<id>/evidence/executed.json")
    parser.add_argument("--offline", action="store_true", help="use no network")
    parser.add_argument("--root", type=Path, default=ROOT, help="directory of bundles")


def run(args: argparse.Namespace, reporter: Reporter) -> Outcome:
    """Execute each bundle. 50 where one could not be executed at all, 30 where an execution stopped, 10
    where outputs are wrong or a race was found, else 0.
    """
    from harness.execute.tier import gather

    _check(args)
    bundles = find(args.root, args.bundles)
    options: dict[str, Any] = {"seed": args.seed}
    for name in ("workload", "workgroups", "schedule", "layer"):
        if getattr(args, name) is not None:
            options[name] = getattr(args, name)
    if args.workload is not None:
        require_workload(bundles, args.workload)
    if args.layer is not None:
        options["layer"] = full_commit(args.layer)
    lines: list[str] = []
    found: dict[str, Mapping[str, Any]] = {}
    for bundle in bundles:
        context = Context(None, args.offline, reporter, args.root, options)
        made = gather(bundle, context)
        found[bundle.id] = made
        lines += _text(bundle, made)
        if args.evidence and "unavailable" not in made:
            evidence.write(bundle.path, "executed", made)
        if args.trace is not None and "unavailable" not in made:
            count = _trace(bundle, context, args.trace)
            lines.append(f"  {count} lines in {args.trace}")
    return Outcome(_exit(found), "\n".join(lines), {"bundles": found})


def _check(args: argparse.Namespace) -> None:
    if args.workgroups is not None and args.workgroups < 1:
        raise HarnessError(f"--workgroups: must be at least 1 (got {args.workgroups})")
    if args.seed < 0:
        raise HarnessError(f"--seed: must not be negative (got {args.seed})")
    for name in args.schedule.split(",") if args.schedule else ():
        parse_schedule(name)
    if args.evidence and (args.workload or args.workgroups or args.schedule or args.layer or args.seed):
        raise HarnessError("--evidence is of the whole plan under the pins", remedy="drop the other options")


def _text(bundle: Bundle, made: Mapping[str, Any]) -> list[str]:
    if "unavailable" in made:
        return [f"{bundle.id}: not executed: {made['unavailable']} ({made['remedy']})"]
    lines = []
    for launch in made["launches"]:
        if "error" in launch:
            lines.append(f"{bundle.id} {launch['workload']}: stopped: {launch['error']}")
            continue
        lines += [
            f"{bundle.id} {launch['workload']}: {launch['symbol']}",
            *map("  ".__add__, _launch(launch)),
        ]
    return lines + [f"{bundle.id} {name}: not executed: {why}" for name, why in made["unsaid"].items()]


def _launch(launch: Mapping[str, Any]) -> list[str]:
    groups, counts = launch["workgroups"], launch["counts"]
    each = counts["instructions_per_wave"]
    out = [
        f"{groups['executed']} of {groups['of']} workgroups, {counts['waves']} waves, "
        f"{each['min']}-{each['max']} instructions a wave, lanes active {100 * counts['lanes_active']:.1f} %"
    ]
    for name, one in launch["numerics"].items():
        verdict = "within tolerance" if one["passed"] else "NOT within tolerance"
        out.append(
            f"{name}: {verdict}, max error {one['max_abs_error']}, cosine {one['cosine']}, "
            f"{one['elements']} elements"
        )
    for one in launch["schedules"][1:]:
        same = "same bits as fair" if one["same_as_fair"] else "OTHER outputs than fair"
        out.append(f"schedule {one['name']}: {same}" + ("" if one["passed"] else ", NOT within tolerance"))
    for name, one in launch["captures"].items():
        out.append(f"counts: {one['equal']} of {one['instructions']} equal to {name} ({one['how']})")
        if one["first"]:
            out.append(f"  first that differs: {one['first']}")
    races = launch["races"]
    for race in races["found"]:
        sides = ", ".join(
            f"wave {one['wave']} {one['kind']} at PC 0x{one['pc']:x} ({one['source']})"
            for one in (race["first"], race["second"])
        )
        out.append(f"RACE in {race['space']}, {race['reason']}: {sides}")
    if races["witness"]:
        out.append(f"  shown by {races['witness']['schedule']}: {races['witness']['says']}")
    if not races["found"]:
        out.append(f"races: none ({races['workgroups']} workgroups watched)")
    return out


def _trace(bundle: Bundle, context: Context, path: Path) -> int:
    """Execute workgroup 0 of the first planned launch once more and write a line for each step of a
    convoy.
    """
    from harness.execute.tier import recorded_session

    session = recorded_session(bundle, context)
    chosen = [[0] for _ in session.recorded.launches]
    count = 0
    with path.open("w") as stream:
        count = _write(session, chosen, stream)
    return count


def _write(session: Any, chosen: Sequence[Sequence[int]], stream: TextIO) -> int:
    lines = 0

    def trace(line: str) -> None:
        nonlocal lines
        lines += 1
        stream.write(line + "\n")

    session.run(chosen, Fair(), trace=trace)
    return lines


def _exit(found: Mapping[str, Mapping[str, Any]]) -> int:
    codes = [ExitCode.OK]
    for made in found.values():
        if "unavailable" in made:
            codes.append(ExitCode.NOT_MEASURED)
            continue
        for launch in made["launches"]:
            if "error" in launch:
                codes.append(ExitCode.INVALID)
            elif launch["races"]["found"] or not all(one["passed"] for one in launch["numerics"].values()):
                codes.append(ExitCode.DIFFERS)
    return max(codes)
