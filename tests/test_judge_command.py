"""`harness judge` on evidence of several shapes: what is contradicted one by one, and what asked together."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.bundle import ROOT, Bundle, load
from harness.cli import main
from harness.device.record import digest, seal
from harness.judge.rule import FLOOR
from tests.device_samples import evidence, plan, process

SHAPES = ("64x256", "1024x8192", "32768x8192")


@pytest.fixture(scope="module")
def instrument() -> Bundle:
    """The committed bundle."""
    return load(ROOT / "instrument")


def made(bundle: Bundle, errors: dict[str, float]) -> dict[str, Any]:
    """Evidence of 20 equal processes a shape, each off the published ratio by tolerance + so many standard
    errors (downwards: a slower subject), or on it where `errors` does not name the shape."""
    one = plan()
    whole = replace(one, shapes=tuple(replace(one.shapes[0], id=name) for name in SHAPES))
    shapes = []
    for name in SHAPES:
        claim = bundle.claim(f"ratio-{name}")
        error = math.hypot(FLOOR, float(claim.fields["published_se"]))
        off = math.log1p(claim.tolerance or 0.05) + errors[name] * error if name in errors else 0.0
        value = math.log(float(claim.published)) - off
        shapes.append({"id": name, "processes": [process(whole, i, value) for i in range(20)]})
    return seal({**evidence(whole, []), "shapes": shapes})


def judged(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: dict[str, Any], *more: str) -> str:
    file = tmp_path / "device-made.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    main(["judge", "instrument", "--evidence", str(file), *more])
    return capsys.readouterr().out


def test_a_contradiction_that_asking_thrice_explains_is_said_to_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], instrument: Bundle
) -> None:
    """2.4 standard errors beyond: p = 0.008, less than 0.0125 alone and more than a third of it."""
    data = made(instrument, {"64x256": 2.4})
    together = json.loads(judged(tmp_path, capsys, data, "--json"))["shapes_together"]
    assert together == {"ratios": 3, "contradicted": ["ratio-64x256"], "contradicted_holm": []}
    said = judged(tmp_path, capsys, data)
    assert "1 of 3 ratios contradicted one by one; 0 when asked together (Holm)" in said


def test_sure_contradictions_stand_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], instrument: Bundle
) -> None:
    """The surest goes first and lowers what the next has to pass: 2.4 errors stand beside two of 6, not
    alone."""
    data = made(instrument, {"64x256": 6.0, "1024x8192": 2.4, "32768x8192": 6.0})
    together = json.loads(judged(tmp_path, capsys, data, "--json"))["shapes_together"]
    assert together["contradicted_holm"] == ["ratio-64x256", "ratio-1024x8192", "ratio-32768x8192"]


def test_where_nothing_is_contradicted_nothing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], instrument: Bundle
) -> None:
    assert "Holm" not in judged(tmp_path, capsys, made(instrument, {}))


def test_samples_at_the_floor_are_invalid_whatever_they_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], instrument: Bundle
) -> None:
    data = made(instrument, {"64x256": 6.0})
    for one in data["shapes"][0]["processes"]:
        one["sizing"]["floor_ns"] = 100_000
        one["sha256"] = digest({key: value for key, value in one.items() if key != "sha256"})
    report = json.loads(judged(tmp_path, capsys, seal(data), "--json"))
    claims = {claim["id"]: claim["tiers"]["device"] for claim in report["bundles"][0]["claims"]}
    assert claims["ratio-64x256"]["verdict"] == "INVALID"
    assert "FLOOR_LIMITED" in claims["ratio-64x256"]["reason"]
    assert claims["ratio-1024x8192"]["verdict"] == "REPRODUCED"


def test_judged_twice_the_same_to_the_bit(capsys: pytest.CaptureFixture[str]) -> None:
    """And what is committed is what the committed evidence says."""
    first, second = [], []
    for into in (first, second):
        main(["judge", "instrument", "--evidence", "device-h200-1", "--json"])
        into.append(capsys.readouterr().out)
    assert first == second
    assert json.loads(first[0])["exit_code"] == 0
