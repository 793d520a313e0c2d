"""The directory that results are left in, proved before the work and not after it.

Knows the file system's ways to refuse. Must not know what is written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import HarnessError

__all__ = ["prove", "writing"]


def prove(out: Path) -> None:
    """Make the directory `out` and see that a file can be made in it. Raises HarnessError where not."""
    with writing(out, "name a directory that can be with --out"):
        if out.is_file():
            raise NotADirectoryError(20, "is a file", str(out))
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass


@contextmanager
def writing(place: Path, remedy: str) -> Iterator[None]:
    """Turns what the file system refuses in the block into a HarnessError that names `place`."""
    try:
        yield
    except OSError as error:
        raise HarnessError(f"{place}: cannot be written: {error.strerror or error}", remedy=remedy) from error
