"""Every published figure of a bundle against figures made again from the study's raw files.

Knows how a fresh `evidence/study.json`, the kinds' own judgement and the findings come together. It judges
nothing itself: verdicts are the record tier's (`harness.kinds`), findings are `harness.record.findings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.bundle import Bundle, Claim
from harness.command import Silent
from harness.kinds import judge
from harness.record import tier
from harness.record.findings import Finding, findings
from harness.record.study_evidence import Raw, renew
from harness.tiers import Context, Evidence
from harness.verdict import TierResult, Verdict

__all__ = ["BundleAudit", "Figure", "audit"]


@dataclass(frozen=True)
class Figure:
    """One published figure. `match`: exact, rounding, mismatch, or not derivable, whatever the verdict.

    A figure of a capture that cannot carry it may be derived again exactly and still be INVALID.
    """

    claim: str
    kind: str
    statement: str
    published: Any
    derived: float | int | str | None
    match: str
    verdict: Verdict
    reason: str
    cites: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "claim": self.claim, "kind": self.kind, "statement": self.statement, "published": self.published,
            "derived": self.derived, "match": self.match, "verdict": self.verdict.value,
            "reason": self.reason, "cites": list(self.cites),
        }  # fmt: skip


@dataclass(frozen=True)
class BundleAudit:
    """One bundle audited: its fresh evidence, each figure, and what was found by rules."""

    bundle: str
    evidence: Mapping[str, Any]
    figures: tuple[Figure, ...]
    findings: tuple[Finding, ...]
    from_captures: bool
    changed: bool

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "id": self.bundle, "origin": "captures" if self.from_captures else "facts",
            "changed": self.changed,
            "figures": [figure.to_json() for figure in self.figures],
            "findings": [finding.to_json() for finding in self.findings],
        }  # fmt: skip


def audit(bundle: Bundle, raw: Raw, root: Path) -> BundleAudit:
    """Audit one bundle. Raises HarnessError for evidence that cannot be read."""
    gathered = dict(tier.gather(bundle, Context(None, True, Silent(), root)))
    old = gathered.get("study") or _empty(bundle)
    fresh = renew(bundle, old, raw)
    gathered["study"] = fresh
    sound = {**gathered, "study": _without_spoils(fresh)}
    figures = tuple(
        figure
        for claim in bundle.claims
        if claim.origin == "study" and (figure := _figure(claim, bundle, gathered, sound)) is not None
    )
    captured = any(capture["origin"] == "captures" for capture in fresh.get("captures", ()))
    found = tuple(findings(bundle, gathered))
    return BundleAudit(bundle.id, fresh, figures, found, captured, fresh != dict(old))


def _empty(bundle: Bundle) -> dict[str, Any]:
    study = bundle.raw.get("study", {}) if isinstance(bundle.raw, Mapping) else {}
    return {
        "schema_version": 1,
        "bundle": bundle.id,
        "study": dict(study) if isinstance(study, Mapping) else {},
        "captures": [],
        "kernel_traces": [],
        "multishape": [],
    }


def _without_spoils(study: Mapping[str, Any]) -> dict[str, Any]:
    captures = [
        {**capture, "faults": [{**fault, "spoils": []} for fault in capture["faults"]]}
        for capture in study.get("captures", ())
    ]
    return {**study, "captures": captures}


def _figure(claim: Claim, bundle: Bundle, evidence: Evidence, sound: Evidence) -> Figure | None:
    answer = judge("record", claim, bundle, evidence)
    if answer is None:
        return None
    derived = judge("record", claim, bundle, sound) if answer.verdict is Verdict.INVALID else answer
    value = derived.value if derived is not None else None
    return Figure(
        claim.id, claim.kind, claim.statement, claim.published, value, _match(claim.published, derived),
        answer.verdict, answer.reason, claim.cites,
    )  # fmt: skip


def _match(published: Any, derived: TierResult | None) -> str:
    if derived is None or derived.verdict in (Verdict.NOT_MEASURED, Verdict.NOT_COMPARABLE, Verdict.INVALID):
        return "not derivable"
    if derived.verdict is not Verdict.REPRODUCED:
        return "mismatch"
    return "exact" if published == derived.value else "rounding"
