"""AITER's Triton baselines compile for gfx950 from its source at the pinned commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.compile.aiter_kernels import KERNELS, PATHS
from harness.compile.cache import Cache
from harness.compile.compiler import compile_kernel
from harness.compile.describe import describe
from harness.compile.request import CompileRequest
from harness.compile.toolchain import Toolchain
from harness.pins import load
from harness.sources import AITER, obtain


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_baselines_compile(kernel: str, aiter_src: Path, toolchain: Toolchain, compile_cache: Cache) -> None:
    tree = obtain(AITER, load().aiter.commit, compile_cache, offline=True, paths=PATHS)
    dims = {"kernel": kernel, **KERNELS[kernel]}
    request = CompileRequest("harness.compile.aiter_kernels", dims, sources=(tree.path,), digest=tree.commit)
    made = compile_kernel(request, toolchain, compile_cache)
    assert made.ok, made.stderr
    (found,) = [describe(entry, toolchain) for entry in made.objects]
    assert found["registers"]["vgpr_spills"] == 0
    assert sum(count for name, count in found["histogram"].items() if name.startswith("vmem load")) > 0
    assert sum(count for name, count in found["histogram"].items() if name.startswith("vmem store")) > 0
