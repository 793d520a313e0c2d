"""Vector ALU opcodes on integers, and conversions between integers and floats. Arrays are [waves, 64].

References: CDNA4 ISA, "VOP1/VOP2/VOP3A/VOPC Instructions"; comments name what is easy to get wrong. Shift
counts use their low bits only; REV forms take the count first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.execute.table import valu

U32, U64, I32, I64 = np.uint32, np.uint64, np.int32, np.int64
F32, F64 = np.float32, np.float64
_1, _2, _3, _C, _P = (
    "VOP1 Instructions",
    "VOP2 Instructions",
    "VOP3A & VOP3B Instructions",
    "VOPC Instructions",
    "VOP3P Instructions",
)


def _simple(name: str, signature: str, reference: str, function: Any, unit: str = "valu") -> None:
    valu(name, signature, reference, unit)(function)


_simple("v_nop", "=", _1, lambda: None)
_simple("v_mov_b32", "u32 = u32", _1, lambda a: a)
_simple("v_mov_b64", "u64 = u64", _1, lambda a: a)
_simple("v_not_b32", "u32 = u32", _1, lambda a: ~a)
_simple("v_and_b32", "u32 = u32, u32", _2, lambda a, b: a & b)
_simple("v_or_b32", "u32 = u32, u32", _2, lambda a, b: a | b)
_simple("v_xor_b32", "u32 = u32, u32", _2, lambda a, b: a ^ b)
_simple("v_xnor_b32", "u32 = u32, u32", _2, lambda a, b: ~(a ^ b))
_simple("v_add_u32", "u32 = u32, u32", _2, lambda a, b: a + b)
_simple("v_sub_u32", "u32 = u32, u32", _2, lambda a, b: a - b)
_simple("v_subrev_u32", "u32 = u32, u32", _2, lambda a, b: b - a)
_simple("v_lshlrev_b32", "u32 = u32, u32", _2, lambda a, b: b << (a & U32(31)))
_simple("v_lshrrev_b32", "u32 = u32, u32", _2, lambda a, b: b >> (a & U32(31)))
_simple("v_ashrrev_i32", "i32 = u32, i32", _2, lambda a, b: b >> (a & U32(31)).astype(I32))
_simple("v_lshlrev_b64", "u64 = u32, u64", _3, lambda a, b: b << (a & U32(63)).astype(U64))
_simple("v_lshrrev_b64", "u64 = u32, u64", _3, lambda a, b: b >> (a & U32(63)).astype(U64))
_simple("v_ashrrev_i64", "i64 = u32, i64", _3, lambda a, b: b >> (a & U32(63)).astype(I64))
_simple("v_min_u32", "u32 = u32, u32", _2, np.minimum)
_simple("v_max_u32", "u32 = u32, u32", _2, np.maximum)
_simple("v_min_i32", "i32 = i32, i32", _2, np.minimum)
_simple("v_max_i32", "i32 = i32, i32", _2, np.maximum)
_simple("v_min3_u32", "u32 = u32, u32, u32", _3, lambda a, b, c: np.minimum(np.minimum(a, b), c))
_simple("v_max3_u32", "u32 = u32, u32, u32", _3, lambda a, b, c: np.maximum(np.maximum(a, b), c))
_simple("v_min3_i32", "i32 = i32, i32, i32", _3, lambda a, b, c: np.minimum(np.minimum(a, b), c))
_simple("v_max3_i32", "i32 = i32, i32, i32", _3, lambda a, b, c: np.maximum(np.maximum(a, b), c))
_simple(
    "v_med3_i32",
    "i32 = i32, i32, i32",
    _3,
    lambda a, b, c: np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c)),
)
_simple(
    "v_med3_u32",
    "u32 = u32, u32, u32",
    _3,
    lambda a, b, c: np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c)),
)
_simple("v_add3_u32", "u32 = u32, u32, u32", _3, lambda a, b, c: a + b + c)
_simple("v_add_lshl_u32", "u32 = u32, u32, u32", _3, lambda a, b, c: (a + b) << (c & U32(31)))
_simple("v_lshl_add_u32", "u32 = u32, u32, u32", _3, lambda a, b, c: (a << (b & U32(31))) + c)
_simple("v_lshl_or_b32", "u32 = u32, u32, u32", _3, lambda a, b, c: (a << (b & U32(31))) | c)
_simple("v_and_or_b32", "u32 = u32, u32, u32", _3, lambda a, b, c: (a & b) | c)
_simple("v_or3_b32", "u32 = u32, u32, u32", _3, lambda a, b, c: a | b | c)
_simple("v_xad_u32", "u32 = u32, u32, u32", _3, lambda a, b, c: (a ^ b) + c)
_simple("v_bfi_b32", "u32 = u32, u32, u32", _3, lambda a, b, c: (a & b) | (~a & c))
_simple(
    "v_lshl_add_u64",
    "u64 = u64, u32, u64",
    f"{_3}; the count is 3 bits",
    lambda a, b, c: (a << (b & U32(7)).astype(U64)) + c,
)
_simple("v_mul_lo_u32", "u32 = u32, u32", _3, lambda a, b: a * b)
_simple(
    "v_mul_hi_u32",
    "u32 = u32, u32",
    _3,
    lambda a, b: ((a.astype(U64) * b.astype(U64)) >> U64(32)).astype(U32),
)
_simple(
    "v_mul_hi_i32",
    "i32 = i32, i32",
    _3,
    lambda a, b: ((a.astype(I64) * b.astype(I64)) >> I64(32)).astype(I32),
)
_24 = U32(0xFFFFFF)
_simple("v_mul_u32_u24", "u32 = u32, u32", f"{_2}; 24 low bits of each", lambda a, b: (a & _24) * (b & _24))
_simple("v_mad_u32_u24", "u32 = u32, u32, u32", _3, lambda a, b, c: (a & _24) * (b & _24) + c)


def _signed24(a: Any) -> Any:
    return ((a.view(U32) << U32(8)).view(I32) >> I32(8)).astype(I32)


_simple(
    "v_mul_i32_i24",
    "i32 = i32, i32",
    f"{_2}; 24 low bits of each, signed",
    lambda a, b: _signed24(a) * _signed24(b),
)
_simple("v_mad_i32_i24", "i32 = i32, i32, i32", _3, lambda a, b, c: _signed24(a) * _signed24(b) + c)


@valu("v_mad_u64_u32", "u64, mask = u32, u32, u64", f"{_3}; the mask is the carry out of 64 bits")
def v_mad_u64_u32(a: Any, b: Any, c: Any) -> Any:
    p = a.astype(U64) * b.astype(U64)
    r = p + c
    return r, r < p


@valu("v_mad_i64_i32", "i64, mask = i32, i32, i64", f"{_3}; the mask is signed overflow")
def v_mad_i64_i32(a: Any, b: Any, c: Any) -> Any:
    p = a.astype(I64) * b.astype(I64)
    r = p + c
    return r, ((p ^ r) & (c ^ r)) < 0


def _carry(name: str, function: Any, *, carry_in: bool) -> None:
    tail = ", mask" if carry_in else ""
    valu(name, f"u32, mask = u32, u32{tail}", f"{_2} and VOP3B; VCC, or the named pair, is carry out")(
        function
    )


def _addc(a: Any, b: Any, c: Any = None) -> Any:
    r = a.astype(U64) + b.astype(U64)
    if c is not None:
        r = r + c.astype(U64)
    return r.astype(U32), r >> U64(32) != 0


def _subb(a: Any, b: Any, c: Any = None) -> Any:
    take = b.astype(U64)
    if c is not None:
        take = take + c.astype(U64)
    return (a.astype(U64) - take).astype(U32), take > a.astype(U64)


_carry("v_add_co_u32", lambda a, b: _addc(a, b), carry_in=False)
_carry("v_sub_co_u32", lambda a, b: _subb(a, b), carry_in=False)
_carry("v_subrev_co_u32", lambda a, b: _subb(b, a), carry_in=False)
_carry("v_addc_co_u32", lambda a, b, c: _addc(a, b, c), carry_in=True)
_carry("v_subb_co_u32", lambda a, b, c: _subb(a, b, c), carry_in=True)
_carry("v_subbrev_co_u32", lambda a, b, c: _subb(b, a, c), carry_in=True)


@valu("v_bfe_u32", "u32 = u32, u32, u32", f"{_3}; offset and width are 5 bits, width 0 gives 0")
def v_bfe_u32(a: Any, b: Any, c: Any) -> Any:
    return (a >> (b & U32(31))) & ((U32(1) << (c & U32(31))) - U32(1))


@valu("v_bfe_i32", "i32 = i32, u32, u32", f"{_3}; offset and width are 5 bits, sign-extended from the width")
def v_bfe_i32(a: Any, b: Any, c: Any) -> Any:
    width = (c & U32(31)).astype(I64)
    field = (a.astype(I64) >> (b & U32(31)).astype(I64)) & ((I64(1) << width) - I64(1))
    sign = np.where(width > 0, (field >> np.maximum(width - I64(1), I64(0))) & I64(1), I64(0))
    return (field - (sign << width)).astype(I32)


@valu("v_alignbit_b32", "u32 = u32, u32, u32", f"{_3}; the count is 5 bits")
def v_alignbit_b32(a: Any, b: Any, c: Any) -> Any:
    whole = (a.astype(U64) << U64(32)) | b.astype(U64)
    return (whole >> (c & U32(31)).astype(U64)).astype(U32)


@valu("v_alignbyte_b32", "u32 = u32, u32, u32", f"{_3}; the count is 2 bits, in bytes")
def v_alignbyte_b32(a: Any, b: Any, c: Any) -> Any:
    whole = (a.astype(U64) << U64(32)) | b.astype(U64)
    return (whole >> ((c & U32(3)) * U32(8)).astype(U64)).astype(U32)


@valu(
    "v_perm_b32",
    "u32 = u32, u32, u32",
    f"{_3}; selectors 8-11 replicate signs, 12 gives 0, above 12 gives 0xff",
)
def v_perm_b32(a: Any, b: Any, c: Any) -> Any:
    whole = (a.astype(U64) << U64(32)) | b.astype(U64)
    out = np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(c)), U32)
    for byte in range(4):
        select = (c >> U32(8 * byte)) & U32(0xFF)
        plain = (whole >> ((select & U32(7)) * U32(8)).astype(U64)).astype(U32) & U32(0xFF)
        # 8, 9, 10, 11: the sign of bytes 1, 3, 5, 7
        at = np.where((select >= 8) & (select <= 11), (select - U32(8)) * U32(16) + U32(15), U32(0)).astype(
            U64
        )
        sign = np.where((whole >> at) & U64(1), U32(0xFF), U32(0)).astype(U32)
        value = np.where(
            select < 8, plain, np.where(select < 12, sign, np.where(select == 12, U32(0), U32(0xFF)))
        )
        out |= (value << U32(8 * byte)).astype(U32)
    return out


def bitop3(a: Any, b: Any, c: Any, table: int) -> Any:
    """Bitwise function of three operands of one unsigned dtype, by its truth table."""
    shape = np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(c))
    out = np.zeros(shape, np.asarray(a).dtype)
    for index in range(8):
        if table >> index & 1:
            out = out | ((a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c))
    return out


for _kind in ("32", "16"):
    _simple(
        f"v_bitop3_b{_kind}",
        f"u{_kind} = u{_kind}, u{_kind}, u{_kind}, table",
        f"{_3}; an 8-entry truth table, bit index a<<2 | b<<1 | c",
        bitop3,
    )


@valu("v_bfrev_b32", "u32 = u32", _1)
def v_bfrev_b32(a: Any) -> Any:
    from harness.execute.opcodes_salu import s_brev_b32

    return s_brev_b32(a)


@valu("v_ffbh_u32", "i32 = u32", f"{_1}; zeros from the top, -1 where no bit is set")
def v_ffbh_u32(a: Any) -> Any:
    top = np.floor(np.log2(np.maximum(a, U32(1)).astype(F64))).astype(I32)
    return np.where(a == 0, I32(-1), I32(31) - top)


@valu("v_ffbl_b32", "i32 = u32", f"{_1}; -1 where no bit is set")
def v_ffbl_b32(a: Any) -> Any:
    low = a & (~a + U32(1))
    return np.where(a == 0, I32(-1), np.log2(np.maximum(low, U32(1)).astype(F64)).astype(I32))


@valu("v_bcnt_u32_b32", "u32 = u32, u32", f"{_3}; bits set in a, plus b")
def v_bcnt_u32_b32(a: Any, b: Any) -> Any:
    from harness.execute.opcodes_salu import _count

    return _count(np.asarray(a).astype(U64)) + b


@valu(
    "v_cndmask_b32",
    "u32 = u32, u32, mask",
    f"{_2}; the second where the mask is set (VCC, or the named pair)",
)
def v_cndmask_b32(a: Any, b: Any, mask: Any) -> Any:
    return np.where(mask, b, a)


_COMPARE = {
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_INTEGER = {
    **_COMPARE,
    "ne": lambda a, b: a != b,
    "f": lambda a, b: (a != a) & (b != b),
    "t": lambda a, b: (a == a) | (b == b),
}
_FLOAT = {
    **_COMPARE,
    # lg is ordered (NaN gives false); the n-forms are the negations and true for NaN.
    "lg": lambda a, b: (a < b) | (a > b),
    "o": lambda a, b: (a == a) & (b == b),
    "u": lambda a, b: (a != a) | (b != b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": lambda a, b: ~(a == b),
    "nlt": lambda a, b: ~(a < b),
}
for _kind in ("i16", "u16", "i32", "u32", "i64", "u64"):
    for _name, _function in _INTEGER.items():
        _simple(f"v_cmp_{_name}_{_kind}", f"mask = {_kind}, {_kind}", _C, _function)
        _simple(
            f"v_cmpx_{_name}_{_kind}",
            f"mask, execmask = {_kind}, {_kind}",
            f"{_C}; also writes EXEC",
            lambda a, b, function=_function: (function(a, b),) * 2,
        )
for _kind in ("f16", "f32", "f64"):
    for _name, _function in _FLOAT.items():
        _simple(f"v_cmp_{_name}_{_kind}", f"mask = {_kind}, {_kind}", _C, _function)
        _simple(
            f"v_cmpx_{_name}_{_kind}",
            f"mask, execmask = {_kind}, {_kind}",
            f"{_C}; also writes EXEC",
            lambda a, b, function=_function: (function(a, b),) * 2,
        )


@valu(
    "v_cmp_class_f32",
    "mask = f32, u32",
    f"{_C}; bits: sNaN qNaN -inf -normal -denormal -0 +0 +denormal +normal +inf",
)
def v_cmp_class_f32(a: Any, b: Any) -> Any:
    bits = np.asarray(a).view(U32)
    negative = np.signbit(a)
    size = bits & U32(0x7FFFFFFF)
    nan = size > U32(0x7F800000)
    quiet_bit = (bits & U32(0x400000)) != 0
    number = np.where(nan, np.where(quiet_bit, 1, 0), 0)
    kind = np.where(size == U32(0x7F800000), 0, np.where(size >= U32(0x800000), 1, np.where(size != 0, 2, 3)))
    number = np.where(nan, number, np.where(negative, 2 + kind, 9 - kind))
    return ((b >> number.astype(U32)) & U32(1)) == 1


def _integer(name: str, source: str, target: str, low: float, high: float, dtype: Any) -> None:
    """Truncating conversion that saturates; NaN gives 0."""

    def run(a: Any) -> Any:
        x = np.trunc(np.asarray(a).astype(F64))
        x = np.where(np.isnan(x), 0.0, np.clip(x, low, high))
        return x.astype(I64).astype(dtype)

    valu(name, f"{target} = {source}", f"{_1}; truncates, saturates, NaN gives 0")(run)


_integer("v_cvt_i32_f32", "f32", "i32", -(2.0**31), 2.0**31 - 1, I32)
_integer("v_cvt_u32_f32", "f32", "u32", 0.0, 2.0**32 - 1, U32)
_integer("v_cvt_i32_f64", "f64", "i32", -(2.0**31), 2.0**31 - 1, I32)
_integer("v_cvt_u32_f64", "f64", "u32", 0.0, 2.0**32 - 1, U32)
_integer("v_cvt_i16_f16", "f16", "i16", -(2.0**15), 2.0**15 - 1, np.int16)
_integer("v_cvt_u16_f16", "f16", "u16", 0.0, 2.0**16 - 1, np.uint16)
_simple("v_cvt_f32_u32", "f32 = u32", _1, lambda a: a.astype(F32))
_simple("v_cvt_f32_i32", "f32 = i32", _1, lambda a: a.astype(F32))
_simple("v_cvt_f64_u32", "f64 = u32", _1, lambda a: a.astype(F64))
_simple("v_cvt_f64_i32", "f64 = i32", _1, lambda a: a.astype(F64))
_simple("v_cvt_f64_f32", "f64 = f32", _1, lambda a: a.astype(F64))
_simple("v_cvt_f32_f64", "f32 = f64", _1, lambda a: a.astype(F32))
for _byte in range(4):
    _simple(
        f"v_cvt_f32_ubyte{_byte}",
        "f32 = u32",
        _1,
        lambda a, shift=8 * _byte: ((a >> U32(shift)) & U32(0xFF)).astype(F32),
    )


@valu("v_cvt_rpi_i32_f32", "i32 = f32", f"{_1}; floor(a + 0.5)")
def v_cvt_rpi_i32_f32(a: Any) -> Any:
    x = np.floor(a.astype(F64) + 0.5)
    return np.where(np.isnan(x), 0.0, np.clip(x, -(2.0**31), 2.0**31 - 1)).astype(I64).astype(I32)


def _saturate_pack(name: str, source: str, low: int, high: int, dtype: Any) -> None:
    def run(a: Any, b: Any) -> Any:
        x, y = (np.clip(v.astype(I64), low, high).astype(dtype).view(np.uint16).astype(U32) for v in (a, b))
        return x | (y << U32(16))

    valu(name, f"u32 = {source}, {source}", f"{_3}; saturates each")(run)


_saturate_pack("v_cvt_pk_i16_i32", "i32", -(2**15), 2**15 - 1, np.int16)
_saturate_pack("v_cvt_pk_u16_u32", "u32", 0, 2**16 - 1, np.uint16)


def _shift16(name: str, kind: str, function: Any) -> None:
    _simple(name, f"{kind} = u16, {kind}", f"{_2}; the count is 4 bits", function)
    _simple(
        name.replace("v_", "v_pk_", 1),
        f"{kind} = u16, {kind}",
        f"{_P}; the count is 4 bits",
        function,
        "packed",
    )


U16, I16 = np.uint16, np.int16
_shift16("v_lshlrev_b16", "u16", lambda a, b: b << (a & U16(15)))
_shift16("v_lshrrev_b16", "u16", lambda a, b: b >> (a & U16(15)))
_shift16("v_ashrrev_i16", "i16", lambda a, b: b >> (a & U16(15)).astype(I16))
for _name, _function in {"add": lambda a, b: a + b, "sub": lambda a, b: a - b}.items():
    _simple(f"v_{_name}_u16", "u16 = u16, u16", _2, _function)
    _simple(f"v_pk_{_name}_u16", "u16 = u16, u16", _P, _function, "packed")
    _simple(f"v_pk_{_name}_i16", "u16 = u16, u16", _P, _function, "packed")
_simple("v_mul_lo_u16", "u16 = u16, u16", _2, lambda a, b: a * b)
_simple("v_pk_mul_lo_u16", "u16 = u16, u16", _P, lambda a, b: a * b, "packed")
_EXTREMES: dict[str, Any] = {"min": np.minimum, "max": np.maximum}
for _name, _function in _EXTREMES.items():
    for _kind in ("i16", "u16"):
        _simple(f"v_{_name}_{_kind}", f"{_kind} = {_kind}, {_kind}", _2, _function)
        _simple(f"v_pk_{_name}_{_kind}", f"{_kind} = {_kind}, {_kind}", _P, _function, "packed")
