"""Tensors as bytes for the machine, and outputs against their reference.

Knows torch storages and float64 comparisons. Must not know opcodes, claims or tiers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.execute.abi import Launch
from harness.kernels.base import Tensors, Tolerance

__all__ = ["buffers_of", "compare", "snapshot", "written"]


def buffers_of(tensors: Mapping[str, Any], launch: Launch) -> dict[str, NDArray[np.uint8]]:
    """The bytes of every tensor's storage, in place, and of the launch's own files."""
    import torch

    out: dict[str, NDArray[np.uint8]] = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().nbytes():
            raw = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
            out[name] = raw.numpy()
    for name, path in launch.files.items():
        out[name] = np.fromfile(path, np.uint8)
    return {name: data for name, data in out.items() if any(item.buffer == name for item in launch.pointers)}


def snapshot(outputs: Tensors) -> dict[str, Any]:
    """Copies of output tensors, to tell later what was written."""
    return {name: tensor.detach().clone() for name, tensor in outputs.items()}


def _bits(tensor: Any) -> Any:
    import torch

    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(kinds[tensor.element_size()])


def written(before: Tensors, after: Tensors) -> dict[str, Any]:
    """For each output, which elements no longer hold their poison (bool tensors)."""
    return {name: _bits(after[name]) != _bits(before[name]) for name in after}


def compare(
    outputs: Tensors, reference: Tensors, tolerance: Tolerance, masks: Mapping[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """Errors of each output against its reference, in float64; `masks` limits them to some elements.

    Gives elements, max_abs_error, max_rel_error (of the largest reference), cosine, worst (largest error as
    a share of
    the allowed one) and passed. An element that is NaN or infinite where the reference is not fails.
    """
    import torch

    out: dict[str, dict[str, Any]] = {}
    for name, expected in reference.items():
        got = outputs[name].detach().to(torch.float64)
        want = expected.detach().to(torch.float64)
        if masks is not None and name in masks:
            keep = masks[name].reshape(got.shape)
            got, want = got[keep], want[keep]
        got, want = got.reshape(-1), want.reshape(-1)
        if got.numel() == 0:
            continue
        same = (got == want) | (torch.isnan(got) & torch.isnan(want))
        error = torch.where(same, torch.zeros_like(got), (got - want).abs())
        atol, rtol = tolerance.special.get(name, (tolerance.atol, tolerance.rtol))
        allowed = atol + rtol * want.abs()
        if name in tolerance.exact:
            allowed = torch.zeros_like(want)
        good = same | (error <= allowed)
        share = torch.where(same, torch.zeros_like(error), error / allowed.clamp_min(1e-300))
        size = want.abs().max().clamp_min(1e-300)
        cosine = torch.dot(got, want) / (got.norm() * want.norm()).clamp_min(1e-300)
        out[name] = {
            "elements": int(got.numel()),
            "max_abs_error": _number(error.max()),
            "max_rel_error": _number(error.max() / size),
            "cosine": _number(cosine, 9),
            "worst": _number(share.max()),
            "passed": bool(good.all()),
        }
    return out


def _number(value: Any, digits: int = 6) -> float | None:
    """A float with some significant digits, None where it is no number (JSON has none)."""
    number = float(value)
    return float(f"{number:.{digits}g}") if np.isfinite(number) else None
