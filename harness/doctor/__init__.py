"""`harness doctor`: what this machine can do, tier by tier, and what to do about the rest.

It reads and never changes a setting. The rules are pure functions of a `Host`; this module runs them, side
by side where they wait, and lays out the report.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from harness.command import Outcome, Reporter
from harness.doctor.check import Check, State
from harness.doctor.engine import engine_checks
from harness.doctor.gpu import gpu_checks
from harness.doctor.host import Host, LiveHost
from harness.doctor.profiler import profiler_checks
from harness.doctor.software import software_checks
from harness.verdict import TIERS, ExitCode

__all__ = ["Expected", "configure", "examine", "run"]

_ORDER = (*TIERS, "container")
_MARK = {State.OK: "ok", State.WARNING: "warn", State.MISSING: "MISSING", State.UNKNOWN: "unknown"}


@dataclass(frozen=True)
class Expected:
    """What the pins ask for: Python package versions, ROCm, the trace decoder's version and hash."""

    packages: Mapping[str, str]
    rocm: str | None
    decoder_version: str | None
    decoder_sha256: str | None


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--offline", action="store_true", help="do not try the network")
    parser.add_argument("--require", choices=_ORDER, help="end with 50 when this tier cannot work here")


def examine(host: Host, expected: Expected, cache: str) -> tuple[Check, ...]:
    """Every check, in the order of the tiers. The groups run side by side: each mostly waits for programs."""
    groups: tuple[Callable[[], Iterable[Check]], ...] = (
        lambda: software_checks(host, expected.packages, cache),
        lambda: gpu_checks(host, expected.rocm),
        lambda: profiler_checks(host, expected.decoder_version, expected.decoder_sha256),
        lambda: engine_checks(host),
    )
    with ThreadPoolExecutor(max_workers=len(groups)) as pool:
        found = [check for checks in pool.map(lambda group: tuple(group()), groups) for check in checks]
    return tuple(sorted(found, key=lambda check: _ORDER.index(check.tier)))


def able(checks: Iterable[Check]) -> dict[str, bool]:
    """Tier → whether nothing blocks it here. The execute tier needs what the compile tier needs."""
    blocked = {check.tier for check in checks if check.blocks}
    if "compile" in blocked:
        blocked.add("execute")
    return {tier: tier not in blocked for tier in _ORDER}


def run(args: argparse.Namespace, reporter: Reporter) -> Outcome:
    """Examine this machine. Exit 0, or 50 when `--require` names a tier that cannot work here."""
    from harness.compile.cache import open_cache

    cache = str(open_cache().root)
    checks = examine(LiveHost(network=not args.offline), _expected(), cache)
    tiers = able(checks)
    failed = args.require is not None and not tiers[args.require]
    data = {"tiers": tiers, "checks": [check.to_json() for check in checks]}
    return Outcome(ExitCode.NOT_MEASURED if failed else ExitCode.OK, _text(checks, tiers), data)


def _text(checks: tuple[Check, ...], tiers: Mapping[str, bool]) -> str:
    width = max(len(check.name) for check in checks)
    lines: list[str] = []
    for tier in _ORDER:
        lines.append(f"{tier}: {'can work here' if tiers[tier] else 'cannot work here'}")
        for check in checks:
            if check.tier == tier:
                lines.append(f"  {_MARK[check.state]:<8}{check.name:<{width}}  {check.found}")
                if check.remedy:
                    lines.append(f"  {'':<8}{'':<{width}}  remedy: {check.remedy}")
        if tier == "execute":
            lines.append(f"  {'':<8}needs what the compile tier needs")
    return "\n".join(lines)


def _expected() -> Expected:
    from harness.pins import load

    pins = load()
    return Expected(
        packages={"flydsl": pins.flydsl.version, "triton": pins.triton.version},
        rocm=pins.rocm,
        decoder_version=pins.trace_decoder.version,
        decoder_sha256=pins.trace_decoder.sha256,
    )
