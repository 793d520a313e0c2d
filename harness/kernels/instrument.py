"""The instrument's own kernel: row softmax in Triton, against torch's; on a CPU two softmaxes of torch.

y = exp(x - max(x)) / sum(exp(x - max(x))) along the last dimension, x and y [M, N]. Knows this kernel and
nothing of statistics or tiers. Needs no upstream source.
"""

from __future__ import annotations

import zlib
from types import MappingProxyType
from typing import Any

from harness.kernels.base import (
    BYTES,
    Baseline,
    Capture,
    Dims,
    Launch,
    Region,
    Tensors,
    Tolerance,
    Traffic,
    fill,
    integer,
    need,
)

DEFAULTS: Dims = MappingProxyType({"M": 1024, "N": 8192, "dtype": "bf16", "implementation": "triton"})
WORKLOADS = MappingProxyType(
    {
        "64x256": MappingProxyType({"M": 64, "N": 256, "dtype": "bf16", "implementation": "triton"}),
        "1024x8192": MappingProxyType({"M": 1024, "N": 8192, "dtype": "bf16", "implementation": "triton"}),
        "32768x8192": MappingProxyType({"M": 32768, "N": 8192, "dtype": "bf16", "implementation": "triton"}),
        "cpu-16x2048": MappingProxyType({"M": 16, "N": 2048, "dtype": "f32", "implementation": "torch"}),
        "cpu-64x4096": MappingProxyType({"M": 64, "N": 4096, "dtype": "f32", "implementation": "torch"}),
    }
)
CAPTURES: tuple[Capture, ...] = ()
REGION = Region(inside=("the launch",), outside=("building and JIT", "allocation of x and y"))
UNKNOWN: tuple[str, ...] = ()


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions of one launch. HarnessError for a dtype or implementation that this file has not."""
    out = fill(DEFAULTS, dims)
    integer(out, "M")
    integer(out, "N")
    need(out["dtype"] in ("f32", "bf16"), f"dtype must be f32 or bf16 (got {out['dtype']!r})")
    need(out["implementation"] in ("triton", "torch"), f"no implementation {out['implementation']!r} here")
    need(out["N"] <= 65536, f"N must be at most 65536: one program holds a row (got {out['N']})")
    return out


def traffic(dims: Dims) -> Traffic:
    """x once in, y once out."""
    d = resolve(dims)
    return Traffic(int(2 * d["M"] * d["N"] * BYTES[d["dtype"]]), 0, "2*M*N*sizeof(dtype)")


def memory_bytes(dims: Dims) -> int:
    """x and y."""
    return traffic(dims).bytes


def small(dims: Dims) -> dict[str, Any]:
    """Two rows: the ISA does not depend on M."""
    return {**resolve(dims), "M": 2}


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """x normal, drawn on the device itself; y poisoned. A rotation has thousands of these sets."""
    import torch

    d = resolve(dims)
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[d["dtype"]]
    generator = torch.Generator(device=device).manual_seed((seed << 32) ^ zlib.crc32(b"x"))
    x = torch.empty((d["M"], d["N"]), device=device, dtype=kind).normal_(generator=generator)
    return {"x": x, "y": torch.full_like(x, float("nan"))}


def outputs(tensors: Tensors) -> Tensors:
    """What the kernel writes."""
    return {"y": tensors["y"]}


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """The Triton kernel on the current stream; `implementation: torch` spells the softmax out in torch
    calls."""
    d = resolve(dims)
    x, y = tensors["x"], tensors["y"]
    if d["implementation"] == "torch":
        return _spelled_out(x, y)
    from harness.specimens.triton_softmax import NUM_WARPS, block_of, softmax_rows

    rows, columns, block = d["M"], d["N"], block_of(d["N"])

    def launch() -> None:
        softmax_rows[(rows,)](x, y, columns, block, num_warps=NUM_WARPS)

    return launch


def _spelled_out(x: Any, y: Any) -> Launch:
    import torch

    def launch() -> None:
        torch.sub(x, x.amax(dim=-1, keepdim=True), out=y)
        y.exp_()
        y.div_(y.sum(dim=-1, keepdim=True))

    return launch


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64 softmax of the rounded input, where the input lives, by its definition."""
    import torch

    e = tensors["x"].to(torch.float64)
    e = (e - e.amax(dim=-1, keepdim=True)).exp_()
    return {"y": e.div_(e.sum(dim=-1, keepdim=True))}


def tolerance(dims: Dims) -> Tolerance:
    """One rounding of the output (2^-8 relative for bf16) or float32 arithmetic throughout."""
    if resolve(dims)["dtype"] == "bf16":
        return Tolerance(
            atol=1e-9, rtol=2**-8 * 1.1, reason="a unit in the last place of bf16, and float32 inside"
        )
    return Tolerance(atol=1e-9, rtol=1e-5, reason="float32 inside, a sum of N terms")


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """torch.softmax into a given output."""

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        x, y = tensors["x"], tensors["y"]

        def launch() -> None:
            torch.softmax(x, dim=-1, out=y)

        return launch

    return (
        Baseline(
            id="torch-softmax",
            role="claim",
            requires="torch",
            entry_point="torch:softmax",
            backend="torch",
            expects=None,
            region=REGION,
            build=of_torch,
            outputs={"y": "y"},
        ),
    )
