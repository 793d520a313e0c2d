"""Quantisation per token: s = max|x| / 127 along N, q = trunc(x / s); x [M, N] f16, q [M, N] int8, s [M] f32.

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

DEFAULTS: Dims = MappingProxyType({"M": 4096, "N": 8192, "in_dtype": "f16", "out_dtype": "int8"})
WORKLOADS = MappingProxyType({"captured": DEFAULTS})
CAPTURES = (
    Capture("quant/att_viewer/big/ui_output_agent_34678_dispatch_8/code.json", "captured", "quant_kernel_0"),
)
REGION = Region(
    inside=("host dispatch of one launch", "the kernel"),
    outside=("building and JIT", "allocation of x, q and s"),
)
UNKNOWN: tuple[str, ...] = ()


def resolve(dims: Dims) -> dict[str, Any]:
    """All dimensions of one launch. The kernel takes f16 to int8 only, and N in whole vectors of 8."""
    out = fill(DEFAULTS, dims)
    out["in_dtype"] = {"fp16": "f16"}.get(out["in_dtype"], out["in_dtype"])
    out["out_dtype"] = {"i8": "int8"}.get(out["out_dtype"], out["out_dtype"])
    integer(out, "M")
    integer(out, "N", multiple_of=8, at_least=8)
    inputs.known(out, "in_dtype", ("f16",))
    inputs.known(out, "out_dtype", ("int8",))
    return out


def traffic(dims: Dims) -> Traffic:
    """x once in, q and s once out."""
    d = resolve(dims)
    per = BYTES[d["in_dtype"]] + BYTES[d["out_dtype"]]
    return Traffic(int(d["M"] * d["N"] * per + 4 * d["M"]), 0, "M*N*(sizeof(in)+sizeof(out)) + 4*M")


def memory_bytes(dims: Dims) -> int:
    """x, q, s and a baseline's own q and s."""
    d = resolve(dims)
    return int(traffic(dims).bytes + d["M"] * d["N"] + 4 * d["M"])


def small(dims: Dims) -> dict[str, Any]:
    """Two rows: the ISA does not depend on M."""
    return {**resolve(dims), "M": 2}


def make_inputs(dims: Dims, *, device: str, seed: int) -> Tensors:
    """x uniform in [-5, 5) as in upstream's test; q and s poisoned."""
    d = resolve(dims)
    m, n = d["M"], d["N"]
    return {
        "x": inputs.uniform("x", (m, n), d["in_dtype"], device=device, seed=seed, low=-5.0, high=5.0),
        "q": inputs.poison((m, n), d["out_dtype"], device=device),
        "s": inputs.poison((m,), "f32", device=device),
    }


def outputs(tensors: Tensors) -> Tensors:
    """What the kernel writes."""
    return {"q": tensors["q"], "s": tensors["s"]}


def subject(dims: Dims, tensors: Tensors, stream: Any = None) -> Launch:
    """Upstream's kernel, which its own test file defines."""
    d = resolve(dims)
    launch, _ = stubs.defining_test("tests.kernels.test_quant").build_quant_module(d["N"])
    at = stubs.fly_stream(stream)
    t, rows = tensors, d["M"]
    return lambda: launch(t["x"], t["q"], t["s"], rows, stream=at)


def reference(dims: Dims, tensors: Tensors) -> Tensors:
    """float64: s, and the quotient x / s before it becomes an integer."""
    import torch

    x = tensors["x"].cpu().to(torch.float64)
    s = x.abs().amax(dim=-1) / 127.0
    s = torch.where(s == 0, torch.ones_like(s), s)
    return {"s": s, "q": x / s[:, None]}


def tolerance(dims: Dims) -> Tolerance:
    """q is within one of the quotient: the kernel truncates (and AITER rounds to nearest), and float32 puts a
    quotient at an integer on either side. s is one float32 division."""
    return Tolerance(
        0.0,
        2.0**-22,
        "s: one float32 division; q: within 1 of the quotient, truncated or rounded",
        special={"q": (1.0, 2.0**-22)},
    )


def baselines(dims: Dims) -> tuple[Baseline, ...]:
    """The claim's: AITER's HIP per-token quantisation. Another: torch."""

    def of_torch(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        t = tensors

        def launch() -> None:
            s = t["x"].abs().amax(dim=-1).to(torch.float32) / 127.0
            t["q_torch"] = (t["x"].to(torch.float32) / s[:, None]).round().to(torch.int8)
            t["s_torch"] = s

        return launch

    def of_aiter(dims: Dims, tensors: Tensors) -> Launch:
        import torch

        call = aiter.load("hip-per-token-quant")
        t = tensors

        def launch() -> None:
            t["q_aiter"], t["s_aiter"] = call(t["x"], quant_dtype=torch.int8)

        return launch

    inside = ("allocation of q and s",)
    return (
        aiter.baseline(
            "hip-per-token-quant", "claim", of_aiter, {"q": "q_aiter", "s": "s_aiter"}, inside=inside
        ),
        inputs.torch_baseline(
            "torch-quant",
            "other",
            "torch:amax+div+to",
            of_torch,
            {"q": "q_torch", "s": "s_torch"},
            inside=inside,
        ),
    )
