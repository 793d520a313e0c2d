"""Every opcode function on edge values: against the ISA document's pseudo-code where that can be
interpreted, else
against values worked out here with another library. The last test shows that nothing in the table is left
out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from harness.execute.decode import base_name
from harness.execute.opcodes import OPS
from harness.execute.opcodes_memory import MOVES
from harness.execute.opcodes_mfma import SHAPES
from tests.pcode import Lane, Unsupported, raw

pcode = pytest.importorskip("tinygrad.runtime.autogen.amd.cdna.str_pcode")

INTEGERS = [
    0,
    1,
    2,
    5,
    0x10,
    0x1F,
    0x20,
    0x21,
    0x3F,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x12345678,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFE,
    0xFFFFFFFF,
]
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    3.3,
    448.0,
    1e10,
    -3e38,
    3.4e38,
    1e-38,
    1e-45,
    -1e-40,
    math.inf,
    -math.inf,
    math.nan,
]
SPECIAL = {
    "v_div_fmas_f32": "the document says 2^32, which does not undo V_DIV_SCALE's 2^64",
    "v_div_fixup_f32": "names values that it does not define",
    "v_div_scale_f32": "compares with values that it does not define",
    "v_ldexp_f32": "written as a product, which is not a number for 0 and a large exponent",
    "v_ldexp_f64": "written as a product, which is not a number for 0 and a large exponent",
    "v_frexp_exp_i32_f32": "leaves zero to the formula for normal numbers; the hardware gives 0",
    "v_fract_f32": "leaves out that the result stays below 1",
}


def _edges(kind: str) -> list[int]:
    if kind in ("f16", "f32", "f64"):
        return [raw(np.float64(value), kind) for value in FLOATS]
    if kind in ("u64", "i64"):
        wide = [
            value << 32 | low
            for value in (0, 1, 0x80000000, 0xFFFFFFFF)
            for low in (0, 1, 0x80000000, 0xFFFFFFFF)
        ]
        return [*wide, 63, 64, 65]
    if kind in ("u16", "i16"):
        return [0, 1, 15, 16, 17, 0x7FFF, 0x8000, 0xFFFF, 0x1234]
    if kind in ("mask", "scc", "vcc"):
        return [0, 1]
    if kind in ("k16", "ku16"):
        return [0, 1, 0x7FFF, 0x8000, 0xFFFF]
    return INTEGERS


_TYPES: dict[str, Any] = {
    "u32": np.uint32,
    "i32": np.int32,
    "f32": np.float32,
    "u64": np.uint64,
    "i64": np.int64,
    "f64": np.float64,
    "u16": np.uint16,
    "i16": np.int16,
    "f16": np.float16,
}
_RAW: dict[int, Any] = {16: np.uint16, 32: np.uint32, 64: np.uint64}


def _array(values: list[int], kind: str) -> Any:
    if kind in ("mask", "scc", "vcc"):
        return np.array(values, np.bool_)
    if kind == "k16":
        return np.array(values, np.uint16).view(np.int16).astype(np.int32)
    if kind == "ku16":
        return np.array(values, np.uint32)
    return np.array(values, _RAW[int(kind[1:])]).view(_TYPES[kind])


def _kind(name: str, kind: str) -> str:
    """The type of an operand that the table names by role."""
    if kind.startswith("dst"):
        return kind[4:] or OPS[name].outs[0]
    if kind == "exec":
        return "u64"
    return kind


CODE = {}
for _key, _text in pcode.PCODE.items():
    CODE.setdefault(base_name(_key.name), _text)
for _new, _old in (("v_fma_mix_f32", "v_mad_mix_f32"),):
    CODE.setdefault(_new, CODE.get(_old, ""))


def _oracle(name: str, rows: list[tuple[int, ...]]) -> list[dict[str, int]]:
    op = OPS[name]
    out = []
    for row in rows:
        bits: dict[str, int] = {"laneId": 0, "SCC": 0, "VCC": 0, "EXEC": 0, "D0": 0}
        explicit = 0
        for kind, value in zip(op.ins, row, strict=True):
            if kind.startswith("dst"):
                bits["D0"] = value
            elif kind == "scc":
                bits["SCC"] = value
            elif kind == "exec":
                bits["EXEC"] = value
            elif kind in ("mask", "vcc"):
                bits["VCC"] = value
            elif kind in ("k16", "ku16"):
                bits["S1" if op.name.startswith("s_cmpk") else "S0"] = value
            else:
                bits[f"S{explicit}"] = value
                explicit += 1
        if op.name.startswith("s_cmpk"):
            bits["S0"] = bits["D0"]
        out.append(Lane(bits).run(CODE[name]))
    return out


def _rows(name: str) -> list[tuple[int, ...]]:
    """Edge values of each operand in every combination, thinned where there are many."""
    spaces = [_edges(_kind(name, kind)) for kind in OPS[name].ins]
    every = list(itertools.product(*spaces))
    if len(every) > 150:
        drawn = np.random.default_rng(1).permutation(len(every))[:150]
        every = [every[index] for index in drawn]
    return every


def _call(name: str, rows: list[tuple[int, ...]]) -> list[Any]:
    op = OPS[name]
    columns = [_array([row[index] for row in rows], _kind(name, kind)) for index, kind in enumerate(op.ins)]
    with np.errstate(all="ignore"):
        made = op.function(*columns)
    return list(made) if len(op.outs) > 1 else [made]


def _same(got: Any, bits: int, kind: str) -> bool:
    if kind in ("mask", "scc", "execmask"):
        return bool(got) == bool(bits & 1)
    if kind == "exec":
        return int(got) == bits
    want = np.array(bits & ((1 << int(kind[1:])) - 1), _RAW[int(kind[1:])]).view(_TYPES[kind])
    got = np.asarray(got).astype(_TYPES[kind]) if np.asarray(got).dtype != _TYPES[kind] else np.asarray(got)
    if kind[0] == "f" and np.isnan(want) and np.isnan(got):
        return True
    return bool(got.tobytes() == want.tobytes())


_APPROXIMATE = {"v_exp", "v_log", "v_rcp", "v_rsq", "v_sqrt", "v_sin", "v_cos"}


def _interpretable() -> list[str]:
    names = []
    for name, op in OPS.items():
        if op.unit not in ("salu", "valu", "packed") or name in SPECIAL or name not in CODE:
            continue
        if name.rsplit("_", 1)[0] in _APPROXIMATE or name.startswith("v_rcp_iflag") or "table" in op.ins:
            continue
        if op.unit == "packed" or name.startswith("v_cmpx"):
            continue
        try:
            _oracle(name, _rows(name)[:3])
        except (Unsupported, KeyError, ValueError, TypeError, OverflowError):
            continue
        names.append(name)
    return names


BY_ORACLE = _interpretable()


@pytest.mark.parametrize("name", BY_ORACLE)
def test_against_the_documents_pseudo_code(name: str) -> None:
    op = OPS[name]
    rows = _rows(name)
    got = _call(name, rows)
    for index, (row, said) in enumerate(zip(rows, _oracle(name, rows), strict=True)):
        for kind, values in zip(op.outs, got, strict=True):
            register = {"scc": "SCC", "mask": "D0" if "D0" in said else "VCC", "exec": "EXEC"}.get(kind, "D0")
            if kind == "mask" and len(op.outs) > 1:
                register = "VCC"
            want = said.get(register)
            if want is None and "dst" in op.ins:
                want = row[op.ins.index("dst")]  # not assigned: kept
            assert want is not None, (name, said)
            value = np.asarray(values)[index] if np.ndim(values) else values
            assert _same(value, want, kind), (name, [hex(v) for v in row], value, hex(want))


# Opcodes whose pseudo-code cannot be interpreted: worked out here.


def _u(*values: int) -> Any:
    return np.array(values, np.uint32)


def _f(*values: float) -> Any:
    return np.array(values, np.float32)


def _each(name: str, *columns: Any) -> Any:
    with np.errstate(all="ignore"):
        return OPS[name].function(*columns)


def _check(got: Any, want: Any) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.astype(want.dtype).tobytes() == want.tobytes(), (got, want)


_F = np.array(FLOATS, np.float32)
EXPLICIT: dict[str, Callable[[], None]] = {}


def _explicit(*names: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def add(function: Callable[[], None]) -> Callable[[], None]:
        for name in names:
            EXPLICIT[name] = function
        return function

    return add


def _transcendental(name: str, exact: Callable[[float], float]) -> None:
    values = [1.0, 2.0, 0.5, 10.0, -3.0, 100.0, 0.0, math.inf, 2.0**-130, 1e30]
    kind = np.float16 if name.endswith("f16") else np.float32
    with np.errstate(all="ignore"):
        typed = np.array(values).astype(kind)
    got = _each(name, typed)
    for value, result in zip(typed.astype(np.float64), got, strict=True):
        x = 0.0 if kind is np.float32 and abs(value) < 2.0**-126 else float(value)
        want = exact(x)
        if kind is np.float32 and abs(want) < 2.0**-126:
            want = 0.0
        if math.isnan(want):
            assert np.isnan(result), (name, value)
        elif math.isinf(want) or abs(want) > float(np.finfo(kind).max):
            assert np.isinf(result), (name, value, result)
        else:
            assert abs(float(result) - want) <= max(abs(want), 2.0**-14) * float(np.finfo(kind).eps), (
                name,
                value,
                result,
            )
    assert np.isnan(_each(name, np.array([math.nan], kind))[0])


def _safe(function: Callable[[float], float], at_zero: float = math.nan) -> Callable[[float], float]:
    def run(x: float) -> float:
        if x == 0.0 and not math.isnan(at_zero):
            return at_zero
        try:
            return function(x)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return run


_EXACT: dict[str, Callable[[float], float]] = {
    "exp": _safe(lambda x: 2.0**x),
    "log": _safe(math.log2, -math.inf),
    "rcp": _safe(lambda x: 1 / x, math.inf),
    "rcp_iflag": _safe(lambda x: 1 / x, math.inf),
    "rsq": _safe(lambda x: 1 / math.sqrt(x), math.inf),
    "sqrt": _safe(math.sqrt, 0.0),
}
for _name, _function in _EXACT.items():
    for _suffix in ("f16", "f32"):
        if f"v_{_name}_{_suffix}" in OPS:
            EXPLICIT[f"v_{_name}_{_suffix}"] = lambda name=f"v_{_name}_{_suffix}", function=_function: (
                _transcendental(name, function)
            )


@_explicit("v_sin_f32", "v_cos_f32")
def _turns() -> None:
    for name, function in (("v_sin_f32", math.sin), ("v_cos_f32", math.cos)):
        got = _each(name, _f(0.0, 0.125, -0.25, 0.7))
        for turn, value in zip((0.0, 0.125, -0.25, np.float32(0.7)), got, strict=True):
            assert abs(float(value) - function(2 * math.pi * float(turn))) < 1e-6
        assert np.isnan(_each(name, _f(math.inf))[0])


@_explicit(
    "v_rcp_f64",
    "v_rsq_f64",
    "v_sqrt_f64",
    "v_add_f64",
    "v_mul_f64",
    "v_max_f64",
    "v_min_f64",
    "v_fma_f64",
    "v_fmac_f64",
    "v_ldexp_f64",
)
def _double() -> None:
    x = np.array([4.0, -0.0, math.inf])
    _check(_each("v_rcp_f64", x), np.array([0.25, -math.inf, 0.0]))
    _check(_each("v_sqrt_f64", x), np.array([2.0, -0.0, math.inf]))
    _check(_each("v_rsq_f64", x[:1]), np.array([0.5]))
    _check(_each("v_add_f64", x, x), x + x)
    _check(_each("v_mul_f64", x[:2], x[:2]), np.array([16.0, 0.0]))
    _check(_each("v_max_f64", np.array([math.nan, -0.0]), np.array([1.0, 0.0])), np.array([1.0, 0.0]))
    _check(_each("v_min_f64", np.array([math.nan, 0.0]), np.array([1.0, -0.0])), np.array([1.0, -0.0]))
    tiny = np.array([1 + 2.0**-52])
    exact = np.array([2.0**-51 + 2.0**-104])
    for name in ("v_fma_f64", "v_fmac_f64"):
        _check(_each(name, tiny, tiny, np.array([-1.0])), exact)
    _check(_each("v_ldexp_f64", np.array([1.0, -1.0]), np.array([4, -1], np.int32)), np.array([16.0, -0.5]))


@_explicit("v_div_scale_f32", "v_div_fmas_f32", "v_div_fixup_f32")
def _division() -> None:
    """The compiler's division sequence on quotients in and out of the normal range gives IEEE quotients."""
    values = [1.0, 3.0, -7.5, 1e-38, 2e-40, 1e38, 3e38, 5e-39, 0.1, 1e20, 1e-20]
    pairs = np.array(list(itertools.product(values, values)), np.float32)
    c, b = pairs[:, 0], pairs[:, 1]  # numerator, denominator
    fma = OPS["v_fma_f32"].function
    with np.errstate(all="ignore"):
        den, _ = _each("v_div_scale_f32", b, b, c)
        num, flag = _each("v_div_scale_f32", c, b, c)
        r = _each("v_rcp_f32", den)
        r = fma(fma(-den, r, _f(1.0)), r, r)
        q = num * r
        q = fma(fma(-den, q, num), r, q)
        q = _each("v_div_fmas_f32", fma(-den, q, num), r, q, flag)
        got = _each("v_div_fixup_f32", q, b, c)
        want = c / b
        ulp = np.spacing(np.abs(want)).astype(np.float64)
        close = np.abs(got.astype(np.float64) - want.astype(np.float64)) <= ulp
    bad = ~(close | (got == want))
    assert not bad.any(), (pairs[bad], got[bad], want[bad])
    n, d = _f(0.0, 1.0, math.inf, math.inf, math.nan, -0.0), _f(0.0, 0.0, math.inf, 2.0, 1.0, 5.0)
    got = _each("v_div_fixup_f32", _f(0, 0, 0, 0, 0, 0), d, n)
    assert (
        np.isnan(got[[0, 2, 4]]).all() and np.isinf(got[[1, 3]]).all() and np.signbit(got[5]) and got[5] == 0
    )


