"""`harness reproduce`: gather fresh evidence, judge it, and diff the fresh verdicts with the committed ones.

The whole flow is here, left to right: bundles, claims, evidence of each tier, verdicts, difference, report.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import verdicts
from harness.agreement import Row, exit_code
from harness.bundle import ROOT, Bundle, find, require_workload
from harness.command import Outcome, Reporter
from harness.errors import HarnessError
from harness.gathering import committed, gather, judge, speaking, was_available
from harness.output import prove, writing
from harness.report.seal import write
from harness.tiers import Context, Evidence
from harness.verdict import TIERS, TierResult

__all__ = ["Run", "configure", "reproduce", "run"]

Gatherer = Callable[[str, Bundle, Context], Evidence]
"""Where a tier's evidence about a bundle comes from: the machine, or this repository."""

OPTIONS = ("layer", "workload", "seed")
"""Arguments that are handed to the tiers as they are; each tier reads its own."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "bundles", nargs="*", metavar="BUNDLE", help="bundle ids or directories (default: all)"
    )
    parser.add_argument(
        "--tier",
        action="append",
        choices=(*TIERS, "auto"),
        help="tier to run, repeatable; auto (default) is every tier, each as far as this machine can",
    )
    parser.add_argument(
        "--require",
        action="append",
        choices=TIERS,
        default=[],
        help="run this tier, and end with 50 where it measured nothing",
    )
    parser.add_argument("--out", type=Path, help="keep evidence and artefacts in this directory")
    parser.add_argument("--offline", action="store_true", help="use no network")
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and run nothing")
    parser.add_argument(
        "--update-verdicts", action="store_true", help="commit the fresh verdicts and regenerate reports"
    )
    parser.add_argument(
        "--committed", action="store_true", help="judge the committed evidence again instead of gathering"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="directory of bundles")
    parser.add_argument("--layer", help="commit of the FlyDSL Python layer to compile with")
    parser.add_argument("--workload", help="only this workload (compile, execute, device)")
    parser.add_argument("--seed", type=int, help="seed of the inputs (execute, device)")


@dataclass(frozen=True)
class Run:
    """One bundle's run: its rows, the evidence of each tier that ran, and the results by claim and tier."""

    bundle: Bundle
    rows: tuple[Row, ...]
    evidence: Mapping[str, Evidence]
    results: Mapping[str, Mapping[str, TierResult]]
    committed: Mapping[str, Mapping[str, TierResult]]

    def to_json(self) -> dict[str, Any]:
        """The bundle as `--json` has it."""
        return {
            "id": self.bundle.id,
            "title": self.bundle.title,
            "claims": [row.to_json() for row in self.rows],
        }


def run(args: argparse.Namespace, reporter: Reporter) -> Outcome:
    """Reproduce the bundles named. Raises HarnessError for bad input; a verdict is never an error."""
    order = tiers_of([*args.tier, *args.require] if args.tier else None)  # what is required runs
    bundles = find(args.root, args.bundles)
    options = _options(args, bundles)
    if args.dry_run:
        return _plan(bundles, order, options)
    if args.out is not None:
        prove(args.out)
    context = Context(args.out, args.offline, reporter, args.root, options)
    runs = reproduce(bundles, order, context, committed if args.committed else gather)
    rows = [row for one in runs for row in one.rows]
    code = exit_code(rows, args.require)
    data = {"bundles": [one.to_json() for one in runs], "tiers": list(order), "exit_code": code}
    if args.out is not None:
        with writing(args.out, "name a directory that can be with --out"):
            _keep(args.out, runs, data)
    if args.update_verdicts:
        from harness.report.generate import update

        with writing(args.root, "work in a checkout of your own (--root)"):
            reporter.say(f"wrote {len(update(runs, args.root))} files")
    if args.json:
        return Outcome(code, "", data)
    from harness.report.terminal import table

    return Outcome(code, table(rows, order, code), data)


