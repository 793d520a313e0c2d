"""Scalar ALU opcodes. Arrays are [waves]; conditions are bool [waves].

References: CDNA4 ISA, "SOP2/SOPK/SOP1/SOPC Instructions"; each function's comment names what is easy to get
wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.execute.table import salu

U32, U64, I32, I64 = np.uint32, np.uint64, np.int32, np.int64
_SOP2, _SOP1, _SOPC, _SOPK = (
    "SOP2 Instructions",
    "SOP1 Instructions",
    "SOPC Instructions",
    "SOPK Instructions",
)


@salu("s_add_u32", "u32, scc = u32, u32", _SOP2)
def s_add_u32(a: Any, b: Any) -> Any:
    r = a + b
    return r, r < a


@salu("s_sub_u32", "u32, scc = u32, u32", _SOP2)
def s_sub_u32(a: Any, b: Any) -> Any:
    return a - b, b > a


def _add_i32(a: Any, b: Any) -> Any:
    """SCC is signed overflow."""
    r = a.view(U32) + b.view(U32)
    return r, ((~(a.view(U32) ^ b.view(U32)) & (a.view(U32) ^ r)) >> U32(31)).astype(bool)


@salu("s_add_i32", "u32, scc = u32, u32", _SOP2)
def s_add_i32(a: Any, b: Any) -> Any:
    return _add_i32(a, b)


@salu("s_addk_i32", "u32, scc = dst, k16", _SOPK)
def s_addk_i32(a: Any, k: Any) -> Any:
    return _add_i32(a, k.view(U32))


@salu("s_sub_i32", "u32, scc = u32, u32", _SOP2)
def s_sub_i32(a: Any, b: Any) -> Any:
    r = a - b
    return r, (((a ^ b) & (a ^ r)) >> U32(31)).astype(bool)


@salu("s_addc_u32", "u32, scc = u32, u32, scc", _SOP2)
def s_addc_u32(a: Any, b: Any, carry: Any) -> Any:
    r = a.astype(U64) + b.astype(U64) + carry.astype(U64)
    return r.astype(U32), r >> U64(32) != 0


@salu("s_subb_u32", "u32, scc = u32, u32, scc", _SOP2)
def s_subb_u32(a: Any, b: Any, borrow: Any) -> Any:
    take = b.astype(U64) + borrow.astype(U64)
    return (a.astype(U64) - take).astype(U32), take > a


@salu("s_mul_i32", "u32 = u32, u32", _SOP2)
def s_mul_i32(a: Any, b: Any) -> Any:
    return a * b


@salu("s_mulk_i32", "u32 = dst, k16", _SOPK)
def s_mulk_i32(a: Any, k: Any) -> Any:
    return a * k.view(U32)


@salu("s_mul_hi_u32", "u32 = u32, u32", _SOP2)
def s_mul_hi_u32(a: Any, b: Any) -> Any:
    return ((a.astype(U64) * b.astype(U64)) >> U64(32)).astype(U32)


@salu("s_mul_hi_i32", "i32 = i32, i32", _SOP2)
def s_mul_hi_i32(a: Any, b: Any) -> Any:
    return ((a.astype(I64) * b.astype(I64)) >> I64(32)).astype(I32)


def _bitwise(name: str, function: Any) -> None:
    for bits in ("32", "64"):
        kind = "u" + bits

        def run(a: Any, b: Any, function: Any = function) -> Any:
            r = function(a, b)
            return r, r != 0

        salu(f"s_{name}_b{bits}", f"{kind}, scc = {kind}, {kind}", f"{_SOP2}; SCC is result != 0")(run)


_bitwise("and", lambda a, b: a & b)
_bitwise("or", lambda a, b: a | b)
_bitwise("xor", lambda a, b: a ^ b)
_bitwise("andn2", lambda a, b: a & ~b)
_bitwise("orn2", lambda a, b: a | ~b)
_bitwise("nand", lambda a, b: ~(a & b))
_bitwise("nor", lambda a, b: ~(a | b))
_bitwise("xnor", lambda a, b: ~(a ^ b))


def _saveexec(name: str, function: Any) -> None:
    def run(a: Any, ex: Any) -> Any:
        r = function(a, ex)
        return ex, r, r != 0

    salu(f"s_{name}_saveexec_b64", "u64, exec, scc = u64, exec", f"{_SOP1}; D = EXEC, then EXEC = S op EXEC")(
        run
    )


_saveexec("and", lambda a, ex: a & ex)
_saveexec("or", lambda a, ex: a | ex)
_saveexec("xor", lambda a, ex: a ^ ex)
_saveexec("andn2", lambda a, ex: a & ~ex)
_saveexec("orn2", lambda a, ex: a | ~ex)
_saveexec("andn1", lambda a, ex: ~a & ex)


@salu("s_mov_b32", "u32 = u32", _SOP1)
def s_mov_b32(a: Any) -> Any:
    return a


@salu("s_mov_b64", "u64 = u64", _SOP1)
def s_mov_b64(a: Any) -> Any:
    return a


@salu("s_movk_i32", "i32 = k16", f"{_SOPK}; the immediate is sign-extended")
def s_movk_i32(k: Any) -> Any:
    return k


@salu("s_cmov_b32", "u32 = u32, scc, dst", _SOP1)
def s_cmov_b32(a: Any, scc: Any, old: Any) -> Any:
    return np.where(scc, a, old)


@salu("s_cselect_b32", "u32 = u32, u32, scc", _SOP2)
def s_cselect_b32(a: Any, b: Any, scc: Any) -> Any:
    return np.where(scc, a, b)


@salu("s_cselect_b64", "u64 = u64, u64, scc", _SOP2)
def s_cselect_b64(a: Any, b: Any, scc: Any) -> Any:
    return np.where(scc, a, b)


def _not(kind: str) -> None:
    def run(a: Any) -> Any:
        r = ~a
        return r, r != 0

    salu(f"s_not_b{kind[1:]}", f"{kind}, scc = {kind}", _SOP1)(run)


_not("u32")
_not("u64")


@salu("s_brev_b32", "u32 = u32", _SOP1)
def s_brev_b32(a: Any) -> Any:
    a = ((a >> U32(1)) & U32(0x55555555)) | ((a & U32(0x55555555)) << U32(1))
    a = ((a >> U32(2)) & U32(0x33333333)) | ((a & U32(0x33333333)) << U32(2))
    a = ((a >> U32(4)) & U32(0x0F0F0F0F)) | ((a & U32(0x0F0F0F0F)) << U32(4))
    return np.asarray(a).byteswap()


@salu("s_bcnt1_i32_b64", "u32, scc = u64", _SOP1)
def s_bcnt1_i32_b64(a: Any) -> Any:
    r = _count(a)
    return r, r != 0


@salu("s_bcnt1_i32_b32", "u32, scc = u32", _SOP1)
def s_bcnt1_i32_b32(a: Any) -> Any:
    r = _count(a.astype(U64))
    return r, r != 0


def _count(a: Any) -> Any:
    a = np.asarray(a)
    data = np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(-1, 8)
    return np.unpackbits(data, axis=1).sum(axis=1).astype(U32).reshape(a.shape)


@salu("s_ff1_i32_b32", "i32 = u32", f"{_SOP1}; -1 where no bit is set")
def s_ff1_i32_b32(a: Any) -> Any:
    low = a & (~a + U32(1))
    return np.where(a == 0, I32(-1), np.log2(np.maximum(low, 1).astype(np.float64)).astype(I32))


@salu("s_ff1_i32_b64", "i32 = u64", f"{_SOP1}; -1 where no bit is set")
def s_ff1_i32_b64(a: Any) -> Any:
    low = a & (~a + U64(1))
    return np.where(a == 0, I32(-1), np.log2(np.maximum(low, U64(1)).astype(np.float64)).astype(I32))


@salu("s_flbit_i32_b32", "i32 = u32", f"{_SOP1}; zeros from the top, -1 where no bit is set")
def s_flbit_i32_b32(a: Any) -> Any:
    top = np.floor(np.log2(np.maximum(a, 1).astype(np.float64))).astype(I32)
    return np.where(a == 0, I32(-1), I32(31) - top)


@salu("s_sext_i32_i8", "i32 = i32", _SOP1)
def s_sext_i32_i8(a: Any) -> Any:
    return a.astype(np.int8).astype(I32)


@salu("s_sext_i32_i16", "i32 = i32", _SOP1)
def s_sext_i32_i16(a: Any) -> Any:
    return a.astype(np.int16).astype(I32)


@salu("s_abs_i32", "i32, scc = i32", _SOP1)
def s_abs_i32(a: Any) -> Any:
    r = np.where(a < 0, (U32(0) - a.view(U32)).view(I32), a)
    return r, r != 0


@salu("s_bitset1_b32", "u32 = u32, dst", f"{_SOP1}; bit number is 5 bits")
def s_bitset1_b32(a: Any, old: Any) -> Any:
    return old | (U32(1) << (a & U32(31)))


@salu("s_bitset0_b32", "u32 = u32, dst", f"{_SOP1}; bit number is 5 bits")
def s_bitset0_b32(a: Any, old: Any) -> Any:
    return old & ~(U32(1) << (a & U32(31)))


@salu("s_lshl_b32", "u32, scc = u32, u32", f"{_SOP2}; the count is 5 bits")
def s_lshl_b32(a: Any, b: Any) -> Any:
    r = a << (b & U32(31))
    return r, r != 0


@salu("s_lshr_b32", "u32, scc = u32, u32", f"{_SOP2}; the count is 5 bits")
def s_lshr_b32(a: Any, b: Any) -> Any:
    r = a >> (b & U32(31))
    return r, r != 0


@salu("s_ashr_i32", "i32, scc = i32, u32", f"{_SOP2}; the count is 5 bits")
def s_ashr_i32(a: Any, b: Any) -> Any:
    r = a >> (b & U32(31)).astype(I32)
    return r, r != 0


@salu("s_lshl_b64", "u64, scc = u64, u32", f"{_SOP2}; the count is 6 bits")
def s_lshl_b64(a: Any, b: Any) -> Any:
    r = a << (b & U32(63)).astype(U64)
    return r, r != 0


@salu("s_lshr_b64", "u64, scc = u64, u32", f"{_SOP2}; the count is 6 bits")
def s_lshr_b64(a: Any, b: Any) -> Any:
    r = a >> (b & U32(63)).astype(U64)
    return r, r != 0


@salu("s_ashr_i64", "i64, scc = i64, u32", f"{_SOP2}; the count is 6 bits")
def s_ashr_i64(a: Any, b: Any) -> Any:
    r = a >> (b & U32(63)).astype(I64)
    return r, r != 0


def _lshl_add(shift: int) -> None:
    def run(a: Any, b: Any) -> Any:
        r = (a.astype(U64) << U64(shift)) + b.astype(U64)
        return r.astype(U32), r >> U64(32) != 0

    salu(f"s_lshl{shift}_add_u32", "u32, scc = u32, u32", f"{_SOP2}; SCC is a carry out of 32 bits")(run)


for _shift in (1, 2, 3, 4):
    _lshl_add(_shift)


@salu("s_bfe_u32", "u32, scc = u32, u32", f"{_SOP2}; offset b[4:0], width b[22:16]")
def s_bfe_u32(a: Any, b: Any) -> Any:
    offset, width = b & U32(31), (b >> U32(16)) & U32(0x7F)
    keep = (U64(1) << np.minimum(width, U32(32)).astype(U64)) - U64(1)
    r = ((a >> offset) & keep.astype(U32)).astype(U32)
    return r, r != 0


@salu(
    "s_bfe_i32",
    "i32, scc = i32, u32",
    f"{_SOP2}; offset b[4:0], width b[22:16], sign-extended from the width",
)
def s_bfe_i32(a: Any, b: Any) -> Any:
    offset, width = (b & U32(31)).astype(I64), np.minimum((b >> U32(16)) & U32(0x7F), U32(32)).astype(I64)
    field = (a.astype(I64) >> offset) & ((I64(1) << width) - I64(1))
    sign = np.where(width > 0, (field >> np.maximum(width - 1, 0)) & 1, 0)
    r = (field - (sign << width)).astype(I32)
    return r, r != 0


@salu("s_bfm_b32", "u32 = u32, u32", f"{_SOP2}; counts are 5 bits")
def s_bfm_b32(a: Any, b: Any) -> Any:
    return ((U32(1) << (a & U32(31))) - U32(1)) << (b & U32(31))


@salu("s_bfm_b64", "u64 = u32, u32", f"{_SOP2}; counts are 6 bits")
def s_bfm_b64(a: Any, b: Any) -> Any:
    return ((U64(1) << (a & U32(63)).astype(U64)) - U64(1)) << (b & U32(63)).astype(U64)


def _pack(name: str, first: int, second: int) -> None:
    def run(a: Any, b: Any) -> Any:
        return ((a >> U32(16 * first)) & U32(0xFFFF)) | (((b >> U32(16 * second)) & U32(0xFFFF)) << U32(16))

    salu(name, "u32 = u32, u32", _SOP2)(run)


_pack("s_pack_ll_b32_b16", 0, 0)
_pack("s_pack_lh_b32_b16", 0, 1)
_pack("s_pack_hh_b32_b16", 1, 1)


def _extreme(name: str, kind: str, take_first: Any) -> None:
    def run(a: Any, b: Any) -> Any:
        first = take_first(a, b)
        return np.where(first, a, b), first

    salu(name, f"{kind}, scc = {kind}, {kind}", f"{_SOP2}; SCC is set where the first operand was taken")(run)


_extreme("s_min_i32", "i32", lambda a, b: a < b)
_extreme("s_min_u32", "u32", lambda a, b: a < b)
_extreme("s_max_i32", "i32", lambda a, b: a >= b)
_extreme("s_max_u32", "u32", lambda a, b: a >= b)

_COMPARE = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}
for _name, _function in _COMPARE.items():
    for _kind in ("i32", "u32"):
        salu(f"s_cmp_{_name}_{_kind}", f"scc = {_kind}, {_kind}", _SOPC)(_function)
        _wide = "k16" if _kind == "i32" else "ku16"
        salu(
            f"s_cmpk_{_name}_{_kind}", f"scc = dst_{_kind}, {_wide}", f"{_SOPK}; unsigned forms zero-extend"
        )(_function)
for _name in ("eq", "lg"):
    salu(f"s_cmp_{_name}_u64", "scc = u64, u64", _SOPC)(_COMPARE[_name])


@salu("s_bitcmp0_b32", "scc = u32, u32", f"{_SOPC}; bit number is 5 bits")
def s_bitcmp0_b32(a: Any, b: Any) -> Any:
    return (a >> (b & U32(31))) & U32(1) == 0


@salu("s_bitcmp1_b32", "scc = u32, u32", f"{_SOPC}; bit number is 5 bits")
def s_bitcmp1_b32(a: Any, b: Any) -> Any:
    return (a >> (b & U32(31))) & U32(1) == 1