@_explicit("v_cvt_pk_bf16_f32", "v_cvt_f32_bf16")
def _bf16() -> None:
    torch = pytest.importorskip("torch")
    values = np.array([*FLOATS, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 3.3895e38], np.float32)
    got = _each("v_cvt_pk_bf16_f32", values, values)
    want = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    for half in (got & 0xFFFF, got >> 16):
        back = _each("v_cvt_f32_bf16", half.astype(np.uint16))
        assert ((back == want) | (np.isnan(back) & np.isnan(want))).all()
        assert (np.signbit(back) == np.signbit(want))[~np.isnan(want)].all()


@_explicit("v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32", "v_cvt_f32_fp8", "v_cvt_f32_bf8")
def _fp8() -> None:
    torch = pytest.importorskip("torch")
    for name, dtype, top in (("fp8", torch.float8_e4m3fn, 448.0), ("bf8", torch.float8_e5m2, 57344.0)):
        codes = np.arange(256, dtype=np.uint32)
        want = torch.arange(256, dtype=torch.uint8).view(dtype).float().numpy()
        got = _each(f"v_cvt_f32_{name}", codes)
        assert ((got == want) | (np.isnan(got) & np.isnan(want))).all()
        assert (np.signbit(got) == np.signbit(want)).all() or np.isnan(want).any()
        grid = np.concatenate(
            [np.linspace(-top, top, 4001), 2.0 ** np.arange(-20, 9), -(2.0 ** np.arange(-20, 9))]
        )
        values = grid[np.abs(grid) <= top].astype(np.float32)
        packed = _each(f"v_cvt_pk_{name}_f32", values, values)
        expected = torch.from_numpy(values).to(dtype).view(torch.uint8).numpy()
        assert (packed & 0xFF == expected).all() and (packed >> 8 == expected).all()
        nan = int(_each(f"v_cvt_pk_{name}_f32", _f(math.nan), _f(math.nan))[0]) & 0x7F
        assert np.isnan(want[nan])


