"""Gathers the record: the study's own figures, and the arithmetic of each workload.

Knows where they are (`evidence/study.json`, the kernel file). Must not judge. Needs no torch, no numpy, no
network, so this tier works everywhere; what is missing is missing by name, and the kinds say what that costs.

What it gives:
- `study`: the mapping of `schema/study.schema.json`, or None;
- `captured`: the dimensions of the launch that the study traced, as its listing and grid show them, or None;
- `workloads`: for each workload `dims` (those that it states), `unsaid` (the names that the study leaves
  open), and either `bytes`, `flops`, `bytes_formula`, `flops_formula`, or `missing` (why there is no
  arithmetic).
"""

from __future__ import annotations

from typing import Any

from harness import evidence
from harness.bundle import Bundle, Workload
from harness.errors import HarnessError
from harness.kernels import get
from harness.kernels.base import KernelModule
from harness.tiers import Context, Evidence

__all__ = ["STUDY", "gather"]

STUDY = "study"


def gather(bundle: Bundle, context: Context) -> Evidence:
    """The record of `bundle`. Raises HarnessError where a file is there and cannot be read."""
    try:
        module: KernelModule | None = get(bundle.id)
    except HarnessError:
        module = None
    return {
        "study": evidence.read(bundle.path, STUDY),
        "captured": _captured(module),
        "workloads": {one.id: _workload(one, module) for one in bundle.workloads},
    }


def _captured(module: KernelModule | None) -> dict[str, Any] | None:
    if module is None or not module.CAPTURES:
        return None
    return dict(module.WORKLOADS[module.CAPTURES[0].workload])


def _workload(workload: Workload, module: KernelModule | None) -> dict[str, Any]:
    said = {name: value for name, value in workload.dims.items() if value is not None}
    unsaid = sorted({*workload.unknown, *(name for name, value in workload.dims.items() if value is None)})
    out: dict[str, Any] = {"dims": said, "unsaid": unsaid}
    if module is None:
        return out | {"missing": "there is no kernel file with this kernel's arithmetic"}
    if unsaid:
        return out | {"missing": f"the study leaves {', '.join(unsaid)} unsaid"}
    try:
        full = module.resolve(said)
        traffic = module.traffic(said)
    except HarnessError as error:
        return out | {"missing": f"the workload does not fix the kernel's arithmetic: {error.message}"}
    return out | {
        "dims": {name: full.get(name, value) for name, value in said.items()},
        "bytes": traffic.bytes,
        "flops": traffic.flops,
        "bytes_formula": traffic.bytes_formula,
        "flops_formula": traffic.flops_formula,
    }
