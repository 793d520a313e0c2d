"""`harness audit --study DIR`: every published figure that the study's raw files can decide, decided again.

Knows how an audit is shown, and writes `evidence/study.json` under `--update`. Must not judge.
"""

from __future__ import annotations

import argparse
import gc
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.command import Outcome, Reporter
from harness.errors import HarnessError
from harness.verdict import ExitCode, Verdict

if TYPE_CHECKING:
    from harness.record.audit import BundleAudit

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of `harness audit`."""
    parser.add_argument("bundles", nargs="*", metavar="BUNDLE", help="bundles to audit (default: all)")
    parser.add_argument(
        "--study",
        type=Path,
        help="the study's raw files: unpacked, a checkout, or a directory of .tar.gz (STUDY_SRC)",
    )
    parser.add_argument("--update", action="store_true", help="write bundles/<id>/evidence/study.json anew")
    parser.add_argument("--all", action="store_true", help="show figures that agree, too")


def run(args: argparse.Namespace, reporter: Reporter) -> Outcome:
    """Audit. Exit 10 where the committed evidence is not what the raw files give, else 0."""
    from harness import evidence as store
    from harness.bundle import ROOT, find
    from harness.record.audit import audit
    from harness.record.study_evidence import gather

    study = args.study or (Path(os.environ["STUDY_SRC"]) if os.environ.get("STUDY_SRC") else None)
    if study is None:
        raise HarnessError(
            "no study named", remedy="pass --study DIR or set STUDY_SRC to the study's raw files"
        )
    collecting = gc.isenabled()
    gc.disable()  # decoded rows hold no cycles; the collector would only walk them
    try:
        bundles = find(ROOT, args.bundles)
        raw = gather(study)
        if not raw.captures and not raw.rows:
            raise HarnessError(
                f"{study}: holds neither captures nor benchmark rows",
                remedy="point --study at the study's examples/ or at its unpacked captures",
            )
        audits = []
        with reporter.task("audit", len(bundles)) as task:
            for bundle in bundles:
                audits.append(audit(bundle, raw, ROOT))
                task.advance(note=bundle.id)
    finally:
        if collecting:
            gc.enable()
    changed = [one for one in audits if one.changed]
    if args.update:
        paths = {bundle.id: bundle.path for bundle in bundles}
        for one in changed:
            store.write(paths[one.bundle], "study", one.evidence)
    data: dict[str, Any] = {
        "study": str(study),
        "captures": len(raw.captures),
        "bytes": raw.bytes,
        "bundles": [one.to_json() for one in audits],
        "faults": [fault.to_json() for fault in raw.faults],
        "updated": [one.bundle for one in changed] if args.update else [],
    }
    code = ExitCode.DIFFERS if changed and not args.update else ExitCode.OK
    text = "\n".join(_text(audits, args.all, args.update, raw.bytes, len(raw.captures)))
    return Outcome(code, text, data)


def _text(
    audits: list[BundleAudit], everything: bool, update: bool, size: int, captures: int
) -> Iterator[str]:
    for one in audits:
        counts = Counter(figure.match for figure in one.figures)
        shown = ", ".join(f"{count} {match}" for match, count in sorted(counts.items()))
        origin = (
            "from its raw captures" if one.from_captures else "from collected facts; no raw captures here"
        )
        yield f"{one.bundle} ({origin}): {shown}"
        for figure in one.figures:
            if everything or figure.verdict not in (Verdict.REPRODUCED, Verdict.NOT_MEASURED):
                published = _brief(figure.published)
                yield f"  {figure.verdict.value:<14} {figure.claim:<26} {published}: {figure.reason}"
        for finding in one.findings:
            yield f"  found {finding.rule}: {finding.text}"
            for name, (left, right) in finding.differs.items():
                yield f"        {name}: {_brief(left)}  |  {_brief(right)}"
        yield ""
    rules = Counter(finding.rule for one in audits for finding in one.findings)
    yield f"{captures} captures, {size / 1e6:.0f} MB read; found: " + (
        ", ".join(f"{rule} {count}" for rule, count in rules.most_common()) or "nothing"
    )
    changed = [one.bundle for one in audits if one.changed]
    if changed:
        done = "written" if update else "differs from what is committed (--update writes it)"
        yield f"evidence/study.json of {', '.join(changed)}: {done}"


def _brief(value: Any) -> str:
    if value is None:
        return "(not said)"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 90 else text[:87] + "..."
