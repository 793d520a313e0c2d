"""What to execute for a bundle: which workloads, at which size, how many workgroups.

A size is reduced only in dimensions that set how many workgroups there are and that the kernel's code does
not depend on; the code object's hash is compared with the full one where both were compiled. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from harness.bundle import Bundle
from harness.errors import HarnessError
from harness.kernels.base import KernelModule

__all__ = ["KINDS", "Item", "plan", "profiled", "sample"]

KINDS = ("numerics", "counts", "race")
"""The kinds of claim that the execute tier decides."""

REDUCED: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "softmax": MappingProxyType({"M": 16}),
        "layernorm": MappingProxyType({"M": 16}),
        "rmsnorm": MappingProxyType({"M": 16}),
        "quant": MappingProxyType({"M": 16}),
        "vec-add": MappingProxyType({"n": 16384}),
        "topk-gating": MappingProxyType({"tokens": 64}),
        "moe-reduce": MappingProxyType({"tokens": 4}),
        "preshuffle-gemm": MappingProxyType({"M": 128, "N": 128}),
        "preshuffle-gemm-v2": MappingProxyType({"M": 64}),
        "fp8-gemm-4wave": MappingProxyType({"M": 256, "N": 256}),
    }
)
"""Dimensions that only multiply workgroups, by bundle."""

SMALLEST = ("blockscale-gemm", "preshuffle-gemm", "preshuffle-gemm-v2")
"""Bundles with stated shapes so large that only the kernel file's own smallest equal launch is practical."""

SAMPLED: Mapping[str, int | None] = MappingProxyType(
    {
        "hgemm-splitk": None,  # workgroups of one tile wait for each other
        "mla-decode": None,
        "paged-attention": None,
        "flash-attn": 2,
        "preshuffle-gemm-v2": 2,
        "moe-gemm": 4,
        "moe-blockscale": 4,
        "blockscale-gemm": 4,
        "mqa-logits-fp4": 2,
    }
)
"""Workgroups executed of a launch by default; None: all. Others: at most 16."""


@dataclass(frozen=True)
class Item:
    """One launch to execute. dims: of the launch; `also` names workloads that come to the same launch.

    workgroups: how many to sample, None for all of them.
    """

    workload: str
    dims: Mapping[str, Any]
    also: tuple[str, ...]
    workgroups: int | None


def plan(
    bundle: Bundle, module: KernelModule, only: str | None = None
) -> tuple[tuple[Item, ...], dict[str, str]]:
    """The launches for the claims of `bundle`, and workload -> why not for those that cannot be resolved."""
    wanted = []
    for claim in bundle.claims:
        if claim.kind in KINDS and claim.workload is not None and claim.workload not in wanted:
            wanted.append(claim.workload)
    if only is not None:
        wanted = [only]
    kept: dict[str, Item] = {}
    unsaid: dict[str, str] = {}
    for name in wanted:
        try:
            dims = reduced(bundle.id, module, module.resolve(bundle.workload(name).dims))
        except HarnessError as error:
            unsaid[name] = error.message
            continue
        key = json.dumps(dims, sort_keys=True, default=str)
        if key in kept:
            before = kept[key]
            kept[key] = Item(before.workload, before.dims, (*before.also, name), before.workgroups)
        else:
            kept[key] = Item(name, dims, (), SAMPLED.get(bundle.id, 16))
    return tuple(kept.values()), unsaid


def reduced(bundle: str, module: KernelModule, dims: Mapping[str, Any]) -> dict[str, Any]:
    """`dims` with fewer workgroups, never more than they have."""
    out = dict(dims)
    if bundle in SMALLEST and int(out.get("M", 0)) >= 1024:
        return module.small(out)
    for name, value in REDUCED.get(bundle, {}).items():
        if isinstance(out.get(name), int) and out[name] > value:
            out[name] = value
    return module.resolve(out)


def sample(total: int, count: int | None, seed: int) -> list[int]:
    """`count` workgroups of `total`, ascending: the first, the last, and others drawn with `seed`."""
    if count is None or count >= total:
        return list(range(total))
    ends = [0, total - 1][:count]
    drawn = np.random.default_rng(seed).permutation(np.arange(1, total - 1))[: count - len(ends)]
    return sorted({*ends, *(int(value) for value in drawn)})


def profiled(total: int) -> list[int]:
    """Workgroups whose counts are likely to differ: the first 16, and 16 spread evenly over the grid."""
    spread = {total * step // 16 for step in range(16)}
    return sorted({*range(min(16, total)), *spread, total - 1})
