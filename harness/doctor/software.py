"""Checks of the tiers that need no GPU: Python, wheels, disk, sources, network."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping

from harness.doctor.check import Check, bad, good, unknown, warning
from harness.doctor.host import Host

__all__ = ["software_checks"]

_RECORD_PACKAGES = ("pyyaml", "jsonschema", "jsonschema-rs", "msgspec", "orjson", "rich", "numpy", "scipy")
_GIB = 1 << 30
_SOURCES = (("FLYDSL_SRC", "FlyDSL"), ("AITER_SRC", "AITER"), ("STUDY_SRC", "the study's captures"))


def software_checks(host: Host, expected: Mapping[str, str], cache: str) -> Iterator[Check]:
    """Record, compile and execute tiers. `expected`: package → pinned version. `cache`: the cache
    directory.
    """
    yield from _python(host)
    yield from _platform()
    yield from _wheels(host, expected)
    yield from _cache(host, cache)
    yield from _sources(host)


def _python(host: Host) -> Iterator[Check]:
    yield good("record", "Python", platform.python_version())
    absent = [name for name in _RECORD_PACKAGES if host.package(name) is None]
    if absent:
        yield bad("record", "packages", f"missing: {', '.join(absent)}", "pip install -e .")
    else:
        yield good("record", "packages", f"{len(_RECORD_PACKAGES)} of {len(_RECORD_PACKAGES)} present")


def _platform() -> Iterator[Check]:
    here = f"{platform.system()} {platform.machine()}"
    if here == "Linux x86_64":
        yield good("compile", "platform", here)
    else:
        remedy = (
            "use an x86-64 Linux machine, or a Linux container on one: the wheels exist for no other platform"
        )
        yield bad("compile", "platform", here, remedy)


def _wheels(host: Host, expected: Mapping[str, str]) -> Iterator[Check]:
    for name in ("flydsl", "torch", "triton"):
        version, pinned = host.package(name), expected.get(name)
        if name == "triton":
            if version == pinned:
                yield good("compile", name, f"{version}, as pinned")
            else:
                found = f"{version or 'not installed'}; pinned {pinned}"
                yield good(
                    "compile", name, f"{found}: the pinned wheel is fetched into the cache, not installed"
                )
        elif version is None:
            yield bad(
                "compile", name, "not installed", "pip install -e '.[compile]' (README, What each tier needs)"
            )
        elif name == "flydsl" and version != pinned:
            yield bad("compile", name, f"{version}, pinned is {pinned}", f"pip install flydsl=={pinned}")
        else:
            yield good("compile", name, version)


def _cache(host: Host, cache: str) -> Iterator[Check]:
    free = host.free_bytes(cache)
    if free is None:
        yield unknown("compile", "cache", f"free space of {cache} cannot be read")
    elif free < 2 * _GIB:
        remedy = "free 2 GiB, or set HARNESS_CACHE to a directory on a larger disk"
        yield bad("compile", "cache", f"{cache}: {free / _GIB:.1f} GiB free, 2 are needed", remedy)
    else:
        yield good("compile", "cache", f"{cache}: {free / _GIB:.0f} GiB free")


def _sources(host: Host) -> Iterator[Check]:
    named = [(variable, what, host.env(variable)) for variable, what in _SOURCES]
    for variable, what, value in named:
        if value is None:
            continue
        if host.listing(value) is None:
            yield bad(
                "compile", variable, f"{value} is no readable directory", f"point it at {what}, or unset it"
            )
        else:
            yield good("compile", variable, f"{what}: {value}")
    if named[0][2] is not None:
        return
    reached = host.reaches("github.com", 443)
    if reached:
        yield good("compile", "network", "the source host answers")
    elif reached is None:
        yield unknown("compile", "network", "not tried")
    else:
        yield warning(
            "compile",
            "network",
            "github.com:443 does not answer: sources cannot be fetched, their claims stay NOT_MEASURED",
            "set FLYDSL_SRC to a checkout or git mirror of FlyDSL",
        )
