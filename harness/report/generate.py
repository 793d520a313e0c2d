"""The generated files of this repository: which there are, how to write them, and which are not current.

`update` writes verdicts.yaml and REPORT.md of each bundle and the scoreboard over all; `stale` tells
validation which of them were edited by hand or are older than what they were made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from harness import verdicts
from harness.bundle import Bundle, load_all
from harness.faults import Fault
from harness.gathering import was_available
from harness.report import markdown, scoreboard
from harness.report.seal import fault, write
from harness.tiers import Evidence
from harness.verdict import TIERS, TierResult

__all__ = ["Judged", "stale", "update"]


class Judged(Protocol):
    """What one bundle came to (`harness.reproduce.Run`)."""

    @property
    def bundle(self) -> Bundle: ...
    @property
    def evidence(self) -> Mapping[str, Evidence]: ...
    @property
    def results(self) -> Mapping[str, Mapping[str, TierResult]]: ...
    @property
    def committed(self) -> Mapping[str, Mapping[str, TierResult]]: ...


def update(runs: Sequence[Judged], root: Path) -> list[Path]:
    """Write all that follows from `runs`; each file whole or not at all. Returns the files written.

    A tier that did not run here, or could not, keeps its committed verdicts.
    """
    written: list[Path] = []
    for one in runs:
        kept = {tier: not was_available(one.evidence.get(tier, {})) for tier in TIERS}
        merged = verdicts.merge(one.committed, one.results, kept)
        path = one.bundle.path / verdicts.FILE
        write(path, verdicts.text(one.bundle, merged))
        report = one.bundle.path / markdown.FILE
        write(report, markdown.text(one.bundle, merged))
        written += [path, report]
    board = root / scoreboard.FILE
    write(board, scoreboard.text([(one, verdicts.read(one)) for one in load_all(root)], root))
    return [*written, board]


def stale(bundles: Iterable[Bundle], root: Path) -> list[Fault]:
    """A fault for each generated file under `root` that is missing, edited or out of date.

    What is made from a file that has a fault is not looked at: the same command makes both again.
    """
    out: list[Fault] = []

    def sound(path: Path, inputs: str) -> bool:
        message = fault(path, inputs)
        if message is not None:
            file = str(path.relative_to(root.parent)) if path.is_relative_to(root.parent) else str(path)
            out.append(Fault(file, 1, "", "generated", message))
        return message is None

    every = True
    for bundle in bundles:
        if sound(bundle.path / verdicts.FILE, verdicts.inputs(bundle)):
            sound(bundle.path / markdown.FILE, markdown.inputs(bundle))
        else:
            every = False
    if every:
        sound(root / scoreboard.FILE, scoreboard.inputs(root))
    return out
