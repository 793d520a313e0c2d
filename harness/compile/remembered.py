"""The assembly text of each code object that this machine compiled, found again by the object's own hash."""

from __future__ import annotations

import hashlib
from pathlib import Path

from harness.compile.cache import Cache

__all__ = ["remember", "remembered"]


def remember(data: bytes, source: str, cache: Cache) -> None:
    """Keep the assembly text of the code object `data`, found again by the object's own hash."""
    name = hashlib.sha256(data).hexdigest()

    def make(directory: Path) -> None:
        (directory / "listing.s").write_text(source)

    cache.directory("listings", name, make=make)


def remembered(data: bytes, cache: Cache) -> str | None:
    """The assembly text of the code object `data`, where this machine compiled it."""
    path = cache.root / "listings" / hashlib.sha256(data).hexdigest() / "listing.s"
    return path.read_text() if path.is_file() else None
