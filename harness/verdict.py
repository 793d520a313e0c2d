"""Verdicts, the tiers that give them, and the exit codes that sum them up.

A verdict always comes with its reason and its numbers (`TierResult`). Pure data: knows nothing of bundles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

__all__ = ["TIERS", "ExitCode", "TierResult", "Verdict", "worst_exit"]

TIERS: tuple[str, ...] = ("record", "compile", "execute", "device")
"""The four tiers of evidence, from cheap to dear."""


class Verdict(str, Enum):
    """What the evidence of one tier says of one claim."""

    REPRODUCED = "REPRODUCED"
    CONTRADICTED = "CONTRADICTED"
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID = "INVALID"
    NOT_COMPARABLE = "NOT_COMPARABLE"
    NOT_MEASURED = "NOT_MEASURED"


class ExitCode:
    """Exit codes of `harness` (DESIGN, Commands). The worst of a run wins; a larger one is worse."""

    OK = 0
    USAGE = 2
    DIFFERS = 10
    INCONCLUSIVE = 20
    INVALID = 30
    NOT_COMPARABLE = 40
    NOT_MEASURED = 50


@dataclass(frozen=True)
class TierResult:
    """One tier's answer to one claim.

    `value` is what the tier found, in the claim's unit where it has one (a number, a short text, or None).
    `reason` is one line with the numbers in it. `remedy` says how to measure what could not be measured here.
    `numbers` are the figures behind the verdict, by name, JSON-able.
    """

    verdict: Verdict
    value: float | int | str | None
    reason: str
    remedy: str | None = None
    numbers: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def to_json(self) -> dict[str, Any]:
        """The JSON form used by `reproduce --json` and `verdicts.yaml`."""
        out: dict[str, Any] = {"verdict": self.verdict.value, "value": self.value, "reason": self.reason}
        if self.remedy is not None:
            out["remedy"] = self.remedy
        if self.numbers:
            out["numbers"] = dict(self.numbers)
        return out


def worst_exit(codes: Iterable[int]) -> int:
    """The exit code of a run: the largest of its parts, 0 for none."""
    return max(codes, default=ExitCode.OK)
