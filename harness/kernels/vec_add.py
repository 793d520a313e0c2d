"""Vector addition: c = a + b; a, b, c [n] f32.

Knows this kernel's shapes, inputs, subject, baselines and reference; nothing of statistics or tiers.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from harness.kernels import inputs, stubs
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
)

DEFAULTS: Dims = MappingProxyType({"n": 10240000, "dtype": "f32", "vec_width": 4, "block_threads": 256})
WORKLOADS = MappingProxyType({"captured": DEFAULTS})
CAPTURES = (
    Capture(
        "vec_add/att_viewer/big/ui_output_agent_14705_dispatch_25/code.json", "captured", "vecAddKernel_0"
    ),
)
REGION = Region(
    inside=("host dispatch of one launch", "the kernel"),
    outside=("building and JIT", "allocation of a, b and c"),
)
UNKNOWN = ("no latency and no baseline are published for this kernel",)


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions of one launch. n must fill whole tiles: the kernel has no tail."""
    out = fill(DEFAULTS, dims)
    out["dtype"] = {"fp32": "f32"}.get(out["dtype"], out["dtype"])
    inputs.known(out, "dtype", ("f32",))
    inputs.known(out, "vec_width", (4,))
    integer(out, "block_threads", multiple_of=64)
    integer(out, "n", multiple_of=out["block_threads"] * out["vec_width"])
    return out


def traffic(dims: Dims) -> Traffic:
    """a and b once in, c once out."""
    d = resolve(dims)
    return Traffic(int(3 * d["n"] * BYTES[d["dtype"]]), d["n"], "3*n*sizeof(dtype)", "n")


def memory_bytes(dims: Dims) -> int:
    """a, b, c and a baseline's c."""
    return traffic(dims).bytes * 4 // 3


def small(dims: Dims) -> dict[str, Any]:
    """Two tiles: the ISA does not depend on n."""
    d = resolve(dims)
    return {**d, "n": 2 * d["block_threads"] * d["vec_width"]}


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """a and b standard normal; c poisoned."""
    d = resolve(dims)
    shape = (d["n"],)
    return {
        "a": inputs.normal("a", shape, "f32", device=device, seed=seed),
        "b": inputs.normal("b", shape, "f32", device=device, seed=seed),
        "c": inputs.poison(shape, "f32", device=device),
    }


def outputs(tensors: Tensors) -> Tensors:
    """What the kernel writes."""
    return {"c": tensors["c"]}


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """Upstream's kernel, which its own test file defines. `a` has a dynamic layout, as in the capture."""
    d = resolve(dims)
    launch = stubs.defining_test("tests.kernels.test_vec_add").vecAdd
    dlpack = stubs.upstream("flydsl.compiler").from_dlpack
    at = stubs.fly_stream(stream)
    a = dlpack(tensors["a"]).mark_layout_dynamic(leading_dim=0, divisibility=d["vec_width"])
    t, n = tensors, d["n"]
    return lambda: launch(a, t["b"], t["c"], n, n, d["block_threads"], d["vec_width"], stream=at)


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64."""
    import torch

    return {"c": tensors["a"].cpu().to(torch.float64) + tensors["b"].cpu().to(torch.float64)}


def tolerance(dims: Dims) -> Tolerance:
    """One float32 rounding of the exact sum."""
    return Tolerance(0.0, 2.0**-24 * (1 + 2.0**-20), "one rounding to f32 of an exact sum")


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """No claim has one; torch.add into a given output is the one upstream's file names."""

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        t = tensors
        t["c_torch"] = torch.empty_like(t["c"])

        def launch() -> None:
            torch.add(t["a"], t["b"], out=t["c_torch"])

        return launch

    return (inputs.torch_baseline("torch-add", "other", "torch:add", of_torch, {"c": "c_torch"}),)
