"""Device evidence and what is said of it: identity, gates, controls, trend, decision; files cut, edited,
foreign."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.bundle import ROOT, Bundle, load
from harness.cli import main
from harness.device import record, verdicts
from harness.device.judging import judge_pair, levels, stopping
from harness.device.plan import COLD, EAGER, plan_from_json
from harness.device.samples import log_ratio
from harness.errors import HarnessError
from harness.verdict import TierResult, Verdict
from tests.device_samples import evidence, noisy, plan, process

PAIR = "ratio:torch-softmax"
BUNDLES = ROOT


@pytest.fixture(scope="module")
def instrument() -> Bundle:
    """The committed bundle."""
    return load(BUNDLES / "instrument")


def verdict(center: float, published: float, sd: float = 0.003, count: int = 20, u0: float = 0.01) -> Verdict:
    """The verdict on `published` of processes around `center` (both log scale)."""
    p = plan()
    return judge_pair(p, noisy(p, center, sd, count), COLD, PAIR, math.exp(published), u0=u0).verdict


def test_the_decision() -> None:
    assert verdict(1.0, 1.0) is Verdict.REPRODUCED
    assert verdict(1.0, 1.0 + 2.2 * plan().tau) is Verdict.CONTRADICTED
    assert verdict(1.0, 1.0 - 2.2 * plan().tau) is Verdict.CONTRADICTED
    assert verdict(1.0, 1.0 + plan().tau) is Verdict.INCONCLUSIVE
    assert verdict(1.0, 1.0, sd=0.2) in (Verdict.INCONCLUSIVE, Verdict.INVALID)
    assert verdict(1.0, 1.0, count=4) is Verdict.INCONCLUSIVE


def test_a_subject_six_per_cent_slower_is_contradicted_and_three_per_cent_is_not() -> None:
    slower = 1.0 + math.log(1 - 0.06)
    assert verdict(slower, 1.0, sd=0.002, u0=0.0003) is Verdict.CONTRADICTED
    assert verdict(1.0 + math.log(1 - 0.03), 1.0, sd=0.002, u0=0.0003) is not Verdict.CONTRADICTED


@given(st.floats(-0.5, 0.5), st.booleans())
@settings(max_examples=40, deadline=None)
def test_direction_a_slower_subject_lowers_the_ratio(log: float, aa: bool) -> None:
    made = process(plan(), 0, log, aa=0.01 if aa else 0.0)
    assert log_ratio(made, COLD, PAIR) == pytest.approx(log, abs=3e-6)
    assert log_ratio(made, EAGER, "a/a") == pytest.approx(0.01 if aa else 0.0, abs=3e-6)


def test_levels_are_nanoseconds_a_launch() -> None:
    p = plan()
    processes = noisy(p, 1.0, 1e-6, 5)
    subject = [math.exp(v) for v in levels(p, processes, COLD, PAIR, "subject")]
    assert subject == pytest.approx([9000] * 5, rel=1e-4)
    baseline = [math.exp(v) for v in levels(p, processes, EAGER, PAIR, "baseline")]
    assert baseline == pytest.approx([9000 * math.e] * 5, rel=1e-4)


def changed(processes: list[dict[str, Any]], path: tuple[Any, ...], value: Any) -> list[dict[str, Any]]:
    """The processes with one value of the third of them changed."""
    out = copy.deepcopy(processes)
    at: Any = out[2]
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return out


@pytest.mark.parametrize(
    ("path", "value", "expected", "said"),
    [
        (("fault",), "timeout", Verdict.INVALID, "timeout"),
        (("fault",), "busy", Verdict.INVALID, "busy"),
        (("fault",), "clock", Verdict.INVALID, "clock"),
        (("fault",), "arch", Verdict.NOT_COMPARABLE, "arch"),
        (("fault",), "device", Verdict.NOT_MEASURED, "device"),
        (("gates", 0, "passed"), False, Verdict.INVALID, "exclusive"),
        (("sizing", "rotation"), 2.5, Verdict.INVALID, "2.50 of the last-level cache"),
        (("steady", COLD, "steady"), False, Verdict.INVALID, "never became steady"),
    ],
)
def test_a_gate_is_never_a_contradiction(
    path: tuple[Any, ...], value: Any, expected: Verdict, said: str
) -> None:
    p = plan()
    processes = changed(noisy(p, 1.0, 0.003, 8), path, value)
    judged = judge_pair(p, processes, COLD, PAIR, math.exp(5.0), u0=0.01)
    assert judged.verdict is expected and said in judged.reason


def test_a_gate_that_cannot_be_told_does_not_fail() -> None:
    p = plan()
    processes = changed(noisy(p, 1.0, 0.003, 8), ("gates", 0, "passed"), None)
    assert judge_pair(p, processes, COLD, PAIR, math.e, u0=0.01).verdict is Verdict.REPRODUCED


def test_an_interrupted_process_is_marked_and_does_not_count() -> None:
    p = plan()
    processes = noisy(p, 1.0, 0.003, 8)
    processes[3] = {**processes[3], "complete": False, "fault": "interrupted"}
    judged = judge_pair(p, processes, COLD, PAIR, math.e, u0=0.01)
    assert judged.verdict is Verdict.REPRODUCED and judged.theta is not None and judged.theta.count == 5


def test_controls_gate_the_run() -> None:
    p = plan()
    wide = [process(p, i, 1.0, aa=0.05 * (-1) ** i) for i in range(8)]
    off = [process(p, i, 1.0, aa=0.04 + 0.001 * (i % 2)) for i in range(8)]
    missed = [process(p, i, 1.0, positive=0.001 * (i % 3)) for i in range(8)]
    for processes, said in (
        (wide, "A/A is known to"),
        (off, "A/A reads"),
        (missed, "positive control missed"),
    ):
        judged = judge_pair(p, processes, COLD, PAIR, math.e, u0=0.01)
        assert judged.verdict is Verdict.INVALID and said in judged.reason


def test_a_trend_over_the_processes_is_invalid() -> None:
    p = plan()
    drifting = [process(p, i, 1.03 + 0.004 * i + 0.0005 * (-1) ** i) for i in range(20)]
    judged = judge_pair(p, drifting, COLD, PAIR, math.e, u0=0.01)
    assert judged.verdict is Verdict.INVALID and "not stationary" in judged.reason


def test_the_parent_stops_when_it_is_decided_and_not_before() -> None:
    p = plan()
    shape = replace(p.shapes[0], published={"torch-softmax": math.e})
    told = p.with_(shapes=(shape,))
    assert stopping(told, shape, noisy(told, 1.0, 0.003, 5)).done
    assert not stopping(told, shape, noisy(told, 1.0 + told.tau, 0.003, 5)).done
    assert stopping(told, shape, noisy(told, 1.0 + told.tau, 0.003, 20)).done
    assert stopping(p, p.shapes[0], noisy(p, 1.0, 0.003, 5)).done
    assert not stopping(p, p.shapes[0], noisy(p, 1.0, 0.05, 5)).done


def said(bundle: Bundle, claim: str, found: dict[str, Any]) -> TierResult:
    """What the device tier says of one claim of the bundle."""
    from harness.kinds import judge

    result = judge("device", bundle.claim(claim), bundle, found)
    assert result is not None
    return result


def test_identity_comes_first(instrument: Bundle) -> None:
    p = plan()
    same = evidence(p, noisy(p, math.log(3.41191), 0.003, 8))
    assert said(instrument, "ratio-1024x8192", same).verdict is Verdict.REPRODUCED
    other = evidence(p, noisy(p, math.log(9.0), 0.003, 8), name="NVIDIA L4", arch="sm_89")
    assert said(instrument, "ratio-1024x8192", other).verdict is Verdict.NOT_COMPARABLE
    assert said(instrument, "aa-1024x8192", other).verdict is Verdict.REPRODUCED
    assert said(instrument, "positive-1024x8192", other).verdict is Verdict.REPRODUCED
    assert said(instrument, "ratio-64x256", same).verdict is Verdict.NOT_MEASURED
    softmax = load(BUNDLES / "softmax")
    assert said(softmax, "ratio", same).verdict is Verdict.INVALID
    theirs = evidence(p.with_(bundle="softmax"), noisy(p, 1.0, 0.003, 8))
    assert said(softmax, "ratio", theirs).verdict is Verdict.NOT_COMPARABLE
    assert said(softmax, "class", theirs).verdict is Verdict.NOT_COMPARABLE
    assert said(softmax, "subject-latency", theirs).verdict is Verdict.NOT_COMPARABLE


def on_mi350x(ratio: float, subject_us: float) -> dict[str, Any]:
    """Softmax evidence as an MI350X would give it: eager ratio and subject latency as named."""
    p = plan(bundle="softmax")
    shape = replace(p.shapes[0], id="captured", judged=(EAGER,), baselines=("torch-softmax",))
    p = p.with_(shapes=(shape,))
    processes = noisy(p, math.log(ratio), 0.003, 8)
    for one in processes:
        samples = one["regimes"][EAGER]["pairs"][PAIR]
        samples["ns"] = [[round(v / 9000 * subject_us * 1000) for v in row] for row in samples["ns"]]
    return evidence(p, processes, name="AMD Instinct MI350X", arch="gfx950")


def test_the_studys_kinds_on_its_own_device() -> None:
    softmax = load(BUNDLES / "softmax")
    good = on_mi350x(2.05, 271.8)
    assert said(softmax, "ratio", good).verdict is Verdict.REPRODUCED
    assert said(softmax, "class", good).verdict is Verdict.REPRODUCED
    latency = said(softmax, "subject-latency", good)
    assert latency.verdict is Verdict.REPRODUCED and latency.value == pytest.approx(271.8, rel=1e-3)
    bad = on_mi350x(1.2, 400.0)
    assert said(softmax, "ratio", bad).verdict is Verdict.CONTRADICTED
    assert said(softmax, "subject-latency", bad).verdict is Verdict.CONTRADICTED
    assert said(softmax, "class", on_mi350x(1.0, 271.8)).value == "PARITY"
    assert said(softmax, "class", on_mi350x(1.0, 271.8)).verdict is Verdict.CONTRADICTED
    kernel = said(softmax, "ratio-kernel", good)
    assert kernel.verdict is Verdict.NOT_MEASURED and kernel.remedy is not None


def committed(instrument: Bundle) -> list[Path]:
    """The captures of the bundle."""
    return sorted((instrument.path / "evidence").glob("device-*.json"))


def test_committed_evidence_gives_the_committed_verdicts_bit_for_bit(
    instrument: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    from harness.verdicts import read

    assert main(["judge", "instrument", "--json"]) == 0
    fresh = json.loads(capsys.readouterr().out)
    known = read(instrument)
    claims = fresh["bundles"][0]["claims"]
    assert len(claims) == len(instrument.claims)
    for claim in claims:
        found = claim["tiers"]["device"]
        was = known[claim["id"]]["device"]
        assert (found["verdict"], found["value"], found["reason"]) == (
            was.verdict.value,
            was.value,
            was.reason,
        )


@pytest.mark.parametrize(("name", "expected"), [("slower-6", "CONTRADICTED"), ("slower-3", "REPRODUCED")])
def test_a_subject_made_slower_on_an_h200(
    repo_root: Path, instrument: Bundle, name: str, expected: str
) -> None:
    """Recorded: more launches of the same kernel on the subject's side, so that its ratio is 0.94 or 0.97
    of itself."""
    found = record.read(repo_root / "tests" / "data" / "device" / f"{name}.json")
    assert found["environment"]["device"]["name"] == "NVIDIA H200"
    result = said(instrument, "ratio-1024x8192", found)
    assert result.verdict.value == expected
    assert said(instrument, "aa-1024x8192", found).verdict is Verdict.REPRODUCED


def test_the_second_capture_is_of_another_run_and_a_a_is_within_the_figure(instrument: Bundle) -> None:
    import statistics

    first, second = (record.read(path) for path in committed(instrument))
    assert first["created"] != second["created"] and first["plan_sha256"] != second["plan_sha256"]
    for found in (first, second):
        for shape in found["shapes"]:
            values = [log_ratio(p, COLD, "a/a") for p in shape["processes"]]
            pools = [abs(math.expm1(statistics.fmean(values[i : i + 5]))) for i in range(0, 20, 5)]
            assert len(values) == 20 and max(pools) < 0.003


def test_the_tables_are_made_from_the_evidence(repo_root: Path) -> None:
    import subprocess
    import sys

    tool = repo_root / "tools" / "measuring_tables.py"
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or "docs/measuring.md: run tools/measuring_tables.py"


def test_published_ratios_are_those_of_the_first_capture(instrument: Bundle) -> None:
    import statistics

    for claim in instrument.claims:
        if claim.kind != "ratio":
            continue
        first = record.read(instrument.path / "evidence" / str(claim.fields["evidence"]))
        shape = next(s for s in first["shapes"] if s["id"] == claim.workload)
        values = [log_ratio(p, COLD, PAIR) for p in shape["processes"]]
        assert claim.published == round(math.exp(statistics.fmean(values)), 5)
        error = statistics.stdev(values) / math.sqrt(len(values))
        assert claim.fields["published_se"] == pytest.approx(error, abs=1e-6)
        assert claim.fields["published_df"] == len(values) - 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A small sound evidence file."""
    p = plan()
    path = tmp_path / "device-x.json"
    record.write(path, evidence(p, noisy(p, 1.0, 0.003, 5)))
    return path


