"""What will be measured, as plain data: the shapes, the pairs, the regimes, the controls, the limits.

A plan is decided before the first process starts and never changes: its hash ties every sample to it, and a
resumed run must bring the same one. Pure data; knows nothing of torch, processes or verdicts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from harness.errors import HarnessError

__all__ = [
    "COLD",
    "CONTROL_AA",
    "CONTROL_POSITIVE",
    "EAGER",
    "HOST_REGIMES",
    "HOST_ROTATED",
    "HOST_WARM",
    "LOOKS",
    "REGIMES",
    "WARM",
    "Plan",
    "Shape",
    "canonical",
    "digest",
    "plan_from_json",
    "rotating",
    "shape_id",
]

COLD = "graph-kernel/cold"
WARM = "graph-kernel/warm"
EAGER = "eager-events"
HOST_ROTATED = "host-loop/rotated"
HOST_WARM = "host-loop/warm"
REGIMES = (COLD, WARM, EAGER)
HOST_REGIMES = (HOST_ROTATED, HOST_WARM, EAGER)
"""On a CPU a replay is a plain loop, and its rotation need not exceed the cache: it rehearses, it measures
no GPU."""


def rotating(regime: str) -> bool:
    """Does a sample of `regime` go round the whole rotation of input sets (else: one set, again and
    again)."""
    return regime.endswith(("/cold", "/rotated"))


CONTROL_AA = "a/a"
"""The subject against itself through separate allocations: must read 1."""
CONTROL_POSITIVE = "positive"
"""The subject against the same launches, `extra` more of them: must read 1 + extra."""

LOOKS = (5, 8, 12, 20)
"""Processes after which the parent may decide (measuring: Sampling, 4)."""


def canonical(value: Any) -> bytes:
    """The one byte form of JSON data that is hashed: sorted keys, no blanks, UTF-8. NaN is refused."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
    ).encode()


def digest(value: Any) -> str:
    """sha256 (hex) of the canonical form of `value`."""
    return hashlib.sha256(canonical(value)).hexdigest()


def shape_id(workload: str, aspect: str | None) -> str:
    """The id of a shape: its workload, and which launch of it (a stage, a variant of the kernel) is meant."""
    return workload if aspect is None else f"{workload}.{re.sub('[^a-z0-9]+', '-', aspect.lower())}"


@dataclass(frozen=True)
class Shape:
    """One workload to be timed: its id and dimensions, and what the publication says of each baseline.

    `baselines` are the names of `harness.kernels.<id>.baselines(dims)` to be timed against the subject.
    `judged` are the regimes in which the shape's claims are stated: they get all blocks of the plan and the
    stopping rule decides by them; the other regimes are recorded beside them with fewer blocks.
    `published` maps a baseline's name to the published ratio (absent: there is none, so every look is taken
    until the interval is narrow). `u0` is the standard error of its logarithm.
    """

    id: str
    dims: Mapping[str, int | float | str | bool | None]
    baselines: tuple[str, ...]
    judged: tuple[str, ...] = (COLD,)
    published: Mapping[str, float] | None = None
    u0: float = 0.01


@dataclass(frozen=True)
class Plan:
    """One run of the device tier. Times in the units of their names; `kernel` is a module of the kernel
    interface.

    `extra` is the positive control's surplus of launches (0.10 = 10 %). `slowdown` makes the subject slower
    by construction: its ratio becomes (1 - slowdown) of the true one (a self-test of the judge; 0 in every
    real run). `start` is `fork` (a server that imported everything and touched no GPU) or `spawn` (an
    interpreter of its own).
    """

    bundle: str
    kernel: str
    device: str
    shapes: tuple[Shape, ...]
    start: str = "spawn"
    regimes: tuple[str, ...] = REGIMES
    looks: tuple[int, ...] = LOOKS
    blocks: int = 20
    discarded: int = 3
    blocks_beside: int = 6
    minimum_us: float = 200.0
    minimum_floors: float = 10.0
    rotation: float = 3.5
    least_rotation: float = 3.0
    extra: float = 0.10
    slowdown: float = 0.0
    tau: float = 0.04879016416943205  # log 1.05
    limit_s: float = 300.0
    seed: int = 20
    all_looks: bool = False
    requires_arch: str | None = None
    pins_sha256: str | None = None

    def __post_init__(self) -> None:
        wrong = [r for r in self.regimes if r not in REGIMES + HOST_REGIMES]
        if wrong:
            raise HarnessError(f"plan of {self.bundle}: unknown regime {wrong[0]!r}")
        if list(self.looks) != sorted(set(self.looks)) or not self.looks or self.looks[0] < 2:
            raise HarnessError(f"plan of {self.bundle}: looks must rise from at least 2 (got {self.looks})")
        if not 0 <= self.slowdown < 0.5 or not 0 < self.extra <= 1:
            raise HarnessError(
                f"plan of {self.bundle}: slowdown {self.slowdown} or extra {self.extra} out of range"
            )

    @property
    def sha256(self) -> str:
        """The hash that ties samples to this plan. How a process is started and for how long is not in it."""
        data = self.to_json()
        for name in ("start", "limit_s"):
            del data[name]
        return digest(data)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data; `plan_from_json` reads it back."""
        data: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return data

    def shape(self, name: str) -> Shape:
        """The shape called `name`. Raises KeyError."""
        for shape in self.shapes:
            if shape.id == name:
                return shape
        raise KeyError(name)

    def with_(self, **changes: Any) -> Plan:
        """A copy with other fields."""
        return replace(self, **changes)


def plan_from_json(data: Mapping[str, Any]) -> Plan:
    """A plan from `Plan.to_json` data. Raises HarnessError where fields are missing or unknown."""
    try:
        shapes = tuple(
            Shape(**{**s, "baselines": tuple(s["baselines"]), "judged": tuple(s["judged"])})
            for s in data["shapes"]
        )
        rest: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k != "shapes"
        }
        return Plan(shapes=shapes, **rest)
    except (KeyError, TypeError, AttributeError) as error:
        raise HarnessError(f"plan: not a plan of this version ({error})") from error