@_explicit(
    "v_cvt_f16_f32",
    "v_cvt_f32_f16",
    "v_cvt_pk_f16_f32",
    "v_cvt_pkrtz_f16_f32",
    "v_cvt_f16_u16",
    "v_cvt_f16_i16",
)
def _half() -> None:
    with np.errstate(all="ignore"):
        want = _F.astype(np.float16)
    _check(np.nan_to_num(_each("v_cvt_f16_f32", _F)), np.nan_to_num(want))
    _check(np.nan_to_num(_each("v_cvt_f32_f16", want)), np.nan_to_num(want.astype(np.float32)))
    packed = _each("v_cvt_pk_f16_f32", _f(1.0, 65520.0), _f(-2.0, 2.0**-25))
    _check(packed, _u(0xC0003C00, 0x00007C00))
    truncated = _each("v_cvt_pkrtz_f16_f32", _f(1 + 2.0**-11 + 2.0**-12), _f(65519.0))
    _check(truncated, _u(0x7BFF3C00))
    _check(_each("v_cvt_f16_u16", np.array([65535], np.uint16)), np.array([math.inf], np.float16))
    _check(_each("v_cvt_f16_i16", np.array([-2], np.int16)), np.array([-2], np.float16))


@_explicit("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")
def _mix() -> None:
    a = _f(1 + 2.0**-23)
    _check(_each("v_fma_mix_f32", a, a, _f(-1.0)), _f(2.0**-22 + 2.0**-46))
    for name in ("v_fma_mixlo_f16", "v_fma_mixhi_f16"):
        _check(_each(name, _f(3.0), _f(0.5), _f(0.25)), np.array([1.75], np.float16))


