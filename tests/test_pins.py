"""pins.yaml: read as frozen data, and what else names a version names the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness import pins
from harness.bundle import load_all
from harness.errors import HarnessError
from harness.faults import FaultError


def test_the_pins_as_loaded() -> None:
    found = pins.load()
    assert found.flydsl.commit == "18c5a7ed79cc5bece508896a95270f1dadb7859b"
    assert found.rocm == "7.2.0" and found.triton.version == "3.6.0"
    assert found.base_image.verified is False
    assert found.trace_decoder.sha256 is None


def test_wheels_by_python() -> None:
    assert pins.triton_wheel_sha256("cp312") == pins.load().triton.wheels["cp312"]
    assert pins.flydsl_wheel_sha256("cp310") == pins.load().flydsl.wheels["cp310"]
    with pytest.raises(HarnessError, match="has no cp27"):
        pins.triton_wheel_sha256("cp27")


def test_pyproject_agrees(repo_root: Path) -> None:
    text = (repo_root / "pyproject.toml").read_text(encoding="utf-8")
    assert f'requires-python = ">={pins.load().python.minimum}"' in text
    assert re.findall(r'"flydsl==([^"]+)"', text) == [pins.load().flydsl.version]


def test_kernels_are_of_the_pinned_commit_or_say_why() -> None:
    for bundle in load_all():
        if bundle.kernel.commit != pins.load().flydsl.commit:
            assert bundle.raw["kernel"].get("note"), bundle.id


def test_the_commits_in_the_kernel_files_are_the_pinned_ones() -> None:
    from harness.kernels import aiter, base

    found = pins.load()
    assert found.flydsl.layer == base.LAYER
    assert found.aiter.commit == aiter.COMMIT


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('version: "3.6.0"', "version: 3.6", "must be text"),
        ("verified: false", "verified: maybe", "must be true or false"),
        ("sha256:a3b6", "sha256:zzzz", "must match"),
        ("schema_version: 1", "schema_version: 9", "must be 1"),
        ("rocm:", "rokm:", "is not a known field"),
    ],
)
def test_bad_pins_name_the_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = pins.PATH.read_text(encoding="utf-8")
    path = tmp_path / "pins.yaml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(FaultError) as caught:
        pins.load(path)
    number = next(
        n
        for n, line in enumerate(path.read_text().splitlines(), 1)
        if new.split(":")[0] in line and new in line
    )
    assert any(re.match(rf"pins\.yaml:{number}: .*{said}", fault.text()) for fault in caught.value.faults)
