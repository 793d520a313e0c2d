"""REPORT.md of a bundle: its sections, under a title. Pure apart from reading the bundle's evidence files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.bundle import Bundle
from harness.errors import HarnessError
from harness.report.seal import digest, sealed
from harness.report.sections import sections
from harness.verdicts import FILE as VERDICTS
from harness.verdicts import Committed

__all__ = ["FILE", "inputs", "text"]

FILE = "REPORT.md"


def inputs(bundle: Bundle) -> str:
    """The digest of what a report is made from: the bundle, its evidence, its committed verdicts."""
    evidence = (bundle.path / "evidence").glob("*.json")
    return digest([bundle.path / "bundle.yaml", bundle.path / VERDICTS, *evidence])


def text(bundle: Bundle, verdicts: Committed) -> str:
    """The whole file."""
    evidence = {path.stem: _load(path) for path in sorted((bundle.path / "evidence").glob("*.json"))}
    parts = [section.render(bundle, evidence, verdicts) for section in sections()]
    body = "\n\n".join([f"# {bundle.title}", *(part.strip("\n") for part in parts if part)]) + "\n"
    return sealed(body, inputs(bundle), ".md")


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise HarnessError(f"{path}: not JSON: {error}", remedy="restore it: git checkout") from error