def _options(args: argparse.Namespace, bundles: Sequence[Bundle]) -> dict[str, Any]:
    """What the tiers are told. Raises HarnessError for a workload or layer that there is none of: a typing
    error must not read as something that this machine cannot measure."""
    options = {name: getattr(args, name) for name in OPTIONS if getattr(args, name) is not None}
    if options.get("seed", 0) < 0:
        raise HarnessError(f"--seed: is negative (got {options['seed']})", remedy="give 0 or more")
    if "workload" in options:
        require_workload(bundles, options["workload"])
    if "layer" in options:
        from harness.compile.layers import full_commit

        options["layer"] = full_commit(options["layer"])
    return options


def tiers_of(asked: Sequence[str] | None) -> tuple[str, ...]:
    """The tiers that were asked for, from cheap to dear."""
    if not asked or "auto" in asked:
        return TIERS
    return tuple(tier for tier in TIERS if tier in asked)


def reproduce(
    bundles: Sequence[Bundle], order: Sequence[str], context: Context, gathering: Gatherer = gather
) -> tuple[Run, ...]:
    """Gather, judge and compare, bundle by bundle."""
    slow = gathering is not committed and any(tier != "record" for tier in order)
    if not slow:
        return tuple(_one(bundle, order, context, gathering) for bundle in bundles)
    with context.reporter.task("reproduce", total=len(bundles) * len(order)) as task:
        return tuple(_one(bundle, order, context, gathering, task) for bundle in bundles)


def _one(
    bundle: Bundle, order: Sequence[str], context: Context, gathering: Gatherer, task: Any = None
) -> Run:
    evidence: dict[str, Evidence] = {}
    for tier in order:
        if task is not None:
            task.advance(0, f"{bundle.id} {tier}")
        evidence[tier] = gathering(tier, bundle, context)
        if task is not None:
            task.advance(1, f"{bundle.id} {tier}")
    results = judge(bundle, evidence, order)
    held = verdicts.read(bundle)
    rows = tuple(
        Row(
            bundle=bundle.id,
            claim=claim.id,
            kind=claim.kind,
            published=claim.published,
            unit=claim.unit,
            fresh=results[claim.id],
            committed={tier: one.verdict for tier, one in held.get(claim.id, {}).items()},
        )
        for claim in bundle.claims
    )
    return Run(bundle, rows, evidence, results, held)


def _plan(bundles: Sequence[Bundle], order: Sequence[str], options: Mapping[str, Any]) -> Outcome:
    """What would run: how many claims each tier would be asked about, and what the device tier would time."""
    counts = {one.id: {tier: speaking(tier, one) for tier in order} for one in bundles}
    lines = [
        f"{name}: " + ", ".join(f"{tier} {n}" for tier, n in tiers.items()) for name, tiers in counts.items()
    ]
    plan = [{"id": name, "claims": tiers} for name, tiers in counts.items()]
    data: dict[str, Any] = {"plan": plan, "exit_code": 0}
    if "device" in order:
        from harness.device.tier import dry_run, dry_text

        timed = {one.id: dry_run(one, options) for one in bundles}
        data["device"] = {
            name: {"shapes": rows, "left_out": dict(out)} for name, (rows, out) in timed.items()
        }
        lines += ["what the device tier would time:"]
        lines += [line for name, (rows, out) in timed.items() for line in dry_text(name, rows, out)]
    text = "\n".join(["claims that each tier would be asked about:", *lines])
    return Outcome(0, text, data)


def _keep(out: Path, runs: Sequence[Run], data: Mapping[str, Any]) -> None:
    """Leave what was found in `out`: one evidence file a tier and bundle, and the result of the run."""
    for one in runs:
        for tier, evidence in one.evidence.items():
            if was_available(evidence):
                write(
                    out / one.bundle.id / f"{tier}.json", json.dumps(evidence, indent=1, default=str) + "\n"
                )
    write(out / "reproduce.json", json.dumps(data, indent=1, default=str) + "\n")
