"""Fresh verdicts against committed ones: what agrees, what that means for the exit code.

Pure. Knows verdicts and exit codes; must not know bundles' files or how a verdict came about.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.verdict import ExitCode, TierResult, Verdict, worst_exit

__all__ = ["Row", "agrees", "exit_code"]

_CODES: Mapping[Verdict, int] = {
    Verdict.REPRODUCED: ExitCode.OK,
    Verdict.NOT_MEASURED: ExitCode.OK,
    Verdict.CONTRADICTED: ExitCode.DIFFERS,
    Verdict.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    Verdict.INVALID: ExitCode.INVALID,
    Verdict.NOT_COMPARABLE: ExitCode.NOT_COMPARABLE,
}
"""What a fresh verdict costs where no verdict was committed (DESIGN, Commands)."""


def agrees(fresh: Verdict, committed: Verdict | None) -> bool:
    """Whether a fresh verdict needs no word.

    What this machine cannot measure disagrees with nothing. A committed NOT_MEASURED says no more than none.
    """
    if fresh is Verdict.NOT_MEASURED or fresh is committed:
        return True
    return committed in (None, Verdict.NOT_MEASURED) and fresh is Verdict.REPRODUCED


@dataclass(frozen=True)
class Row:
    """One claim: what was published, what each tier says now, what is committed.

    `fresh` has a tier only where that tier ran and says something of the claim.
    """

    bundle: str
    claim: str
    kind: str
    published: Any
    unit: str | None
    fresh: Mapping[str, TierResult]
    committed: Mapping[str, Verdict]

    def differing(self) -> tuple[str, ...]:
        """The tiers whose fresh verdict does not agree with the committed one."""
        return tuple(
            tier
            for tier, result in self.fresh.items()
            if not agrees(result.verdict, self.committed.get(tier))
        )

    @property
    def agrees(self) -> bool:
        """Whether all tiers that ran agree with what is committed."""
        return not self.differing()

    def exit_code(self, required: Collection[str] = ()) -> int:
        """This row's part of the exit code; `required` are the tiers that must have measured something."""
        codes = [ExitCode.OK]
        for tier, result in self.fresh.items():
            committed = self.committed.get(tier)
            if not agrees(result.verdict, committed):
                known = committed not in (None, Verdict.NOT_MEASURED)
                codes.append(max(_CODES[result.verdict], ExitCode.DIFFERS if known else ExitCode.OK))
            if (
                result.verdict is Verdict.NOT_MEASURED
                and tier in required
                and committed is not result.verdict
            ):
                codes.append(ExitCode.NOT_MEASURED)
        return worst_exit(codes)

    def to_json(self) -> dict[str, Any]:
        """The row as `reproduce --json` has it."""
        return {
            "id": self.claim,
            "kind": self.kind,
            "published": self.published,
            "unit": self.unit,
            "tiers": {tier: result.to_json() for tier, result in self.fresh.items()},
            "committed": {tier: verdict.value for tier, verdict in self.committed.items()},
            "agrees": self.agrees,
        }


def exit_code(rows: Iterable[Row], required: Collection[str] = ()) -> int:
    """The exit code of a run: the worst of its rows."""
    return worst_exit(row.exit_code(required) for row in rows)