@_explicit("v_bitop3_b32", "v_bitop3_b16")
def _bitop3() -> None:
    for bits, kind in ((32, np.uint32), (16, np.uint16)):
        name = f"v_bitop3_b{bits}"
        a, b, c = (
            np.array([pattern & ((1 << bits) - 1)], kind) for pattern in (0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA)
        )
        for table in (0, 0x80, 0x96, 0xE8, 0xFF, 0xC0, 0x6C):
            got = int(_each(name, a, b, c, table)[0])
            want = sum((table >> (index % 8) & 1) << index for index in range(bits))
            assert got == want, (name, hex(table))


@_explicit("v_perm_b32")
def _perm() -> None:
    a, b = _u(0x80112233), _u(0x44F56677)
    _check(_each("v_perm_b32", a, b, _u(0x07060504)), _u(0x80112233))
    _check(_each("v_perm_b32", a, b, _u(0x03020100)), _u(0x44F56677))
    _check(_each("v_perm_b32", a, b, _u(0x0B0A0908)), _u(0xFF000000))
    _check(_each("v_perm_b32", a, b, _u(0x0C0DFF02)), _u(0x00FFFFF5))


@_explicit("v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32", "v_bcnt_u32_b32", "s_bcnt1_i32_b64", "s_bcnt1_i32_b32")
def _counting() -> None:
    lanes = np.arange(64)
    mask = np.full((1, 64), 0xF0F0F0F1, np.uint32)
    lanes = lanes.tolist()
    low = OPS["v_mbcnt_lo_u32_b32"].function(mask, np.zeros((1, 64), np.uint32))
    high = OPS["v_mbcnt_hi_u32_b32"].function(mask, low)
    both = 0xF0F0F0F1F0F0F0F1
    assert (high[0] == [bin(both & ((1 << lane) - 1)).count("1") for lane in lanes]).all()
    _check(_each("v_bcnt_u32_b32", _u(0xFFFFFFFF, 0, 5), _u(1, 2, 3)), _u(33, 2, 5))
    count, scc = OPS["s_bcnt1_i32_b64"].function(np.array([0, 2**64 - 1], np.uint64))
    assert list(count) == [0, 64] and list(scc) == [False, True]
    count, scc = OPS["s_bcnt1_i32_b32"].function(_u(0, 0x80000001))
    assert list(count) == [0, 2] and list(scc) == [False, True]


@_explicit("v_permlane16_swap_b32", "v_permlane32_swap_b32")
def _swaps() -> None:
    a, b = np.arange(64, dtype=np.uint32)[None], 100 + np.arange(64, dtype=np.uint32)[None]
    x, y = OPS["v_permlane32_swap_b32"].function(a, b)
    assert list(x[0]) == [*range(32), *range(100, 132)] and list(y[0]) == [*range(32, 64), *range(132, 164)]
    x, y = OPS["v_permlane16_swap_b32"].function(a, b)
    assert list(x[0][:32]) == [*range(16), *range(100, 116)] and list(y[0][:32]) == [
        *range(16, 32),
        *range(116, 132),
    ]
    assert list(x[0][32:]) == [*range(32, 48), *range(132, 148)]


