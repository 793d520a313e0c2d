"""Does the toolchain compile for the architecture that it is asked for? Tried on the project's own specimens.

Some kernels come out the same when FlyDSL's builders are told another architecture than the backend assembles
for, and hide the mistake; the probe does not (`harness.specimens.flydsl_kernels.build_probe`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from harness.compile.cache import Cache
from harness.compile.compiler import compile_kernel
from harness.compile.describe import describe
from harness.compile.request import CompileRequest
from harness.compile.toolchain import ARCH, Toolchain
from harness.errors import HarnessError

__all__ = ["SPECIMENS", "compile_specimens", "self_test"]

WIDE = "vmem load 128"

SPECIMENS: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "FlyDSL softmax, scalar": ("row_softmax", {"M": 4, "N": 2048, "path": "scalar"}),
        "FlyDSL softmax, 128-bit": ("row_softmax", {"M": 4, "N": 2048, "path": "vector"}),
        "Triton softmax, scalar": ("triton_row_softmax", {"N": 4096, "path": "scalar"}),
        "Triton softmax, 128-bit": ("triton_row_softmax", {"N": 4096, "path": "vector"}),
    }
)
"""name -> module of `harness.specimens`, dims."""


def self_test(toolchain: Toolchain, cache: Cache, *, arch: str | None = ARCH) -> None:
    """Compile the probe and read its ISA. HarnessError naming the cause where builders were told another one.

    `arch` None leaves FLYDSL_GPU_ARCH out of the environment, which a test does.
    """
    made = compile_kernel(CompileRequest("harness.specimens.probe", {}), toolchain, cache, arch=arch)
    if not made.ok:
        last = made.stderr.splitlines()[-1] if made.stderr else ""
        raise HarnessError(
            f"toolchain self-test: the probe does not compile: {made.error}",
            remedy=f"the wheels may be damaged: pip install --force-reinstall them ({last[:120]})",
        )
    counted = describe(made.objects[0], toolchain)["histogram"]
    if WIDE not in counted:
        raise HarnessError(
            f"toolchain self-test: assembled for {ARCH}, but FlyDSL's builders were told another architecture"
            f" (FLYDSL_GPU_ARCH did not reach them): the probe has {counted}",
            remedy=f"set FLYDSL_GPU_ARCH={ARCH}; ARCH alone sets only the backend",
        )


def compile_specimens(toolchain: Toolchain, cache: Cache) -> str:
    """Compile every specimen; one line that says how many compiled, and why one did not."""
    failed = []
    for name, (module, dims) in SPECIMENS.items():
        made = compile_kernel(CompileRequest(f"harness.specimens.{module}", dims), toolchain, cache)
        if not made.ok:
            failed.append(f"{name}: {made.error}")
    done = len(SPECIMENS) - len(failed)
    line = f"compile: no kernel source here; the toolchain compiled {done} of {len(SPECIMENS)} own specimens"
    return line + (f" ({'; '.join(failed)})" if failed else "")
