"""Every kind of bad input gives one clear line a fault, exit 2, no traceback, and changes nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from copies import copy, edit, validate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import bundle as bundles
from harness import evidence, meaning, pins
from harness.cli import main
from harness.errors import HarnessError
from harness.faults import FaultError
from harness.yamlfile import parse

Capture = pytest.CaptureFixture[str]
SOFTMAX = (bundles.ROOT / "softmax" / "bundle.yaml").read_bytes()
KNOWN = meaning.Known(pins.PATH.parent, frozenset((pins.load().flydsl.layer, pins.load().flydsl.commit)))


def line_of(text: str, root: Path, name: str = "softmax") -> int:
    lines = (root / name / "bundle.yaml").read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


BAD = [
    (
        "an unknown field",
        "regime: eager-events",
        "regimen: eager-events",
        "additionalProperties",
        "is not a known",
    ),
    ("a missing field", "    side: subject\n", "", "required", "side: is missing"),
    ("a wrong type", "published: 271.8", "published: fast", "type", "must be a number (got 'fast')"),
    (
        "a negative latency",
        "published: 271.8",
        "published: -2",
        "exclusiveMinimum",
        "must be greater than 0 (got -2)",
    ),
    (
        "a zero latency",
        "published: 271.8",
        "published: 0",
        "exclusiveMinimum",
        "must be greater than 0 (got 0)",
    ),
    ("not a number", "published: 271.8", "published: .nan", "finite", "must be a finite number (got .nan)"),
    ("infinity", "published: 271.8", "published: -.inf", "finite", "must be a finite number (got -.inf)"),
    (
        "a duplicate key",
        "    side: subject\n",
        "    side: subject\n    side: subject\n",
        "duplicate-key",
        "stands twice",
    ),
    ("a tab", "    side: subject\n", "\tside: subject\n", "tab", "holds a tab"),
    ("an unknown kind", "kind: latency", "kind: speed", "enum", "must be one of 'ratio'"),
    ("an unknown unit", "unit: us", "unit: ms", "const", "must be 'us' (got 'ms')"),
    ("an unknown regime", "regime: eager-events", "regime: warm", "enum", "must be one of"),
    ("a cite without line", "FINDINGS.md:18, tools", "FINDINGS.md, tools", "cite", "must be FILE:LINE"),
    ("a cite of line 0", "FINDINGS.md:18, tools", "FINDINGS.md:0, tools", "cite", "must be FILE:LINE"),
    ("a cite upside down", "FINDINGS.md:51-62", "FINDINGS.md:62-51", "cite", "ends before it begins"),
    (
        "an inverted ratio",
        "published: 2.05",
        "published: 0.49",
        "direction",
        "is inverted: baseline 558 over subject",
    ),
    ("the future", "schema_version: 1", "schema_version: 7", "schema-version", "is from the future"),
    ("no version", "schema_version: 1\n", "", "required", "schema_version: is missing"),
    (
        "a path out",
        "path: kernels/softmax",
        "path: kernels/../../softmax",
        "inside",
        "leads out of the repository",
    ),
    ("an absolute path", "path: kernels/softmax", "path: /kernels/softmax", "pattern", "path: must match"),
    ("a short hash", 'sha256: "b2efab', 'sha256: "', "pattern", "must match ^[0-9a-f]{64}$"),
    ("no such workload", "workload: captured\n", "workload: capturd\n", "reference", "is no workload here"),
    (
        "no such claim",
        "baseline_latency: baseline-latency\n",
        "baseline_latency: b\n",
        "reference",
        "is no claim here",
    ),
    ("a control character", "title: Row softmax", 'title: "\\e[2J"', "pattern", "title: must match"),
    ("a control character", "library: AITER", 'library: "\\a"', "pattern", "library: must match"),
    ("a claim twice", "id: baseline-latency\n", "id: subject-latency\n", "unique", "stands twice in claims"),
]


@pytest.mark.parametrize(("_name", "old", "new", "rule", "said"), BAD, ids=[row[0] for row in BAD])
def test_bad_bundle(
    tmp_path: Path, capsys: Capture, _name: str, old: str, new: str, rule: str, said: str
) -> None:
    root = copy(tmp_path, "softmax")
    edit(root, "softmax", lambda text: text.replace(old, new, 1))
    before = snapshot(tmp_path)
    answer = validate(root, capsys)
    assert answer.code == 2
    assert rule in {one["rule"] for one in answer.faults}
    if rule not in ("unique", "additionalProperties"):  # a lost claim or field has consequences of its own
        answer.one()
    capsys.readouterr()
    assert main(["validate", "--root", str(root)]) == 2
    out = capsys.readouterr().out
    assert said in out
    for line in out.splitlines()[:-1]:
        assert re.match(r"\S+: \S", line), line
    assert snapshot(tmp_path) == before


def test_a_fault_names_its_line(tmp_path: Path, capsys: Capture) -> None:
    root = copy(tmp_path, "softmax")
    edit(root, "softmax", lambda text: text.replace("published: 271.8", "published: -2", 1))
    fault = validate(root, capsys).one()
    assert fault["path"] == "claims[0].published" and fault["value"] == -2
    assert fault["line"] == line_of("published: -2", root)
    assert fault["file"].endswith("softmax/bundle.yaml")
    assert set(fault) == {"file", "line", "path", "rule", "message", "value"}


def test_all_faults_in_one_run(tmp_path: Path, capsys: Capture) -> None:
    root = copy(tmp_path, "softmax", "rope")
    edit(root, "softmax", lambda text: text.replace("published: 271.8", "published: -2", 1))
    edit(root, "softmax", lambda text: text.replace("published: 2.05", "published: 0.49", 1))
    edit(
        root,
        "softmax",
        lambda text: text.replace("published: 5246.7", "published: .5", 1).replace(
            "unit: GB/s", "unit: s", 1
        ),
    )
    edit(root, "rope", lambda text: text.replace("FINDINGS.md:51", "FINDINGS.md", 1))
    rules = [one["rule"] for one in validate(root, capsys).faults]
    assert sorted(rules) == ["cite", "enum", "exclusiveMinimum"]


WHOLE = [
    ("empty", b"", "empty", "is empty"),
    ("binary", bytes(range(256)), "text", "is a binary file"),
    ("latin-1", "id: café".encode("latin-1"), "text", "is a binary file"),
    ("a list", b"- 1\n", "type", "must be a mapping"),
    ("a text", b"softmax\n", "type", "must be a mapping"),
    ("null", b"null\n", "type", "must be a mapping"),
    ("two documents", SOFTMAX + b"---\n" + SOFTMAX, "syntax", "is not YAML"),
    ("half a file", SOFTMAX[: len(SOFTMAX) // 2].rsplit(b":", 1)[0] + b": [", "syntax", "is not YAML"),
    ("deep", b"[" * 200_000, "syntax", "is not YAML"),
]


@pytest.mark.parametrize(("_name", "content", "rule", "said"), WHOLE, ids=[row[0] for row in WHOLE])
def test_a_file_that_is_no_bundle(
    tmp_path: Path, capsys: Capture, _name: str, content: bytes, rule: str, said: str
) -> None:
    root = copy(tmp_path, "softmax")
    (root / "softmax" / "bundle.yaml").write_bytes(content)
    answer = validate(root, capsys)
    assert answer.code == 2
    assert answer.one()["rule"] == rule and said in answer.one()["message"]


def test_an_anchor_bomb_is_a_fault_and_cheap(tmp_path: Path, capsys: Capture) -> None:
    root = copy(tmp_path, "softmax")
    bomb = "a0: &a0 [x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40)
    )
    (root / "softmax" / "bundle.yaml").write_text(bomb)
    answer = validate(root, capsys)
    assert answer.code == 2 and {one["rule"] for one in answer.faults} == {"alias"}


def test_fifty_megabytes_are_not_read(tmp_path: Path, capsys: Capture) -> None:
    root = copy(tmp_path, "softmax")
    with (root / "softmax" / "bundle.yaml").open("ab") as file:
        file.truncate(50 << 20)
    answer = validate(root, capsys)
    assert answer.one()["rule"] == "size" and answer.one()["value"] == 50 << 20


def test_a_link_out_of_the_bundle(tmp_path: Path, capsys: Capture) -> None:
    root = copy(tmp_path, "softmax")
    outside = tmp_path / "outside.yaml"
    outside.write_bytes(SOFTMAX)
    (root / "softmax" / "bundle.yaml").unlink()
    (root / "softmax" / "bundle.yaml").symlink_to(outside)
    assert validate(root, capsys).one()["rule"] == "inside"


def test_evidence_that_is_a_link_out_of_the_bundle(tmp_path: Path, capsys: Capture) -> None:
    root = copy(tmp_path, "softmax")
    study = root / "softmax" / "evidence" / "study.json"
    study.rename(tmp_path / "study.json")
    study.symlink_to(tmp_path / "study.json")
    assert validate(root, capsys).one()["rule"] == "inside"


EVIDENCE = [
    ("empty", b"", "syntax"),
    ("not JSON", b"{", "syntax"),
    ("binary", bytes(range(256)), "text"),
    ("NaN", b'{"schema_version": 1, "a": NaN}', "finite"),
    ("infinity", b'{"schema_version": 1, "a": -Infinity}', "finite"),
    ("overflow", b'{"schema_version": 1, "a": 1e999}', "finite"),
    ("a duplicate key", b'{"schema_version": 1, "schema_version": 1}', "duplicate-key"),
    ("half a character", b'{"schema_version": 1, "a": "\\ud800"}', "text"),
    ("half a character as key", b'{"schema_version": 1, "\\uDFFF": 1}', "text"),
    ("a number of 5,000 digits", b'{"schema_version": ' + b"9" * 5000 + b"}", "syntax"),
    ("a list", b"[]", "type"),
    ("no version", b"{}", "schema-version"),
    ("deep", b'{"schema_version": 1, "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "depth"),
]


@pytest.mark.parametrize(("_name", "content", "rule"), EVIDENCE, ids=[row[0] for row in EVIDENCE])
def test_bad_evidence(tmp_path: Path, capsys: Capture, _name: str, content: bytes, rule: str) -> None:
    root = copy(tmp_path, "softmax")
    (root / "softmax" / "evidence" / "study.json").write_bytes(content)
    assert validate(root, capsys).one()["rule"] == rule


def test_evidence_of_another_bundle(tmp_path: Path, capsys: Capture) -> None:
    root = copy(tmp_path, "softmax", "rope")
    target = root / "softmax" / "evidence" / "study.json"
    target.write_bytes((root / "rope" / "evidence" / "study.json").read_bytes())
    fault = validate(root, capsys).one()
    assert (fault["path"], fault["value"]) == ("bundle", "rope")


def test_evidence_without_a_schema(tmp_path: Path, capsys: Capture) -> None:
    root = copy(tmp_path, "softmax")
    (root / "softmax" / "evidence" / "gossip.json").write_text('{"schema_version": 1}')
    assert validate(root, capsys).one()["rule"] == "schema"


def test_two_bundles_with_one_id(tmp_path: Path, capsys: Capture) -> None:
    root = copy(tmp_path, "softmax", "rope")
    edit(root, "rope", lambda text: text.replace("id: rope\n", "id: softmax\n", 1))
    rules = {one["rule"] for one in validate(root, capsys).faults}
    assert rules == {"directory", "unique"}


def test_reproduce_refuses_a_bad_bundle_without_traceback(tmp_path: Path, capsys: Capture) -> None:
    root = copy(tmp_path, "softmax")
    edit(root, "softmax", lambda text: text.replace("published: 271.8", "published: -2", 1))
    before = snapshot(tmp_path)
    capsys.readouterr()
    assert main(["reproduce", "softmax", "--tier", "record", "--root", str(root)]) == 2
    captured = capsys.readouterr()
    assert "must be greater than 0 (got -2)" in captured.err and "Traceback" not in captured.err
    assert snapshot(tmp_path) == before


def test_an_unknown_bundle_is_named_with_the_nearest(capsys: Capture) -> None:
    assert main(["validate", "sofmax"]) == 2
    assert "softmax" in capsys.readouterr().err


def checked(content: bytes) -> None:
    """Everything that validation does with the content of one bundle.yaml. Only a FaultError may come out."""
    try:
        document = parse(content, "bundle.yaml")
    except FaultError:
        return
    if bundles.schema_faults(document):
        return
    built = bundles.build(document, bundles.ROOT / "softmax")
    for fault in meaning.check(document, built, KNOWN):
        assert fault.line is not None and "\n" not in fault.text()


def test_a_pipe_is_not_a_file_and_nobody_waits_for_it(tmp_path: Path, capsys: Capture) -> None:
    root = copy(tmp_path, "rope")
    for name in ("bundle.yaml", "REPORT.md"):
        (root / "rope" / name).unlink()
        os.mkfifo(root / "rope" / name)
    answer = validate(root, capsys)
    assert answer.code == 2 and answer.one()["message"] == "is not a file"


FILES = sorted(bundles.ROOT.glob("*/bundle.yaml"))
MANY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@MANY
@given(data=st.data())
def test_mutated_bytes_never_give_a_traceback(data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(FILES)).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=12))
    checked(bytes(content))


TOKENS = [
    "null",
    "true",
    "-1",
    "0",
    "1.5",
    "[]",
    "{}",
    "[1, 2]",
    "''",
    "x",
    ".inf",
    "&a",
    "*a",
    "1e400",
    "'FINDINGS.md:1'",
]


@MANY
@given(data=st.data())
def test_mutated_values_never_give_a_traceback(data: st.DataObject) -> None:
    lines = data.draw(st.sampled_from(FILES)).read_text(encoding="utf-8").split("\n")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        how = data.draw(st.sampled_from(["value", "drop", "double", "swap"]))
        if how == "value" and ": " in lines[at]:
            lines[at] = lines[at].split(": ", 1)[0] + ": " + data.draw(st.sampled_from(TOKENS))
        elif how == "drop":
            del lines[at]
        elif how == "double":
            lines.insert(at, lines[at])
        else:
            other = data.draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
    checked("\n".join(lines).encode())


@MANY
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_as_evidence_give_faults_only(content: bytes) -> None:
    try:
        evidence.parse(content, "evidence/x.json")
    except HarnessError as error:
        assert error.exit_code == 2 and "\n" not in error.message
