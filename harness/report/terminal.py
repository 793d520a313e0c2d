"""The table of `harness reproduce`: one row a claim, and under it what disagrees and what was not measured.

Knows rows (`harness.agreement`); must not know how they came about. Returns text: only the command line
prints.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.agreement import Row
from harness.report.words import LEGEND, cell, committed, published
from harness.verdict import TierResult, Verdict

__all__ = ["build", "lines", "table"]

_STYLES = {
    Verdict.REPRODUCED: "green",
    Verdict.CONTRADICTED: "red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.INVALID: "magenta",
    Verdict.NOT_COMPARABLE: "cyan",
    Verdict.NOT_MEASURED: "dim",
}

WIDTH = 150
"""Columns where the output goes to no terminal."""


def table(rows: Sequence[Row], order: Sequence[str], code: int) -> str:
    """The whole report as text, coloured where standard output is a terminal."""
    terminal = sys.stdout.isatty()
    console = Console(
        force_terminal=terminal, width=None if terminal else WIDTH, highlight=False, soft_wrap=False
    )
    with console.capture() as captured:
        console.print(build(rows, order))
        for line in lines(rows, order, code):
            console.print(line, overflow="fold")
    return captured.get().rstrip("\n")


def build(rows: Sequence[Row], order: Sequence[str]) -> Table:
    """The table alone."""
    many = len({row.bundle for row in rows}) > 1
    out = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=True, padding=(0, 2, 0, 0))
    out.add_column("claim", no_wrap=True)
    out.add_column("published", max_width=34)
    for tier in order:
        out.add_column(tier, max_width=30)
    out.add_column("committed", no_wrap=True)
    out.add_column("agrees")
    last = None
    for row in rows:
        if many and row.bundle != last:
            out.add_row(Text(row.bundle, style="bold"))
        last = row.bundle
        out.add_row(
            Text(("  " if many else "") + row.claim),
            Text(published(row.published, row.unit)),
            *(_cell(row.fresh.get(tier)) for tier in order),
            committed(row.committed, order),
            Text("yes", style="green") if row.agrees else Text("NO", style="bold red"),
        )
    return out


def _cell(result: TierResult | None) -> Text:
    return Text(cell(result), style=_STYLES[result.verdict] if result is not None else "dim")


def lines(rows: Sequence[Row], order: Sequence[str], code: int) -> list[Text]:
    """What stands under the table."""
    out = [Text(""), Text(f"{LEGEND}   · nothing to say", style="dim")]
    one = len({row.bundle for row in rows}) == 1
    if one:
        out += _why(rows, order)
    out += _differences(rows)
    out += _missing(rows, order)
    out.append(_sum(rows, order, code))
    return out


def _why(rows: Sequence[Row], order: Sequence[str]) -> list[Text]:
    """For one bundle: why each claim that did not come out REPRODUCED did not."""
    dull = (Verdict.REPRODUCED, Verdict.NOT_MEASURED)
    return [
        Text.assemble(
            (f"{row.claim} {tier} {result.verdict.value}", _STYLES[result.verdict]), f": {result.reason}"
        )
        for row in rows
        for tier in order
        if (result := row.fresh.get(tier)) is not None and result.verdict not in dull
        if tier not in row.differing()
    ]


def _differences(rows: Sequence[Row]) -> list[Text]:
    out = []
    for row in rows:
        for tier in row.differing():
            result = row.fresh[tier]
            before = row.committed.get(tier)
            was = f"committed {before.value}" if before is not None else "none committed"
            head = f"DISAGREES {row.bundle}/{row.claim} {tier}: {was}, now {result.verdict.value}"
            out.append(Text.assemble((head, "bold red"), f": {result.reason}"))
    return out


def _missing(rows: Sequence[Row], order: Sequence[str]) -> list[Text]:
    """One line for each reason why something could not be measured here, with what to do about it."""
    counts: Counter[tuple[str, str, str | None]] = Counter()
    where: dict[tuple[str, str, str | None], str] = {}
    for row in rows:
        for tier in order:
            result = row.fresh.get(tier)
            if result is not None and result.verdict is Verdict.NOT_MEASURED:
                key = (tier, result.reason.split("; ")[0], result.remedy)
                counts[key] += 1
                where.setdefault(key, f"{row.bundle}/{row.claim}")
    out = []
    for (tier, reason, remedy), count in counts.items():
        what = where[tier, reason, remedy] if count == 1 else f"{count} claims"
        out.append(
            Text.assemble(
                (f"not measured ({tier}, {what})", "dim"),
                f": {reason}",
                (f" → {remedy}" if remedy else "", "bold"),
            )
        )
    return out


def _sum(rows: Sequence[Row], order: Sequence[str], code: int) -> Text:
    parts = []
    for tier in order:
        counts = Counter(row.fresh[tier].verdict for row in rows if tier in row.fresh)
        said = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])
        parts.append(f"{tier}: {said or 'nothing'}")
    agree = sum(row.agrees for row in rows)
    return Text(f"{agree} of {len(rows)} claims agree (exit {code}). " + "; ".join(parts) + ".", style="bold")
