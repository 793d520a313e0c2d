"""The pinned versions of `pins.yaml`, as frozen dataclasses; the only reader of that file.

Knows versions and hashes; must not know what is done with them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.errors import HarnessError
from harness.faults import Fault, FaultError, spot
from harness.schemas import broken
from harness.yamlfile import Document, read

__all__ = [
    "PATH",
    "BaseImage",
    "Decoder",
    "FlyDSL",
    "Pins",
    "Python",
    "Source",
    "Wheels",
    "faults",
    "flydsl_wheel_sha256",
    "load",
    "triton_wheel_sha256",
]

PATH = Path(__file__).resolve().parent.parent / "pins.yaml"


@dataclass(frozen=True)
class BaseImage:
    """The container's base: tag, digest (`sha256:…`), and whether a registry has confirmed that they belong
    together.
    """

    tag: str
    digest: str
    verified: bool


@dataclass(frozen=True)
class Python:
    """The oldest Python that the harness runs on, and the one in the container."""

    minimum: str
    container: str


@dataclass(frozen=True)
class Source:
    """A git repository at a commit."""

    repository: str
    commit: str


@dataclass(frozen=True)
class Wheels:
    """A package on the index: its version, and the sha256 of its x86-64 Linux wheels by Python tag."""

    version: str
    wheels: Mapping[str, str]


@dataclass(frozen=True)
class FlyDSL:
    """FlyDSL: the wheel, the commit of the kernel sources, and the commit of the Python layer laid over the
    wheel.
    """

    repository: str
    version: str
    commit: str
    layer: str
    wheels: Mapping[str, str]


@dataclass(frozen=True)
class Decoder:
    """rocprof's trace decoder; `sha256` is of its release archive, None where none is known."""

    version: str
    sha256: str | None


@dataclass(frozen=True)
class Pins:
    """Every version that this project names."""

    python: Python
    base_image: BaseImage
    rocm: str
    torch: str
    triton: Wheels
    flydsl: FlyDSL
    tinygrad: str
    aiter: Source
    study: Source
    trace_decoder: Decoder


@cache
def load(path: Path = PATH) -> Pins:
    """The pins in `path`. Raises FaultError with every fault of syntax and schema."""
    document = read(path, path.name)
    found = faults(document)
    if found:
        raise FaultError(found, remedy="restore it: git checkout pins.yaml")
    data: Mapping[str, Any] = document.data
    flydsl, triton = data["flydsl"], data["triton"]
    return Pins(
        python=Python(**data["python"]),
        base_image=BaseImage(**data["base_image"]),
        rocm=data["rocm"],
        torch=data["torch"]["container"],
        triton=Wheels(triton["version"], MappingProxyType(triton["wheels"])),
        flydsl=FlyDSL(**{**flydsl, "wheels": MappingProxyType(flydsl["wheels"])}),
        tinygrad=data["tinygrad"],
        aiter=Source(**data["aiter"]),
        study=Source(**data["study"]),
        trace_decoder=Decoder(**data["trace_decoder"]),
    )


def faults(document: Document) -> list[Fault]:
    """Every rule of `schema/pins.schema.json` that the document breaks."""
    return [
        Fault(document.file, document.line(one.path), spot(one.path), one.rule, one.message, one.value)
        for one in broken("pins", document.data)
    ]


def triton_wheel_sha256(tag: str | None = None) -> str:
    """The sha256 of the pinned Triton wheel for the Python `tag` (`cp311`); this interpreter's without one.

    Raises HarnessError for a Python that has none.
    """
    return _wheel("triton", load().triton.wheels, tag)


def flydsl_wheel_sha256(tag: str | None = None) -> str:
    """The sha256 of the pinned FlyDSL wheel, as `triton_wheel_sha256`."""
    return _wheel("flydsl", load().flydsl.wheels, tag)


def _wheel(package: str, wheels: Mapping[str, str], tag: str | None) -> str:
    wanted = tag or f"cp{sys.version_info[0]}{sys.version_info[1]}"
    if wanted not in wheels:
        raise HarnessError(
            f"pins.yaml: {package}.wheels: has no {wanted}",
            remedy=f"use a Python of {', '.join(wheels)}, or add the wheel's sha256",
        )
    return wheels[wanted]
