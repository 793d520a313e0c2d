"""The judge: intervals against scipy's own, decisions, looks, trend, Holm, and its error rates by
simulation."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.judge import many
from harness.judge.rule import ALPHA, LOOKS, Interval, classes, decide, interval, last_look
from harness.judge.sequential import judge
from harness.judge.trend import drifts, trend

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import judge_table

TAU = math.log(1.05)
values_of = st.lists(st.floats(-0.1, 0.1), min_size=5, max_size=20)


def wide(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, (high - low) / 2, 5, 4.0, (high - low) / 7)


def test_without_other_errors_the_interval_is_students() -> None:
    values = [0.01, 0.013, 0.008, 0.011, 0.012]
    found = interval(values, floor=0.0)
    low, high = stats.t.interval(1 - 2 * ALPHA, 4, stats.tmean(values), stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-12)
    assert found.df == pytest.approx(4)


def test_errors_add_in_squares_and_degrees_of_freedom_follow_welch_and_satterthwaite() -> None:
    values = [0.01, 0.013, 0.008, 0.011, 0.012]
    own = stats.sem(values) ** 2
    found = interval(values, floor=0.005, u0=0.01)
    assert found.error == pytest.approx(math.sqrt(own + 0.005**2 + 0.01**2))
    assert found.df == pytest.approx(found.error**4 / (own**2 / 4))
    known = interval(values, floor=0.0, u0=0.001, u0_df=7)
    assert known.df == pytest.approx((own + 1e-6) ** 2 / (own**2 / 4 + 1e-12 / 7))


def test_equal_values_leave_the_floor_alone() -> None:
    found = interval([0.02] * 5, floor=0.005)
    assert found.half == pytest.approx(stats.norm.ppf(1 - ALPHA) * 0.005)
    assert interval([0.02] * 5, floor=0.0).half == 0


@given(values_of, st.floats(-0.05, 0.05))
def test_shifting_the_target_shifts_the_interval_and_nothing_else(values: list[float], by: float) -> None:
    plain, moved = interval(values), interval(values).shifted(by)
    assert moved.mean == pytest.approx(plain.mean - by)
    assert (moved.half, moved.df) == (plain.half, plain.df)


@given(values_of)
def test_swapping_baseline_and_subject_mirrors_the_interval(values: list[float]) -> None:
    plain, mirrored = interval(values), interval([-v for v in values])
    assert (mirrored.low, mirrored.high) == pytest.approx((-plain.high, -plain.low))
    assert decide(plain, TAU) == decide(mirrored, TAU)


def test_decisions_at_the_edges() -> None:
    assert decide(wide(-0.04, 0.04), TAU) == "inside"
    assert decide(wide(-0.04, TAU), TAU) == "between", "the end of the tolerance is not inside it"
    assert decide(wide(TAU, 0.1), TAU) == "between", "nor outside"
    assert decide(wide(TAU + 1e-12, 0.1), TAU) == "outside"
    assert decide(wide(-0.2, -TAU - 1e-12), TAU) == "outside"
    assert decide(wide(-1, 1), TAU) == "between"


def test_classes() -> None:
    win, headroom = math.log(1.05), math.log(0.95)
    assert classes(wide(win, 1)) == "WIN" and classes(wide(-1, headroom)) == "HEADROOM"
    assert classes(wide(headroom + 1e-9, win - 1e-9)) == "PARITY"
    assert classes(wide(0, win)) == "BORDERLINE" and classes(wide(-1, 1)) == "BORDERLINE"


@given(st.integers(0, 40))
def test_the_last_look_reached(count: int) -> None:
    found = last_look(count, LOOKS)
    assert found in (0, *LOOKS) and found <= count
    assert not any(found < look <= count for look in LOOKS)


def test_a_clear_answer_ends_at_the_first_look_and_a_narrow_one_goes_on() -> None:
    clear = [0.002 * (-1) ** i for i in range(20)]
    found = judge(clear, 0.0, TAU)
    assert found is not None and (found.word, found.look, found.settled) == ("inside", 5, True)
    edge = [TAU + 0.001 * (-1) ** i for i in range(20)]
    found = judge(edge, 0.0, TAU)
    assert found is not None and (found.word, found.look, found.settled) == ("between", 20, True)
    part = judge(edge[:9], 0.0, TAU)
    assert part is not None and (part.look, part.settled) == (8, False)
    assert judge(clear[:4], 0.0, TAU) is None


@given(values_of, st.floats(-0.1, 0.1))
def test_a_run_judged_again_ends_where_it_ended(values: list[float], target: float) -> None:
    whole = judge(values, target, TAU)
    assert whole is not None
    if whole.settled:
        assert judge(values[: whole.look], target, TAU) == whole


def test_the_trend_is_that_of_linear_regression() -> None:
    rng = random.Random(3)
    values = [0.001 * i + rng.gauss(0, 0.004) for i in range(12)]
    fit = stats.linregress(range(12), values)
    found = trend(values)
    assert found.p == pytest.approx(fit.pvalue, rel=1e-9)
    assert found.rise == pytest.approx(fit.slope * 11)


def test_a_drift_is_called_one_only_when_it_is_sure_and_large() -> None:
    steep = [0.002 * i + 0.0001 * (-1) ** i for i in range(12)]
    assert drifts(steep, 0.005)
    assert not drifts([v / 100 for v in steep], 0.005), "the instrument floor covers it"
    assert not drifts([0.01 * (-1) ** i for i in range(12)], 0.005)
    assert trend([1.0, 1.0, 1.0]).p == 1.0 and trend([0.5] * 8).p == 1.0
    assert trend([0.1 * i for i in range(8)]).p < 1e-6
    drifting = judge([0.004 * i + 0.0001 * (-1) ** i for i in range(20)], 0.0, TAU)
    assert drifting is not None and drifting.word == "drifting"


def test_holm_steps_down_and_stops_at_the_first_that_holds() -> None:
    assert many.contradicted([0.001, 0.06, 0.03, 0.005], 0.05) == [True, False, False, True]
    assert many.contradicted([0.03, 0.03], 0.05) == [False, False]
    assert many.contradicted([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_never_finds_more_than_no_correction_nor_less_than_bonferroni(p_values: list[float]) -> None:
    found = many.contradicted(p_values, 0.05)
    for p, one in zip(p_values, found, strict=True):
        assert not one or p <= 0.05
        assert one or p > 0.05 / len(p_values)


def test_one_shapes_p_value_agrees_with_its_interval() -> None:
    rng = random.Random(5)
    for _ in range(300):
        delta = interval([rng.gauss(0.05, 0.02) for _ in range(8)])
        assert (decide(delta, TAU) == "outside") == (many.p_outside(delta, TAU) < ALPHA)


def test_the_resampled_mean_covers_and_repeats() -> None:
    rng = random.Random(7)
    columns = [[rng.gauss(m, 0.01) for _ in range(20)] for m in (0.0, 0.1, 0.2)]
    center, half = many.resampled_mean(columns)
    assert (center, half) == many.resampled_mean(columns)
    truth = stats.norm.ppf(1 - ALPHA) * 0.01 / math.sqrt(60)
    assert center == pytest.approx(0.1, abs=3 * truth) and half == pytest.approx(truth, rel=0.35)


# The acceptance of the rule, on fewer runs than docs/judge.md: the lower end of each Monte-Carlo interval
# must not
# exceed the bound, which a rule that really errs as often as claimed breaks once in 40 cells at the very
# bound.
RUNS = 400
STEADY = [noise for noise in judge_table.NOISES if "drift" not in noise]
SLOW_DRIFT = [noise for noise in judge_table.NOISES if "0.5" in noise]
FAST_DRIFT = [noise for noise in judge_table.NOISES if "1 to" in noise]


def test_every_noise_is_in_one_group() -> None:
    assert sorted([*STEADY, *SLOW_DRIFT, *FAST_DRIFT]) == sorted(judge_table.NOISES)


@pytest.mark.parametrize("noise", STEADY)
@pytest.mark.parametrize("sd", [0.005, 0.02])
def test_errors_and_power_under_steady_noise(noise: str, sd: float) -> None:
    for sign in (1, -1):
        cell = judge_table.simulate(noise, sd, sign * TAU, 0.0, RUNS)
        for word in judge_table.WRONG_AT_TAU:
            assert cell.interval(word)[0] <= 0.05, (noise, sd, sign, word, cell.words)
    power = judge_table.simulate(noise, sd, 0.0, 0.0, RUNS)
    assert power.interval("inside")[1] >= 0.95, (noise, sd, power.words)


@pytest.mark.parametrize("noise", SLOW_DRIFT)
def test_errors_under_a_slow_drift(noise: str) -> None:
    for sign in (1, -1):
        cell = judge_table.simulate(noise, 0.01, sign * TAU, 0.0, RUNS)
        for word in judge_table.WRONG_AT_TAU:
            assert cell.interval(word)[0] <= 0.05


@pytest.mark.parametrize("noise", FAST_DRIFT)
@pytest.mark.parametrize("sd", [0.01, 0.02])
def test_a_fast_drift_is_called_invalid_more_often_than_judged_wrongly(noise: str, sd: float) -> None:
    for sign in (1, -1):
        cell = judge_table.simulate(noise, sd, sign * TAU, 0.0, RUNS)
        wrong = sum(cell.words.get(word, 0) for word in judge_table.WRONG_AT_TAU)
        assert cell.words.get("drifting", 0) > wrong


def test_a_rule_without_its_floor_would_be_caught() -> None:
    """The simulation can fail: take the floor away, and skewed noise breaks the bound that the rule keeps."""
    rng = random.Random(11)
    draw = judge_table.NOISES["lognormal, skew +1.75"]
    wrong = 0
    for _ in range(RUNS):
        decision = judge([TAU + 0.01 * v for v in draw(rng)], 0.0, TAU, floor=0.0)
        assert decision is not None
        wrong += decision.word in judge_table.WRONG_AT_TAU
    cell = judge_table.Cell(RUNS, {"inside": wrong})
    assert cell.interval("inside")[0] > 0.05


def test_the_published_table_keeps_the_bounds(repo_root: Path) -> None:
    """Every row of docs/judge.md, read back: what its text promises is what its figures say."""
    lines = (repo_root / "docs" / "judge.md").read_text(encoding="utf-8").splitlines()
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    rows = [row for row in rows if row[0] in judge_table.NOISES]
    assert len(rows) == 2 * len(judge_table.NOISES) * len(judge_table.SDS)
    for noise, sd, power, *errors, invalid in rows:
        shares = [float(text.split(" ")[0]) for text in errors]
        upper = [float(text.split(", ")[1].rstrip("]")) for text in errors]
        if noise in STEADY or (noise in SLOW_DRIFT and float(sd) <= 1):
            assert max(shares) <= 5 and max(upper) <= 6, (noise, sd, errors)
        if noise in STEADY:
            assert float(power.split(" ")[0]) >= 95, (noise, sd, power)
        if noise in FAST_DRIFT and max(shares) > 5:
            assert float(invalid.split(" ")[0]) > sum(shares), (noise, sd, invalid, errors)
