"""Pinned upstream sources: fetched or extracted at one commit, verified, kept in the cache, never in
this repository.

`FLYDSL_SRC` and `AITER_SRC` name a local git repository (bare or with a work tree) or a plain directory
instead of the network; nothing is ever written there. Knows git and sha256. Must not know kernels,
claims or compilers.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from harness.bundle import SourceFile
from harness.compile.cache import Cache
from harness.errors import HarnessError

__all__ = ["AITER", "FLYDSL", "SourceTree", "SourceUnavailable", "Upstream", "obtain", "verify"]


@dataclass(frozen=True)
class Upstream:
    """One upstream repository: its name, its address, the variable that names a local copy."""

    name: str
    url: str
    variable: str


FLYDSL = Upstream("ROCm/FlyDSL", "https://github.com/ROCm/FlyDSL", "FLYDSL_SRC")
AITER = Upstream("ROCm/aiter", "https://github.com/ROCm/aiter", "AITER_SRC")

FETCH_TIMEOUT_S = 600


class SourceUnavailable(HarnessError):
    """The source cannot be had on this machine now; what needs it is not measured."""


@dataclass(frozen=True)
class SourceTree:
    """The files of one commit in `path`, to be read only. `origin` says where they came from."""

    path: Path
    upstream: Upstream
    commit: str
    origin: str


def obtain(
    upstream: Upstream, commit: str, cache: Cache, *, offline: bool = False, paths: Sequence[str] = ()
) -> SourceTree:
    """The tree of `commit` (40 hex digits), limited to `paths` where given, from the cache or its origin.

    Raises SourceUnavailable where there is neither a local copy that holds the commit nor a network, and
    HarnessError for a local copy that is no directory.
    """
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise HarnessError(f"{upstream.name}: {commit!r} is no commit id of 40 hex digits")
    named = os.environ.get(upstream.variable)
    local = Path(named).expanduser().absolute() if named else None
    git_dir = _git_directory(local) if local is not None else None
    if local is not None and git_dir is None:
        if not local.is_dir():
            raise HarnessError(
                f"{upstream.variable} names no directory: {named}",
                remedy=f"a checkout or git mirror of {upstream.name}, or unset it to fetch",
            )
        return SourceTree(local, upstream, commit, f"{upstream.variable}, a directory without git")
    part = hashlib.sha256("\n".join(sorted(paths)).encode()).hexdigest()[:8] if paths else "all"
    name = f"{upstream.name.replace('/', '+')}-{commit}-{part}"
    origin = f"{upstream.variable}" if git_dir is not None else upstream.url

    def make(directory: Path) -> None:
        if git_dir is not None:
            _extract_local(upstream, git_dir, commit, paths, directory)
        else:
            _fetch(upstream, commit, paths, directory, offline=offline)

    return SourceTree(cache.directory("sources", name, make=make), upstream, commit, origin)


def verify(tree: SourceTree, files: Iterable[SourceFile]) -> Mapping[str, str]:
    """Check each file's sha256; returns path -> sha256. HarnessError with every file that is missing or
    differs.
    """
    faults: list[str] = []
    found: dict[str, str] = {}
    for file in files:
        path = tree.path / file.path
        if not path.is_file():
            faults.append(f"{file.path} is missing")
            continue
        found[file.path] = hashlib.sha256(path.read_bytes()).hexdigest()
        if found[file.path] != file.sha256:
            faults.append(f"{file.path} has sha256 {found[file.path][:16]}…, pinned is {file.sha256[:16]}…")
    if faults:
        raise HarnessError(
            f"{tree.origin}: not {tree.upstream.name} at {tree.commit[:12]}: {'; '.join(faults)}",
            remedy=f"git fetch --depth 1 {tree.upstream.url} {tree.commit}, and name that checkout",
        )
    return MappingProxyType(found)


def _git_directory(path: Path) -> Path | None:
    """The git directory of a checkout, a linked work tree or a bare mirror at `path`, or None."""
    if (path / "HEAD").is_file() and (path / "objects").is_dir():
        return path
    if not (path / ".git").exists():
        return None
    done = _git(["-C", str(path), "rev-parse", "--absolute-git-dir"])
    return Path(done.stdout.decode().strip()) if done.returncode == 0 else None


def _extract_local(
    upstream: Upstream, git_dir: Path, commit: str, paths: Sequence[str], directory: Path
) -> None:
    done = _git(["--git-dir", str(git_dir), "cat-file", "-e", f"{commit}^{{commit}}"])
    if done.returncode != 0:
        head = (
            _git(["--git-dir", str(git_dir), "rev-parse", "--verify", "-q", "HEAD"]).stdout.decode().strip()
        )
        raise SourceUnavailable(
            f"{upstream.variable} ({git_dir}) is at {head[:12] or 'no commit'}, and lacks {commit[:12]}",
            remedy=f"there: git fetch --depth 1 {upstream.url} {commit}",
        )
    _archive(git_dir, commit, paths, directory)


def _fetch(upstream: Upstream, commit: str, paths: Sequence[str], directory: Path, *, offline: bool) -> None:
    remedy = f"set {upstream.variable} to a checkout or git mirror of {upstream.name}, or run with network"
    if offline:
        raise SourceUnavailable(
            f"{upstream.name} at {commit[:12]} is not in the cache (offline)", remedy=remedy
        )
    if shutil.which("git") is None:
        raise SourceUnavailable(
            f"{upstream.name} at {commit[:12]}: no git to fetch it with", remedy="install git"
        )
    with tempfile.TemporaryDirectory(prefix="harness-fetch-") as scratch:
        git_dir = Path(scratch) / "repository"
        _git(["init", "-q", "--bare", str(git_dir)])
        done = _git(
            ["--git-dir", str(git_dir), "fetch", "-q", "--depth", "1", upstream.url, commit],
            timeout=FETCH_TIMEOUT_S,
        )
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["git fetch failed"]
            raise SourceUnavailable(f"{upstream.name} at {commit[:12]}: {said[-1]}", remedy=remedy)
        _archive(git_dir, commit, paths, directory)


def _archive(git_dir: Path, commit: str, paths: Sequence[str], directory: Path) -> None:
    done = _git(
        ["--git-dir", str(git_dir), "archive", "--format=tar", commit, *paths], timeout=FETCH_TIMEOUT_S
    )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["git archive failed"]
        raise SourceUnavailable(
            f"{git_dir}: commit {commit[:12]}: {said[-1]}",
            remedy="the repository may be partial: fetch it again",
        )
    import tarfile

    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(directory, filter="data")
        else:
            archive.extractall(directory)


def _git(arguments: Sequence[str], timeout: float = 60) -> subprocess.CompletedProcess[bytes]:
    """Run git without prompts, hooks or the caller's repository variables; a mirror may belong to
    another user.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_TERMINAL_PROMPT"] = "0"
    command = ["git", "-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null", *arguments]
    try:
        return subprocess.run(command, capture_output=True, env=environment, timeout=timeout)
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, b"", b"git is not installed")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(
            command, 124, b"", f"git did not end within {timeout:g} s".encode()
        )
