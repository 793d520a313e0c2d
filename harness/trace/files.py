"""The files of a capture, one after another, from a directory or from a `.tar.gz` that is never unpacked to
disk.

Both give the same stream of `Entry`s, so whatever reads it gives the same result from either. Must not know
what is in a file. An archive is data from elsewhere: names that leave it, links and devices are refused one
by one, and sizes are bounded, so that a small archive cannot become a large memory.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from harness.errors import HarnessError
from harness.trace.faults import Fault, ReadFault, fault

__all__ = ["ARCHIVE_LIMIT", "FILE_LIMIT", "Entry", "entries", "is_archive", "on_disk"]

FILE_LIMIT = 256 * 2**20
"""Bytes of one JSON file held in memory at once; tables (CSV, SQLite) are streamed and have no limit."""

ARCHIVE_LIMIT = 64 * 2**30
"""Bytes that one archive may unpack to before reading stops."""

_BROKEN = (OSError, EOFError, tarfile.TarError, zlib.error)
_SUFFIXES = (".tar.gz", ".tgz", ".tar")


@dataclass(frozen=True)
class Entry:
    """One file: `path` below the source, with slashes; `size` in bytes; `open` gives its bytes as a stream.

    `disk` is where it lies, for readers that need a file (SQLite); None inside an archive.
    """

    path: str
    size: int
    open: Callable[[], IO[bytes]]
    disk: str | None

    @property
    def name(self) -> str:
        """The last part of `path`."""
        return self.path.rpartition("/")[2]

    @property
    def directory(self) -> str:
        """All of `path` before its last part; "" at the top."""
        return self.path.rpartition("/")[0]

    def read(self) -> bytes:
        """All bytes. ReadFault where it is larger than `FILE_LIMIT` or cannot be read."""
        if self.size > FILE_LIMIT:
            raise ReadFault(
                fault(
                    "too-large",
                    f"{self.path}: {self.size:,} bytes, a JSON file is read up to {FILE_LIMIT:,}",
                    "capture fewer dispatches or a smaller buffer",
                )
            )
        try:
            with self.open() as stream:
                return stream.read(self.size + 1)
        except _BROKEN as error:
            raise ReadFault(
                fault("unreadable-file", f"{self.path}: {error}", "copy the capture again")
            ) from None


def on_disk(path: str, size: int, disk: str) -> Entry:
    """The entry of a file that lies at `disk`."""
    return Entry(path, size, _Opener(disk), disk)


def is_archive(source: Path) -> bool:
    """Whether `source` is named like an archive that `entries` reads."""
    return source.name.endswith(_SUFFIXES)


def entries(source: Path, faults: list[Fault], *, inside: bool = False) -> Iterator[Entry]:
    """The files below `source`; what cannot be walked goes to `faults`. HarnessError where nothing is there.

    An entry of an archive can be opened only until the next one is asked for. With `inside`, an archive in a
    directory counts as its members, unless a directory of the archive's name stands beside it.
    """
    if source.is_dir():
        return _directory(source, faults, inside)
    if source.is_file() and is_archive(source):
        return _archive(source, faults)
    if source.is_file():
        return iter([on_disk(source.name, source.stat().st_size, str(source))])
    raise HarnessError(
        f"{source}: no such directory or archive", remedy="name a capture directory or a .tar.gz"
    )


def _directory(root: Path, faults: list[Fault], inside: bool) -> Iterator[Entry]:
    def failed(error: OSError) -> None:
        faults.append(
            fault("unreadable-directory", f"{error.filename}: {error.strerror}", "check its permissions")
        )

    for folder, folders, names in os.walk(root, onerror=failed):
        folders.sort()
        base = os.path.relpath(folder, root)
        for name in sorted(names):
            full = os.path.join(folder, name)
            path = name if base == "." else f"{base}/{name}"
            try:
                status = os.stat(full)
            except OSError as error:
                faults.append(fault("unreadable-file", f"{path}: {error.strerror}", "copy the capture again"))
                continue
            if inside and name.endswith(_SUFFIXES):
                if name.rsplit(".tar", 1)[0].removesuffix(".tgz") not in folders:
                    for member in _archive(Path(full), faults):
                        inner = member.path if base == "." else f"{base}/{member.path}"
                        yield Entry(inner, member.size, member.open, None)
            elif stat.S_ISREG(status.st_mode):
                yield on_disk(path, status.st_size, full)


@dataclass(frozen=True)
class _Opener:
    path: str

    def __call__(self) -> IO[bytes]:
        return open(self.path, "rb", buffering=0)  # the caller closes it


def _unpacked(source: Path) -> IO[bytes]:
    """The tar stream. Decompressed by gzip itself: tarfile's own reader fails in its own ways on a bad
    header."""
    if source.name.endswith(".tar"):
        return source.open("rb")
    return cast(IO[bytes], gzip.open(source, "rb"))


def _archive(source: Path, faults: list[Fault]) -> Iterator[Entry]:
    total = 0
    try:
        with _unpacked(source) as plain, tarfile.open(fileobj=plain, mode="r|") as tar:
            for member in tar:
                if not member.isfile():
                    if not member.isdir():
                        faults.append(fault("unsafe-member", f"{member.name}: a link or device, not read"))
                    continue
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts or "\\" in member.name:
                    faults.append(fault("unsafe-member", f"{member.name}: leaves the archive, not read"))
                    continue
                total += member.size
                if total > ARCHIVE_LIMIT:
                    faults.append(
                        fault("too-large", f"{source.name}: unpacks to more than {ARCHIVE_LIMIT:,} bytes")
                    )
                    return
                yield Entry(path.as_posix(), member.size, _Member(tar, member), None)
    except (*_BROKEN, ValueError, OverflowError) as error:
        faults.append(
            fault(
                "unreadable-archive", f"{source.name}: {error}; what came before it was read", "copy it again"
            )
        )


@dataclass(frozen=True)
class _Member:
    tar: tarfile.TarFile
    member: tarfile.TarInfo

    def __call__(self) -> IO[bytes]:
        return self.tar.extractfile(self.member) or io.BytesIO()
