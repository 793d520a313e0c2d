"""What can be wrong with a capture: a fault has a rule, a line for a person, a remedy, and what it spoils.

Knows nothing of files. `spoils` names the figures that the capture can no longer carry, in the words of claim
kind `trace` (`METRICS`); a fault that spoils nothing is a note about how a figure was obtained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["METRICS", "WORK_METRICS", "Fault", "ReadFault", "fault", "ordered"]

METRICS: tuple[str, ...] = (
    "instructions", "mapped", "executed", "total_cycles", "stall_cycles", "stall_share", "taxonomy",
    "dominant_stall", "waves", "wave_states", "occupancy",
)  # fmt: skip
"""Every figure that a thread trace carries."""

WORK_METRICS: tuple[str, ...] = ("stall_share", "taxonomy", "dominant_stall", "wave_states")
"""The figures that describe how the kernel works; they say nothing where it did not work."""


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a capture."""

    rule: str
    message: str
    remedy: str | None = None
    spoils: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The form of evidence/study.json."""
        return {
            "rule": self.rule,
            "message": self.message,
            "remedy": self.remedy,
            "spoils": list(self.spoils),
        }


class ReadFault(Exception):
    """A file that cannot be read as what it claims to be; carries the `Fault`."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def fault(rule: str, message: str, remedy: str | None = None, spoils: tuple[str, ...] = ()) -> Fault:
    """A `Fault` whose message is one line of bounded length, whatever text a file put into it."""
    line = "".join(c if c.isprintable() else "?" for c in message.replace("\n", " "))
    return Fault(rule, line if len(line) <= 400 else line[:397] + "...", remedy, spoils)


def ordered(faults: list[Fault]) -> tuple[Fault, ...]:
    """Without doubles, in an order that does not depend on the order in which files were read."""
    return tuple(sorted(set(faults), key=lambda f: (not f.spoils, f.rule, f.message)))
