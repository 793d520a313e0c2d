"""Layer normalisation: y = (x - mean) / sqrt(var + 1e-5) * gamma + beta along N; x, y [M, N], gamma, beta
[N].

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

DEFAULTS: Dims = MappingProxyType({"M": 256, "N": 8192, "dtype": "bf16"})
WORKLOADS = MappingProxyType({"captured": DEFAULTS, "stated": MappingProxyType({**DEFAULTS, "M": 32768})})
CAPTURES = (
    Capture(
        "layernorm/att_viewer/big/ui_output_agent_22257_dispatch_23/code.json",
        "captured",
        "layernorm_kernel_0",
    ),
)
REGION = Region(
    inside=("host dispatch of one launch", "the kernel"),
    outside=("building and JIT", "allocation of x, gamma, beta and y"),
)
UNKNOWN = (
    "M of the timed row: the report says 32768, too much for any memory in that time; the recipe says 256",
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
    """x, gamma and beta once in, y once out (the convention of upstream's test and of the study)."""
    d = resolve(dims)
    return Traffic(
        int((2 * d["M"] * d["N"] + 2 * d["N"]) * BYTES[d["dtype"]]), 0, "(2*M*N + 2*N)*sizeof(dtype)"
    )


def memory_bytes(dims: Dims) -> int:
    """x, y and a baseline's own y."""
    return traffic(dims).bytes * 3 // 2


def small(dims: Dims) -> dict[str, Any]:
    """Two rows: the ISA does not depend on M."""
    return {**resolve(dims), "M": 2}


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """x standard normal, gamma and beta uniform in [0, 1) as in upstream's test; y poisoned."""
    d = resolve(dims)
    m, n, kind = d["M"], d["N"], d["dtype"]
    return {
        "x": inputs.normal("x", (m, n), kind, device=device, seed=seed),
        "gamma": inputs.uniform("gamma", (n,), kind, device=device, seed=seed, low=0.0),
        "beta": inputs.uniform("beta", (n,), kind, device=device, seed=seed, low=0.0),
        "y": inputs.poison((m, n), kind, device=device),
    }


def outputs(tensors: Tensors) -> Tensors:
    """What the kernel writes."""
    return {"y": tensors["y"]}


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """Upstream's kernel for these dimensions."""
    d = resolve(dims)
    launch = stubs.upstream("kernels.layernorm_kernel").build_layernorm_module(d["M"], d["N"], d["dtype"])
    at = stubs.fly_stream(stream)
    t, rows = tensors, d["M"]
    return lambda: launch(t["x"], t["gamma"], t["beta"], t["y"], rows, stream=at)


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64, population variance."""
    import torch

    x, gamma, beta = (tensors[name].cpu().to(torch.float64) for name in ("x", "gamma", "beta"))
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = (centred * centred).mean(dim=-1, keepdim=True)
    return {"y": centred * torch.rsqrt(variance + EPS) * gamma + beta}


def tolerance(dims: Dims) -> Tolerance:
    """One rounding; y may cancel against beta, so the rounding errors of |y| <= 8 in float32 are allowed
    absolutely."""
    d = resolve(dims)
    return inputs.rounded(d["dtype"], terms=d["N"], atol=2e-5, why="gamma*norm may cancel beta")


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """The claim's: AITER's Triton layer norm. Others: AITER's CK one, torch."""

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        t = tensors
        shape = (t["x"].shape[-1],)

        def launch() -> None:
            t["y_torch"] = torch.nn.functional.layer_norm(t["x"], shape, t["gamma"], t["beta"], EPS)

        return launch

    def of_aiter(name: str) -> Any:
        def build(dims: Dims, tensors: Tensors) -> Launch:
            call = aiter.load(name)
            t = tensors

            def launch() -> None:
                t["y_" + name] = call(t["x"], t["gamma"], t["beta"], EPS)

            return launch

        return build

    inside = ("allocation of y",)
    return (
        aiter.baseline(
            "triton-layernorm",
            "claim",
            of_aiter("triton-layernorm"),
            {"y": "y_triton-layernorm"},
            inside=inside,
        ),
        aiter.baseline(
            "ck-layernorm", "other", of_aiter("ck-layernorm"), {"y": "y_ck-layernorm"}, inside=inside
        ),
        inputs.torch_baseline(
            "torch-layernorm",
            "other",
            "torch.nn.functional:layer_norm",
            of_torch,
            {"y": "y_torch"},
            inside=inside,
        ),
    )
