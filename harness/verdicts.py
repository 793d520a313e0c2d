"""The committed verdicts: the only reader and writer of `bundles/<id>/verdicts.yaml`.

Knows the shape of that file; must not know how a verdict is found. The file is generated
(`harness.report.seal`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.bundle import Bundle
from harness.errors import HarnessError
from harness.report.seal import COMMAND, digest, sealed, write
from harness.verdict import TIERS, TierResult, Verdict

__all__ = ["FILE", "Committed", "inputs", "merge", "read", "save", "text"]

FILE = "verdicts.yaml"

Committed = Mapping[str, Mapping[str, TierResult]]
"""claim id -> tier -> what is committed (verdict, value, reason, remedy; the numbers stay in the
evidence)."""


@dataclass(frozen=True)
class _Place:
    path: Path

    def fault(self, what: str) -> HarnessError:
        return HarnessError(f"{self.path.parent.name}/{self.path.name}: {what}", remedy=f"run {COMMAND}")


def read(bundle: Bundle) -> dict[str, dict[str, TierResult]]:
    """The committed verdicts of `bundle`; empty where there is no file. Raises HarnessError for a broken
    one."""
    path = bundle.path / FILE
    if not path.exists():
        return {}
    import yaml

    place = _Place(path)
    try:
        data = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise place.fault(f"is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict) or data.get("schema_version") != 1:
        raise place.fault("schema_version: must be 1")
    claims = data.get("claims")
    if not isinstance(claims, dict):
        raise place.fault("claims: must be a mapping")
    return {name: _tiers(name, tiers, place) for name, tiers in claims.items()}


def _tiers(name: str, tiers: Any, place: _Place) -> dict[str, TierResult]:
    if not isinstance(tiers, dict) or not set(tiers) <= set(TIERS):
        raise place.fault(f"claims.{name}: must map tiers ({', '.join(TIERS)}) to verdicts")
    out = {}
    for tier, entry in tiers.items():
        try:
            out[tier] = TierResult(
                Verdict(entry["verdict"]), entry.get("value"), entry["reason"], entry.get("remedy")
            )
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise place.fault(f"claims.{name}.{tier}: is no verdict with its reason") from error
    return out


def merge(
    committed: Committed, fresh: Committed, kept: Mapping[str, bool]
) -> dict[str, dict[str, TierResult]]:
    """What to commit now: the fresh verdicts, and the committed ones of the tiers that this machine could
    not run.

    `kept` says of each tier whether its committed verdicts stay. Claims that are no more are dropped.
    """
    out: dict[str, dict[str, TierResult]] = {}
    for name, results in fresh.items():
        stay = {tier: result for tier, result in committed.get(name, {}).items() if kept.get(tier, True)}
        now = {tier: result for tier, result in results.items() if not kept.get(tier, True)}
        out[name] = {tier: (now | stay)[tier] for tier in TIERS if tier in now or tier in stay}
    return out


def inputs(bundle: Bundle) -> str:
    """The digest of what verdicts are made from: the bundle and its evidence."""
    return digest([bundle.path / "bundle.yaml", *(bundle.path / "evidence").glob("*.json")])


def text(bundle: Bundle, verdicts: Committed) -> str:
    """The whole file."""
    import yaml

    claims = {
        name: {
            tier: {key: value for key, value in result.to_json().items() if key != "numbers"}
            for tier, result in tiers.items()
        }
        for name, tiers in verdicts.items()
    }
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    body = yaml.dump(
        {"schema_version": 1, "bundle": bundle.id, "claims": claims},
        Dumper=dumper,
        sort_keys=False,
        allow_unicode=True,
        width=1000,
    )
    return sealed(body, inputs(bundle), ".yaml")


def save(bundle: Bundle, verdicts: Committed) -> None:
    """Write the file, whole or not at all."""
    write(bundle.path / FILE, text(bundle, verdicts))
