"""Claim kinds: one module each; a kind judges what the tiers have gathered.

Knows which kinds exist (by file name) and how to ask one. Must not know any kind by name: a new kind is a new
file here and nothing else.

A kind's module has
- `KIND`: its name in bundle.yaml, the module's own name;
- `TIERS`: the tiers that can say something of such a claim;
- `identity(claim)`: what tells two claims of this kind apart beyond workload, unit and regime;
- `record`, `compile`, `execute`, `device`, each `(claim, bundle, evidence) -> TierResult | None`, pure; None
  where that tier says nothing of this claim. `evidence` is what that tier gathered (`harness.tiers`).
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Protocol, cast

from harness.bundle import Bundle, Claim
from harness.errors import HarnessError
from harness.tiers import Evidence, not_measured
from harness.verdict import TierResult

__all__ = ["Kind", "identity", "judge", "kind", "names"]


class Kind(Protocol):
    """The interface of `harness/kinds/<kind>.py`."""

    KIND: str
    TIERS: tuple[str, ...]

    def identity(self, claim: Claim) -> tuple[str, ...]: ...
    def record(self, claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None: ...
    def compile(self, claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None: ...
    def execute(self, claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None: ...
    def device(self, claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None: ...


@cache
def names() -> tuple[str, ...]:
    """The names of all kinds, sorted; read from the file names, so nothing is imported."""
    here = Path(__file__).parent
    return tuple(sorted(path.stem for path in here.glob("*.py") if not path.stem.startswith("_")))


@cache
def kind(name: str) -> Kind:
    """The kind called `name`, imported now. Raises KeyError where there is none."""
    if name not in names():
        raise KeyError(name)
    return cast(Kind, importlib.import_module(f"{__name__}.{name}"))


def identity(claim: Claim) -> tuple[str, ...]:
    """All that tells two claims of one bundle apart: kind, workload, unit, regime, and what its kind adds.

    Two claims with the same identity state the same thing twice; two numbers of different identity are never
    compared (DESIGN, Words).
    """
    common = (claim.kind, claim.workload or "", claim.unit or "", claim.regime or "")
    return common + kind(claim.kind).identity(claim)


def judge(tier: str, claim: Claim, bundle: Bundle, evidence: Evidence) -> TierResult | None:
    """What `evidence` of `tier` says of `claim`: None where such a tier says nothing of such a claim.

    A tier that was unavailable gives NOT_MEASURED with its remedy for each claim that it could have
    decided. Raises HarnessError, with the claim's line, for a figure that is none.
    """
    module = kind(claim.kind)
    if tier not in module.TIERS:
        return None
    missing = not_measured(evidence)
    if missing is not None:
        return missing
    try:
        answer: TierResult | None = getattr(module, tier)(claim, bundle, evidence)
    except ValueError as error:
        place = f"{bundle.path.name}/bundle.yaml:{claim.line}"
        raise HarnessError(f"{place}: {claim.id}: {error}", remedy="run harness validate") from error
    return answer
