"""Seeded tensors, poison and checks, the same on a CPU and on a GPU.

Knows torch (imported when used) and nothing of any one kernel.

Values are drawn on the CPU with one generator a tensor name, so that a CPU and a GPU see the same bits and one
tensor's shape never moves another's values.
"""

from __future__ import annotations

import zlib
from typing import Any

from harness.errors import HarnessError
from harness.kernels.base import Check, Tensors, Tolerance

__all__ = ["check", "dtype", "normal", "poison", "ramp", "uniform"]

_TILE = 1 << 22
"""Elements drawn for a large tensor; the rest repeats them (one second of CPU time instead of minutes)."""


def dtype(name: str) -> Any:
    """The torch dtype that a bundle calls `name`. fp8 is OCP e4m3 (gfx950), never the fnuz form of gfx942."""
    import torch

    names = {
        "f32": torch.float32,
        "fp32": torch.float32,
        "f16": torch.float16,
        "fp16": torch.float16,
        "bf16": torch.bfloat16,
        "i8": torch.int8,
        "int8": torch.int8,
        "i32": torch.int32,
        "i64": torch.int64,
        "fp8": torch.float8_e4m3fn,
        "u8": torch.uint8,
        "fp4": torch.uint8,
    }
    if name not in names:
        raise HarnessError(
            f"dtype {name!r}: not one that gfx950 kernels take here",
            remedy="fp8 on gfx950 is e4m3fn; e4m3fnuz belongs to gfx942",
        )
    return names[name]


def _generator(name: str, seed: int) -> Any:
    import torch

    return torch.Generator().manual_seed((seed << 32) ^ zlib.crc32(name.encode()))


def _spread(drawn: Any, shape: tuple[int, ...], device: str, kind: Any) -> Any:
    """`drawn` (1-D, f32, CPU) repeated to `shape`, on `device`. The repeat is coprime with powers of two, so no two
    rows of a power-of-two width are alike."""
    count = 1
    for size in shape:
        count *= size
    tensor = drawn.to(kind).to(device)
    if tensor.numel() < count:
        tensor = tensor.repeat(-(-count // tensor.numel()))
    return tensor[:count].reshape(shape).contiguous()


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return min(count, _TILE - 3)


def uniform(name: str, shape: tuple[int, ...], kind: str, *, device: str, seed: int, low: float = -1.0, high: float = 1.0) -> Any:
    """A contiguous tensor of `shape` and dtype `kind`, values uniform in [low, high)."""
    import torch

    drawn = torch.empty(_count(shape), dtype=torch.float32).uniform_(low, high, generator=_generator(name, seed))
    return _spread(drawn, shape, device, dtype(kind))


def normal(name: str, shape: tuple[int, ...], kind: str, *, device: str, seed: int, scale: float = 1.0) -> Any:
    """A contiguous tensor of `shape` and dtype `kind`, values normal with standard deviation `scale`."""
    import torch

    drawn = torch.empty(_count(shape), dtype=torch.float32).normal_(0.0, scale, generator=_generator(name, seed))
    return _spread(drawn, shape, device, dtype(kind))


def ramp(count: int, kind: str, *, device: str) -> Any:
    """0, 1, … count-1."""
    import torch

    return torch.arange(count, device=device, dtype=dtype(kind))


def poison(shape: tuple[int, ...], kind: str, *, device: str) -> Any:
    """An output before the launch: NaN, or the bytes 0xA5, so that an element never written is seen."""
    import torch

    out = torch.empty(shape, device=device, dtype=dtype(kind))
    if kind in ("f32", "fp32", "f16", "fp16", "bf16"):
        out.fill_(float("nan"))
    else:
        out.view(torch.uint8).fill_(0xA5)
    return out


def check(outputs: Tensors, reference: Tensors, tolerance: Tolerance) -> tuple[Check, ...]:
    """Each output against the reference of its name, in float64 on the CPU. NaN and infinity fail."""
    import torch

    results = []
    for name, expected in reference.items():
        got = outputs[name].detach().cpu().to(torch.float64)
        want = expected.detach().cpu().to(torch.float64)
        if got.shape != want.shape:
            raise HarnessError(f"output {name}: shape {tuple(got.shape)}, reference {tuple(want.shape)}")
        error = (got - want).abs()
        exact = name in tolerance.exact
        allowed = torch.zeros_like(want) if exact else tolerance.atol + tolerance.rtol * want.abs()
        good = (error <= allowed) & torch.isfinite(got)
        worst = (error / allowed.clamp_min(1e-300)).max().item() if error.numel() else 0.0
        results.append(
            Check(
                output=name,
                elements=got.numel(),
                max_abs_error=error.max().item() if error.numel() else 0.0,
                worst=worst,
                passed=bool(good.all().item()),
            )
        )
    return tuple(results)
