"""`harness judge`: judge recorded samples again, anywhere.

The same kinds, the same rule, the same numbers as on the machine that measured; no device is touched. Reads
one evidence file, checks its hashes, and diffs the verdicts with the committed ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import verdicts
from harness.agreement import Row, exit_code
from harness.bundle import ROOT, Bundle, find
from harness.command import Outcome, Reporter
from harness.errors import HarnessError
from harness.gathering import judge
from harness.judge.many import contradicted
from harness.reproduce import Run
from harness.verdict import Verdict

__all__ = ["configure", "evidence_file", "run"]

TIER = "device"

_DECIDED = (Verdict.REPRODUCED, Verdict.CONTRADICTED, Verdict.INCONCLUSIVE)
"""Verdicts that the ratio itself gave, and not a gate."""


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
    family = _family(rows)
    data = {
        "bundles": [one.to_json()],
        "evidence": {"file": path.name, "sha256": evidence["sha256"], "created": evidence["created"]},
        "regimes": summary(evidence),
        "shapes_together": family,
        "exit_code": code,
    }
    if args.json:
        return Outcome(code, "", data)
    from harness.report.terminal import table

    return Outcome(code, table(rows, (TIER,), code) + _together(family), data)


def _family(rows: Sequence[Row]) -> dict[str, Any] | None:
    """What the ratios say when they are asked together: how many are contradicted one by one, and which by
    Holm's step-down, where chance may contradict none of them; None for fewer than two judged ratios."""
    asked = {
        row.claim: row.fresh[TIER]
        for row in rows
        if row.kind == "ratio"
        and "p_outside" in row.fresh[TIER].numbers
        and row.fresh[TIER].verdict in _DECIDED
    }
    if len(asked) < 2:
        return None
    found = contradicted([float(one.numbers["p_outside"]) for one in asked.values()])
    return {
        "ratios": len(asked),
        "contradicted": [name for name, one in asked.items() if one.verdict is Verdict.CONTRADICTED],
        "contradicted_holm": [name for name, sure in zip(asked, found, strict=True) if sure],
    }


def _together(family: Mapping[str, Any] | None) -> str:
    if family is None or not family["contradicted"]:
        return ""
    single, sure = len(family["contradicted"]), family["contradicted_holm"]
    names = f": {', '.join(sure)}" if sure else ""
    return (
        f"\n{single} of {family['ratios']} ratios contradicted one by one; "
        f"{len(sure)} when asked together (Holm){names}"
    )
