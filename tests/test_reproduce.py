"""`harness reproduce`: agreement, exit codes, the difference that one digit makes, and what is left where
it stops."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import cli, gathering, reproduce, tiers, verdicts
from harness.agreement import Row, agrees, exit_code
from harness.bundle import Bundle, load
from harness.command import Outcome, Silent
from harness.errors import HarnessError
from harness.verdict import TIERS, ExitCode, TierResult, Verdict

NONE, SAME = None, "same"
PLAIN = {
    Verdict.REPRODUCED: 0,
    Verdict.CONTRADICTED: 10,
    Verdict.INCONCLUSIVE: 20,
    Verdict.INVALID: 30,
    Verdict.NOT_COMPARABLE: 40,
    Verdict.NOT_MEASURED: 0,
}


def row(fresh: Mapping[str, Verdict], committed: Mapping[str, Verdict] | None = None) -> Row:
    results = {tier: TierResult(verdict, None, "because") for tier, verdict in fresh.items()}
    return Row("b", "c", "ratio", 1.0, None, results, committed or {})


@pytest.mark.parametrize(("verdict", "code"), PLAIN.items())
def test_what_a_verdict_costs_where_none_was_committed(verdict: Verdict, code: int) -> None:
    assert row({"record": verdict}).exit_code() == code
    assert row({"record": verdict}, {"record": Verdict.NOT_MEASURED}).exit_code() == code
    assert row({"record": verdict}).agrees is (code == 0)


@pytest.mark.parametrize("verdict", Verdict)
def test_finding_again_what_was_committed_is_agreement(verdict: Verdict) -> None:
    assert row({"record": verdict}, {"record": verdict}).exit_code(required=TIERS) == 0


@given(fresh=st.sampled_from(Verdict), committed=st.sampled_from(Verdict))
def test_a_difference_costs_at_least_ten(fresh: Verdict, committed: Verdict) -> None:
    code = row({"record": fresh}, {"record": committed}).exit_code()
    assert (code == 0) is agrees(fresh, committed)
    assert code in (0, 10, 20, 30, 40)
    if committed is Verdict.REPRODUCED and fresh not in (Verdict.REPRODUCED, Verdict.NOT_MEASURED):
        assert code == max(10, PLAIN[fresh])
    if committed is Verdict.CONTRADICTED and fresh is Verdict.REPRODUCED:
        assert code == 10


def test_not_measured_disagrees_with_nothing_unless_it_is_required() -> None:
    gone = row({"device": Verdict.NOT_MEASURED}, {"device": Verdict.REPRODUCED})
    assert gone.exit_code() == 0 and gone.agrees
    assert gone.exit_code(required=["device"]) == 50
    assert gone.exit_code(required=["compile"]) == 0
    assert row({"device": Verdict.NOT_MEASURED}).exit_code(required=["device"]) == 50


@given(st.lists(st.tuples(st.sampled_from(Verdict), st.sampled_from([None, *Verdict])), max_size=6))
def test_the_worst_row_wins(pairs: list[tuple[Verdict, Verdict | None]]) -> None:
    rows = [row({"record": fresh}, {"record": old} if old else {}) for fresh, old in pairs]
    assert exit_code(rows) == max((one.exit_code() for one in rows), default=0)


def run(root: Path, *arguments: str) -> Outcome:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    reproduce.configure(parser)
    return reproduce.run(parser.parse_args(["--root", str(root), *arguments]), Silent())


@pytest.fixture
def root(tmp_path: Path, repo_root: Path) -> Path:
    """Two real bundles in a directory of their own."""
    for name in ("softmax", "rope"):
        shutil.copytree(repo_root / "bundles" / name, tmp_path / "bundles" / name)
    return tmp_path / "bundles"


def entries(outcome: Outcome, bundle: str) -> dict[str, Any]:
    found = next(one for one in outcome.data["bundles"] if one["id"] == bundle)
    return {one["id"]: one for one in found["claims"]}


def test_the_record_of_all_bundles_agrees_with_what_is_committed(repo_root: Path) -> None:
    outcome = run(repo_root / "bundles", "--tier", "record", "--json")
    differing = [
        f"{bundle['id']}/{claim['id']}"
        for bundle in outcome.data["bundles"]
        for claim in bundle["claims"]
        if not claim["agrees"]
    ]
    assert (outcome.exit_code, differing) == (0, [])
    assert len(outcome.data["bundles"]) >= 19


CONTRADICTED = (
    "softmax/throughput",
    "layernorm/throughput",
    "rmsnorm/throughput",
    "rope/subject-latency-kernel",
    "topk-gating/subject-latency-kernel",
    "paged-attention/subject-latency-kernel",
    *(
        f"{name}/occupancy"
        for name in ("softmax", "hgemm-splitk", "moe-gemm", "layernorm", "quant", "moe-reduce")
    ),
    *(
        f"{name}/occupancy"
        for name in ("topk-gating", "paged-attention", "rmsnorm", "mla-decode", "flash-attn")
    ),
    "preshuffle-gemm-v2/occupancy",
)


def test_what_the_record_refutes(repo_root: Path) -> None:
    outcome = run(repo_root / "bundles", "--tier", "record")
    for name in CONTRADICTED:
        bundle, claim = name.split("/")
        result = entries(outcome, bundle)[claim]["tiers"]["record"]
        assert result["verdict"] == "CONTRADICTED", name
        assert any(digit.isdigit() for digit in result["reason"])


def test_what_the_record_upholds(repo_root: Path) -> None:
    outcome = run(repo_root / "bundles", "--tier", "record")
    ratios = [
        claims["ratio"]["tiers"]["record"]["verdict"]
        for bundle in outcome.data["bundles"]
        if "ratio" in (claims := entries(outcome, bundle["id"]))
    ]
    assert ratios == ["REPRODUCED"] * 16
    for bundle in ("quant", "moe-reduce"):
        assert entries(outcome, bundle)["throughput"]["tiers"]["record"]["verdict"] == "REPRODUCED"


def test_wave_states_and_the_capture_without_work(repo_root: Path) -> None:
    outcome = run(repo_root / "bundles", "--tier", "record")
    for bundle in ("flash-attn", "mqa-logits-fp4"):
        result = entries(outcome, bundle)["trace-wave-states"]["tiers"]["record"]
        assert result["verdict"] == "CONTRADICTED" and "shifted by one" in result["reason"]
    mla = entries(outcome, "mla-decode")
    for claim in ("trace-stall-share", "trace-taxonomy", "trace-dominant-stall"):
        result = mla[claim]["tiers"]["record"]
        assert result["verdict"] == "INVALID" and "17 of 4,948" in result["reason"]


def flip(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_one_digit_of_a_published_latency_ends_with_ten_and_the_row_that_says_why(root: Path) -> None:
    flip(root / "softmax" / "bundle.yaml", "published: 271.8", "published: 291.8")
    outcome = run(root, "softmax", "--tier", "record")
    assert outcome.exit_code == 10
    ratio = entries(outcome, "softmax")["ratio"]
    assert not ratio["agrees"] and ratio["committed"]["record"] == "REPRODUCED"
    assert ratio["tiers"]["record"]["verdict"] == "CONTRADICTED"
    assert (
        "DISAGREES softmax/ratio (record): committed REPRODUCED, now CONTRADICTED: 558 µs / 291.8 µs"
        in outcome.text
    )
    assert re.search(r"^ratio +2\.05 +✘ 1\.912 +✔ +NO$", outcome.text, re.M)


def test_the_table_without_colour_has_a_row_a_claim(root: Path) -> None:
    outcome = run(root, "softmax", "--tier", "record")
    names = [claim.id for claim in load(root / "softmax").claims]
    assert all(re.search(rf"^{re.escape(name)} ", outcome.text, re.M) for name in names)
    assert "\x1b" not in outcome.text
    assert outcome.text.splitlines()[0].split() == ["claim", "published", "record", "committed", "agrees"]


def test_json_has_the_keys_of_the_design(root: Path) -> None:
    outcome = run(root, "--tier", "record", "--json")
    data = json.loads(json.dumps(outcome.data, allow_nan=False))
    assert data["exit_code"] == 0 and [one["id"] for one in data["bundles"]] == ["rope", "softmax"]
    for claim in data["bundles"][0]["claims"]:
        assert set(claim) >= {"id", "kind", "published", "tiers", "committed", "agrees"}
        assert all(set(result) >= {"verdict", "value", "reason"} for result in claim["tiers"].values())
    assert outcome.text == ""


def fake(monkeypatch: pytest.MonkeyPatch, **gathers: Any) -> None:
    """Replace tiers by functions; those not named are as they are."""
    real = tiers.tier

    class Fake:
        def __init__(self, gather: Any) -> None:
            self.gather = gather

    monkeypatch.setattr(tiers, "tier", lambda name: Fake(gathers[name]) if name in gathers else real(name))


def test_a_tier_that_cannot_work_here_gives_its_remedy_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(monkeypatch, device=lambda bundle, context: tiers.unavailable("no MI350X here", "run it on one"))
    outcome = run(root, "softmax", "--tier", "record", "--tier", "device")
    assert outcome.exit_code == 0
    lines = [line for line in outcome.text.splitlines() if "no MI350X here → run it on one" in line]
    assert len(lines) == 1 and re.search(r"\(device, \d+ claims\)", lines[0])
    assert run(root, "softmax", "--tier", "device", "--require", "device").exit_code == ExitCode.NOT_MEASURED
    assert run(root, "softmax", "--tier", "record", "--require", "device").exit_code == ExitCode.NOT_MEASURED


def test_a_missing_package_is_a_gap_and_not_a_traceback(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(bundle: Bundle, context: tiers.Context) -> tiers.Evidence:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    fake(monkeypatch, compile=gather)
    outcome = run(root, "softmax", "--tier", "compile")
    assert outcome.exit_code == 0 and "torch is not installed → pip install '.[compile]'" in outcome.text


def test_a_failing_later_tier_does_not_hide_the_record(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(bundle: Bundle, context: tiers.Context) -> tiers.Evidence:
        raise HarnessError("the cache is read-only", remedy="set HARNESS_CACHE")

    fake(monkeypatch, compile=gather)
    outcome = run(root, "softmax", "--tier", "record", "--tier", "compile")
    assert outcome.exit_code == 0 and "the cache is read-only → set HARNESS_CACHE" in outcome.text
    assert entries(outcome, "softmax")["ratio"]["tiers"]["record"]["verdict"] == "REPRODUCED"


def test_options_reach_the_tiers(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tiers.Context] = []

    def gather(bundle: Bundle, context: tiers.Context) -> tiers.Evidence:
        seen.append(context)
        return tiers.unavailable("no", "yes")

    fake(monkeypatch, compile=gather)
    run(root, "rope", "--tier", "compile", "--offline", "--layer", "wheel", "--out", str(tmp_path / "out"))
    assert seen[0].offline and seen[0].options["layer"] == "wheel" and seen[0].out == tmp_path / "out"


def test_out_keeps_the_evidence_and_the_result(root: Path, tmp_path: Path) -> None:
    run(root, "rope", "--tier", "record", "--out", str(tmp_path / "out"))
    kept = json.loads((tmp_path / "out" / "rope" / "record.json").read_text())
    assert kept["study"]["bundle"] == "rope"
    assert json.loads((tmp_path / "out" / "reproduce.json").read_text())["exit_code"] == 0


def test_a_dry_run_gathers_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "gather", lambda *rest: pytest.fail("gathered"))
    outcome = run(root, "--dry-run")
    assert outcome.exit_code == 0 and {one["id"] for one in outcome.data["plan"]} == {"rope", "softmax"}
    assert all(set(one["claims"]) == set(TIERS) for one in outcome.data["plan"])


def test_an_unknown_bundle_of_an_empty_root_says_that_it_is_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["reproduce", "softmax", "--root", str(tmp_path)]) == 2
    assert f"{tmp_path} holds none" in capsys.readouterr().err


def test_an_unknown_bundle_ends_with_two_and_the_nearest(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["reproduce", "sofmax", "--tier", "record", "--root", str(root)]) == 2
    said = capsys.readouterr().err
    assert "sofmax" in said and "softmax" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not YAML"),
        ("schema_version: 2\nclaims: {}\n", "schema_version"),
        ("schema_version: 1\nclaims: []\n", "claims: must be a mapping"),
        ("schema_version: 1\nclaims: {ratio: {moon: {}}}\n", "claims.ratio"),
        ("schema_version: 1\nclaims: {ratio: {record: {verdict: FINE, reason: x}}}\n", "claims.ratio.record"),
        ("schema_version: 1\nclaims: {ratio: {record: REPRODUCED}}\n", "claims.ratio.record"),
    ],
)
def test_broken_committed_verdicts_are_named(root: Path, text: str, said: str) -> None:
    (root / "rope" / "verdicts.yaml").write_text(text)
    with pytest.raises(HarnessError, match=re.escape(said)) as caught:
        run(root, "rope", "--tier", "record")
    assert "--update-verdicts" in (caught.value.remedy or "")


def test_merging_keeps_what_this_machine_could_not_measure() -> None:
    def results(**given: Verdict) -> dict[str, TierResult]:
        return {tier: TierResult(verdict, None, "r") for tier, verdict in given.items()}

    old = {
        "a": results(record=Verdict.REPRODUCED, device=Verdict.REPRODUCED),
        "gone": results(record=Verdict.INVALID),
    }
    new = {
        "a": results(record=Verdict.CONTRADICTED, device=Verdict.NOT_MEASURED),
        "b": results(record=Verdict.INVALID),
    }
    merged = verdicts.merge(old, new, {"record": False, "compile": True, "execute": True, "device": True})
    assert set(merged) == {"a", "b"}
    assert {tier: one.verdict for tier, one in merged["a"].items()} == {
        "record": Verdict.CONTRADICTED,
        "device": Verdict.REPRODUCED,
    }


def test_the_record_tier_imports_nothing_heavy() -> None:
    code = (
        "import sys, harness.cli as c; c.main(['reproduce', 'softmax', '--tier', 'record', '--json']);"
        "heavy = {'torch', 'numpy', 'scipy', 'triton', 'flydsl', 'docker', 'rich'} & set(sys.modules);"
        "print(sorted(heavy), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_a_place_that_cannot_be_written_is_named(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    arguments = [
        "reproduce",
        "rope",
        "--tier",
        "record",
        "--root",
        str(root),
        "--out",
        str(tmp_path / "file"),
    ]
    assert cli.main(arguments) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given", [("--workload", "captrued"), ("--layer", "zzz"), ("--out", "/proc/none/x"), ("--seed", "-5")]
)
def test_a_mistyped_option_ends_with_two_before_any_work(
    root: Path, given: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gathering, "gather", lambda *rest: pytest.fail("gathered"))
    monkeypatch.setattr(reproduce, "gather", lambda *rest: pytest.fail("gathered"))
    assert cli.main(["reproduce", "softmax", "--tier", "compile", "--root", str(root), *given]) == 2
    said = capsys.readouterr().err
    assert given[1] in said and "remedy: " in said


def test_what_the_file_system_refuses_to_a_later_tier_is_a_gap(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gather(bundle: Bundle, context: tiers.Context) -> tiers.Evidence:
        raise OSError(28, "No space left on device", "/disk/kernel.s")

    fake(monkeypatch, compile=gather)
    outcome = run(root, "softmax", "--tier", "record", "--tier", "compile")
    assert outcome.exit_code == 0 and "/disk/kernel.s: No space left on device" in outcome.text
    assert entries(outcome, "softmax")["ratio"]["tiers"]["record"]["verdict"] == "REPRODUCED"


def test_committed_evidence_is_judged_without_a_toolchain(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gather(bundle: Bundle, context: tiers.Context) -> tiers.Evidence:
        pytest.fail("gathered")

    fake(monkeypatch, compile=gather, execute=gather, device=gather)
    found = entries(run(root, "softmax", "--committed"), "softmax")
    assert found["ratio"]["tiers"]["record"]["verdict"] == "REPRODUCED"
    assert found["listing"]["tiers"]["compile"]["verdict"] == "REPRODUCED"
    assert found["ratio"]["tiers"]["device"]["verdict"] == "NOT_MEASURED"
    (root / "softmax" / "evidence" / "compiled.json").unlink()
    result = entries(run(root, "softmax", "--committed", "--tier", "compile"), "softmax")["listing"]["tiers"][
        "compile"
    ]
    assert result["verdict"] == "NOT_MEASURED" and result["remedy"] == "harness compile softmax"
