"""Prints the measured figures of this project beside what they may be: `nox -s bench`.

    python tools/bench.py [--only WORD] [--json] [--strict]

Figures come from the modules `tools/bench_*.py` that have a function `figures()`, and from this file. A
figure is measured now, on this machine, in fresh processes where it says so; nothing is remembered.
`--strict` ends with 1 where a figure misses its limit.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Figure", "cpu_seconds", "figures", "harness_cpu"]

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Figure:
    """One measured figure. `limit` is the largest (or, with `at_least`, the smallest) that it may be; None
    for one that is only reported. `note` says how it was measured, or why it was not (`value` None).
    """

    name: str
    value: float | None
    unit: str
    limit: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def held(self) -> bool | None:
        """Whether the limit holds; None where there is none or nothing was measured."""
        if self.value is None or self.limit is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def cpu_seconds(command: list[str], repeats: int = 5) -> float:
    """The least user plus system time of `command` in a fresh process, children included, after one
    discarded run."""
    times = []
    for _ in range(repeats + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times[1:])


def harness_cpu(*arguments: str) -> float:
    """`cpu_seconds` of `python -m harness` with these arguments."""
    return cpu_seconds([sys.executable, "-m", "harness", *arguments])


def figures() -> Iterator[Figure]:
    """The figures of the spine."""
    note = "process time of a fresh process, least of 5"
    yield Figure("harness --help", harness_cpu("--help"), "s", 0.15, note=note)
    yield Figure("harness validate, all bundles", harness_cpu("validate"), "s", 0.7, note=note)
    record = harness_cpu("reproduce", "--tier", "record")
    yield Figure("harness reproduce --tier record, all bundles", record, "s", 1.0, note=note)


def sources() -> Iterator[tuple[str, Callable[[], Iterable[Figure]]]]:
    """Where figures come from: this file, then each `bench_*.py` beside it that has `figures`."""
    yield "bench", figures
    sys.path.insert(0, str(Path(__file__).parent))
    sys.path.insert(0, str(ROOT))
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        text = path.read_text(encoding="utf-8")
        if "def figures(" in text:
            yield path.stem, importlib.import_module(path.stem).figures


def line(figure: Figure) -> str:
    """One figure as a line."""
    if figure.value is None:
        return f"  {figure.name:<58} not measured: {figure.note}"
    sign = ">=" if figure.at_least else "<="
    limit = f"{sign} {figure.limit:g} {figure.unit}" if figure.limit is not None else ""
    mark = {True: "held", False: "MISSED", None: ""}[figure.held]
    measured = f"{figure.value:>12.4g} {figure.unit:<12}"
    return f"  {figure.name:<58} {measured} {limit:<18} {mark:<7} {figure.note}".rstrip()


def main() -> int:
    """Measure, print; 0, or with --strict 1 where a limit is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="WORD", help="only sources whose name holds WORD")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--strict", action="store_true")
    args = parser.parse_args()
    found: list[Figure] = []
    if not args.json:
        print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    for name, measure in sources():
        if args.only and args.only not in name:
            continue
        start = time.perf_counter()
        if not args.json:
            print(name)
        for figure in measure():
            found.append(figure)
            if not args.json:
                print(line(figure), flush=True)
        if not args.json:
            print(f"  ({time.perf_counter() - start:.0f} s)")
    if args.json:
        print(json.dumps([asdict(one) | {"held": one.held} for one in found], indent=1))
    return 1 if args.strict and any(one.held is False for one in found) else 0


if __name__ == "__main__":
    # Modules beside this one import `Figure` from `bench`: they must get this very module.
    sys.modules["bench"] = sys.modules["__main__"]
    sys.exit(main())
