"""Vector ALU opcodes on floats. Arrays are [waves, 64]; operands arrive with neg and abs applied.

References: CDNA4 ISA, "VOP1/VOP2/VOP3A/VOP3P Instructions". Transcendental opcodes have a documented error
of 1 ULP on the hardware and flush denormals; here they are rounded correctly from float64 and flush too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.execute.floats import (
    bf16_bits,
    bf16_value,
    decode_table,
    encode_fp8,
    flush,
    fma16,
    fma32,
    fma64,
    ieee_max,
    ieee_min,
    maximum,
    minimum,
)
from harness.execute.table import valu

F16, F32, F64, U32, I32 = np.float16, np.float32, np.float64, np.uint32, np.int32
_1, _2, _3, _P = "VOP1 Instructions", "VOP2 Instructions", "VOP3A & VOP3B Instructions", "VOP3P Instructions"


def _simple(name: str, signature: str, reference: str, function: Any, unit: str = "valu") -> None:
    valu(name, signature, reference, unit)(function)


_ADD: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "subrev": lambda a, b: b - a,
    "mul": lambda a, b: a * b,
}
for _kind in ("f16", "f32"):
    for _name, _function in _ADD.items():
        _simple(f"v_{_name}_{_kind}", f"{_kind} = {_kind}, {_kind}", _2, _function)
    _simple(f"v_max_{_kind}", f"{_kind} = {_kind}, {_kind}", f"{_2}; maxNum: a number beats NaN", ieee_max)
    _simple(f"v_min_{_kind}", f"{_kind} = {_kind}, {_kind}", f"{_2}; minNum: a number beats NaN", ieee_min)
for _name, _function in (("add", _ADD["add"]), ("mul", _ADD["mul"]), ("max", ieee_max), ("min", ieee_min)):
    _simple(f"v_{_name}_f64", "f64 = f64, f64", _3, _function)
    _simple(f"v_pk_{_name}_f16", "f16 = f16, f16", _P, _function, "packed")
for _name in ("add", "mul"):
    _simple(f"v_pk_{_name}_f32", "f32 = f32, f32", f"{_P}; two registers", _ADD[_name], "packed")
_simple(
    "v_pk_mov_b32",
    "u32 = u32, u32",
    f"{_P}; low half from a, high half from b",
    lambda a, b: (a, b),
    "packed_mov",
)
_simple("v_pk_fma_f32", "f32 = f32, f32, f32", f"{_P}; two registers", fma32, "packed")
_simple("v_pk_fma_f16", "f16 = f16, f16, f16", _P, fma16, "packed")
_simple("v_fma_f32", "f32 = f32, f32, f32", _3, fma32)
_simple("v_fma_f16", "f16 = f16, f16, f16", _3, fma16)
_simple("v_fma_f64", "f64 = f64, f64, f64", _3, fma64)
_simple("v_fmac_f32", "f32 = f32, f32, dst", _2, fma32)
_simple("v_fmac_f16", "f16 = f16, f16, dst", _2, fma16)
_simple("v_fmac_f64", "f64 = f64, f64, dst", _2, fma64)
_simple("v_fmamk_f32", "f32 = f32, f32, f32", f"{_2}; a * K + b", fma32)
_simple("v_fmaak_f32", "f32 = f32, f32, f32", f"{_2}; a * b + K", fma32)
_simple(
    "v_mul_legacy_f32",
    "f32 = f32, f32",
    f"{_3}; 0 times anything is 0",
    lambda a, b: np.where((a == 0) | (b == 0), F32(0), a * b),
)
_simple("v_max3_f32", "f32 = f32, f32, f32", _3, lambda a, b, c: ieee_max(ieee_max(a, b), c))
_simple("v_min3_f32", "f32 = f32, f32, f32", _3, lambda a, b, c: ieee_min(ieee_min(a, b), c))
_simple(
    "v_maximum3_f32", "f32 = f32, f32, f32", f"{_3}; a NaN wins", lambda a, b, c: maximum(maximum(a, b), c)
)
_simple(
    "v_minimum3_f32", "f32 = f32, f32, f32", f"{_3}; a NaN wins", lambda a, b, c: minimum(minimum(a, b), c)
)
_simple(
    "v_pk_maximum3_f16",
    "f16 = f16, f16, f16",
    f"{_P}; a NaN wins",
    lambda a, b, c: maximum(maximum(a, b), c),
    "packed",
)
_simple(
    "v_pk_minimum3_f16",
    "f16 = f16, f16, f16",
    f"{_P}; a NaN wins",
    lambda a, b, c: minimum(minimum(a, b), c),
    "packed",
)


@valu("v_med3_f32", "f32 = f32, f32, f32", f"{_3}; with a NaN, the minimum of the three")
def v_med3_f32(a: Any, b: Any, c: Any) -> Any:
    """The document's own rule, which decides between zeros of both signs."""
    nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
    top = ieee_max(ieee_max(a, b), c)
    middle = np.where(top == a, ieee_max(b, c), np.where(top == b, ieee_max(a, c), ieee_max(a, b)))
    return np.where(nan, ieee_min(ieee_min(a, b), c), middle)


