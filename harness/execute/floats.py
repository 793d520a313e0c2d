"""Float arithmetic as the hardware rounds it, over numpy arrays: fused multiply-add, min/max, small formats.

Pure functions; no opcode names. Formats: bf16 as uint16 bits, OCP fp8 e4m3fn and e5m2, MX fp6 and fp4 as
codes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

__all__ = [
    "bf16_bits",
    "bf16_value",
    "decode_table",
    "encode_fp8",
    "flush",
    "fma16",
    "fma32",
    "fma64",
    "ieee_max",
    "ieee_min",
    "maximum",
    "minimum",
    "quiet",
]

F32, F64, U32, U64 = np.float32, np.float64, np.uint32, np.uint64
TINY = F32(2.0**-126)


def quiet() -> Any:
    """numpy's warnings off: overflow, invalid and division by zero have defined results on the GPU."""
    return np.errstate(all="ignore")


def flush(a: Any) -> Any:
    """Denormal float32 values become zeros of their sign."""
    return np.where(np.abs(a) < TINY, np.copysign(F32(0), a), a)


def fma32(a: Any, b: Any, c: Any) -> Any:
    """float32 a*b + c with one rounding.

    The product is exact in float64. The float64 sum is rounded once and then again to float32, which is
    wrong only
    where the first rounding lands on a tie of the second; there the sum is rounded to odd first (Boldo and
    Melquiond, "Emulation of FMA and correctly rounded sums", 2008), for which 53 bits suffice.
    """
    p = np.multiply(a, b, dtype=F64)
    c = np.asarray(c).astype(F64)
    s = np.asarray(p + c)
    bits = s.view(U64)
    # A tie of a normal result has the low 29 bits 100...0; where the result is denormal any pattern may be
    # one.
    risky = ((bits & U64(0x1FFFFFFF)) == U64(0x10000000)) | (np.abs(s) < 2.0**-126)
    if risky.any():
        s = np.where(risky, _to_odd(p, c, s), s)
    return s.astype(F32)


def _to_odd(p: Any, c: Any, s: Any) -> Any:
    """The sum p + c, whose nearest float64 is s, rounded to odd instead."""
    back = s - p
    error = (p - (s - back)) + (c - back)
    bits = np.asarray(s).view(np.int64)
    even = (bits & 1) == 0
    inexact = (error != 0) & even & np.isfinite(s) & (s != 0)
    step = np.where((error > 0) == (s > 0), 1, -1)
    return np.where(inexact, bits + step, bits).view(F64)


def fma64(a: Any, b: Any, c: Any) -> Any:
    """float64 a*b + c with one rounding (exact product by splitting, ties by the error term)."""
    import math
    from fractions import Fraction

    a, b, c = np.broadcast_arrays(a, b, c)
    out = np.empty(a.shape, F64)
    for index in np.ndindex(a.shape):
        x, y, z = float(a[index]), float(b[index]), float(c[index])
        if all(math.isfinite(v) for v in (x, y, z)):
            exact = Fraction(x) * Fraction(y) + Fraction(z)
            try:
                out[index] = float(exact) if exact else x * y + z
            except OverflowError:
                out[index] = math.inf if exact > 0 else -math.inf
        else:
            out[index] = F64(x) * F64(y) + F64(z)
    return out


def fma16(a: Any, b: Any, c: Any) -> Any:
    """float16 a*b + c with one rounding: exact in float64 up to its 53 bits, rounded to odd where that
    matters.
    """
    p = np.multiply(a, b, dtype=F64)
    c = np.asarray(c).astype(F64)
    s = p + c
    return np.asarray(_to_odd(p, c, s)).astype(np.float16)


def maximum(a: Any, b: Any) -> Any:
    """IEEE 754-2019 maximum: a NaN wins, +0 above -0."""
    return np.where(np.isnan(a) | np.isnan(b), a + b, ieee_max(a, b))


def minimum(a: Any, b: Any) -> Any:
    """IEEE 754-2019 minimum: a NaN wins, -0 below +0."""
    return np.where(np.isnan(a) | np.isnan(b), a + b, ieee_min(a, b))


