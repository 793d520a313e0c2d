"""Checks for recapture: rocprofv3, and the thread-trace decoder that ROCm 7.2 does not bring along."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.doctor.check import Check, bad, good, unknown, warning
from harness.doctor.host import Host

__all__ = ["profiler_checks"]

_DECODER = "librocprof-trace-decoder.so"


def profiler_checks(host: Host, decoder_version: str | None, decoder_sha256: str | None) -> Iterator[Check]:
    """rocprofv3 and its version; the decoder found, loadable, and its hash against the pin where there is
    one.
    """
    if host.which("rocprofv3") is None:
        remedy = "use the pinned container; ratios can be measured without it, traces cannot"
        yield bad("device", "rocprofv3", "not on PATH", remedy, blocks=False)
        return
    ran = host.run("rocprofv3", "--version")
    match = re.search(r"version:?\s*v?(\d+\.\d+\.\d+)", (ran.out + ran.err) if ran else "", flags=re.I)
    if match:
        yield good("device", "rocprofv3", match.group(1))
    else:
        yield unknown("device", "rocprofv3", "present, and does not say its version")
    yield from _decoder(host, decoder_version, decoder_sha256)


def _decoder(host: Host, version: str | None, sha256: str | None) -> Iterator[Check]:
    directories = (
        host.env("ROCPROF_ATT_LIBRARY_PATH"),
        "/opt/rocm/lib",
        *(host.env("LD_LIBRARY_PATH") or "").split(":"),
    )
    path = next((f"{d}/{_DECODER}" for d in directories if d and host.node(f"{d}/{_DECODER}")), None)
    install = f"install ROCm/rocprof-trace-decoder {version or '0.1.x'}, or use the pinned container"
    if path is None:
        found = f"{_DECODER} is nowhere: ROCm 7.2 does not bundle it (ROCm/rocm-systems#2454)"
        yield bad("device", "trace decoder", found, install, blocks=False)
        return
    fault = host.load_fault(path)
    if fault:
        remedy = f"SDK and decoder do not fit (ROCm/rocprof-trace-decoder#1): {install}"
        yield bad("device", "trace decoder", f"{path} does not load: {fault}", remedy, blocks=False)
        return
    digest = host.digest(path)
    if digest is None:
        yield unknown("device", "trace decoder", f"{path}, its hash cannot be taken")
    elif sha256 is None:
        yield good(
            "device", "trace decoder", f"{path} sha256 {digest[:16]}… (no hash is pinned; it is recorded)"
        )
    elif digest == sha256:
        yield good("device", "trace decoder", f"{path}, hash as pinned")
    else:
        found = f"{path} sha256 {digest[:16]}…, pinned is {sha256[:16]}…"
        yield warning("device", "trace decoder", found, install)
