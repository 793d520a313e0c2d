"""The four tiers: each gathers evidence about a bundle; none of them judges.

Knows where each tier lives and imports it only when it is asked for. Must not know what a claim says: that is
`harness.kinds`, which judges what the tiers gather.

A tier's module has one function, `gather(bundle, context)`, that returns a JSON-able mapping. A tier that
cannot work on this machine returns `unavailable(reason, remedy)`; the kinds then answer NOT_MEASURED with it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, cast

from harness.bundle import Bundle
from harness.command import Reporter
from harness.verdict import TIERS, TierResult, Verdict

__all__ = ["Context", "Evidence", "Tier", "not_measured", "tier", "unavailable"]

Evidence = Mapping[str, Any]
"""What one tier gathered about one bundle: JSON-able, in the shape of `bundles/<id>/evidence/*.json`."""

_MODULES: Mapping[str, str] = MappingProxyType({name: f"harness.{name}.tier" for name in TIERS})


@dataclass(frozen=True)
class Context:
    """How to gather: where artefacts go (None: keep none), whether the network may be used, who is told.

    `root` is the directory that holds the bundles; `options` are the command line's further wishes by name
    (`layer`, `workload`, ...), each tier reading only its own.
    """

    out: Path | None
    offline: bool
    reporter: Reporter
    root: Path
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


class Tier(Protocol):
    """The interface of `harness/<tier>/tier.py`."""

    def gather(self, bundle: Bundle, context: Context) -> Evidence:
        """Evidence about `bundle` from this machine, or `unavailable(...)`. HarnessError on bad input."""


def tier(name: str) -> Tier:
    """The tier called `name`, imported now. Raises KeyError for a name that is none of `TIERS`."""
    return cast(Tier, importlib.import_module(_MODULES[name]))


def unavailable(reason: str, remedy: str) -> Evidence:
    """What a tier returns that cannot work here: why, and what to do about it, one line each."""
    return {"unavailable": reason, "remedy": remedy}


def not_measured(evidence: Evidence) -> TierResult | None:
    """NOT_MEASURED with the tier's own reason and remedy where it was unavailable, else None."""
    if "unavailable" not in evidence:
        return None
    remedy = evidence.get("remedy")
    return TierResult(
        Verdict.NOT_MEASURED, None, str(evidence["unavailable"]), str(remedy) if remedy is not None else None
    )
