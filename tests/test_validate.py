"""`harness validate` on the repository's own bundles, and each rule of meaning on a copy that breaks it."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from math import log
from pathlib import Path

import pytest
from copies import copy, edit, validate
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.bundle import ROOT, Bundle, build, load_all, schema_faults
from harness.cli import main
from harness.kinds import identity, names
from harness.meaning import PROJECT_CITE, STUDY_CITE, Known, check
from harness.schemas import SCHEMAS, broken
from harness.schemas import names as schemas
from harness.yamlfile import parse

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def bundles() -> tuple[Bundle, ...]:
    return load_all()


def test_the_repository_has_no_faults(capsys: Capture) -> None:
    code = main(["validate", "--json"])
    data = json.loads(capsys.readouterr().out)
    assert data["faults"] == []
    assert code == 0
    assert data["bundles"] == sorted(path.parent.name for path in ROOT.glob("*/bundle.yaml"))


def test_one_bundle_may_be_named(capsys: Capture) -> None:
    main(["validate", "softmax", "--json"])
    assert json.loads(capsys.readouterr().out)["bundles"] == ["softmax"]


def test_every_figure_has_a_cite_of_its_form(bundles: tuple[Bundle, ...]) -> None:
    for bundle in bundles:
        for claim in bundle.claims:
            assert claim.cites, (bundle.id, claim.id)
            form = PROJECT_CITE if claim.origin == "project" else STUDY_CITE
            assert all(form.match(cite) for cite in claim.cites), (bundle.id, claim.id)


def test_no_two_claims_state_the_same(bundles: tuple[Bundle, ...]) -> None:
    for bundle in bundles:
        assert len({identity(claim) for claim in bundle.claims}) == len(bundle.claims)


def test_every_claim_kind_has_a_schema_and_a_module(bundles: tuple[Bundle, ...]) -> None:
    schema = json.loads((SCHEMAS / "bundle.schema.json").read_text())
    kinds = schema["$defs"]["claim"]["properties"]["kind"]["enum"]
    assert set(names()) <= set(kinds)
    assert {claim.kind for bundle in bundles for claim in bundle.claims} <= set(names())
    assert {f"claim_{kind}" for kind in kinds} <= set(schema["$defs"])


def test_schemas_are_of_2020_12_and_closed() -> None:
    from jsonschema import Draft202012Validator

    for name in schemas():
        schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        Draft202012Validator.check_schema(schema)
        assert schema["additionalProperties"] is False
        assert "schema_version" in schema["required"]


def test_the_verdicts_that_are_committed_fit_their_schema() -> None:
    import yaml

    for path in ROOT.glob("*/verdicts.yaml"):
        data = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
        assert list(broken("verdicts", data)) == []


RULES = [
    ("softmax", "baseline_latency: baseline-latency\n", "baseline_latency: subject-latency\n", "side"),
    ("softmax", "subject_latency: subject-latency\n", "subject_latency: subject-latency-kernel\n", "regime"),
    ("softmax", "of: ratio\n", "of: subject-latency\n", "reference"),
    ("softmax", "of: ratio\n", "of: ratio-kernel\n", "regime"),
    ("softmax", "unit: GB/s", "unit: TFLOPS", "unit"),
    ("softmax", "published: [4.4, 6.5]", "published: [6.5, 4.4]", "range"),
    ("softmax", "published: [256, 1, 1]", "published: 256", "shape"),
    ("softmax", "published: 47", "published: many", "shape"),
    ("softmax", "published: 731/732", "published: 733/732", "shape"),
    ("softmax", "published: 41.65M", "published: lots", "shape"),
    ("softmax", "unit: cycles", "unit: '%'", "unit"),
    ("softmax", "count: 32\n", "count: 32\n    absent: true\n", "pattern"),
    ("softmax", "mnemonic: buffer_load_ushort", "mnemonic: '['", "pattern"),
    ("topk-gating", "min: 12", "min: 99", "range"),
    ("softmax", "published: true", "published: 1", "shape"),
    ("softmax", 'layer: "4703ba3b', 'layer: "5703ba3b', "pins"),
    ("softmax", "Captured listings", "Invented listings", "cite"),
    ("softmax", "docs/bundles.md, Races", "docs/nothing.md, Races", "cite"),
    ("softmax", "dtype: bf16", "dtype: bf17", "dims"),
    ("moe-gemm", "kernel_symbols: [moe_gemm1_0]", "kernel_symbols: [moe_gemm9_0]", "reference"),
    ("fp8-gemm-4wave", "expect: false", "expect: true", "shape"),
]


@pytest.mark.parametrize(("name", "old", "new", "rule"), RULES)
def test_each_rule_of_meaning(
    tmp_path: Path, capsys: Capture, name: str, old: str, new: str, rule: str
) -> None:
    root = copy(tmp_path, name)
    edit(root, name, lambda text: text.replace(old, new, 1))
    answer = validate(root, capsys)
    assert answer.code == 2
    fault = answer.faults[0]
    assert {one["rule"] for one in answer.faults} == {rule}
    lines = (root / name / "bundle.yaml").read_text(encoding="utf-8").splitlines()
    if fault["path"].count(".") and not fault["path"].endswith("]"):
        key = fault["path"].rsplit(".", 1)[1]
        assert lines[fault["line"] - 1].strip().startswith((key, f"- {key}"))


def test_a_dimension_unsaid_cannot_carry_a_rate(tmp_path: Path, capsys: Capture) -> None:
    root = copy(tmp_path, "softmax")
    edit(root, "softmax", lambda text: text.replace("dims: {M: 32768,", "dims: {M: null,", 1))
    faults = validate(root, capsys).faults
    assert {one["rule"] for one in faults} == {"dims"}
    assert all("leaves M unsaid" in one["message"] for one in faults)


def test_the_same_claim_twice(tmp_path: Path, capsys: Capture) -> None:
    root = copy(tmp_path, "softmax")

    def double(text: str) -> str:
        start, end = text.index("  - id: class\n"), text.index("  - id: throughput\n")
        return text[:end] + text[start:end].replace("id: class", "id: class-again") + text[end:]

    edit(root, "softmax", double)
    fault = validate(root, capsys).one()
    assert fault["rule"] == "identity" and "'class'" in fault["message"]


def test_one_source_file_with_two_hashes(tmp_path: Path, capsys: Capture) -> None:
    root = copy(tmp_path, "moe-gemm", "preshuffle-gemm")
    edit(root, "preshuffle-gemm", lambda text: text.replace('sha256: "99a5', 'sha256: "0005', 1))
    fault = validate(root, capsys).one()
    assert fault["rule"] == "source" and "moe-gemm" in fault["message"]


def test_a_wrong_figure_is_no_fault(tmp_path: Path, capsys: Capture) -> None:
    root = copy(tmp_path, "softmax")
    edit(root, "softmax", lambda text: text.replace("published: 271.8", "published: 371.8"))
    assert validate(root, capsys).faults == []


@pytest.mark.parametrize("name", ["softmax/verdicts.yaml", "softmax/REPORT.md", "SCOREBOARD.md"])
def test_a_hand_edit_of_a_generated_file_is_one_fault_that_names_the_command(
    tmp_path: Path, capsys: Capture, name: str
) -> None:
    root = copy(tmp_path, "softmax", "rope")
    main(["reproduce", "--tier", "record", "--update-verdicts", "--root", str(root)])
    answer = validate(root, capsys)
    assert answer.data["faults"] == [] and answer.code == 0
    path = root / name
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("REPRODUCED", "REPRODUCED ", 1), encoding="utf-8")
    answer = validate(root, capsys)
    assert answer.code == 2
    (fault,) = answer.data["faults"]
    assert fault["file"] == f"bundles/{name}" and fault["rule"] == "generated"
    assert fault["message"] == "was edited by hand: run harness reproduce --update-verdicts"


def test_a_false_verdict_written_by_hand_is_named(tmp_path: Path, capsys: Capture) -> None:
    root = copy(tmp_path, "softmax")
    main(["reproduce", "softmax", "--tier", "record", "--update-verdicts", "--root", str(root)])
    path = root / "softmax" / "verdicts.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("verdict: REPRODUCED", "verdict: PROVEN", 1), encoding="utf-8")
    faults = validate(root, capsys).faults
    assert [one["rule"] for one in faults] == ["enum"] and "(got 'PROVEN')" in faults[0]["message"]


SMALL = (ROOT / "moe-reduce" / "bundle.yaml").read_text(encoding="utf-8")


@settings(max_examples=60, deadline=None)
@given(subject=st.integers(10, 99_999), baseline=st.integers(10, 99_999), inverse=st.booleans())
def test_an_inverted_ratio_is_always_named_and_no_other(subject: int, baseline: int, inverse: bool) -> None:
    """Latencies of 1 to 9999.9 µs; ratios printed to four digits, more than any of the study's."""
    s, b = subject / 10, baseline / 10
    printed = float(f"{(s / b if inverse else b / s):.4g}")
    text = SMALL.replace("published: 1.0\n", f"published: {printed:.8f}\n")
    text = text.replace("published: 382.7", f"published: {s!r}")
    text = text.replace("published: 382.6", f"published: {b!r}")
    document = parse(text.encode(), "bundle.yaml")
    assert schema_faults(document) == []
    faults = check(document, build(document, ROOT / "moe-reduce"), Known(ROOT.parent, None))
    distance = 2 * abs(log(s / b))  # between a ratio and its inverse
    assume(abs(distance - log(1.02)) > 1e-3)
    inverted = inverse and distance > log(1.02)
    assert {fault.rule for fault in faults} == ({"direction"} if inverted else set())


def test_a_directory_without_a_bundle_is_named(tmp_path: Path, capsys: Capture) -> None:
    root = copy(tmp_path, "softmax")
    (root / "stray" / "evidence").mkdir(parents=True)
    fault = validate(root, capsys).one()
    assert fault["file"] == "bundles/stray/bundle.yaml" and fault["message"] == "is missing"


def test_it_is_fast(repo_root: Path) -> None:
    """Process time of a whole run, start-up included; `nox -s bench` holds the figure itself to account."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "harness", "validate"], cwd=repo_root, capture_output=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < 2.0