@_explicit("ds_swizzle_b32", "ds_bpermute_b32", "ds_permute_b32")
def _lanes() -> None:
    value, on = np.arange(64, dtype=np.uint32)[None], np.ones((1, 64), np.bool_)
    off = on.copy()
    off[0, 1] = False
    swap = OPS["ds_swizzle_b32"].function
    assert list(swap(value, on, 0x041F)[0]) == [lane ^ 1 for lane in range(64)]  # and 31, xor 1
    assert list(swap(value, on, 0x0000)[0]) == [lane // 32 * 32 for lane in range(64)]
    assert list(swap(value, on, 0x80B1)[0][:4]) == [1, 0, 3, 2]  # quad permute
    assert swap(value, off, 0x041F)[0][0] == 0
    with pytest.raises(KeyError):
        swap(value, on, 0xE000)
    index = ((np.arange(64) + 1) % 64 * 4).astype(np.uint32)[None]
    got = OPS["ds_bpermute_b32"].function(index, value, off, 0)[0]
    assert got[0] == 0 and list(got[1:3]) == [2, 3] and got[63] == 0
    assert OPS["ds_bpermute_b32"].function(index, value, on, 256 + 4)[0][0] == 2
    sent = OPS["ds_permute_b32"].function(index, value, on, 0)[0]
    assert list(sent[:3]) == [63, 0, 1]
    clash = OPS["ds_permute_b32"].function(np.zeros((1, 64), np.uint32), value, on, 0)[0]
    assert clash[0] == 63 and clash[1] == 0


@_explicit("v_readfirstlane_b32", "v_readlane_b32", "v_writelane_b32")
def _lane_access() -> None:
    value = np.arange(128, dtype=np.uint32).reshape(2, 64)
    active = np.zeros((2, 64), np.bool_)
    active[0, 5:] = True
    assert list(OPS["v_readfirstlane_b32"].function(value, active)) == [5, 64]
    assert list(OPS["v_readlane_b32"].function(value, _u(3, 64 + 7))) == [3, 71]
    out = OPS["v_writelane_b32"].function(value, _u(9), _u(2))
    assert list(out[:, 2]) == [9, 9] and out[0, 1] == 1


@_explicit(
    "v_accvgpr_read",
    "v_accvgpr_write",
    "v_accvgpr_mov_b32",
    "v_mov_b32",
    "v_mov_b64",
    "v_nop",
    "s_mov_b32",
    "s_mov_b64",
)
def _moves() -> None:
    for name in ("v_accvgpr_read", "v_accvgpr_write", "v_accvgpr_mov_b32", "v_mov_b32", "s_mov_b32"):
        _check(_each(name, _u(0x7FA00001, 0)), _u(0x7FA00001, 0))
    for name in ("v_mov_b64", "s_mov_b64"):
        wide = np.array([2**64 - 3], np.uint64)
        _check(_each(name, wide), wide)
    assert OPS["v_nop"].function() is None


@_explicit("v_dot2_f32_f16", "v_dot2_f32_bf16", "v_dot2c_f32_bf16", "v_dot2c_f32_f16")
def _dots() -> None:
    for name, one, two in (("f16", 0x3C00, 0x4000), ("bf16", 0x3F80, 0x4000)):
        a, b = _u(two << 16 | one), _u(one << 16 | two)
        for form in ("v_dot2_f32_", "v_dot2c_f32_"):
            _check(_each(form + name, a, b, _f(0.5)), _f(4.5))


def _word16(name: str, kind: Any) -> None:
    """16-bit opcodes, alone and packed, against Python integers."""
    edges = [0, 1, 15, 16, 0x7FFF, 0x8000, 0xFFFF]
    a, b = (np.array(column, np.uint16) for column in zip(*itertools.product(edges, edges), strict=True))
    signed = [v - 0x10000 if v & 0x8000 else v for v in range(0x10000)]
    stem = name.replace("v_pk_", "v_")
    functions: dict[str, Callable[[int, int], int]] = {
        "v_add_u16": lambda x, y: x + y,
        "v_add_i16": lambda x, y: x + y,
        "v_sub_u16": lambda x, y: x - y,
        "v_sub_i16": lambda x, y: x - y,
        "v_mul_lo_u16": lambda x, y: x * y,
        "v_min_u16": min,
        "v_max_u16": max,
        "v_min_i16": lambda x, y: min(signed[x], signed[y]),
        "v_max_i16": lambda x, y: max(signed[x], signed[y]),
        "v_lshlrev_b16": lambda x, y: y << (x & 15),
        "v_lshrrev_b16": lambda x, y: y >> (x & 15),
        "v_ashrrev_i16": lambda x, y: signed[y] >> (x & 15),
    }
    ins = OPS[name].ins
    got = _each(name, a.view(_TYPES[ins[0]]), b.view(_TYPES[ins[1]]))
    want = np.array([functions[stem](int(x), int(y)) & 0xFFFF for x, y in zip(a, b, strict=True)], np.uint16)
    assert (np.asarray(got).view(np.uint16) == want).all(), name


for _name in (
    "add_u16",
    "sub_u16",
    "mul_lo_u16",
    "min_u16",
    "max_u16",
    "min_i16",
    "max_i16",
    "lshlrev_b16",
    "lshrrev_b16",
    "ashrrev_i16",
    "pk_add_i16",
    "pk_sub_i16",
):
    for _form in ("v_", "v_pk_"):
        if _form + _name in OPS:
            EXPLICIT[_form + _name] = lambda name=_form + _name: _word16(name, None)


def _float_pair(name: str, function: Callable[[Any, Any], Any]) -> None:
    kind = np.float16 if name.endswith("f16") else np.float32
    with np.errstate(all="ignore"):
        values = np.array(FLOATS).astype(kind)
        a, b = (np.array(column, kind) for column in zip(*itertools.product(values, values), strict=True))
        got, want = _each(name, a, b), function(a, b)
    assert ((got == want) & (np.signbit(got) == np.signbit(want)) | (np.isnan(got) & np.isnan(want))).all(), (
        name
    )


def _python_max(a: Any, b: Any) -> Any:
    from tests.pcode import _max

    return np.array([_max(x, y) for x, y in zip(a, b, strict=True)], a.dtype)


def _python_min(a: Any, b: Any) -> Any:
    from tests.pcode import _min

    return np.array([_min(x, y) for x, y in zip(a, b, strict=True)], a.dtype)


_PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "subrev": lambda a, b: b - a,
    "mul": lambda a, b: a * b,
    "max": _python_max,
    "min": _python_min,
    "mul_legacy": lambda a, b: np.where((a == 0) | (b == 0), a.dtype.type(0), a * b),
}
for _name, _function in _PAIRS.items():
    for _form, _suffix in itertools.product(("v_", "v_pk_"), ("f16", "f32")):
        _full = f"{_form}{_name}_{_suffix}"
        if _full in OPS:
            EXPLICIT[_full] = lambda name=_full, function=_function: _float_pair(name, function)


