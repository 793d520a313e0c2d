"""A kernel file whose subject misbehaves as its `bad` dimension says: y = x + 1 for x, y [n]. For tests."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from harness.kernels.base import Baseline, Dims, Launch, Region, Tensors, Tolerance, Traffic, fill

DEFAULTS: Dims = {"n": 4096, "bad": "none", "mark": ""}
WORKLOADS: dict[str, Dims] = {"good": DEFAULTS}
CAPTURES = ()
REGION = Region((), ())
UNKNOWN = ()
_CACHE: dict[int, Any] = {}
_MADE = [0]


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions."""
    return fill(DEFAULTS, dims)


def traffic(dims: Dims) -> Traffic:
    """x in, y out."""
    return Traffic(8 * int(resolve(dims)["n"]), 0, "2*n*4")


def memory_bytes(dims: Dims) -> int:
    """x and y."""
    return traffic(dims).bytes


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """x random; y poisoned. `bad: memory` lets four sets be made and no fifth."""
    import torch

    d = resolve(dims)
    _MADE[0] += 1
    if d["bad"] == "memory" and _MADE[0] > 4:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(d["n"], generator=generator)
    made = {"x": x, "y": torch.full_like(x, float("nan"))}
    if d["bad"] == "fp8":
        made["scale"] = torch.zeros(4, dtype=torch.float8_e4m3fnuz)
    return made


def outputs(tensors: Tensors) -> Tensors:
    """y."""
    return {"y": tensors["y"]}


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """The launch, good or bad."""
    import torch

    bad, mark = resolve(dims)["bad"], str(resolve(dims)["mark"])
    x, y = tensors["x"], tensors["y"]

    def good() -> None:
        torch.add(x, 1, out=y)

    def wrong() -> None:
        torch.add(x, 1.001, out=y)

    def partly() -> None:
        torch.add(x[:-1], 1, out=y[:-1])

    def nan() -> None:
        good()
        y[7] = float("nan")

    def infinite() -> None:
        good()
        y[7] = float("inf")

    def itself() -> None:
        tensors["y"] = x

    def cached() -> None:
        found = _CACHE.get(x.data_ptr())
        if found is None:
            found = _CACHE[x.data_ptr()] = x + 1
        y.copy_(found)

    def elsewhere() -> None:
        def late() -> None:
            time.sleep(0.05)
            good()

        threading.Thread(target=late, daemon=True).start()

    def hang() -> None:
        child = subprocess.Popen(["sleep", "600"])
        Path(mark).write_text(f"{os.getpid()} {child.pid}")
        time.sleep(600)

    def dies() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def raises() -> None:
        raise ValueError("no such kernel")

    def dies_once() -> None:
        if not Path(mark).exists():
            Path(mark).write_text("died")
            dies()
        good()

    table: dict[str, Launch] = {
        "none": good,
        "wrong": wrong,
        "partly": partly,
        "nan": nan,
        "inf": infinite,
        "itself": itself,
        "cached": cached,
        "elsewhere": elsewhere,
        "hang": hang,
        "dies": dies,
        "dies-once": dies_once,
        "raises": raises,
        "fp8": good,
        "memory": good,
    }
    return table.get(bad, good)


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """x + 1 in float64."""
    import torch

    return {"y": tensors["x"].to(torch.float64) + 1}


def tolerance(dims: Dims) -> Tolerance:
    """float32 rounding."""
    return Tolerance(1e-6, 1e-6, "one rounding")


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """The same sum spelled otherwise."""

    def build(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        x, y, one = tensors["x"], tensors["y"], torch.ones(1)
        bad = resolve(dims)["bad"]

        def launch() -> None:
            torch.add(x, one, out=y)
            if bad == "baseline":
                y.zero_()

        return launch

    return (Baseline("other", "claim", "torch", "torch:add", "torch", None, REGION, build),)
