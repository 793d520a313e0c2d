"""Row softmax: y = exp(x - max(x)) / sum(exp(x - max(x))) along the last dimension, x and y [M, N].

Knows this kernel's shapes, inputs, subject, baselines and reference; nothing of statistics or tiers.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.errors import HarnessError
from harness.kernels import aiter, inputs, stubs
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

DEFAULTS: Dims = MappingProxyType({"M": 32768, "N": 8192, "dtype": "bf16", "variant": "published"})
WORKLOADS = MappingProxyType(
    {"captured": DEFAULTS, "fast-path": MappingProxyType({**DEFAULTS, "variant": "fast"})}
)
ASPECTS = MappingProxyType({None: MappingProxyType({}), "fast": MappingProxyType({"variant": "fast"})})
"""What a timed claim's `variant` lays over its workload's dimensions."""
CAPTURES = (
    Capture(
        "softmax/att_viewer/big/ui_output_agent_47920_dispatch_13/code.json", "captured", "softmax_kernel_0"
    ),
)
REGION = Region(
    inside=("host dispatch of one launch", "the kernel"),
    outside=("building and JIT", "allocation of x and y", "the host-to-device copy"),
)
UNKNOWN = ("whether the published latency includes the host synchronisation of upstream's own test loop",)
PATCHED = "HARNESS_PATCHED_KERNELS"
"""Environment variable: the root of the private, patched copy of upstream's kernels
(harness.compile.variants)."""


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions of one launch. HarnessError where N is 0 or the dtype is none of f32, f16, bf16."""
    out = fill(DEFAULTS, dims)
    integer(out, "M")
    integer(out, "N")
    inputs.known(out, "dtype", ("f32", "f16", "bf16"))
    inputs.known(out, "variant", ("published", "fast"))
    return out


def traffic(dims: Dims) -> Traffic:
    """x once in, y once out."""
    d = resolve(dims)
    return Traffic(int(2 * d["M"] * d["N"] * BYTES[d["dtype"]]), 0, "2*M*N*sizeof(dtype)")


def memory_bytes(dims: Dims) -> int:
    """x and y, and once more y for a baseline that allocates its own."""
    return traffic(dims).bytes * 3 // 2


def small(dims: Dims) -> dict[str, Any]:
    """Two rows: the ISA does not depend on M."""
    return {**resolve(dims), "M": 2}


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """x uniform in [-2, 2) as in upstream's test; y poisoned."""
    d = resolve(dims)
    shape = (d["M"], d["N"])
    return {
        "x": inputs.uniform("x", shape, d["dtype"], device=device, seed=seed, low=-2.0, high=2.0),
        "y": inputs.poison(shape, d["dtype"], device=device),
    }


def outputs(tensors: Tensors) -> Tensors:
    """What the kernel writes."""
    return {"y": tensors["y"]}


def subject_from(module: Any, dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """The subject built from `module`, which is upstream's softmax_kernel or a patched private copy of it."""
    d = resolve(dims)
    launch = module.build_softmax_module(d["M"], d["N"], d["dtype"])
    at = stubs.fly_stream(stream)
    x, y, rows = tensors["x"], tensors["y"], d["M"]
    return lambda: launch(x, y, rows, stream=at)


def fast_path() -> Any:
    """The patched private copy of upstream's kernel, beside the published one in the same process.

    HarnessError (exit 50) where no patched copy was made.
    """
    root = os.environ.get(PATCHED)
    if not root:
        raise HarnessError(
            f"the fast path needs a patched copy of upstream's kernel: {PATCHED} is not set",
            remedy=f"harness compile softmax makes one in the cache; set {PATCHED} to its root",
            exit_code=50,
        )
    stubs.upstream("kernels.softmax_kernel")
    return stubs.private_copy(Path(root) / "kernels" / "softmax_kernel.py", "kernels.softmax_kernel")


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """Upstream's kernel as it stands on the path; variant "fast": the patched copy, with 128-bit loads and
    stores."""
    d = resolve(dims)
    module = fast_path() if d["variant"] == "fast" else stubs.upstream("kernels.softmax_kernel")
    return subject_from(module, d, tensors, stream)


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64 softmax of the rounded input."""
    import torch

    return {"y": torch.softmax(tensors["x"].cpu().to(torch.float64), dim=-1)}


def tolerance(dims: Dims) -> Tolerance:
    """One rounding of the output, and float32 arithmetic with a fast exp2 before it."""
    return inputs.rounded(resolve(dims)["dtype"], terms=resolve(dims)["N"], atol=1e-9)


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """The claim's: AITER's Triton softmax; for the fast path, the scalar path as published (then AITER's is
    another). Another: torch.softmax into a given output."""
    fast = resolve(dims)["variant"] == "fast"

    def of_scalar(dims: Dims, tensors: Tensors) -> Launch:
        t = {"x": tensors["x"], "y": inputs.like(tensors["y"])}
        tensors["y_scalar"] = t["y"]
        return subject_from(stubs.upstream("kernels.softmax_kernel"), dims, t)

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        x = tensors["x"]
        tensors["y_torch"] = y = torch.empty_like(x)

        def launch() -> None:
            torch.softmax(x, dim=-1, out=y)

        return launch

    def of_aiter(dims: Dims, tensors: Tensors) -> Launch:
        call = aiter.load("triton-softmax")
        x = tensors["x"]

        def launch() -> None:
            tensors["y_aiter"] = call(x)

        return launch

    others = (
        aiter.baseline(
            "triton-softmax",
            "other" if fast else "claim",
            of_aiter,
            {"y": "y_aiter"},
            inside=("allocation of y",),
        ),
        inputs.torch_baseline("torch-softmax", "other", "torch:softmax", of_torch, {"y": "y_torch"}),
    )
    if not fast:
        return others
    entry = "kernels.softmax_kernel:build_softmax_module"
    scalar = Baseline(
        "scalar-path",
        "claim",
        "flydsl",
        entry,
        "flydsl",
        "softmax_kernel",
        REGION,
        of_scalar,
        {"y": "y_scalar"},
    )
    return (scalar, *others)
