"""The probe of `flydsl_kernels.build_probe` as a kernel module (no dims): which architecture were
builders told?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["make_inputs", "subject"]


def make_inputs(dims: Mapping[str, Any], *, device: str, seed: int) -> dict[str, Any]:
    """x and y, f32 [1024]."""
    import torch

    return {"x": torch.zeros(1024, device=device), "y": torch.zeros(1024, device=device)}


def subject(dims: Mapping[str, Any], tensors: dict[str, Any], stream: Any = None) -> Callable[[], None]:
    """The launch; needs FlyDSL."""
    from flydsl.expr import Stream

    from harness.specimens.flydsl_kernels import build_probe

    launch = build_probe()
    at = Stream(None) if stream is None else stream
    return lambda: launch(tensors["x"], tensors["y"], stream=at)