def _round(name: str, function: Any) -> None:
    for kind in ("f16", "f32", "f64"):
        _simple(f"v_{name}_{kind}", f"{kind} = {kind}", _1, function)


_round("trunc", np.trunc)
_round("ceil", np.ceil)
_round("floor", np.floor)
_round("rndne", np.rint)
_simple(
    "v_fract_f32", "f32 = f32", f"{_1}; below 1", lambda a: np.minimum(a - np.floor(a), F32(1 - 2.0**-24))
)


def _transcendental(name: str, function: Any) -> None:
    def run(a: Any) -> Any:
        return flush(function(flush(a).astype(F64)).astype(F32))

    _simple(f"v_{name}_f32", "f32 = f32", f"{_1}; 1 ULP, denormals flushed", run)


_transcendental("exp", np.exp2)
_transcendental("log", np.log2)
_transcendental("rcp", lambda a: 1.0 / a)
_transcendental("rcp_iflag", lambda a: 1.0 / a)
_transcendental("rsq", lambda a: np.where(a < 0, np.nan, 1.0 / np.sqrt(a)))
_transcendental("sqrt", np.sqrt)
_transcendental("sin", lambda a: np.sin(a * (2 * np.pi)))
_transcendental("cos", lambda a: np.cos(a * (2 * np.pi)))
for _name, _function in {
    "exp": np.exp2,
    "log": np.log2,
    "rcp": lambda a: 1.0 / a,
    "rsq": lambda a: np.where(a < 0, np.nan, 1.0 / np.sqrt(a)),
    "sqrt": np.sqrt,
}.items():
    _simple(
        f"v_{_name}_f16", "f16 = f16", _1, lambda a, function=_function: function(a.astype(F64)).astype(F16)
    )
_simple("v_rcp_f64", "f64 = f64", _1, lambda a: 1.0 / a)
_simple("v_rsq_f64", "f64 = f64", _1, lambda a: 1.0 / np.sqrt(a))
_simple("v_sqrt_f64", "f64 = f64", _1, np.sqrt)


@valu("v_ldexp_f32", "f32 = f32, i32", _3)
def v_ldexp_f32(a: Any, b: Any) -> Any:
    return np.ldexp(a.astype(F64), np.clip(b, -1000, 1000)).astype(F32)


@valu("v_ldexp_f64", "f64 = f64, i32", _3)
def v_ldexp_f64(a: Any, b: Any) -> Any:
    return np.ldexp(a, b)


@valu("v_frexp_mant_f32", "f32 = f32", _1)
def v_frexp_mant_f32(a: Any) -> Any:
    return np.where(np.isfinite(a), np.frexp(a)[0], a)


@valu("v_frexp_exp_i32_f32", "i32 = f32", f"{_1}; 0 for infinity, NaN and 0")
def v_frexp_exp_i32_f32(a: Any) -> Any:
    return np.where(np.isfinite(a), np.frexp(a)[1], 0).astype(I32)


def _exponent(a: Any) -> Any:
    return (np.asarray(a).view(U32) >> U32(23)) & U32(0xFF)


