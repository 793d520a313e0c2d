"""How often the judge errs: simulated runs, written to docs/judge.md.

    python tools/judge_table.py [--runs N] [--only NOISE]

A run is 20 processes' log ratios, drawn around δ with a between-process sd and a kind of noise, and judged
by `harness.judge.batch`, which a test holds equal to the judge of single series. δ = ±τ is the worst case of
both errors: there REPRODUCED and CONTRADICTED are both wrong. δ = 0 gives the power. Seeds are fixed and the
stream of `numpy.random.RandomState` is frozen, so the table is the same wherever it is made.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.judge.batch import judge_all  # noqa: E402
from harness.judge.rule import FLOOR, LOOKS  # noqa: E402
from harness.judge.trend import TREND_P  # noqa: E402

TAU = math.log(1.05)
SDS = (0.0025, 0.005, 0.01, 0.02)
COUNT = LOOKS[-1]
WORDS = ("inside", "outside", "drifting")
WRONG_AT_TAU = ("inside", "outside")

Random = np.random.RandomState
Array = Any
Noise = Callable[[Random, int], Array]
"""(stream, runs) -> (runs, COUNT) float64 in units of the between-process sd, mean 0."""


def _gauss(rng: Random, runs: int) -> Array:
    return rng.standard_normal((runs, COUNT))


def _t3(rng: Random, runs: int) -> Array:
    # Student's t with 3 degrees of freedom has variance 3.
    return rng.standard_t(3, (runs, COUNT)) / math.sqrt(3)


def _gamma(rng: Random, runs: int) -> Array:
    # Gamma of shape 4: mean 4, sd 2, skewness 1.
    return (rng.standard_gamma(4, (runs, COUNT)) - 4) / 2


def _lognormal(width: float) -> Noise:
    # exp of a normal with sd `width`; skewness 1.75 at 0.5, 6.18 at 1.
    grown = math.exp(width * width)
    mean, sd = math.sqrt(grown), math.sqrt((grown - 1) * grown)
    return lambda rng, runs: (np.exp(width * rng.standard_normal((runs, COUNT))) - mean) / sd


def _outliers(rng: Random, runs: int) -> Array:
    # 5 in 100 processes thrown by 5 sd to either side: the sd of the whole is 1.5 times that of the rest.
    thrown = rng.random_sample((runs, COUNT)) < 0.05
    return _gauss(rng, runs) + thrown * rng.choice([-5.0, 5.0], (runs, COUNT))


def _outliers_whole(rng: Random, runs: int) -> Array:
    return _outliers(rng, runs) / 1.5


def _drift(reach: float) -> Noise:
    return lambda rng, runs: _gauss(rng, runs) + np.linspace(-reach, reach, COUNT)


NOISES: dict[str, Noise] = {
    "gaussian": _gauss,
    "t, 3 df": _t3,
    "gamma, skewness 1": _gamma,
    "lognormal, skewness 1.75": _lognormal(0.5),
    "lognormal, skewness 6.2": _lognormal(1.0),
    "5 % outliers, sd of the whole": _outliers_whole,
    "5 % outliers of 5 sd on top": _outliers,
    "drift, ±0.5 sd": _drift(0.5),
    "drift, ±1 sd": _drift(1.0),
}
SLOW, FAST = "drift, ±0.5 sd", "drift, ±1 sd"
WIDER = {"5 % outliers of 5 sd on top": 1.5}
"""Noises whose sd as a whole is this many times the one in the table."""


@dataclass(frozen=True)
class Cell:
    """Counts of each word over `runs` runs."""

    runs: int
    words: dict[str, int]

    def share(self, word: str) -> float:
        """The share of runs that ended in `word`."""
        return self.words.get(word, 0) / self.runs

    def interval(self, word: str) -> tuple[float, float]:
        """Its 95 % interval (Clopper and Pearson)."""
        k = self.words.get(word, 0)
        low = 0.0 if k == 0 else float(special.betaincinv(k, self.runs - k + 1, 0.025))
        high = 1.0 if k == self.runs else float(special.betaincinv(k + 1, self.runs - k, 0.975))
        return low, high


def draw(noise: str, sd: float, delta: float, u0: float, runs: int) -> tuple[Array, Array]:
    """(values, targets): log ratios of `runs` runs at a true difference `delta`, and what was published,
    whose own error is drawn with sd `u0`."""
    name = f"{noise}/{sd}/{delta:.6f}/{u0}".encode()
    rng = Random(int.from_bytes(hashlib.sha256(name).digest()[:4], "little"))
    targets = u0 * rng.standard_normal(runs)
    return delta + sd * NOISES[noise](rng, runs), targets


def simulate(
    noise: str,
    sd: float,
    delta: float,
    u0: float,
    runs: int,
    *,
    floor: float = FLOOR,
    trend_p: float = TREND_P,
) -> Cell:
    """`runs` runs through the rule; `floor` = 0 or `trend_p` = 0 leaves a part of it out."""
    values, targets = draw(noise, sd, delta, u0, runs)
    words, _ = judge_all(values, targets, TAU, u0=u0, floor=floor, trend_p=trend_p)
    return Cell(runs, {word: int((words == word).sum()) for word in WORDS})


@dataclass(frozen=True)
class Line:
    """One row of the table: the power, and at each end ±τ the counts of what may go wrong."""

    noise: str
    sd: float
    u0: float
    zero: Cell
    ends: tuple[Cell, Cell]

    def worst(self, word: str) -> Cell:
        """The end of ±τ at which `word` is the more frequent."""
        return max(self.ends, key=lambda cell: cell.share(word))

    def cells(self) -> list[str]:
        """Its cells as text."""
        shown = [_percent(self.zero, "inside"), *(_percent(self.worst(word), word) for word in WORDS)]
        return [self.noise, f"{100 * self.sd:g}", *shown]


def line(noise: str, sd: float, u0: float, runs: int, **rule: float) -> Line:
    """Simulate one row."""
    first, second = (simulate(noise, sd, sign * TAU, u0, runs, **rule) for sign in (1, -1))
    return Line(noise, sd, u0, simulate(noise, sd, 0.0, u0, runs, **rule), (first, second))


def broken(one: Line) -> list[str]:
    """What of the acceptance this row does not keep (empty: all of it)."""
    faults = []
    wrong = {word: one.worst(word) for word in WRONG_AT_TAU}
    bounded = one.noise not in (SLOW, FAST) or (one.noise == SLOW and one.sd <= 0.01)
    for word, cell in wrong.items():
        if bounded and (cell.share(word) > 0.05 or cell.interval(word)[1] > 0.06):
            faults.append(f"{word} at ±τ: {_percent(cell, word)} %")
    powerful = one.noise not in (SLOW, FAST) and WIDER.get(one.noise, 1) * one.sd <= 0.02
    if powerful and one.zero.share("inside") < 0.95:
        faults.append(f"power {_percent(one.zero, 'inside')} %")
    if one.noise in (SLOW, FAST):
        for cell in one.ends:
            missed = sum(cell.share(word) for word in WRONG_AT_TAU)
            if cell.share("drifting") <= missed and missed > 0:
                faults.append(f"INVALID {_percent(cell, 'drifting')} %, wrong {100 * missed:.1f} %")
    return faults


def _percent(cell: Cell, word: str) -> str:
    low, high = cell.interval(word)
    return f"{100 * cell.share(word):.1f} [{100 * low:.1f}, {100 * high:.1f}]"


HEAD = [
    "| noise | sd, % | power at δ = 0 | REPRODUCED at ±τ | CONTRADICTED at ±τ | INVALID at ±τ |",
    "|---|---:|---:|---:|---:|---:|",
]


def table(u0: float, runs: int, noises: list[str], sds: tuple[float, ...] = SDS, **rule: float) -> list[str]:
    """One Markdown table: a row for each noise and sd; what breaks the acceptance goes to stderr."""
    lines = []
    for noise in noises:
        for sd in sds:
            one = line(noise, sd, u0, runs, **rule)
            lines.append(f"| {' | '.join(one.cells())} |")
            if not rule:
                for fault in broken(one):
                    print(f"u0 {u0:g}, {noise}, sd {100 * sd:g} %: {fault}", file=sys.stderr)
    return [*HEAD, *lines]


def text(runs: int) -> str:
    """docs/judge.md."""
    every = list(NOISES)
    looks = ", ".join(map(str, LOOKS))
    shown = [
        "# How often the judge errs",
        "",
        "Generated by `python tools/judge_table.py`; do not edit.",
        "",
        f"Each cell: {runs:,} simulated runs of at most {COUNT} processes, in percent with the 95 % Monte-",
        "Carlo interval (Clopper and Pearson). The rule is `harness/judge/batch.py`; a test holds it equal,",
        "series by series, to the judge of real samples (`harness/judge/sequential.py`). τ = log 1.05, looks",
        f"after {looks} processes. At δ = ±τ both REPRODUCED and CONTRADICTED are errors; of the two ends",
        "the worse is shown. What is missing to 100 is INCONCLUSIVE. INVALID: the series drifts",
        "(`harness/judge/trend.py`).",
        "",
        'sd is that of the values between processes. Of "outliers on top" it is that of the other 95 %: the',
        "whole spreads 1.5 times as much, 3 % in its last row. A drift of ±1 sd runs from −1 to +1 sd over",
        f"the {COUNT} processes; the truth is the mean of all of them.",
        "",
        "Promised: both errors at most 5 % (upper end at most 6 %) without drift, and with drift of ±0.5 sd",
        "at sd ≤ 1 %; power at least 95 % without drift, up to a spread of 2 % as a whole; with drift,",
        "INVALID more often than a wrong word. A test reads every row of this file and holds it to that.",
        "",
        "A drift of ±1 sd at sd 2 % is judged wrongly in an eighth to a quarter of the runs: the first five",
        "processes hold too little of it to be seen.",
        "",
        "## Against raw samples (u0 = 0)",
        "",
        *table(0.0, runs, every),
        "",
        "## Against a published ratio without spread (u0 = 1 %)",
        "",
        *table(0.01, runs, every),
        "",
        "## What the parts of the rule are for (u0 = 0, sd 1 %)",
        "",
        "Without the instrument floor:",
        "",
        *table(0.0, runs, every, (0.01,), floor=0.0, trend_p=0.0),
        "",
        "With it, without the test of stationarity:",
        "",
        *table(0.0, runs, every, (0.01,), trend_p=0.0),
    ]
    return "\n".join(shown) + "\n"


def main() -> int:
    """Write docs/judge.md."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=10000)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "judge.md")
    parser.add_argument("--only", help="noises whose name holds this, printed and not written")
    args = parser.parse_args()
    if args.only:
        chosen = [name for name in NOISES if args.only in name]
        for u0 in (0.0, 0.01):
            print("\n".join(table(u0, args.runs, chosen)))
        return 0
    args.out.write_text(text(args.runs), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
