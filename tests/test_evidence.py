"""Evidence files: written whole or not at all, read back the same, hashed by content."""

from __future__ import annotations

import json
from math import inf, nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import evidence
from harness.bundle import ROOT, ids
from harness.errors import HarnessError
from harness.faults import FaultError


def test_what_is_written_is_read(tmp_path: Path) -> None:
    data = {"schema_version": 1, "z": [1.5, None, "µ"], "a": {"b": 1e-300}}
    path = evidence.write(tmp_path, "note", data)
    assert path == tmp_path / "evidence" / "note.json"
    assert evidence.read(tmp_path, "note") == evidence.read(tmp_path, "note.json") == data
    assert list(data) == list(evidence.read(tmp_path, "note") or {})
    assert evidence.files(tmp_path) == (path,)


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    assert evidence.read(tmp_path, "study") is None
    assert evidence.files(tmp_path) == ()


@pytest.mark.parametrize(
    "bad", [{"a": nan}, {"a": [inf]}, {"a": "\ud800"}, {"schema_version": 0}, {"schema_version": True}]
)
def test_a_refused_write_leaves_the_old_file(tmp_path: Path, bad: dict[str, object]) -> None:
    evidence.write(tmp_path, "note", {"schema_version": 1, "old": True})
    with pytest.raises(FaultError):
        evidence.write(tmp_path, "note", {"schema_version": 1, **bad})
    assert evidence.read(tmp_path, "note") == {"schema_version": 1, "old": True}
    assert [path.name for path in (tmp_path / "evidence").iterdir()] == ["note.json"]


def test_a_write_that_breaks_the_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FaultError, match="is missing"):
        evidence.write(tmp_path, "study", {"schema_version": 1})
    assert not (tmp_path / "evidence").exists()


def test_a_write_that_cannot_be_encoded_leaves_no_part(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        evidence.write(tmp_path, "note", {"schema_version": 1, "a": object()})
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("name", ["", "../study", "a/b", ".hidden", "/etc/passwd"])
def test_a_name_cannot_leave_the_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(HarnessError, match="no name of an evidence file"):
        evidence.read(tmp_path, name)


def test_a_file_of_a_run_has_the_schema_of_its_tier() -> None:
    assert evidence.schema_of("study") == evidence.schema_of("study-2026-06-01.json") == "study"
    assert evidence.schema_of("studying") is None


def test_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "evidence").mkdir()
    with (tmp_path / "evidence" / "big.json").open("wb") as file:
        file.truncate(evidence.MAX_BYTES + 1)
    with pytest.raises(FaultError, match="too large"):
        evidence.read(tmp_path, "big")


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), VALUES, max_size=5))
def test_the_digest_is_of_the_content(data: dict[str, object]) -> None:
    data["schema_version"] = 1
    text = json.dumps(dict(reversed(list(data.items()))), indent=3)
    assert evidence.digest(evidence.parse(text.encode(), "f")) == evidence.digest(data)
    assert evidence.digest({**data, "more": 0}) != evidence.digest({**data, "more": 1})


def test_all_committed_evidence_is_sound() -> None:
    for name in ids():
        for path in evidence.files(ROOT / name):
            data = evidence.read(ROOT / name, path.name)
            assert data is not None
            assert evidence.check(data, path.stem, path.name) == []
