"""Private copies of real bundles, changed for a test, and what `harness validate` says of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.bundle import ROOT
from harness.cli import main

__all__ = ["Said", "copy", "edit", "validate"]


class Said:
    """What the command said: exit code, faults (those of generated files apart), and its text."""

    def __init__(self, code: int, data: dict[str, Any], error: str) -> None:
        self.code = code
        self.data = data
        self.error = error
        self.faults = [one for one in data.get("faults", []) if one["rule"] != "generated"]

    def one(self) -> dict[str, Any]:
        """The only fault."""
        assert len(self.faults) == 1, self.faults
        found: dict[str, Any] = self.faults[0]
        return found


def copy(tmp: Path, *names: str) -> Path:
    """A root with copies of the bundles `names`, evidence too."""
    root = tmp / "bundles"
    for name in names:
        shutil.copytree(ROOT / name, root / name)
    return root


def edit(root: Path, name: str, change: Callable[[str], str]) -> None:
    """Change the text of a bundle.yaml; a change that changes nothing is a mistake of the test."""
    path = root / name / "bundle.yaml"
    before = path.read_text(encoding="utf-8")
    after = change(before)
    assert after != before
    path.write_text(after, encoding="utf-8")


def validate(root: Path, capsys: pytest.CaptureFixture[str], names: Sequence[str] = ()) -> Said:
    """Run the command on `root` as a user does."""
    capsys.readouterr()
    code = main(["validate", "--json", "--root", str(root), *names])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    return Said(code, json.loads(captured.out) if captured.out else {}, captured.err)
