"""The project's own row softmax in FlyDSL, as a kernel module: y = softmax(x) along rows, bf16 [M, N].

dims: M, N, path ("scalar" or "vector").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["make_inputs", "outputs", "reference", "subject"]


def make_inputs(dims: Mapping[str, Any], *, device: str, seed: int) -> dict[str, Any]:
    """x normal with deviation 2 (seeded), y poisoned with NaN; bf16 [M, N] both."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    shape = (int(dims["M"]), int(dims["N"]))
    x = (torch.randn(shape, generator=generator) * 2).to(torch.bfloat16).to(device)
    return {"x": x, "y": torch.full(shape, float("nan"), dtype=torch.bfloat16, device=device)}


def subject(dims: Mapping[str, Any], tensors: dict[str, Any], stream: Any = None) -> Callable[[], None]:
    """The launch; needs FlyDSL."""
    from flydsl.expr import Stream

    from harness.specimens.flydsl_kernels import build_softmax

    launch = build_softmax(int(dims["N"]), str(dims["path"]))
    at = Stream(None) if stream is None else stream
    return lambda: launch(tensors["x"], tensors["y"], int(dims["M"]), stream=at)


def outputs(tensors: dict[str, Any]) -> dict[str, Any]:
    """What the kernel writes."""
    return {"y": tensors["y"]}


def reference(dims: Mapping[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    """float64 softmax of the rounded input."""
    import torch

    return {"y": torch.softmax(tensors["x"].to(torch.float64), dim=-1)}