def _denormal(x: Any) -> Any:
    return (np.abs(x) < F32(2.0**-126)) & (x != 0)


@valu(
    "v_div_scale_f32", "f32, mask = f32, f32, f32", f"{_3}; a: which to scale, b: denominator, c: numerator"
)
def v_div_scale_f32(a: Any, b: Any, c: Any) -> Any:
    """Scale numerator or denominator by 2^64 where the division steps would leave the normal range."""
    a, b, c = np.broadcast_arrays(a, b, c)
    zero = (b == 0) | (c == 0)
    eb, ec = _exponent(b).astype(I32), _exponent(c).astype(I32)
    scaled = np.ldexp(a.astype(F64), 64).astype(F32)
    r64, rb = c.astype(F64) / b.astype(F64), 1.0 / b.astype(F64)
    tiny_quotient = (np.abs(r64) < 2.0**-126) & (r64 != 0)
    tiny_reciprocal = (np.abs(rb) < 2.0**-126) & (rb != 0)
    is_b, is_c = a == b, a == c
    big = (ec - eb) >= 96
    flag = ~zero & (
        big | (~_denormal(b) & ((tiny_reciprocal & tiny_quotient) | (~tiny_reciprocal & tiny_quotient)))
    )
    # The branches in the document's order: first that applies decides.
    out = np.where(ec <= 23, scaled, a)
    out = np.where(tiny_quotient, np.where(is_c, scaled, a), out)
    lowered = np.ldexp(a.astype(F64), -64).astype(F32)
    out = np.where(tiny_reciprocal, lowered, out)
    # The document raises the denominator here, which would overflow; only lowering it leaves a quotient to
    # scale.
    out = np.where(tiny_reciprocal & tiny_quotient, np.where(is_b, lowered, a), out)
    out = np.where(_denormal(b), scaled, out)
    out = np.where(big, np.where(is_b, scaled, a), out)
    return np.where(zero, F32(np.nan), out), flag


@valu(
    "v_div_fmas_f32",
    "f32 = f32, f32, f32, vcc",
    f"{_3}; times 2^64 or 2^-64 where VCC is set, by c's exponent",
)
def v_div_fmas_f32(a: Any, b: Any, c: Any, vcc: Any) -> Any:
    plain = fma32(a, b, c)
    if not np.any(vcc):
        return plain
    shift = np.where(_exponent(c) > 127, 64, -64)
    return np.where(vcc, np.ldexp(plain.astype(F64), shift).astype(F32), plain)


@valu("v_div_fixup_f32", "f32 = f32, f32, f32", f"{_3}; a: quotient, b: denominator, c: numerator")
def v_div_fixup_f32(a: Any, b: Any, c: Any) -> Any:
    negative = np.signbit(b) != np.signbit(c)
    sign = np.where(negative, F32(-1), F32(1))
    eb, ec = _exponent(b).astype(I32), _exponent(c).astype(I32)
    out = np.where(negative, -np.abs(a), np.abs(a))
    # A quotient that overflowed leaves NaN in the refinement steps before; the document's cases do not name
    # it.
    out = np.where(np.isnan(a), sign * F32(np.inf), out)
    out = np.where(eb == 255, sign * F32(0), out)  # the order below is the document's, last first
    with np.errstate(all="ignore"):
        out = np.where((ec - eb) < -150, sign * F32(0), np.where(eb == 255, sign * F32(np.inf), out))
    out = np.where(np.isinf(b) | (c == 0), sign * F32(0), out)
    out = np.where((b == 0) | np.isinf(c), sign * F32(np.inf), out)
    out = np.where((np.isinf(b) & np.isinf(c)) | ((b == 0) & (c == 0)), F32(np.nan), out)
    out = np.where(np.isnan(b), b, out)
    return np.where(np.isnan(c), c, out)


