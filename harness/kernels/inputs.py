"""Seeded tensors, poison and checks, the same on a CPU and on a GPU.

Knows torch (imported when used) and nothing of any one kernel.

Values are drawn on the CPU with one generator a tensor name, so that a CPU and a GPU see the same bits and
one tensor's shape never moves another's values."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from harness.errors import HarnessError
from harness.kernels.base import Baseline, Check, Dims, Launch, Region, Tensors, Tolerance

__all__ = [
    "check",
    "codes",
    "distinct",
    "dtype",
    "known",
    "like",
    "normal",
    "poison",
    "quantise_rows",
    "ramp",
    "rounded",
    "shuffle_weight",
    "torch_baseline",
    "uniform",
]

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
    """One stream of numbers a (seed, name). torch's CPU generator takes the low 32 bits of a seed and no
    more."""
    import torch

    return torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))


def _spread(drawn: Any, shape: tuple[int, ...], device: str, kind: Any) -> Any:
    """`drawn` (1-D, f32, CPU) repeated to `shape`, on `device`. The repeat is coprime with powers of two, so
    no two rows of a power-of-two width are alike."""
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


def uniform(
    name: str,
    shape: tuple[int, ...],
    kind: str,
    *,
    device: str,
    seed: int,
    low: float = -1.0,
    high: float = 1.0,
) -> Any:
    """A contiguous tensor of `shape` and dtype `kind`, values uniform in [low, high)."""
    import torch

    drawn = torch.empty(_count(shape), dtype=torch.float32).uniform_(
        low, high, generator=_generator(name, seed)
    )
    return _spread(drawn, shape, device, dtype(kind))


def normal(
    name: str, shape: tuple[int, ...], kind: str, *, device: str, seed: int, scale: float = 1.0
) -> Any:
    """A contiguous tensor of `shape` and dtype `kind`, values normal with standard deviation `scale`."""
    import torch

    drawn = torch.empty(_count(shape), dtype=torch.float32).normal_(
        0.0, scale, generator=_generator(name, seed)
    )
    return _spread(drawn, shape, device, dtype(kind))


def codes(name: str, shape: tuple[int, ...], low: int, high: int, *, device: str, seed: int) -> Any:
    """A contiguous uint8 tensor of `shape`, values uniform in low … high-1."""
    import torch

    drawn = torch.empty(_count(shape), dtype=torch.float32)
    drawn.uniform_(float(low), float(high), generator=_generator(name, seed))
    return _spread(drawn.floor().clamp_max(high - 1), shape, device, torch.uint8)


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
        same = got == want
        error = torch.where(same, 0.0, (got - want).abs())
        atol, rtol = tolerance.special.get(name, (tolerance.atol, tolerance.rtol))
        allowed = torch.zeros_like(want) if name in tolerance.exact else atol + rtol * want.abs()
        good = same | ((error <= allowed) & torch.isfinite(got) & torch.isfinite(want))
        worst = torch.where(same, 0.0, error / allowed.clamp_min(1e-300)).nan_to_num(nan=float("inf"))
        error = error.nan_to_num(nan=float("inf"))
        results.append(
            Check(
                output=name,
                elements=got.numel(),
                max_abs_error=error.max().item() if error.numel() else 0.0,
                worst=worst.max().item() if worst.numel() else 0.0,
                passed=bool(good.all().item()),
            )
        )
    return tuple(results)


def like(tensor: Any) -> Any:
    """A tensor as `tensor`, uninitialised: where a second implementation writes."""
    import torch

    return torch.empty_like(tensor)


def known(dims: Dims, name: str, allowed: tuple[Any, ...]) -> None:
    """HarnessError unless dimension `name` is one of `allowed`."""
    if dims[name] not in allowed:
        raise HarnessError(
            f"dimension {name}: must be one of {', '.join(map(str, allowed))} here (got {dims[name]!r})",
            remedy="choose a shape that the kernel supports; docs/kernels.md lists the workloads",
        )


_HALF_ULP: Mapping[str, float] = MappingProxyType(
    {"f32": 2.0**-24, "fp32": 2.0**-24, "f16": 2.0**-11, "fp16": 2.0**-11, "bf16": 2.0**-8}
)
"""Largest relative error of one rounding to nearest even, normal numbers (bf16: 8 significant bits)."""


def rounded(kind: str, *, terms: int = 1, atol: float = 0.0, roundings: int = 1, why: str = "") -> Tolerance:
    """Error allowed to `roundings` roundings to `kind` after float32 arithmetic over `terms` summands.

    A float32 sum of n terms errs by at most about n * 2^-24 relative to the sum of magnitudes; in tree order
    and with random signs by far less, so sqrt(n) * 2^-22 is given, which leaves room for a fast exp2 or
    reciprocal (2 ulp)."""
    rtol = roundings * _HALF_ULP[kind] * (1 + 2.0**-6) + terms**0.5 * 2.0**-22
    reason = f"{roundings} rounding(s) to {kind}, and float32 arithmetic over {terms} terms"
    return Tolerance(atol, rtol, reason + (f"; {why}" if why else ""))


def torch_baseline(
    id: str,
    role: str,
    entry_point: str,
    build: Callable[[Dims, Tensors], Launch],
    outputs: Mapping[str, str],
    *,
    inside: tuple[str, ...] = (),
    outside: tuple[str, ...] = (),
    note: str | None = None,
) -> Baseline:
    """A baseline in torch's own operators: it runs wherever torch does."""
    region = Region(
        inside=("torch dispatch", "its kernels", *inside),
        outside=("allocation of inputs and outputs", *outside),
    )
    return Baseline(
        id, role, "torch", entry_point, "torch", None, region, build, MappingProxyType(dict(outputs)), note
    )


