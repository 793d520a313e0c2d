"""What a kernel file gives: the words shared by `harness/kernels/<id>.py`.

Knows dimensions, bytes, tolerances and regions. Must not know torch, FlyDSL, statistics or bundles: the
record tier imports it on machines that have none of them.

A kernel file has these names at module level (`KernelModule`):

    DEFAULTS      every dimension that the kernel needs, with the value used where a workload does not name it
    WORKLOADS     the launches that the study captured or timed, by name
    CAPTURES      which of them each captured listing is
    resolve(dims) the full dimensions of one launch, checked; HarnessError where the kernel cannot run them
    traffic(dims), memory_bytes(dims)          pure arithmetic
    small(dims)   the smallest launch with the same ISA
    make_inputs(dims, device=, seed=)          named tensors, outputs poisoned
    outputs(tensors)                           those the kernel writes
    subject(dims, tensors, stream=None)        the FlyDSL kernel, built; calling the result launches it
    reference(dims, tensors), tolerance(dims)  what the outputs must be
    REGION, baselines(dims)                    what is timed, and what it is compared with
    UNKNOWN       what the study leaves unsaid about the shapes

and where a kernel needs them

    ASPECTS       a timed claim's `stage` or `variant` -> dimensions laid over its workload's (None: neither)
    reset(tensors)  before a launch whose result is checked: outputs that the kernel adds into
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Protocol

from harness.errors import HarnessError

__all__ = [
    "BYTES",
    "LAYER",
    "PEAK_BYTES_PER_S",
    "PEAK_FLOPS",
    "Baseline",
    "Capture",
    "Check",
    "Dims",
    "KernelModule",
    "Launch",
    "Region",
    "Tensors",
    "Tolerance",
    "Traffic",
    "ceil_div",
    "fill",
    "fixed",
    "integer",
    "need",
]

Dims = Mapping[str, Any]
"""Named dimensions, dtypes and flags of one launch (bundle.yaml, `workloads[].dims`)."""

Tensors = dict[str, Any]
"""Tensors by name: `dict[str, torch.Tensor]`, written so that this file needs no torch."""

Launch = Callable[[], None]
"""One launch on the stream that it was built for; returns before the kernel has ended."""

LAYER = "4703ba3b7150bb142b43c34c71ab49960ec93a15"
"""The FlyDSL Python layer that gives all 22 captured listings (found by compiling; see bundles'
provenance)."""

BYTES: Mapping[str, float] = {
    "f32": 4,
    "fp32": 4,
    "i32": 4,
    "bf16": 2,
    "f16": 2,
    "fp16": 2,
    "fp8": 1,
    "int8": 1,
    "i8": 1,
    "fp4": 0.5,
}
"""Bytes of one element, by the dtype names that bundles use."""

PEAK_BYTES_PER_S = 8.0e12
"""HBM3E peak of one MI350X, bytes a second (AMD Instinct MI350X data sheet: 8 TB/s)."""

PEAK_FLOPS: Mapping[str, float] = {
    "bf16": 2.3069e15,
    "f16": 2.3069e15,
    "fp8": 4.6137e15,
    "fp4": 9.2274e15,
    "f32": 0.1442e15,
}
"""Dense peak of one MI350X, operations a second (AMD Instinct MI350X data sheet: 2.3 PFLOPS for 16-bit matrix
operations, 4.6 for FP8, 9.2 for MXFP4, 144.2 TFLOPS for FP32 vector operations)."""


@dataclass(frozen=True)
class Traffic:
    """Compulsory bytes (each operand once) and operations (a multiply-add counts two) of one launch.

    `bytes_formula` and `flops_formula` say how, in the names of the dimensions. `flops` is 0 where the study
    counts none (memory-bound kernels).
    """

    bytes: int
    flops: int
    bytes_formula: str
    flops_formula: str = "not counted"


@dataclass(frozen=True)
class Tolerance:
    """An output passes where |output - reference| <= atol + rtol * |reference|, element by element.

    `reason` says where the numbers come from. `exact` names outputs that must be equal (indices), `special`
    gives outputs with an (atol, rtol) of their own. Equal infinities pass; NaN never does."""

    atol: float
    rtol: float
    reason: str
    exact: tuple[str, ...] = ()
    special: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Region:
    """What lies between the two ends of one timed call, and what was done before it."""

    inside: tuple[str, ...]
    outside: tuple[str, ...]


@dataclass(frozen=True)
class Check:
    """One comparison of an output with its reference. `worst` is the largest |error| / allowed error."""

    output: str
    elements: int
    max_abs_error: float
    worst: float
    passed: bool


@dataclass(frozen=True)
class Baseline:
    """One implementation that a subject is compared with.

    `role` is "claim" (the study's own baseline) or "other" (a strong alternative, judged apart). `requires`
    is "torch", "aiter" or "flydsl". `expects` is a regular expression that a kernel symbol seen at run time
    must match for the comparison to be the claimed one, None where any kernel will do. `build(dims, tensors)`
    returns the launch; it may raise HarnessError. `entry_point` is `module:function`. `outputs` maps an
    output of the subject to the tensor that this one writes instead (same shape and meaning)."""

    id: str
    role: str
    requires: str
    entry_point: str
    backend: str
    expects: str | None
    region: Region
    build: Callable[[Dims, Tensors], Launch]
    outputs: Mapping[str, str] = field(default_factory=dict)
    note: str | None = None


@dataclass(frozen=True)
class Capture:
    """One captured listing: its path below the study's `examples/`, the workload that gives it, and its
    symbol.

    `source` is the FlyDSL commit of the kernel's source where it is not the bundle's.
    """

    path: str
    workload: str
    symbol: str
    source: str | None = None


class KernelModule(Protocol):
    """The names of a kernel file, as above."""

    DEFAULTS: Dims
    WORKLOADS: Mapping[str, Dims]
    CAPTURES: tuple[Capture, ...]
    REGION: Region
    UNKNOWN: tuple[str, ...]

    def resolve(self, dims: Dims) -> dict[str, Any]: ...
    def traffic(self, dims: Dims) -> Traffic: ...
    def memory_bytes(self, dims: Dims) -> int: ...
    def small(self, dims: Dims) -> dict[str, Any]: ...
    def make_inputs(self, dims: Dims, *, device: str, seed: int) -> Tensors: ...
    def outputs(self, tensors: Tensors) -> Tensors: ...
    def subject(self, dims: Dims, tensors: Tensors, stream: Any = None) -> Launch: ...
    def reference(self, dims: Dims, tensors: Tensors) -> Tensors: ...
    def tolerance(self, dims: Dims) -> Tolerance: ...
    def baselines(self, dims: Dims) -> tuple[Baseline, ...]: ...


def ceil_div(value: int, by: int) -> int:
    """The least integer not below value / by."""
    return -(-value // by)


def fixed(dims: Dims, values: Dims) -> None:
    """HarnessError where `dims` names one of `values` with another value: the kernel knows only that one."""
    for name, only in values.items():
        if dims.get(name, only) not in (only, None):
            raise HarnessError(
                f"dimension {name}: must be {only} for this kernel (got {dims[name]!r})",
                remedy="choose a shape that the kernel supports; docs/kernels.md lists the workloads",
            )


def fill(defaults: Dims, dims: Dims) -> dict[str, Any]:
    """`dims` over `defaults`. A dimension that is None (unsaid) takes the default; names unknown here are
    kept out.

    Raises HarnessError where a named dimension has a type other than its default's.
    """
    out = dict(defaults)
    for name, value in dims.items():
        if name not in defaults or value is None:
            continue
        default = defaults[name]
        if isinstance(default, bool) != isinstance(value, bool) or (
            default is not None and not isinstance(value, type(default))
        ):
            raise HarnessError(
                f"dimension {name}: must be {type(default).__name__} (got {value!r})",
                remedy="write the workload's dimensions as in docs/kernels.md",
            )
        if isinstance(value, int) and not isinstance(value, bool) and value < 0:
            raise HarnessError(f"dimension {name}: must not be negative (got {value})")
        if isinstance(value, float) and not isfinite(value):
            raise HarnessError(f"dimension {name}: must be finite (got {value})")
        out[name] = value
    return out


def integer(dims: Dims, name: str, *, multiple_of: int = 1, at_least: int = 1) -> int:
    """The integer dimension `name`, or HarnessError where the kernel cannot run it."""
    value = dims[name]
    if not isinstance(value, int) or value < at_least or value % multiple_of:
        rule = f"at least {at_least}" + (f" and a multiple of {multiple_of}" if multiple_of > 1 else "")
        raise HarnessError(
            f"dimension {name}: must be {rule} for this kernel (got {value!r})",
            remedy="choose a shape that the kernel supports; docs/kernels.md lists the workloads",
        )
    return value


def need(condition: bool, message: str) -> None:
    """HarnessError(`message`) unless `condition`: a launch that the kernel does not support."""
    if not condition:
        raise HarnessError(message, remedy="choose a shape that the kernel supports; see docs/kernels.md")
