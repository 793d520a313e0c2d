"""`harness judge`: judge recorded samples again, anywhere.

The same kinds, the same rule, the same numbers as on the machine that measured; no device is touched. Reads
one evidence file, checks its hashes, and diffs the verdicts with the committed ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness import verdicts
from harness.agreement import Row, exit_code
from harness.bundle import ROOT, Bundle, find
from harness.command import Outcome, Reporter
from harness.errors import HarnessError
from harness.gathering import judge
from harness.reproduce import Run

__all__ = ["configure", "evidence_file", "run"]

TIER = "device"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("bundle", metavar="BUNDLE", help="bundle id or directory")
    parser.add_argument(
        "--evidence",
        metavar="FILE",
        help="device evidence: a path, or a name in the bundle's evidence/ (default: the last device-*.json)",
    )
    parser.add_argument(
        "--update-verdicts", action="store_true", help="commit what this evidence says and regenerate reports"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="directory of bundles")


def evidence_file(bundle: Bundle, named: str | None) -> Path:
    """The file that `named` means. HarnessError where there is none."""
    folder = bundle.path / "evidence"
    if named is None:
        files = sorted(folder.glob("device-*.json"))
        if not files:
            raise HarnessError(
                f"{bundle.id}: no device evidence in {folder}", remedy="name one with --evidence FILE"
            )
        return files[-1]
    for path in (Path(named), folder / named, folder / f"{named}.json"):
        if path.is_file():
            return path
    raise HarnessError(f"{named}: no such evidence file", remedy=f"a path, or a name in {folder}")


def run(args: argparse.Namespace, reporter: Reporter) -> Outcome:
    """Judge one file. HarnessError where it is truncated, edited or of another bundle."""
    from harness.device import record
    from harness.device.verdicts import summary

    (bundle,) = find(args.root, [args.bundle])
    path = evidence_file(bundle, args.evidence)
    evidence = record.read(path)
    if evidence["bundle"] != bundle.id:
        raise HarnessError(
            f"{path}: samples of bundle {evidence['bundle']!r}, not of {bundle.id!r}",
            remedy=f"harness judge {evidence['bundle']} --evidence {path}",
        )
    results = judge(bundle, {TIER: evidence}, (TIER,))
    committed = verdicts.read(bundle)
    rows = tuple(
        Row(
            bundle=bundle.id,
            claim=claim.id,
            kind=claim.kind,
            published=claim.published,
            unit=claim.unit,
            fresh=results[claim.id],
            committed={t: one.verdict for t, one in committed.get(claim.id, {}).items() if t == TIER},
        )
        for claim in bundle.claims
        if results[claim.id]
    )
    one = Run(bundle, rows, {TIER: evidence}, results, committed)
    if args.update_verdicts:
        from harness.report.generate import update

        reporter.say(f"wrote {len(update([one], args.root))} files")
    code = exit_code(rows, ())
    data = {
        "bundles": [one.to_json()],
        "evidence": {"file": path.name, "sha256": evidence["sha256"], "created": evidence["created"]},
        "regimes": summary(evidence),
        "exit_code": code,
    }
    if args.json:
        return Outcome(code, "", data)
    from harness.report.terminal import table

    return Outcome(code, table(rows, (TIER,), code), data)
