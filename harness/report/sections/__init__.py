"""Sections of a bundle's REPORT.md: one module each, found by file name.

A section's module has `ORDER` (an integer, smaller comes first) and `render(bundle, evidence, verdicts)`,
which returns Markdown that starts with a `## ` heading, or None where this bundle has nothing of the kind.
`evidence` maps the names of `bundles/<id>/evidence/*.json` without suffix to what they hold; `verdicts` are
the committed ones. A section is pure: the same input gives the same text, so no dates, no machine, no
paths.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast

from harness.bundle import Bundle
from harness.verdicts import Committed

__all__ = ["Section", "sections"]


class Section(Protocol):
    """The interface of `harness/report/sections/<name>.py`."""

    ORDER: int

    def render(self, bundle: Bundle, evidence: Mapping[str, Any], verdicts: Committed) -> str | None: ...


@cache
def sections() -> tuple[Section, ...]:
    """All sections in the order in which they stand."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))
    found = [cast(Section, importlib.import_module(f"{__name__}.{name}")) for name in names]
    return tuple(sorted(found, key=lambda one: one.ORDER))
