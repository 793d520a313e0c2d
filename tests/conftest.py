"""Shared fixtures: the repository, and the source trees and facts that a test may need.

A test that needs a tree which is not here is skipped, and the reason names the variable that would run it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.compile.cache import Cache
    from harness.compile.toolchain import Toolchain

ROOT = Path(__file__).resolve().parent.parent


def _tree(variable: str) -> Path:
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"{variable} is not set")
    path = Path(value)
    if not path.is_dir():
        pytest.skip(f"{variable} names no directory: {value}")
    return path


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The root of this repository."""
    return ROOT


@pytest.fixture(scope="session")
def study_src() -> Path:
    """The study's unpacked captures (STUDY_SRC)."""
    return _tree("STUDY_SRC")


@pytest.fixture(scope="session")
def flydsl_src() -> Path:
    """A FlyDSL checkout or git mirror (FLYDSL_SRC)."""
    return _tree("FLYDSL_SRC")


@pytest.fixture(scope="session")
def aiter_src() -> Path:
    """An AITER checkout or git mirror (AITER_SRC)."""
    return _tree("AITER_SRC")


@pytest.fixture(scope="session")
def facts_dir() -> Path:
    """The collected facts of the study, beside the repository (`../shared/facts`)."""
    path = ROOT.parent / "shared" / "facts"
    if not path.is_dir():
        pytest.skip("../shared/facts is not there")
    return path


@pytest.fixture(scope="session")
def compile_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    """A cache of the compile tier for this run of the tests alone."""
    from harness.compile.cache import Cache

    root = tmp_path_factory.mktemp("cache")
    before = os.environ.get("HARNESS_CACHE")
    os.environ["HARNESS_CACHE"] = str(root)
    yield Cache(root)
    if before is None:
        del os.environ["HARNESS_CACHE"]
    else:
        os.environ["HARNESS_CACHE"] = before


@pytest.fixture(scope="session")
def toolchain(compile_cache: Cache) -> Toolchain:
    """The gfx950 toolchain from the installed wheels; skipped where they are not installed."""
    pytest.importorskip("flydsl", reason="the compile extra is not installed")
    from harness.compile.toolchain import assemble

    return assemble(compile_cache)
