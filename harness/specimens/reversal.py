"""A reversal of 256 elements through LDS in FlyDSL, sound or with a planted fault, as a kernel module.

dims: blocks, fault ("none", "race": a missing barrier, "out of range": a store beyond the end of y).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["make_inputs", "outputs", "reference", "subject"]

THREADS = 256


def make_inputs(dims: Mapping[str, Any], *, device: str, seed: int) -> dict[str, Any]:
    """x normal (seeded), y poisoned with NaN; f32 [blocks, 256] both."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    shape = (int(dims["blocks"]), THREADS)
    x = torch.randn(shape, generator=generator).to(device)
    return {"x": x, "y": torch.full(shape, float("nan"), device=device)}


def subject(dims: Mapping[str, Any], tensors: dict[str, Any], stream: Any = None) -> Callable[[], None]:
    """The launch; needs FlyDSL."""
    from flydsl.expr import Stream

    from harness.specimens.flydsl_kernels import build_reversal

    launch = build_reversal(str(dims["fault"]))
    at = Stream(None) if stream is None else stream
    return lambda: launch(tensors["x"], tensors["y"], int(dims["blocks"]), stream=at)


def outputs(tensors: dict[str, Any]) -> dict[str, Any]:
    """What the kernel writes."""
    return {"y": tensors["y"]}


def reference(dims: Mapping[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    """Each row reversed."""
    import torch

    return {"y": torch.flip(tensors["x"].to(torch.float64), dims=[1])}
