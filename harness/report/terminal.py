"""The table of `harness reproduce`: one row a claim, and under it what disagrees and what was not measured.

Knows rows (`harness.agreement`); must not know how they came about. Returns text: only the command line
prints. It is laid out here and not by a library because all bundles together are some 700 rows, and the
record tier has a second for everything.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from harness.agreement import Row
from harness.report.words import LEGEND, cell, committed, published
from harness.verdict import TierResult, Verdict

__all__ = ["table"]

_STYLES: Mapping[Verdict, str] = {
    Verdict.REPRODUCED: "32",
    Verdict.CONTRADICTED: "31",
    Verdict.INCONCLUSIVE: "33",
    Verdict.INVALID: "35",
    Verdict.NOT_COMPARABLE: "36",
    Verdict.NOT_MEASURED: "2",
}
"""ANSI colours."""

_BOLD, _DIM, _ALARM = "1", "2", "1;31"
_WIDTHS = {"published": 34, "tier": 28}
"""Widest cells; longer ones are cut, the whole text is in `--json`."""

_NARROWEST = {"claim": 10, "published": 9, "tier": 8}
"""How far a column gives way on a narrow terminal; below that, lines wrap."""

Cell = tuple[str, str | None]
Paint = Callable[[str, str | None], str]


def table(
    rows: Sequence[Row],
    order: Sequence[str],
    code: int,
    *,
    colour: bool | None = None,
    width: int | None = None,
) -> str:
    """The whole report as text; where standard output is a terminal, coloured and as wide as that."""
    terminal = sys.stdout.isatty()
    if width is None and terminal:
        width = shutil.get_terminal_size().columns
    paint = _paint if (terminal if colour is None else colour) else _plain
    out = list(_table(rows, order, paint, width))
    out += ["", paint(f"{LEGEND}   · nothing to say", _DIM)]
    if len({row.bundle for row in rows}) == 1:
        out += _why(rows, order, paint)
    out += _differences(rows, paint)
    out += _missing(rows, order, paint)
    out.append(_sum(rows, order, code, paint))
    return "\n".join(out)


def _plain(text: str, style: str | None) -> str:
    return text


def _paint(text: str, style: str | None) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if style else text


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _fit(text: str, width: int) -> str:
    """`text` cut to `width`; where words do not fit beside the sign of NOT_MEASURED, the sign says it."""
    return text[0] if len(text) > width and text.startswith("– ") else _cut(text, width)


def _narrowed(widths: Sequence[int], tiers: int, room: int) -> list[int]:
    """`widths` of the columns, narrowed until a line of `room` characters holds them all or none can give
    more: the widest first, the claims' names last."""
    out = list(widths)
    least = [_NARROWEST["claim"], _NARROWEST["published"], *[_NARROWEST["tier"]] * tiers]
    while sum(out) + 2 * (len(out) - 1) > room:
        can = [at for at, one in enumerate(least) if out[at] > one]
        if not can:
            break
        out[max(can, key=lambda at: (at > 0, out[at] - least[at], at))] -= 1
    return out


def _table(rows: Sequence[Row], order: Sequence[str], paint: Paint, room: int | None = None) -> Iterator[str]:
    """Header and rows, each column as wide as its widest cell, or narrower where `room` asks for it."""
    many = len({row.bundle for row in rows}) > 1
    lines: list[tuple[Cell, ...] | str] = [
        tuple((name, _BOLD) for name in ("claim", "published", *order, "committed", "agrees"))
    ]
    last = None
    for row in rows:
        if many and row.bundle != last:
            lines.append(row.bundle)
        last = row.bundle
        lines.append(
            (
                (("  " if many else "") + row.claim, None),
                (_cut(published(row.published, row.unit, row.kind), _WIDTHS["published"]), None),
                *(_cell(row.fresh.get(tier)) for tier in order),
                (committed(row.committed, order), None),
                ("yes", _STYLES[Verdict.REPRODUCED]) if row.agrees else ("NO", _ALARM),
            )
        )
    cells = [line for line in lines if not isinstance(line, str)]
    widths = [max(len(line[column][0]) for line in cells) for column in range(len(order) + 3)]
    widths.append(len("agrees"))
    if room is not None:
        widths = _narrowed(widths, len(order), room)
    for line in lines:
        if isinstance(line, str):
            yield paint(line, _BOLD)
        else:
            parts = [
                paint(_fit(text, width).ljust(width), style)
                for (text, style), width in zip(line[:-1], widths[:-1], strict=True)
            ]
            yield "  ".join([*parts, paint(*line[-1])])


def _cell(result: TierResult | None) -> Cell:
    if result is None:
        return "·", _DIM
    return _cut(cell(result), _WIDTHS["tier"]), _STYLES[result.verdict]


def _why(rows: Sequence[Row], order: Sequence[str], paint: Paint) -> Iterator[str]:
    """For one bundle: why each claim that did not come out REPRODUCED did not."""
    dull = (Verdict.REPRODUCED, Verdict.NOT_MEASURED)
    for row in rows:
        for tier in order:
            result = row.fresh.get(tier)
            if result is not None and result.verdict not in dull and tier not in row.differing():
                head = paint(f"{row.claim} ({tier}) {result.verdict.value}", _STYLES[result.verdict])
                yield f"{head}: {result.reason}"


def _differences(rows: Sequence[Row], paint: Paint) -> Iterator[str]:
    for row in rows:
        for tier in row.differing():
            result = row.fresh[tier]
            before = row.committed.get(tier)
            was = f"committed {before.value}" if before is not None else "none committed"
            head = f"DISAGREES {row.bundle}/{row.claim} ({tier}): {was}, now {result.verdict.value}"
            yield f"{paint(head, _ALARM)}: {result.reason}"


def _missing(rows: Sequence[Row], order: Sequence[str], paint: Paint) -> Iterator[str]:
    """One line for each reason why something could not be measured here, with what to do about it."""
    counts: Counter[tuple[str, str, str | None]] = Counter()
    where: dict[tuple[str, str, str | None], str] = {}
    for tier in order:
        for row in rows:
            result = row.fresh.get(tier)
            if result is not None and result.verdict is Verdict.NOT_MEASURED:
                key = (tier, result.reason.split("; ")[0], result.remedy)
                counts[key] += 1
                where.setdefault(key, f"{row.bundle}/{row.claim}")
    for (tier, reason, remedy), count in counts.items():
        what = where[tier, reason, remedy] if count == 1 else f"{count} claims"
        head = paint(f"not measured ({tier}, {what})", _DIM)
        yield f"{head}: {reason}" + (f" → {remedy}" if remedy else "")


def _sum(rows: Sequence[Row], order: Sequence[str], code: int, paint: Paint) -> str:
    parts = []
    for tier in order:
        counts = Counter(row.fresh[tier].verdict for row in rows if tier in row.fresh)
        said = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])
        parts.append(f"{tier}: {said or 'nothing'}")
    agree = sum(row.agrees for row in rows)
    text = f"{agree} of {len(rows)} claims agree (exit {code}). " + "; ".join(parts) + "."
    return paint(text, _BOLD)
