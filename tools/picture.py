"""Draws the README's picture: the real output of a real run, as an SVG.

    python tools/picture.py docs/reproduce-softmax.svg softmax --tier record --tier compile

What follows the file name goes to `harness reproduce`. Nothing is drawn that the command did not print.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402
from rich.text import Text  # noqa: E402

from harness import reproduce  # noqa: E402
from harness.agreement import exit_code  # noqa: E402
from harness.bundle import find  # noqa: E402
from harness.command import Silent  # noqa: E402
from harness.report.seal import write  # noqa: E402
from harness.report.terminal import table  # noqa: E402
from harness.tiers import Context  # noqa: E402

WIDTH = 132


def output(arguments: list[str]) -> str:
    """What `harness reproduce ARGUMENTS` prints on a terminal."""
    parser = argparse.ArgumentParser()
    reproduce.configure(parser)
    args = parser.parse_args(arguments)
    order = reproduce.tiers_of(args.tier)
    context = Context(None, args.offline, Silent(), args.root, {})
    runs = reproduce.reproduce(find(args.root, args.bundles), order, context)
    rows = [row for one in runs for row in one.rows]
    return table(rows, order, exit_code(rows, args.require), colour=True)


def main() -> int:
    """Run, draw, write."""
    if len(sys.argv) < 3 or not sys.argv[1].endswith(".svg"):
        print(__doc__, file=sys.stderr)
        return 2
    target, arguments = Path(sys.argv[1]), sys.argv[2:]
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ harness reproduce {' '.join(arguments)}", style="bold"))
    console.print(Text.from_ansi(output(arguments)), soft_wrap=False)
    svg = console.export_svg(title="harness reproduce", unique_id="reproduce")
    # Rich names a web font; a picture must not fetch anything.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)
    write(target, svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
