"""The directory that results are left in, proved before the work and not after it.

Knows the file system's ways to refuse. Must not know what is written.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from harness.errors import HarnessError

__all__ = ["prove"]


def prove(out: Path) -> None:
    """Make the directory `out` and see that a file can be made in it. Raises HarnessError where not."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        what = "is a file" if out.is_file() else error.strerror or str(error)
        raise HarnessError(
            f"{out}: cannot be written: {what}", remedy="name a directory that can be with --out"
        ) from error