def quantise_rows(values: Any, kind: str = "fp8") -> tuple[Any, Any]:
    """(q, scale): each row of `values` [R, K] f32 over its scale [R, 1] f32, amax / 448 for fp8 and / 127 for
    int8."""
    import torch

    top = {"fp8": 448.0, "int8": 127.0}[kind]
    most = values.abs().amax(dim=-1, keepdim=True).to(torch.float32)
    scale = most / torch.full_like(most, top)  # a GPU divides by a plain number through its reciprocal
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    scaled = values.to(torch.float32) / scale
    return (scaled if kind == "fp8" else scaled.round()).to(dtype(kind)).contiguous(), scale


def shuffle_weight(weight: Any, rows: int = 16, lane_bytes: int = 16) -> Any:
    """A weight [..., N, K] in the preshuffled layout that CDNA matrix kernels read: blocks of `rows` N by 2
    lanes K.

    The K of one block is 2 * `lane_bytes` bytes. Within a block the order is (K half, N, K within the lane),
    so that one lane's bytes for its row lie together (AITER's and FlyDSL's layout (16, 16))."""
    lane = lane_bytes // weight.element_size()
    *batch, count, depth = weight.shape
    if count % rows or depth % (2 * lane):
        raise HarnessError(
            f"a weight of {count} by {depth} cannot be preshuffled in blocks of {rows} by {2 * lane}"
        )
    blocks = weight.reshape(*batch, count // rows, rows, depth // (2 * lane), 2, lane)
    at = len(batch)
    order = [*range(at), at, at + 2, at + 3, at + 1, at + 4]
    return blocks.permute(*order).contiguous().reshape(weight.shape)


def distinct(count: int, kind: str) -> Any:
    """`count` different values in [-2, 2], evenly spaced and each exact in `kind`, rising, on the CPU."""
    import torch

    step = 2.0 ** -torch.tensor(count / 4).log2().floor().item()
    values = (torch.arange(count, dtype=torch.float64) - count // 2) * step / 2
    out = values.to(dtype(kind))
    if not torch.equal(out.to(torch.float64), values):
        raise HarnessError(f"{count} distinct values do not fit {kind}", remedy="choose fewer experts")
    return out
