"""What is wrong with a file: where, by which rule, with which value.

Pure data. A reader collects faults and shows all of them; only where it cannot go on does it raise one error
that holds them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import HarnessError

__all__ = ["Fault", "FaultError", "shown", "spot"]


@dataclass(frozen=True)
class Fault:
    """One fault. `path` is like `claims[0].ratio`; `line` starts at 1, None where the fault has no line."""

    file: str
    line: int | None
    path: str
    rule: str
    message: str
    value: Any = None

    def text(self) -> str:
        """One line: `bundles/softmax/bundle.yaml:23: claims[0].ratio: must be greater than 0 (got -2)`."""
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}"

    def to_json(self) -> dict[str, Any]:
        """The fault as data (DESIGN, Commands)."""
        return {
            "file": self.file,
            "line": self.line,
            "path": self.path,
            "rule": self.rule,
            "message": self.message,
            "value": self.value,
        }


class FaultError(HarnessError):
    """A file that cannot be used, with all its faults; the message is one line for each."""

    def __init__(self, faults: Sequence[Fault], *, remedy: str | None = None) -> None:
        super().__init__("\n".join(fault.text() for fault in faults), remedy=remedy)
        self.faults = tuple(faults)


def spot(path: Sequence[str | int]) -> str:
    """`("claims", 0, "ratio")` as `claims[0].ratio`."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else str(part)
    return out


def shown(value: Any, limit: int = 60) -> str:
    """`value` as a message shows it: one line, cut at `limit` characters."""
    text = (
        "true" if value is True else "false" if value is False else "null" if value is None else repr(value)
    )
    return text if len(text) <= limit else text[: limit - 1] + "…"
