"""From a bundle to a plan: which workloads to time, in which regimes, against which baselines. Pure.

Nothing is guessed: a workload that leaves a dimension unsaid is not timed, and the plan says so.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.bundle import Bundle, Claim, Workload
from harness.device.plan import COLD, REGIMES, Plan, Shape, shape_id
from harness.device.verdicts import STUDY_ARCH, regime_of
from harness.errors import HarnessError
from harness.kernels.base import PEAK_BYTES_PER_S, KernelModule

__all__ = ["Planned", "installed", "plan_for", "table"]

TIMED = ("ratio", "class", "latency", "throughput", "control")
"""Kinds whose claims name a workload that the engine can time."""

START_S = {"fork": 1.6, "spawn": 8.0}
"""Seconds of a process before its first sample: start, context, JIT, gates (measured on an H200)."""


@dataclass(frozen=True)
class Planned:
    """A bundle's plan, None where it has no workload to time; `left_out` says why of each that is not."""

    plan: Plan | None
    left_out: Mapping[str, str]


def installed(package: str) -> bool:
    """Is the library that a baseline requires here. A ratio against one that is not is NOT_MEASURED."""
    return package != "aiter" or importlib.util.find_spec("aiter") is not None


def plan_for(
    bundle: Bundle,
    module: KernelModule,
    options: Mapping[str, Any],
    pins: str | None = None,
    has: Callable[[str], bool] = lambda package: True,
) -> Planned:
    """The plan for `bundle`. Options: workload (only this one), seed, start, processes. `has` says which
    libraries are here; a baseline of another is not timed.
    """
    only = options.get("workload")
    shapes, left_out = [], {}
    for workload in bundle.workloads:
        timed = [c for c in bundle.claims if c.workload == workload.id and c.kind in TIMED]
        if only is not None and workload.id != only:
            continue
        for aspect, claims in _by_aspect(timed, module).items():
            try:
                shapes.append(_shape(workload, aspect, claims, module, has))
            except HarnessError as error:
                left_out[shape_id(workload.id, aspect)] = error.message
    if not shapes:
        return Planned(None, left_out)
    study = any(c.origin == "study" for c in bundle.claims)
    plan = Plan(
        bundle.id,
        module.__name__,  # type: ignore[attr-defined]
        "cuda",
        tuple(shapes),
        start=str(options.get("start") or ("spawn" if study else "fork")),
        seed=int(options.get("seed") or 20),
        requires_arch=STUDY_ARCH if study else None,
        pins_sha256=pins,
    )
    if options.get("processes"):
        most = int(options["processes"])
        plan = plan.with_(looks=(*(k for k in plan.looks if k < most), most))
    return Planned(plan, left_out)


def _aspects(module: KernelModule) -> Mapping[str | None, Mapping[str, Any]]:
    found: Mapping[str | None, Mapping[str, Any]] = getattr(module, "ASPECTS", {None: {}})
    return found


def _by_aspect(claims: list[Claim], module: KernelModule) -> dict[str | None, list[Claim]]:
    """The claims of one workload by the launch that they are about: a stage, a variant, or the plain one."""
    aspects = _aspects(module)
    found: dict[str | None, list[Claim]] = {}
    for claim in claims:
        stage, variant = claim.fields.get("stage"), claim.fields.get("variant")
        aspect = stage if stage is not None else variant if variant in aspects else None
        found.setdefault(aspect, []).append(claim)
    return found


def _shape(
    workload: Workload,
    aspect: str | None,
    claims: list[Claim],
    module: KernelModule,
    has: Callable[[str], bool],
) -> Shape:
    if workload.unknown:
        raise HarnessError(f"the publication does not say {', '.join(workload.unknown)}")
    if aspect not in _aspects(module):
        raise HarnessError(f"the kernel file builds no {aspect!r}")
    laid = {**workload.dims, **_aspects(module)[aspect]}
    dims = module.resolve(laid)
    baselines = tuple(b.id for b in module.baselines(dims) if b.role == "claim" and has(b.requires))
    regimes = {r for r in map(regime_of, claims) if r is not None}
    if not regimes and not any(c.kind == "control" or c.regime == "kernel-trace" for c in claims):
        raise HarnessError("the publication names no timing regime for it, so no measurement is its own")
    judged = tuple(r for r in REGIMES if r in regimes) or (COLD,)
    ratios = [
        c
        for c in claims
        if c.kind == "ratio"
        and regime_of(c) in judged
        and (aspect is not None or not c.fields.get("comparison"))
    ]
    published = {baselines[0]: _middle(ratios[0])} if ratios and baselines and ratios[0].published else None
    u0 = float(ratios[0].fields.get("published_se", 0.01)) if ratios else 0.01
    return Shape(shape_id(workload.id, aspect), laid, baselines, judged, published, u0)


def _middle(claim: Claim) -> float:
    value = claim.published
    if isinstance(value, (list, tuple)):
        return math.sqrt(float(value[0]) * float(value[1]))
    return float(value)


def table(planned: Planned, module: KernelModule) -> list[dict[str, Any]]:
    """One row a shape for a dry run: dims, bytes, memory, entry points, regimes, processes, seconds at
    worst."""
    if planned.plan is None:
        return []
    plan, rows = planned.plan, []
    for shape in plan.shapes:
        dims = module.resolve(shape.dims)
        traffic = module.traffic(dims)
        launch_s = max(3e-6, 2 * traffic.bytes / PEAK_BYTES_PER_S)
        memory = module.memory_bytes(dims)
        cache = (256 + 32) << 20
        sets = max(2, math.ceil(plan.rotation * cache / max(1, traffic.bytes)))
        samples = (plan.blocks + plan.discarded) * 4 * (len(shape.baselines) + 2)
        sample_s = max(plan.minimum_us * 1e-6, launch_s * sets)
        each = START_S[plan.start] + samples * sample_s + samples * 60 * launch_s
        rows.append(
            {
                "shape": shape.id,
                "dims": dims,
                "bytes": traffic.bytes,
                "flops": traffic.flops,
                "memory": memory * sets * 2,
                "baselines": [b.entry_point for b in module.baselines(dims) if b.id in shape.baselines],
                "regimes": list(plan.regimes),
                "judged": list(shape.judged),
                "processes": [plan.looks[0], plan.looks[-1]],
                "seconds": [round(each * plan.looks[0]), round(each * plan.looks[-1])],
            }
        )
    return rows
