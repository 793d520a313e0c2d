"""What the matrix products share: scaled fp8 operands, references, tolerances. c = a @ b.T; a [M, K], b [N,
K].

Knows torch (imported when used) and nothing of any one kernel.
"""

from __future__ import annotations

from typing import Any

from harness.kernels import inputs
from harness.kernels.base import BYTES, Dims, Tensors, Tolerance, Traffic

__all__ = ["bytes_only", "operands", "product", "raw", "rowscaled", "tolerance", "traffic"]


def traffic(d: Dims, in_dtype: str, out_dtype: str, *, scales: int = 0, scale_formula: str = "") -> Traffic:
    """a, b and `scales` float32 scales once in, c once out; a multiply-add counts two."""
    m, n, k = d["M"], d["N"], d["K"]
    total = (m * k + n * k) * BYTES[in_dtype] + m * n * BYTES[out_dtype] + 4 * scales
    formula = "(M*K + N*K)*sizeof(in) + M*N*sizeof(out)" + scale_formula
    return Traffic(int(total), 2 * m * n * k, formula, "2*M*N*K")


def bytes_only(tensor: Any) -> Any:
    """A flat int8 view of an fp8 tensor (FlyDSL's launchers take fp8 as bytes), any other tensor flat."""
    import torch

    flat = tensor.view(-1)
    return flat.view(torch.int8) if flat.dtype == torch.float8_e4m3fn else flat


def raw(name: str, rows: int, depth: int, *, device: str, seed: int) -> Any:
    """Uniform in [-1, 1), f32, [rows, depth]: signs and cancellation, unlike upstream's [0, 1)."""
    return inputs.uniform(name, (rows, depth), "f32", device=device, seed=seed)


def operands(d: Dims, kind: str, *, device: str, seed: int) -> Tensors:
    """a, b, b_shuffled, and scale_a [M], scale_b [N] (empty for 16-bit operands), by dtype `kind`."""
    import torch

    m, n, k = d["M"], d["N"], d["K"]
    a, b = raw("a", m, k, device=device, seed=seed), raw("b", n, k, device=device, seed=seed)
    if kind == "fp8":
        a, scale_a = inputs.quantise_rows(a)
        b, scale_b = inputs.quantise_rows(b)
        scale_a, scale_b = scale_a.view(-1).contiguous(), scale_b.view(-1).contiguous()
    else:
        a, b = a.to(inputs.dtype(kind)), b.to(inputs.dtype(kind))
        scale_a = scale_b = torch.empty(0, device=device)
    return {"a": a, "b": b, "b_shuffled": inputs.shuffle_weight(b), "scale_a": scale_a, "scale_b": scale_b}


def product(a: Any, b: Any) -> Any:
    """a @ b.T in float64 on the CPU."""
    import torch

    return a.detach().cpu().to(torch.float64) @ b.detach().cpu().to(torch.float64).T


def rowscaled(tensors: Tensors) -> Any:
    """float64 product of `a` and `b`, each row and column by its scale where there are scales."""
    import torch

    c = product(tensors["a"], tensors["b"])
    if tensors["scale_a"].numel():
        c = (
            c
            * tensors["scale_a"].cpu().to(torch.float64)[:, None]
            * tensors["scale_b"].cpu().to(torch.float64)[None]
        )
    return c


def tolerance(depth: int, out_dtype: str, *, bound: float = 1.0, roundings: int = 1) -> Tolerance:
    """c sums `depth` products below `bound` in float32 and rounds once: what cancels errs by at most depth *
    bound * 2^-24 in the worst order; four times that leaves room for scales applied in float32."""
    base = inputs.rounded(out_dtype, terms=depth, roundings=roundings)
    return Tolerance(depth * bound * 2.0**-22, base.rtol, f"{base.reason}; the sum may cancel")
