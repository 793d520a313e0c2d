"""FlyDSL Python layers: the `python/flydsl` of any commit over the binaries of the installed wheel.

The layer is a directory in the cache that holds a `flydsl` package: the commit's Python files and a
link to the wheel's `_mlir`. First on the import path, it stands before the wheel's own. Must not know
kernels or claims.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
from pathlib import Path

from harness.compile.cache import Cache
from harness.errors import HarnessError
from harness.sources import FLYDSL, obtain

__all__ = ["KNOWN", "WHEEL", "full_commit", "layer"]

KNOWN: tuple[str, ...] = (
    "4703ba3b7150bb142b43c34c71ab49960ec93a15",  # gives all captured listings
    "18c5a7ed79cc5bece508896a95270f1dadb7859b",  # the commit that the study names
    "0bd41df49c55500dde6e033ba13c5ed85ee23818",  # the version number that the study names
    "801fc4e6d798c1e2bdba5c93acf515e1630ea970",  # from here on the fast host dispatch takes every argument
    "250c11dfa3282facb9ded3a3cab99fc241754ab8",  # the first that gives mqa-logits
)
"""Layers that the claims or this project's findings name."""

WHEEL = "wheel"
"""The name of the layer that the wheel itself carries."""


def full_commit(name: str) -> str:
    """A layer by its 40 digits, a prefix of a known one, or `wheel`. HarnessError for anything else."""
    if name == WHEEL or re.fullmatch(r"[0-9a-f]{40}", name):
        return name
    fitting = [commit for commit in KNOWN if commit.startswith(name)]
    if len(name) >= 7 and len(fitting) == 1:
        return fitting[0]
    raise HarnessError(
        f"layer {name!r} is no commit id of 40 hex digits",
        remedy=f"known by their beginnings: {', '.join(commit[:8] for commit in KNOWN)}, or {WHEEL}",
    )


def layer(commit: str, cache: Cache, *, offline: bool = False) -> Path | None:
    """The directory to put first on the import path for the Python layer of `commit`; None for `WHEEL`.

    Raises SourceUnavailable where the commit cannot be had, HarnessError where it has no `python/flydsl`.
    """
    if commit == WHEEL:
        return None
    spec = importlib.util.find_spec("flydsl")
    if spec is None or spec.origin is None:
        raise HarnessError("flydsl is not installed", remedy="pip install flydsl")
    binaries = Path(spec.origin).resolve().parent / "_mlir"
    tree = obtain(FLYDSL, commit, cache, offline=offline)
    package = tree.path / "python" / "flydsl"
    if not (package / "__init__.py").is_file():
        raise HarnessError(f"{tree.origin}: commit {commit[:12]} has no python/flydsl")
    if tree.origin.endswith("without git"):
        raise HarnessError(
            f"{tree.origin}: the layer of commit {commit[:12]} cannot be told from another there",
            remedy=f"set {FLYDSL.variable} to a git mirror or checkout",
        )

    def make(directory: Path) -> None:
        shutil.copytree(package, directory / "flydsl", ignore=shutil.ignore_patterns("_mlir", "__pycache__"))
        (directory / "flydsl" / "_mlir").symlink_to(binaries)

    return cache.directory(
        "layers", f"{commit}-{hashlib.sha256(str(binaries).encode()).hexdigest()[:8]}", make=make
    )
