"""Where the compile tier keeps what it made: one directory, found once, written atomically.

Knows platformdirs, `HARNESS_CACHE` and the file system's ways to refuse. Must not know what is stored.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError

__all__ = ["Cache", "open_cache", "write_errors"]

VARIABLE = "HARNESS_CACHE"


@dataclass(frozen=True)
class Cache:
    """A writable directory. `note` is one line for the user where it is not the one they would expect."""

    root: Path
    note: str | None = None

    def directory(self, *parts: str, make: Callable[[Path], None]) -> Path:
        """The directory `root/parts...`, made by `make(empty directory)` where it is not there yet.

        Made aside and renamed into place, so that a directory that exists is whole; where two processes make
        the same one, the first wins and the other's work is dropped.
        """
        target = self.root.joinpath(*parts)
        if target.is_dir():
            return target
        with write_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(prefix=".making-", dir=target.parent))
        try:
            with write_errors(target):
                make(aside)
            try:
                aside.rename(target)
            except OSError:
                if not target.is_dir():
                    raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return target


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turns "disk full" and "read-only" under `path` into a `HarnessError` with the remedy.

    What names a file elsewhere (a program that cannot be run) is not the cache's and passes.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str):
            named = Path(error.filename)
            if not named.is_relative_to(path) and not path.is_relative_to(named):
                raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            message, remedy = (
                "no space left",
                f"free some space, or set {VARIABLE} to a directory that has it",
            )
        elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            message, remedy = "not writable", f"set {VARIABLE} to a writable directory"
        else:
            message, remedy = "cannot be used", f"set {VARIABLE} to a writable directory"
        raise HarnessError(f"cache {path}: {message} ({error.strerror or error})", remedy=remedy) from error


def open_cache() -> Cache:
    """The cache: `HARNESS_CACHE` where set (it must be writable), else the user's cache directory.

    Where the user's own cannot be written (a read-only home), a private directory under the system's
    temporary directory serves, and `note` says so.
    """
    named = os.environ.get(VARIABLE)
    if named:
        root = Path(named).expanduser().absolute()
        with write_errors(root):
            _prove_writable(root)
        return Cache(root)
    import platformdirs

    root = Path(platformdirs.user_cache_dir("flydsl-repro", appauthor=False))
    try:
        _prove_writable(root)
    except OSError as error:
        fallback = Path(tempfile.gettempdir()) / f"flydsl-repro-{os.getuid()}"
        with write_errors(fallback):
            fallback.mkdir(mode=0o700, exist_ok=True)
            if fallback.is_symlink() or fallback.stat().st_uid != os.getuid():
                raise HarnessError(
                    f"cache {fallback} belongs to someone else",
                    remedy=f"set {VARIABLE} to a writable directory",
                ) from error
            _prove_writable(fallback)
        reason = error.strerror or type(error).__name__
        return Cache(
            fallback, f"cache: {root} cannot be written ({reason}); using {fallback} (or set {VARIABLE})"
        )
    return Cache(root)


def _prove_writable(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=root, prefix=".probe-") as probe:
        probe.write(b"0")
        probe.flush()