def ieee_max(a: Any, b: Any) -> Any:
    """maxNum: the number where one is NaN; +0 above -0."""
    r = np.where(a > b, a, b)
    r = np.where((a == 0) & (b == 0) & ~np.signbit(a), a, r)
    r = np.where(np.isnan(b), a, r)
    return np.where(np.isnan(a), b, r)


def ieee_min(a: Any, b: Any) -> Any:
    """minNum: the number where one is NaN; -0 below +0."""
    r = np.where(a < b, a, b)
    r = np.where((a == 0) & (b == 0) & np.signbit(a), a, r)
    r = np.where(np.isnan(b), a, r)
    return np.where(np.isnan(a), b, r)


def bf16_bits(a: Any) -> Any:
    """float32 to bf16 bits (uint32, low 16), to nearest even; a NaN stays one and is quiet."""
    bits = np.asarray(a, F32).view(U32)
    rounded = (bits + U32(0x7FFF) + ((bits >> U32(16)) & U32(1))) >> U32(16)
    return np.where(np.isnan(a), (bits >> U32(16)) | U32(0x40), rounded)


def bf16_value(bits: Any) -> Any:
    """bf16 bits (any unsigned dtype, low 16) to float32."""
    return (np.asarray(bits).astype(U32) << U32(16)).view(F32)


@cache
def decode_table(name: str) -> Any:
    """float32 value of every code of a small format: fp8 (OCP e4m3fn), bf8 (OCP e5m2), fp6 (e2m3), bf6
    (e3m2), fp4.

    OCP 8-bit Floating Point Specification and OCP Microscaling Formats (MX) Specification v1.0.
    """
    exponent, mantissa, bias = {
        "fp8": (4, 3, 7),
        "bf8": (5, 2, 15),
        "fp6": (2, 3, 1),
        "bf6": (3, 2, 3),
        "fp4": (2, 1, 1),
    }[name]
    codes = np.arange(1 << (1 + exponent + mantissa))
    e = (codes >> mantissa) & ((1 << exponent) - 1)
    m = (codes & ((1 << mantissa) - 1)) / (1 << mantissa)
    value = np.where(e == 0, m * 2.0 ** (1 - bias), (1 + m) * 2.0 ** (e - bias))
    value = np.where(codes >> (exponent + mantissa), -value, value)
    if name == "fp8":
        value = np.where((codes & 0x7F) == 0x7F, np.nan, value)
    if name == "bf8":
        top = e == 31
        value = np.where(
            top & ((codes & 3) == 0), np.where(codes >> 7, -np.inf, np.inf), np.where(top, np.nan, value)
        )
    return value.astype(F32)


def encode_fp8(a: Any, name: str = "fp8") -> Any:
    """float32 to fp8 codes (uint32), to nearest even, as V_CVT_PK_FP8_F32 does it.

    fp8 (e4m3fn) has no infinity: without clamping, a value that rounds beyond 448 gives NaN; bf8 gives
    infinity.
    """
    exponent_min, mantissa, top = {"fp8": (-6, 3, 448.0), "bf8": (-14, 2, 57344.0)}[name]
    x = np.asarray(a, F32).astype(F64)
    size = np.abs(x)
    with quiet():
        e = np.maximum(np.floor(np.log2(np.where((size > 0) & np.isfinite(size), size, 1.0))), exponent_min)
    e = np.where(size == 0, exponent_min, e)
    e = np.where(size >= 2.0 ** (e + 1), e + 1, np.where((size < 2.0**e) & (e > exponent_min), e - 1, e))
    step = 2.0 ** (e - mantissa)
    units = np.rint(np.where(np.isfinite(size), size, 0.0) / step)  # rint is to nearest even
    bias_code = (e - exponent_min).astype(np.int64) << mantissa
    code = (bias_code + units.astype(np.int64)).astype(np.int64)
    if name == "fp8":
        code = np.where(units * step > top, 0x7F, code)
        code = np.where(~np.isfinite(size), 0x7F, code)
    else:
        code = np.where(units * step > top, 0x7C, code)
        code = np.where(np.isinf(size), 0x7C, np.where(np.isnan(size), 0x7F, code))
    return (code | np.where(np.signbit(x), 0x80, 0)).astype(U32)