def _triple(name: str) -> None:
    """Three-operand float opcodes against the exact result rounded once."""
    from tests.pcode import _fma, _max, _min

    kind = np.float16 if name.endswith("f16") else np.float32
    values = np.array([0.0, -0.0, 1.5, -2.25, 1e-3, 3e4, math.inf, math.nan]).astype(kind)
    rows = list(itertools.product(values, values, values))
    a, b, c = (np.array(column, kind) for column in zip(*rows, strict=True))
    got = _each(name, a, b, c)

    def nan_wins(pick: Any) -> Any:
        return lambda x, y, z: kind(math.nan) if any(np.isnan(v) for v in (x, y, z)) else pick(pick(x, y), z)

    if "fma" in name:
        want = [_fma(*row) for row in rows]
    elif "maximum3" in name or "minimum3" in name:
        want = [nan_wins(_max if "maximum3" in name else _min)(*row) for row in rows]
    elif "med3" in name:
        want = [
            _min(_min(x, y), z) if any(np.isnan(v) for v in (x, y, z)) else sorted((x, y, z))[1]
            for x, y, z in rows
        ]
    else:
        pick = _max if "max3" in name else _min
        want = [pick(pick(x, y), z) for x, y, z in rows]
    expected = np.array(want, kind)
    good = (got == expected) | (np.isnan(got) & np.isnan(expected))
    assert good.all(), (name, np.array(rows)[~good][:4], got[~good][:4], expected[~good][:4])


for _name in (
    "v_fma_f16",
    "v_fmac_f16",
    "v_pk_fma_f16",
    "v_pk_fma_f32",
    "v_fma_f32",
    "v_fmac_f32",
    "v_fmamk_f32",
    "v_fmaak_f32",
    "v_max3_f32",
    "v_min3_f32",
    "v_maximum3_f32",
    "v_minimum3_f32",
    "v_pk_maximum3_f16",
    "v_pk_minimum3_f16",
    "v_med3_f32",
):
    EXPLICIT[_name] = lambda name=_name: _triple(name)


def _rounding(name: str) -> None:
    kind = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[name.rsplit("_", 1)[1]]
    values = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -0.0, 7.3, -7.3, math.inf, math.nan], kind)
    exact = {"trunc": math.trunc, "ceil": math.ceil, "floor": math.floor, "rndne": round}[name.split("_")[1]]
    want = np.array([exact(float(v)) if np.isfinite(v) else v for v in values], kind)
    got = _each(name, values)
    assert ((got == want) | np.isnan(got) & np.isnan(want)).all(), name
    assert (np.signbit(got) == np.signbit(values))[:9].all()


for _name in ("trunc", "ceil", "floor", "rndne"):
    for _suffix in ("f16", "f32", "f64"):
        EXPLICIT[f"v_{_name}_{_suffix}"] = lambda name=f"v_{_name}_{_suffix}": _rounding(name)


@_explicit("v_fract_f32", "v_ldexp_f32", "v_frexp_mant_f32", "v_frexp_exp_i32_f32")
def _parts() -> None:
    _check(_each("v_fract_f32", _f(1.25, -0.25, -1e-30)), _f(0.25, 0.75, 1 - 2.0**-24))
    got = _each("v_ldexp_f32", _f(1.0, 1.0, 1.0, -0.0, math.inf), np.array([3, -149, -200, 5, -5], np.int32))
    _check(got, _f(8.0, 2.0**-149, 0.0, -0.0, math.inf))
    _check(_each("v_frexp_mant_f32", _f(8.0, -3.0, math.inf)), _f(0.5, -0.75, math.inf))
    _check(_each("v_frexp_exp_i32_f32", _f(8.0, -3.0, math.inf, 0.0)), np.array([4, 2, 0, 0], np.int32))


def _conversion(name: str) -> None:
    """Float to integer saturates and truncates; integer to float rounds to nearest even."""
    _, _, target, source = name.split("_")[:4] if name.count("_") == 3 else ("", "", "", "")
    if source.startswith("f") and target[0] in "iu":
        kind = _TYPES[source]
        with np.errstate(all="ignore"):
            values = np.array(
                [0.0, -0.0, 1.9, -1.9, 2.0**31, -(2.0**31), 2.0**32, 1e5, -1e5, math.inf, -math.inf, math.nan]
            ).astype(kind)
        bits = int(target[1:])
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if target[0] == "i" else (0, 2**bits - 1)
        want = [
            0 if np.isnan(v) else high if v > high else low if v < low else int(v)
            for v in values.astype(np.float64)
        ]
        assert [int(v) for v in _each(name, values)] == want, name
    else:
        values = np.array([0, 1, 2**24 + 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], np.uint32).view(
            _TYPES[source]
        )
        _check(_each(name, values), values.astype(np.float64).astype(_TYPES[target]))


for _name in (
    "i32_f32",
    "u32_f32",
    "i32_f64",
    "u32_f64",
    "i16_f16",
    "u16_f16",
    "f32_u32",
    "f32_i32",
    "f64_u32",
    "f64_i32",
):
    EXPLICIT[f"v_cvt_{_name}"] = lambda name=f"v_cvt_{_name}": _conversion(name)


@_explicit(
    "v_cvt_f64_f32",
    "v_cvt_f32_f64",
    "v_cvt_f32_ubyte0",
    "v_cvt_f32_ubyte1",
    "v_cvt_f32_ubyte2",
    "v_cvt_f32_ubyte3",
    "v_cvt_rpi_i32_f32",
    "v_cvt_pk_i16_i32",
    "v_cvt_pk_u16_u32",
)
def _conversions() -> None:
    _check(_each("v_cvt_f64_f32", _f(1e-45, -0.0)), np.array([float(np.float32(1e-45)), -0.0]))
    _check(_each("v_cvt_f32_f64", np.array([1e300, 1 + 2.0**-25])), _f(math.inf, 1.0))
    for byte, want in enumerate((0x44, 0x33, 0x22, 0xFF)):
        _check(_each(f"v_cvt_f32_ubyte{byte}", _u(0xFF223344)), _f(want))
    _check(_each("v_cvt_rpi_i32_f32", _f(0.5, -0.5, 2.4, math.nan)), np.array([1, 0, 2, 0], np.int32))
    _check(
        _each("v_cvt_pk_i16_i32", np.array([40000], np.int32), np.array([-40000], np.int32)), _u(0x80007FFF)
    )
    _check(_each("v_cvt_pk_u16_u32", _u(70000), _u(3)), _u(0x0003FFFF))


