"""Root-mean-square normalisation: y = x / sqrt(mean(x^2) + 1e-5) * gamma along N; x, y [M, N], gamma [N].

Knows this kernel's shapes, inputs, subject, baselines and reference; nothing of statistics or tiers.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

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

DEFAULTS: Dims = MappingProxyType({"M": 1024, "N": 8192, "dtype": "bf16"})
WORKLOADS = MappingProxyType({"captured": DEFAULTS, "stated": MappingProxyType({**DEFAULTS, "M": 32768})})
CAPTURES = (
    Capture(
        "rmsnorm/att_viewer/big/ui_output_agent_19276_dispatch_18/code.json", "captured", "rmsnorm_kernel_0"
    ),
)
REGION = Region(
    inside=("host dispatch of one launch", "the kernel"),
    outside=("building and JIT", "allocation of x, gamma and y"),
)
UNKNOWN = (
    "M of the timed row: the report says 32768, too much for any memory in that time; the recipe says 1024",
)
EPS = 1e-5


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions of one launch. HarnessError where the kernel cannot run them."""
    out = fill(DEFAULTS, dims)
    integer(out, "M")
    integer(out, "N")
    inputs.known(out, "dtype", ("f32", "f16", "bf16"))
    return out


def traffic(dims: Dims) -> Traffic:
    """x once in, y once out; gamma is left out as upstream's test and the study do (N of 2*M*N + N
    elements)."""
    d = resolve(dims)
    return Traffic(int(2 * d["M"] * d["N"] * BYTES[d["dtype"]]), 0, "2*M*N*sizeof(dtype)")


def memory_bytes(dims: Dims) -> int:
    """x, y and a baseline's own y."""
    return traffic(dims).bytes * 3 // 2


def small(dims: Dims) -> dict[str, Any]:
    """Two rows: the ISA does not depend on M while upstream picks the same kernel (N > 2048 or M <= 8192)."""
    d = resolve(dims)
    return {**d, "M": 8193 if d["M"] > 8192 and d["N"] <= 2048 else 2}


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """x standard normal, gamma uniform in [0, 1) as in upstream's test; y poisoned."""
    d = resolve(dims)
    m, n, kind = d["M"], d["N"], d["dtype"]
    return {
        "x": inputs.normal("x", (m, n), kind, device=device, seed=seed),
        "gamma": inputs.uniform("gamma", (n,), kind, device=device, seed=seed, low=0.0),
        "y": inputs.poison((m, n), kind, device=device),
    }


def outputs(tensors: Tensors) -> Tensors:
    """What the kernel writes."""
    return {"y": tensors["y"]}


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """Upstream's kernel for these dimensions."""
    d = resolve(dims)
    launch = stubs.upstream("kernels.rmsnorm_kernel").build_rmsnorm_module(d["M"], d["N"], d["dtype"])
    at = stubs.fly_stream(stream)
    t, rows = tensors, d["M"]
    return lambda: launch(t["x"], t["gamma"], t["y"], rows, stream=at)


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64."""
    import torch

    x, gamma = (tensors[name].cpu().to(torch.float64) for name in ("x", "gamma"))
    return {"y": x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + EPS) * gamma}


def tolerance(dims: Dims) -> Tolerance:
    """One rounding after float32 arithmetic; no cancellation, so no absolute part."""
    d = resolve(dims)
    return inputs.rounded(d["dtype"], terms=d["N"], atol=1e-9)


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """The claim's: AITER's Triton rms_norm. Others: AITER's CK one, torch."""

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        t = tensors
        shape = (t["x"].shape[-1],)

        def launch() -> None:
            t["y_torch"] = torch.nn.functional.rms_norm(t["x"], shape, t["gamma"], EPS)

        return launch

    def of_aiter(name: str) -> Any:
        def build(dims: Dims, tensors: Tensors) -> Launch:
            call = aiter.load(name)
            t = tensors

            def launch() -> None:
                t["y_" + name] = call(t["x"], t["gamma"], EPS)

            return launch

        return build

    inside = ("allocation of y",)
    return (
        aiter.baseline(
            "triton-rmsnorm", "claim", of_aiter("triton-rmsnorm"), {"y": "y_triton-rmsnorm"}, inside=inside
        ),
        aiter.baseline("ck-rmsnorm", "other", of_aiter("ck-rmsnorm"), {"y": "y_ck-rmsnorm"}, inside=inside),
        inputs.torch_baseline(
            "torch-rmsnorm",
            "other",
            "torch.nn.functional:rms_norm",
            of_torch,
            {"y": "y_torch"},
            inside=inside,
        ),
    )