_simple("v_cvt_f16_f32", "f16 = f32", f"{_1}; to nearest even, zeroes the high half", lambda a: a.astype(F16))
_simple("v_cvt_f32_f16", "f32 = f16", _1, lambda a: a.astype(F32))
_simple("v_cvt_f32_bf16", "f32 = u16", _1, bf16_value)
_simple("v_cvt_f16_u16", "f16 = u16", _1, lambda a: a.astype(F16))
_simple("v_cvt_f16_i16", "f16 = i16", _1, lambda a: a.astype(F16))


def _bits16(a: Any) -> Any:
    return np.asarray(a, F16).view(np.uint16).astype(U32)


@valu("v_cvt_pk_f16_f32", "u32 = f32, f32", f"{_3}; to nearest even")
def v_cvt_pk_f16_f32(a: Any, b: Any) -> Any:
    return _bits16(a.astype(F16)) | (_bits16(b.astype(F16)) << U32(16))


@valu("v_cvt_pkrtz_f16_f32", "u32 = f32, f32", f"{_3}; towards zero")
def v_cvt_pkrtz_f16_f32(a: Any, b: Any) -> Any:
    def toward_zero(x: Any) -> Any:
        r = x.astype(F16)
        over = np.abs(r.astype(F32)) > np.abs(x)
        return _bits16(np.where(over, np.nextafter(r, F16(0)), r).astype(F16))

    return toward_zero(a) | (toward_zero(b) << U32(16))


@valu("v_cvt_pk_bf16_f32", "u32 = f32, f32", f"{_3}; to nearest even")
def v_cvt_pk_bf16_f32(a: Any, b: Any) -> Any:
    return bf16_bits(a) | (bf16_bits(b) << U32(16))


def _pack8(name: str) -> None:
    def run(a: Any, b: Any) -> Any:
        return (encode_fp8(a, name) | (encode_fp8(b, name) << U32(8))).astype(np.uint16)

    _simple(
        f"v_cvt_pk_{name}_f32",
        "u16half = f32, f32",
        f"{_3}; OCP on gfx950; op_sel[3] picks the half, the other is kept",
        run,
    )


_pack8("fp8")
_pack8("bf8")
for _name in ("fp8", "bf8"):
    _simple(
        f"v_cvt_f32_{_name}",
        "f32 = byte",
        f"{_1}; SDWA or op_sel picks the byte",
        lambda a, name=_name: decode_table(name)[a],
    )


def _fma_mix(a: Any, b: Any, c: Any) -> Any:
    return fma32(a, b, c)


_simple(
    "v_fma_mix_f32", "f32 = mix, mix, mix", f"{_P}; op_sel_hi: f16 operand, op_sel: its half", _fma_mix, "mix"
)
_simple(
    "v_fma_mixlo_f16",
    "f16lo = mix, mix, mix",
    f"{_P}; writes the low half",
    lambda a, b, c: fma32(a, b, c).astype(F16),
    "mix",
)
_simple(
    "v_fma_mixhi_f16",
    "f16hi = mix, mix, mix",
    f"{_P}; writes the high half",
    lambda a, b, c: fma32(a, b, c).astype(F16),
    "mix",
)


def _dot2(a: Any, b: Any, c: Any, value: Any) -> Any:
    """Two products and the addend, each step in float32."""
    low = value(a & U32(0xFFFF)).astype(F64) * value(b & U32(0xFFFF)).astype(F64)
    high = value(a >> U32(16)).astype(F64) * value(b >> U32(16)).astype(F64)
    return (low + high + c.astype(F64)).astype(F32)


def _f16_value(bits: Any) -> Any:
    return bits.astype(np.uint16).view(F16).astype(F32)


_simple("v_dot2_f32_f16", "f32 = u32, u32, f32", _P, lambda a, b, c: _dot2(a, b, c, _f16_value), "dot")
_simple("v_dot2_f32_bf16", "f32 = u32, u32, f32", _P, lambda a, b, c: _dot2(a, b, c, bf16_value), "dot")
_simple("v_dot2c_f32_bf16", "f32 = u32, u32, dst", _2, lambda a, b, c: _dot2(a, b, c, bf16_value))
_simple("v_dot2c_f32_f16", "f32 = u32, u32, dst", _2, lambda a, b, c: _dot2(a, b, c, _f16_value))
