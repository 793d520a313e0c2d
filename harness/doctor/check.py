"""One line of the doctor's report, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = ["Check", "State", "bad", "good", "unknown", "warning"]


class State(str, Enum):
    """`unknown` is not `ok`: a sign that cannot be read proves nothing."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Check:
    """What was asked (`name`), for which tier, what was found, and what to do about it.

    `blocks` says that the tier cannot work while this check is `missing`.
    """

    tier: str
    name: str
    state: State
    found: str
    remedy: str | None = None
    blocks: bool = False

    def to_json(self) -> dict[str, Any]:
        """The JSON form of `doctor --json`."""
        return {
            "tier": self.tier,
            "name": self.name,
            "state": self.state.value,
            "found": self.found,
            "remedy": self.remedy,
            "blocks": self.blocks,
        }


def good(tier: str, name: str, found: str) -> Check:
    """All is well."""
    return Check(tier, name, State.OK, found)


def warning(tier: str, name: str, found: str, remedy: str) -> Check:
    """The tier works, and its result needs a caveat."""
    return Check(tier, name, State.WARNING, found, remedy)


def bad(tier: str, name: str, found: str, remedy: str, *, blocks: bool = True) -> Check:
    """The tier cannot work like this."""
    return Check(tier, name, State.MISSING, found, remedy, blocks)


def unknown(tier: str, name: str, found: str, remedy: str | None = None) -> Check:
    """It could not be found out."""
    return Check(tier, name, State.UNKNOWN, found, remedy)
