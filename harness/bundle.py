"""Bundles, claims and workloads as frozen dataclasses; the only reader of `bundle.yaml`.

Knows the shape of a bundle and nothing of evidence, tiers or verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Bundle", "Claim", "Implementation", "Kernel", "SourceFile", "Workload"]


@dataclass(frozen=True)
class SourceFile:
    """One upstream file: path inside its repository, and the sha256 (hex) of its bytes."""

    path: str
    sha256: str


@dataclass(frozen=True)
class Kernel:
    """The kernel of a bundle: its symbols in the trace, and where its source is."""

    symbols: tuple[str, ...]
    repository: str
    commit: str
    files: tuple[SourceFile, ...]


@dataclass(frozen=True)
class Workload:
    """Named dimensions, dtypes and layout of one launch. A dimension that the study leaves unsaid is None."""

    id: str
    dims: Mapping[str, int | float | str | bool | None]
    dtypes: Mapping[str, str]
    unknown: tuple[str, ...]
    cites: tuple[str, ...]
    note: str | None = None


@dataclass(frozen=True)
class Implementation:
    """A subject or baseline: library, entry point, backend, version (None where the study does not say)."""

    library: str | None
    entry_point: str | None
    backend: str | None
    version: str | None
    cites: tuple[str, ...]
    note: str | None = None


@dataclass(frozen=True)
class Claim:
    """One falsifiable statement.

    `fields` holds what only this kind has (see `harness/kinds/<kind>.py`); `published` is the value as printed
    (a number, a text, a mapping, or None for a claim of this project, `origin: project`).
    """

    id: str
    kind: str
    statement: str
    origin: str
    workload: str | None
    published: Any
    unit: str | None
    tolerance: float | None
    regime: str | None
    cites: tuple[str, ...]
    fields: Mapping[str, Any]
    line: int


@dataclass(frozen=True)
class Bundle:
    """One kernel's bundle, read from `path`/bundle.yaml."""

    id: str
    title: str
    path: Path
    kernel: Kernel
    workloads: tuple[Workload, ...]
    subject: Implementation
    baseline: Implementation | None
    claims: tuple[Claim, ...]
    unknown: tuple[str, ...]
    raw: Mapping[str, Any]

    def workload(self, name: str) -> Workload:
        """The workload called `name`. Raises KeyError."""
        for workload in self.workloads:
            if workload.id == name:
                return workload
        raise KeyError(name)

    def claim(self, name: str) -> Claim:
        """The claim called `name`. Raises KeyError."""
        for claim in self.claims:
            if claim.id == name:
                return claim
        raise KeyError(name)