def test_a_file_cut_anywhere_is_refused(file: Path) -> None:
    raw = file.read_bytes()
    for cut in range(0, len(raw) - 2, max(1, len(raw) // 60)):
        file.write_bytes(raw[:cut])
        with pytest.raises(HarnessError):
            record.read(file)


def test_an_edited_sample_is_refused(file: Path) -> None:
    data = json.loads(file.read_text())
    data["shapes"][0]["processes"][0]["regimes"][COLD]["pairs"][PAIR]["ns"][0][0] += 1
    file.write_text(json.dumps(data))
    with pytest.raises(HarnessError, match="sha256"):
        record.read(file)
    file.write_text(json.dumps(record.seal(data)))  # the seal made anew: the process's own hash still tells
    with pytest.raises(HarnessError, match="does not match its sha256"):
        record.read(file)


def test_an_edited_plan_is_refused(file: Path) -> None:
    data = json.loads(file.read_text())
    data["plan"]["tau"] = 0.5
    file.write_text(json.dumps(record.seal(data)))
    with pytest.raises(HarnessError, match="plan"):
        record.read(file)


def test_samples_of_another_claim_are_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", "softmax", "--evidence", str(file)]) == 2
    assert "not of 'softmax'" in capsys.readouterr().err


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_mutated_evidence_never_gives_a_traceback(data: st.DataObject) -> None:
    p = plan()
    text = bytearray(record.render(evidence(p, noisy(p, 1.0, 0.003, 2))).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(32, 126))
    try:
        found = json.loads(text)
    except ValueError:
        return
    try:
        record.verify(found)
    except HarnessError:
        return
    assert found == evidence(p, noisy(p, 1.0, 0.003, 2))  # the mutation changed nothing


def test_a_plan_survives_its_own_json() -> None:
    p = plan()
    assert plan_from_json(json.loads(json.dumps(p.to_json()))) == p
    assert plan_from_json(p.to_json()).sha256 == p.sha256 == p.with_(start="fork", limit_s=1.0).sha256
    with pytest.raises(HarnessError):
        plan_from_json({"shapes": [{"id": "x"}]})
    with pytest.raises(HarnessError):
        p.with_(regimes=("wishful",))


def test_all_regimes_are_shown_side_by_side() -> None:
    p = plan()
    rows = verdicts.summary(evidence(p, noisy(p, 1.0, 0.003, 5)))
    assert {row["regime"] for row in rows} == set(p.regimes)
    assert {row["pair"] for row in rows} == {PAIR, "a/a", "positive"}
