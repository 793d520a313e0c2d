"""Which device this is: architecture, SKU, caches, versions. Asked once per process; nothing is set.

Knows torch's device properties and the caches they do not tell; knows nothing of claims.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.container.policy import BASE_VARIABLE, IMAGE_VARIABLE
from harness.device.telemetry import UNKNOWN, Meter

__all__ = ["FP8_OF_ARCH", "LAST_LEVEL_CACHE", "cache_bytes", "describe", "fp8_family", "versions"]

MIB = 1 << 20

LAST_LEVEL_CACHE: Mapping[str, int] = MappingProxyType({"gfx942": 256 * MIB, "gfx950": 256 * MIB})
"""Infinity Cache behind the L2, bytes: torch's L2_cache_size is not the last level there (measuring:
Sampling, 3)."""

FP8_OF_ARCH: Mapping[str, str] = MappingProxyType({"gfx940": "fnuz", "gfx941": "fnuz", "gfx942": "fnuz"})
"""Architectures whose own fp8 is the fnuz one; every other has OCP fp8 (gfx950, NVIDIA)."""


def fp8_family(arch: str) -> str:
    """`fnuz` or `ocp`: the fp8 encoding that `arch`'s matrix units read."""
    return FP8_OF_ARCH.get(arch, "ocp")


def cache_bytes(arch: str, l2_bytes: int) -> int:
    """Bytes of the last level of cache, with the levels before it (a victim cache adds to them)."""
    return l2_bytes + LAST_LEVEL_CACHE.get(arch, 0)


def _cpu_cache() -> int:
    base = Path("/sys/devices/system/cpu/cpu0/cache")
    sizes = [0]
    for file in base.glob("index*/size"):
        text = file.read_text().strip()
        scale = {"K": 1 << 10, "M": MIB}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KM") or 0) * scale)
    return max(sizes) or 32 * MIB


def versions() -> dict[str, str]:
    """Versions of what shapes a result: interpreter and libraries, those that are installed; in the container
    also its image and the digest of the base that it was built on.
    """
    found = {"python": platform.python_version()}
    for name, variable in (("container_image", IMAGE_VARIABLE), ("container_base", BASE_VARIABLE)):
        if os.environ.get(variable):
            found[name] = os.environ[variable]
    for name in ("torch", "triton", "numpy", "flydsl", "amd-aiter"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def describe(device: str, meter: Meter) -> dict[str, Any]:
    """The device as evidence records it. Opens the GPU's context where `device` is one."""
    import torch

    if device == "cpu":
        model = platform.processor() or platform.machine()
        try:
            lines = Path("/proc/cpuinfo").read_text().splitlines()
            model = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), model)
        except OSError:
            pass
        llc = _cpu_cache()
        return {
            "type": "cpu",
            "name": model,
            "arch": platform.machine(),
            "units": torch.get_num_threads(),
            "memory_bytes": UNKNOWN,
            "l2_bytes": UNKNOWN,
            "last_level_cache_bytes": llc,
            "telemetry": meter.source,
            **meter.identity(),
        }
    p = torch.cuda.get_device_properties(0)
    hip = getattr(torch.version, "hip", None)
    arch = str(getattr(p, "gcnArchName", "")).split(":")[0] if hip else f"sm_{p.major}{p.minor}"
    l2 = int(getattr(p, "L2_cache_size", 0))
    return {
        "type": "cuda",
        "name": str(p.name),
        "arch": arch,
        "units": int(p.multi_processor_count),
        "memory_bytes": int(p.total_memory),
        "l2_bytes": l2,
        "last_level_cache_bytes": cache_bytes(arch, l2),
        "runtime": f"hip {hip}" if hip else f"cuda {torch.version.cuda}",
        "telemetry": meter.source,
        **meter.identity(),
    }


def host() -> dict[str, str]:
    """The host as evidence records it; no host name, no user."""
    return {"system": platform.system(), "kernel": platform.release(), "python": sys.version.split()[0]}
