"""How often the judge errs: simulated runs through `harness.judge.sequential`, written to docs/judge.md.

    python tools/judge_table.py [--runs N] [--check]

A run is 20 processes' log ratios, drawn around δ with a between-process sd and a kind of noise. δ = ±τ is the
worst case of both errors: there REPRODUCED and CONTRADICTED are both wrong. δ = 0 gives the power. Seeds are
fixed, so the table is the same wherever it is made.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.judge.rule import LOOKS  # noqa: E402
from harness.judge.sequential import judge  # noqa: E402

TAU = math.log(1.05)
SDS = (0.0025, 0.005, 0.01, 0.02)
COUNT = LOOKS[-1]
WRONG_AT_TAU = ("inside", "outside")

Noise = Callable[[random.Random], Sequence[float]]


def _gauss(rng: random.Random) -> list[float]:
    return [rng.gauss(0, 1) for _ in range(COUNT)]


def _t3(rng: random.Random) -> list[float]:
    # Student's t with 3 degrees of freedom, scaled to sd 1 (its variance is 3).
    return [
        rng.gauss(0, 1) / math.sqrt(sum(rng.gauss(0, 1) ** 2 for _ in range(3)) / 3) / math.sqrt(3)
        for _ in range(COUNT)
    ]


def _gamma(sign: float) -> Noise:
    # Gamma of shape 4: skewness 1, centred, sd 1.
    return lambda rng: [sign * (rng.gammavariate(4, 1) - 4) / 2 for _ in range(COUNT)]


def _lognormal(sign: float) -> Noise:
    # exp of a normal with sd 0.5: skewness 1.75, centred, sd 1.
    mean, sd = math.exp(0.125), math.sqrt((math.exp(0.25) - 1) * math.exp(0.25))
    return lambda rng: [sign * (math.exp(rng.gauss(0, 0.5)) - mean) / sd for _ in range(COUNT)]


def _outliers(rng: random.Random) -> list[float]:
    return [v + rng.choice((-5, 5)) if rng.random() < 0.05 else v for v in _gauss(rng)]


def _drift(reach: float) -> Noise:
    return lambda rng: [v + reach * (2 * i / (COUNT - 1) - 1) for i, v in enumerate(_gauss(rng))]


NOISES: dict[str, Noise] = {
    "gaussian": _gauss,
    "t, 3 df": _t3,
    "gamma, skew +1": _gamma(1),
    "gamma, skew -1": _gamma(-1),
    "lognormal, skew +1.75": _lognormal(1),
    "lognormal, skew -1.75": _lognormal(-1),
    "5 % outliers of 5 sd": _outliers,
    "drift, -0.5 to +0.5 sd": _drift(0.5),
    "drift, +0.5 to -0.5 sd": _drift(-0.5),
    "drift, -1 to +1 sd": _drift(1.0),
    "drift, +1 to -1 sd": _drift(-1.0),
}


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
        from scipy import special

        k = self.words.get(word, 0)
        low = 0.0 if k == 0 else float(special.betaincinv(k, self.runs - k + 1, 0.025))
        high = 1.0 if k == self.runs else float(special.betaincinv(k + 1, self.runs - k, 0.975))
        return low, high


def simulate(noise: str, sd: float, delta: float, u0: float, runs: int) -> Cell:
    """`runs` runs at a true difference `delta` from the published ratio, whose own error is drawn with sd
    `u0`."""
    rng = random.Random(f"{noise}/{sd}/{delta:.6f}/{u0}")
    words: dict[str, int] = {}
    draw = NOISES[noise]
    for _ in range(runs):
        published = rng.gauss(0, u0) if u0 else 0.0
        decision = judge([delta + sd * v for v in draw(rng)], published, TAU, u0=u0)
        assert decision is not None
        words[decision.word] = words.get(decision.word, 0) + 1
    return Cell(runs, words)


def _percent(cell: Cell, word: str) -> str:
    low, high = cell.interval(word)
    return f"{100 * cell.share(word):.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def table(u0: float, runs: int) -> list[str]:
    """One Markdown table: a row for each noise and sd."""
    head = "| noise | sd, % | power at δ = 0 | REPRODUCED at ±τ | CONTRADICTED at ±τ | INVALID at ±τ |"
    lines = [head, "|---|---:|---:|---:|---:|---:|"]
    for noise in NOISES:
        for sd in SDS:
            zero = simulate(noise, sd, 0.0, u0, runs)
            ends = [simulate(noise, sd, sign * TAU, u0, runs) for sign in (1, -1)]
            cells = [
                _percent(max(ends, key=lambda c: c.share(word)), word)
                for word in ("inside", "outside", "drifting")
            ]
            lines.append(f"| {noise} | {100 * sd:g} | {_percent(zero, 'inside')} | {' | '.join(cells)} |")
            print(lines[-1], file=sys.stderr, flush=True)
    return lines


def main() -> int:
    """Write docs/judge.md."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "judge.md")
    parser.add_argument("--only", help="one kind of noise, printed and not written")
    args = parser.parse_args()
    if args.only:
        for name in list(NOISES):
            if args.only not in name:
                del NOISES[name]
        for u0 in (0.0, 0.01):
            print("\n".join(table(u0, args.runs)))
        return 0
    text = ["# How often the judge errs", ""]
    text += [
        "Generated by `python tools/judge_table.py`; do not edit.",
        "",
        f"Each cell: {args.runs} simulated runs of at most {COUNT} processes through",
        "`harness.judge.sequential`, in percent with the 95 % Monte-Carlo interval (Clopper and Pearson).",
        f"τ = log 1.05, looks after {', '.join(map(str, LOOKS))} processes. At δ = ±τ both REPRODUCED and",
        "CONTRADICTED are errors; the larger of the two sides is shown. What is missing to 100 is",
        "INCONCLUSIVE. INVALID: the series drifts (`harness/judge/trend.py`).",
        "",
        "## Against raw samples (u0 = 0)",
        "",
        *table(0.0, args.runs),
        "",
        "## Against a published ratio without spread (u0 = 1 %)",
        "",
        *table(0.01, args.runs),
    ]
    args.out.write_text("\n".join(text) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