@_explicit("v_cmp_class_f32")
def _classes() -> None:
    quiet = _f(math.nan)
    signalling = np.array([0x7F800001], np.uint32).view(np.float32)
    cases = [
        (signalling, 0),
        (quiet, 1),
        (_f(-math.inf), 2),
        (_f(-1.0), 3),
        (_f(-1e-40), 4),
        (_f(-0.0), 5),
        (_f(0.0), 6),
        (_f(1e-40), 7),
        (_f(1.0), 8),
        (_f(math.inf), 9),
    ]
    for value, bit in cases:
        for other in range(10):
            assert bool(_each("v_cmp_class_f32", value, _u(1 << other))[0]) == (other == bit), (
                value,
                bit,
                other,
            )


def _compares() -> None:
    """Compares against Python's own operators, ordered and unordered."""
    python: dict[str, Callable[[Any, Any], bool]] = {
        "lt": lambda a, b: a < b,
        "eq": lambda a, b: a == b,
        "le": lambda a, b: a <= b,
        "gt": lambda a, b: a > b,
        "ge": lambda a, b: a >= b,
        "ne": lambda a, b: a != b,
        "lg": lambda a, b: a < b or a > b,
        "o": lambda a, b: a == a and b == b,
        "u": lambda a, b: a != a or b != b,
        "f": lambda a, b: False,
        "t": lambda a, b: True,
        "nge": lambda a, b: not a >= b,
        "nlg": lambda a, b: not (a < b or a > b),
        "ngt": lambda a, b: not a > b,
        "nle": lambda a, b: not a <= b,
        "neq": lambda a, b: a != b,
        "nlt": lambda a, b: not a < b,
    }
    for name in COMPARES:
        _, word, kind = name.removeprefix("v_").split("_")
        edges = _array(_edges(kind), kind)
        rows = list(itertools.product(range(edges.size), range(edges.size)))
        a, b = edges[[r[0] for r in rows]], edges[[r[1] for r in rows]]
        got = _each(name, a, b)
        if name.startswith("v_cmpx"):
            assert (got[0] == got[1]).all()
            got = got[0]
        want = [python[word](x.item(), y.item()) for x, y in zip(a, b, strict=True)]
        assert list(map(bool, got)) == want, name


COMPARES = [name for name in OPS if name.startswith(("v_cmp_", "v_cmpx_")) and name != "v_cmp_class_f32"]
for _name in COMPARES:
    EXPLICIT[_name] = _compares


def _bits_of(value: int, width: int = 32) -> list[int]:
    return [value >> index & 1 for index in range(width)]


@_explicit(
    "s_brev_b32",
    "v_bfrev_b32",
    "s_ff1_i32_b32",
    "s_ff1_i32_b64",
    "s_flbit_i32_b32",
    "v_ffbh_u32",
    "v_ffbl_b32",
    "s_bitset0_b32",
    "s_bitset1_b32",
)
def _scans() -> None:
    for value in (*INTEGERS, 0x00FFFFFF, 0x01FFFFFF):
        bits = _bits_of(value)
        low = bits.index(1) if 1 in bits else -1
        high = bits[::-1].index(1) if 1 in bits else -1
        for name in ("s_brev_b32", "v_bfrev_b32"):
            _check(_each(name, _u(value)), _u(sum(bit << (31 - at) for at, bit in enumerate(bits))))
        for name in ("s_ff1_i32_b32", "v_ffbl_b32"):
            assert int(_each(name, _u(value))[0]) == low, (name, hex(value))
        for name in ("s_flbit_i32_b32", "v_ffbh_u32"):
            assert int(_each(name, _u(value))[0]) == high, (name, hex(value))
        wide = np.array([value << 32], np.uint64)
        assert int(_each("s_ff1_i32_b64", wide)[0]) == (low + 32 if value else -1)
        for number in (0, 5, 31, 32, 37):
            _check(_each("s_bitset1_b32", _u(number), _u(value)), _u(value | 1 << number % 32))
            _check(_each("s_bitset0_b32", _u(number), _u(value)), _u(value & ~(1 << number % 32)))


@_explicit("s_bfe_i32", "v_bfe_i32")
def _signed_fields() -> None:
    for value, offset, width in itertools.product(INTEGERS, (0, 1, 7, 31), (0, 1, 8, 31)):
        field = (value - (1 << 32) if value >> 31 else value) >> offset & ((1 << width) - 1)
        want = field - (1 << width) if width and field >> (width - 1) & 1 else field
        assert (
            int(_each("v_bfe_i32", np.array([value], np.uint32).view(np.int32), _u(offset), _u(width))[0])
            == want
        )
        got, scc = _each("s_bfe_i32", np.array([value], np.uint32).view(np.int32), _u(offset | width << 16))
        assert int(got[0]) == want and bool(scc[0]) == (want != 0)


