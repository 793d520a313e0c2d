"""Bundles made in memory, for tests of what does not read files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.bundle import Bundle, Claim, Implementation, Kernel, Workload

_NOBODY = Implementation(None, None, None, None, ())


def claim(name: str, kind: str, published: Any = None, **rest: Any) -> Claim:
    """A claim; what is no common key becomes a field of its kind."""
    common = {"workload": "w", "unit": None, "tolerance": None, "regime": None}
    given = {key: rest.pop(key, default) for key, default in common.items()}
    return Claim(
        id=name,
        kind=kind,
        statement=name,
        origin=rest.pop("origin", "study"),
        published=published,
        cites=("FINDINGS.md:1",),
        fields=MappingProxyType(rest),
        line=1,
        **given,
    )


def bundle(*claims: Claim, path: Path = Path("nowhere"), dims: Mapping[str, Any] | None = None) -> Bundle:
    """A bundle of these claims with one workload `w`."""
    workload = Workload("w", MappingProxyType(dict(dims or {})), MappingProxyType({}), (), ("FINDINGS.md:1",))
    return Bundle(
        id="made",
        title="Made for a test",
        path=path,
        kernel=Kernel(("k_0",), "https://example.invalid/k", "0" * 40, ()),
        workloads=(workload,),
        subject=_NOBODY,
        baseline=_NOBODY,
        claims=claims,
        unknown=(),
        raw=MappingProxyType({}),
    )


def capture(**changes: Any) -> dict[str, Any]:
    """A capture as `evidence/study.json` has it."""
    out: dict[str, Any] = {
        "directory": "made/att_viewer/big/ui_output_agent_1_dispatch_2",
        "origin": "captures",
        "code_sha256": "a" * 64,
        "listing_sha256": "b" * 64,
        "arch": "gfx950",
        "symbol": "k_0",
        "instructions": 731,
        "executed": 731,
        "mapped": 731,
        "cycles": {"total": 41_645_144, "stall": 31_799_432, "idle": 1_188_660},
        "taxonomy": None,
        "taxonomy_study_rule": {"VMEM-load": 45.91, "VMEM-store": 14.61, "barrier": 14.29, "other": 25.19},
        "waves": 2056,
        "wave_states": {"idle": 0.03, "exec": 42.31, "wait": 36.7, "stall": 20.96},
        "vgpr": {"field": 24, "allocated": 48, "max_index": 47, "agpr_max_index": 0},
        "lds": 512,
        "sgpr": 16,
        "occupancy": {"limit": 8, "limited_by": "wave slots", "observed": 8},
        "workgroup_size": [256, 1, 1],
        "grid_workgroups": [32768, 1, 1],
        "valid": True,
        "faults": [],
    }
    return out | changes


def traced(
    symbol: str, role: str, median: float, low: float, high: float, n: int = 100, **rest: Any
) -> dict[str, Any]:
    """One kernel of a kernel trace."""
    row = {"symbol": symbol, "role": role, "n": n, "median_us": median, "min_us": low, "max_us": high}
    return row | {"grid_workgroups": rest.get("grid", [8, 1, 1]), "workgroup_size": [256, 1, 1]}


def evidence(*captures: Any, kernels: Any = (), **work: Any) -> dict[str, Any]:
    """What the record tier gathers."""
    trace = {"file": "made/compute_viewer/discover_kernel_trace.csv", "origin": "captures", "sha256": None}
    return {
        "study": {
            "captures": list(captures),
            "kernel_traces": [trace | {"kernels": list(kernels)}],
            "multishape": [],
        },
        "captured": None,
        "workloads": {"w": {"dims": {}, "unsaid": []} | work},
    }