@_explicit("v_mad_u64_u32", "v_mad_i64_i32", "v_med3_i32", "v_med3_u32")
def _wide() -> None:
    for a, b, c in itertools.product(
        (0, 1, 0xFFFFFFFF, 0x80000000), (3, 0xFFFFFFFF), (0, 5, 2**64 - 1, 2**63)
    ):
        got, carry = _each("v_mad_u64_u32", _u(a), _u(b), np.array([c], np.uint64))
        assert int(got[0]) == (a * b + c) % 2**64 and bool(carry[0]) == (a * b + c >= 2**64)
        sa, sb = (v - 2**32 if v >> 31 else v for v in (a, b))
        sc = c - 2**64 if c >> 63 else c
        got, over = _each(
            "v_mad_i64_i32",
            _u(a).view(np.int32),
            _u(b).view(np.int32),
            np.array([c], np.uint64).view(np.int64),
        )
        total = sa * sb + sc
        assert int(got[0]) % 2**64 == total % 2**64 and bool(over[0]) == (not -(2**63) <= total < 2**63)
    for row in itertools.permutations((0, 7, 0xFFFFFFFF)):
        _check(_each("v_med3_u32", *(_u(v) for v in row)), _u(7))
        _check(_each("v_med3_i32", *(_u(v).view(np.int32) for v in row)), _u(0))


@_explicit("v_pk_mov_b32", "v_cndmask_b32")
def _picks() -> None:
    _check(_each("v_cndmask_b32", _u(1, 2), _u(3, 4), np.array([True, False])), _u(3, 2))
    assert OPS["v_pk_mov_b32"].function(1, 2) == (1, 2)


@pytest.mark.parametrize(
    "function",
    sorted(
        set(EXPLICIT.values()),
        key=lambda f: str(getattr(f, "__name__", f)) + str(getattr(f, "__defaults__", "")),
    ),
)
def test_worked_out_by_hand(function: Callable[[], None]) -> None:
    function()


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_matrix_opcodes_against_numpy(name: str) -> None:
    """Each layout by building A and B from the matrices that the ISA document's index formulas give."""
    from harness.execute.floats import decode_table
    from harness.execute.opcodes_mfma import matmul

    shape = SHAPES[name]
    rows, depth, rng = shape.rows, shape.depth, np.random.default_rng(3)
    groups, per = 64 // rows, depth * rows // 64
    forms = (
        [("fp8", "fp8"), ("fp4", "fp4"), ("fp6", "bf6"), ("bf8", "fp4")]
        if shape.a == "f8f6f4"
        else [(shape.a, shape.b)]
    )
    for form_a, form_b in forms:
        matrices, operands = [], []
        for form in (form_a, form_b):
            bits = {
                "fp8": 8,
                "bf8": 8,
                "fp6": 6,
                "bf6": 6,
                "fp4": 4,
                "bf16": 16,
                "f16": 16,
                "f32": 32,
                "i8": 8,
            }[form]
            if form in ("fp8", "bf8", "fp6", "bf6", "fp4"):
                table = decode_table(form)
                good = np.flatnonzero(np.isfinite(table) & (np.abs(table) < 64))
                codes = rng.choice(good, (rows, depth))
                matrix = table[codes].astype(np.float64)
            elif form == "i8":
                matrix = rng.integers(-128, 128, (rows, depth)).astype(np.float64)
                codes = matrix.astype(np.int64) & 0xFF
            else:
                small = rng.integers(-8, 8, (rows, depth)) / 4
                matrix = small.astype(np.float64)
                codes = small.astype(np.float32).view(np.uint32).astype(np.int64)
                if form == "bf16":
                    codes = codes >> 16
                elif form == "f16":
                    codes = small.astype(np.float16).view(np.uint16).astype(np.int64)
            lanes = []
            for lane in range(64):
                value = 0
                for j in range(per):
                    value |= int(codes[lane % rows, per * (lane // rows) + j]) << (bits * j)
                lanes.append(value)
            words = max(1, per * bits // 32)
            operands.append(
                [np.array([[v >> (32 * w) & 0xFFFFFFFF for v in lanes]], np.uint32) for w in range(words)]
            )
            matrices.append(matrix)
        count = rows * rows // 64
        start = rng.integers(-4, 4, (count, 1, 64))
        c = [tile.astype(np.int32 if shape.kind == "i32" else np.float32).view(np.uint32) for tile in start]
        scales = None
        left, right = matrices
        if shape.scaled:
            codes = rng.integers(125, 130, (2, 1, 64))
            scales = (codes[0], codes[1])
            factor = [
                2.0
                ** (
                    np.array([[codes[m, 0, r + rows * g] for g in range(groups)] for r in range(rows)])
                    - 127.0
                )
                for m in (0, 1)
            ]
            left, right = (m * np.repeat(f, per, axis=1) for m, f in zip((left, right), factor, strict=True))
        got = matmul(shape, operands[0], operands[1], c, (form_a, form_b), scales)
        product = left @ right.T
        for r in range(count):
            for lane in range(64):
                row = 4 * (lane // 16) + r if rows == 16 else 8 * (r // 4) + 4 * (lane // 32) + r % 4
                want = product[row, lane % rows] + start[r, 0, lane]
                value = got[r].view(np.int32 if shape.kind == "i32" else np.float32)[0, lane]
                assert value == np.float32(want) or (shape.kind == "i32" and value == want), (
                    name,
                    form_a,
                    r,
                    lane,
                )
    nan = [np.full((1, 64), 0x7FC07FC0, np.uint32)] * len(operands[0])
    if shape.a in ("bf16",):
        assert np.isnan(matmul(shape, nan, operands[1], c, (form_a, form_b))[0].view(np.float32)).all()


def test_every_opcode_of_the_table_is_tested() -> None:
    """Memory opcodes are tested by tests/test_execute_memory.py, control by tests/test_execute_machine.py."""
    tested = {
        *BY_ORACLE,
        *EXPLICIT,
        *SHAPES,
        *MOVES,
        *(name for name, op in OPS.items() if op.unit == "control"),
    }
    assert set(OPS) - tested == set()


def test_pseudo_code_covers_most_of_what_it_can() -> None:
    assert len(BY_ORACLE) > 120, len(BY_ORACLE)
