"""An interpreter of the ISA document's pseudo-code (tinygrad's `str_pcode`), one lane at a time, in plain
Python.

An oracle for opcode functions: it shares nothing with them. It knows scalar expressions, if/elsif/else,
casts, bit slices and a few named functions; anything else raises `Unsupported`.
"""

from __future__ import annotations

import math
import re
import struct
from fractions import Fraction
from typing import Any

import numpy as np


class Unsupported(Exception):
    """Pseudo-code that this interpreter does not know."""


_TOKEN = re.compile(
    r"\s*(0x[0-9a-fA-F]+(?:ULL|LL|U)?|\d+'[0-9a-fA-F]x?[0-9a-fA-F]*U?|\d+'[UIFB]|\d+\.\d+F?|\d+(?:ULL|LL|U|F)?"
    r"|[A-Za-z_][A-Za-z_0-9]*|\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||[-+*/%&|^~!<>?:()\[\],.={}])"
)


def tokens(text: str) -> list[str]:
    out, at = [], 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise Unsupported(text[at : at + 20])
        out.append(match.group(1))
        at = match.end()
    return out


def view(bits: int, kind: str) -> Any:
    """Raw bits read as a type of the pseudo-code (`u32`, `i16`, `f32`, `b64`, ...)."""
    size = int(kind[1:])
    bits &= (1 << size) - 1
    if kind[0] in "ub":
        return bits
    if kind[0] == "i":
        return bits - (1 << size) if bits >> (size - 1) else bits
    if kind[0] == "f":
        number = {16: np.uint16, 32: np.uint32, 64: np.uint64}[size]
        target = {16: np.float16, 32: np.float32, 64: np.float64}[size]
        return np.array(bits, number).view(target)[()]
    raise Unsupported(kind)


def raw(value: Any, kind: str) -> int:
    """The bits of a value stored as a type."""
    size = int(kind[1:])
    if kind[0] == "f":
        target = {16: np.float16, 32: np.float32, 64: np.float64}[size]
        number = {16: np.uint16, 32: np.uint32, 64: np.uint64}[size]
        with np.errstate(all="ignore"):
            return int(np.array(value).astype(target).view(number))
    if isinstance(value, np.floating | float):
        raise Unsupported("float to integer without a cast")
    return int(value) & ((1 << size) - 1)


def _fma(a: Any, b: Any, c: Any) -> Any:
    kind = type(a)
    if all(np.isfinite(x) for x in (a, b, c)):
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        if exact == 0:
            return kind(float(a) * float(b) + float(c))
        return _nearest(exact, kind)
    with np.errstate(all="ignore"):
        return kind(np.float64(a) * np.float64(b) + np.float64(c))


def _nearest(exact: Fraction, kind: Any) -> Any:
    """An exact fraction rounded to nearest even in `kind`, without double rounding."""
    bits, low = {np.float16: (11, -14), np.float32: (24, -126), np.float64: (53, -1022)}[kind]
    size = abs(exact)
    exponent = max(math.floor(math.log2(size)) if size > Fraction(1, 2**1000) else -1000, low - 1)
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    while exponent > low and Fraction(2) ** exponent > size:
        exponent -= 1
    exponent = max(exponent, low)
    step = Fraction(2) ** (exponent - bits + 1)
    units = round(size / step)  # Python rounds halves to even
    value = units * step
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    with np.errstate(all="ignore"):
        return kind(-number if exact < 0 else number)


class Lane:
    """Registers of one lane as raw bits, and the interpreter over them."""

    def __init__(self, values: dict[str, int], widths: dict[str, int] | None = None) -> None:
        self.bits = dict(values)
        self.widths = widths or {}
        self.out: dict[str, int] = {}
        self.locals: dict[str, Any] = {}

    def run(self, code: str) -> dict[str, int]:
        """Execute; the registers that were assigned, as bits."""
        lines = []
        for line in code.split("\n"):
            line = line.split("//")[0].strip().rstrip(";").strip()
            if line and not line.startswith("declare"):
                lines.append(line)
        self._block(lines, 0, len(lines))
        return self.out

    def _block(self, lines: list[str], start: int, end: int) -> None:
        at = start
        while at < end:
            line = lines[at]
            if line.startswith("if "):
                stop, depth = at, 0
                cuts = [at]
                while True:
                    if lines[stop].startswith("if "):
                        depth += 1
                    elif lines[stop] == "endif":
                        depth -= 1
                        if depth == 0:
                            break
                    elif depth == 1 and (lines[stop].startswith("elsif ") or lines[stop] == "else"):
                        cuts.append(stop)
                    stop += 1
                cuts.append(stop)
                for index in range(len(cuts) - 1):
                    head = lines[cuts[index]]
                    if head == "else" or self.value(re.sub(r"^(if|elsif) (.*) then$", r"\2", head)):
                        self._block(lines, cuts[index] + 1, cuts[index + 1])
                        break
                at = stop + 1
                continue
            if line.startswith(("for ", "while ")):
                raise Unsupported(line)
            self._assign(line)
            at += 1

    def _assign(self, line: str) -> None:
        line = re.sub(r"^(\S+) \+= (.*)$", r"\1 = \1 + \2", line)
        match = re.match(
            r"^([A-Za-z_0-9]+)((?:\.[a-z0-9]+)?)((?:\[[^=]*\])?(?:\.[a-z0-9]+)?)\s*=\s*(?!=)(.*)$", line
        )
        if match is None:
            raise Unsupported(line)
        name, kind, tail, text = match.groups()
        value = self.value(text)
        if name.startswith("tmp") or (name.islower() and name not in ("scc",)):
            if tail:
                raise Unsupported(line)
            self.locals[name] = view(raw(value, kind[1:]), kind[1:]) if kind else value
            return
        if name == "EXEC" and not kind:
            kind = ".u64"
        if name in ("SCC", "VCC") and not kind:
            self.out[name] = int(bool(value)) if name == "SCC" else int(value)
            self.bits[name] = self.out[name]
            return
        if tail:
            slice_ = re.match(r"^\[(.*?)(?: : (.*))?\](?:\.([a-z0-9]+))?$", tail)
            if slice_ is None:
                raise Unsupported(line)
            if slice_.group(1) == "laneId":
                self.out[name] = int(bool(value))
                return
            high = int(self.value(slice_.group(1)))
            low = int(self.value(slice_.group(2))) if slice_.group(2) else high
            width = high - low + 1
            bits = raw(value, slice_.group(3) or f"u{width}") & ((1 << width) - 1)
            old = self.out.get(name, self.bits.get(name, 0))
            self.out[name] = (old & ~(((1 << width) - 1) << low)) | (bits << low)
        else:
            self.out[name] = raw(value, kind[1:] or "u32")
        self.bits[name] = self.out[name]

    # Expressions: precedence climbing over tokens.

    def value(self, text: str) -> Any:
        self.toks, self.at = tokens(text), 0
        saved = (self.toks, self.at)
        out = self._ternary()
        if self.at != len(self.toks):
            raise Unsupported(text)
        del saved
        return out

    def _peek(self) -> str:
        return self.toks[self.at] if self.at < len(self.toks) else ""

    def _take(self, token: str | None = None) -> str:
        got = self._peek()
        if token is not None and got != token:
            raise Unsupported(f"{got!r} where {token!r} was expected")
        self.at += 1
        return got

    def _ternary(self) -> Any:
        test = self._binary(0)
        if self._peek() == "?":
            self._take()
            yes = self._ternary()
            self._take(":")
            no = self._ternary()
            return yes if test else no
        return test

    _LEVELS = (
        ("||",),
        ("&&",),
        ("|",),
        ("^",),
        ("&",),
        ("==", "!=", "<>"),
        ("<", ">", "<=", ">="),
        ("<<", ">>"),
        ("+", "-"),
        ("*", "/", "%"),
        ("**",),
    )

    def _binary(self, level: int) -> Any:
        if level == len(self._LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while self._peek() in self._LEVELS[level]:
            op = self._take()
            right = self._binary(level + 1)
            left = self._apply(op, left, right)
        return left

    @staticmethod
    def _apply(op: str, a: Any, b: Any) -> Any:
        with np.errstate(all="ignore"):
            if op in ("==", "!=", "<>", "<", ">", "<=", ">="):
                table = {
                    "==": a == b,
                    "!=": a != b,
                    "<>": (a < b) or (a > b),
                    "<": a < b,
                    ">": a > b,
                    "<=": a <= b,
                    ">=": a >= b,
                }
                return bool(table[op])
            if op == "&&":
                return bool(a) and bool(b)
            if op == "||":
                return bool(a) or bool(b)
            if op == "**":
                return np.float64(a) ** np.float64(b)
            if op in ("<<", ">>", "&", "|", "^"):
                if isinstance(a, np.floating) or isinstance(b, np.floating):
                    raise Unsupported("bits of a float")
                a, b = int(a), int(b)
                return {
                    "<<": lambda: a << b,
                    ">>": lambda: a >> b,
                    "&": lambda: a & b,
                    "|": lambda: a | b,
                    "^": lambda: a ^ b,
                }[op]()
            if op == "/" and not isinstance(a, np.floating):
                return int(a) // int(b)
            if op == "%":
                return int(a) % int(b)
            if (isinstance(a, np.float32) and isinstance(b, np.float64)) or (
                isinstance(b, np.float32) and isinstance(a, np.float64)
            ):
                a, b = np.float64(a), np.float64(b)
            return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b}[op]()

    def _unary(self) -> Any:
        token = self._peek()
        if token == "-":
            self._take()
            return -self._unary()
        if token == "+":
            self._take()
            return self._unary()
        if token == "~":
            self._take()
            return ~int(self._unary())
        if token == "!":
            self._take()
            return not self._unary()
        return self._postfix(self._primary())

    def _postfix(self, value: Any) -> Any:
        while True:
            if self._peek() == ".":
                self._take()
                kind = self._take()
                value = view(int(value), kind) if not isinstance(value, np.floating) else value
            elif self._peek() == "[":
                self._take()
                high = int(self._ternary())
                low = high
                if self._peek() == ":":
                    self._take()
                    low = int(self._ternary())
                self._take("]")
                if isinstance(value, np.floating):
                    raise Unsupported("bits of a float")
                value = (int(value) >> low) & ((1 << (high - low + 1)) - 1)
            else:
                return value

    def _primary(self) -> Any:
        token = self._take()
        if token == "(":
            value = self._ternary()
            self._take(")")
            return value
        if token == "{":
            parts = [self._concat_part()]
            while self._peek() == ",":
                self._take()
                parts.append(self._concat_part())
            self._take("}")
            total = 0
            for bits, width in parts:
                total = total << width | bits
            return total
        cast = re.fullmatch(r"(\d+)'([UIFB])", token)
        if cast is not None:
            self._take("(")
            value = self._ternary()
            self._take(")")
            return _cast(int(cast.group(1)), cast.group(2), value)
        sized = re.fullmatch(r"\d+'([0-9a-fA-Fx]+)U?", token)
        if sized is not None:
            return int(sized.group(1), 16 if sized.group(1).startswith("0x") else 10)
        if re.fullmatch(r"0x[0-9a-fA-F]+(ULL|LL|U)?", token):
            return int(re.sub(r"(ULL|LL|U)$", "", token), 16)
        if re.fullmatch(r"\d+(ULL|LL|U)?", token):
            return int(re.sub(r"(ULL|LL|U)$", "", token))
        if re.fullmatch(r"\d+\.\d+F?|\d+F", token):
            return np.float32(token[:-1]) if token.endswith("F") else np.float64(token)
        if self._peek() == "(":
            return self._call(token)
        return self._name(token)

    def _concat_part(self) -> tuple[int, int]:
        start = self.at
        value = self._ternary()
        text = "".join(self.toks[start : self.at])
        width = re.search(r"\.[ub](\d+)$", text)
        if width is None:
            raise Unsupported(text)
        return int(value), int(width.group(1))

    def _name(self, token: str) -> Any:
        if token in self.locals:
            return self.locals[token]
        if token == "INF":
            self._maybe_kind()
            return np.float64(np.inf)
        if token in self.bits:
            if self._peek() == "." or self._peek() == "[" or token in ("SCC", "VCC", "EXEC", "laneId"):
                return self.bits[token]
            return self.bits[token]
        raise Unsupported(token)

    def _maybe_kind(self) -> None:
        if self._peek() == ".":
            self._take()
            self._take()

    def _call(self, name: str) -> Any:
        self._take("(")
        args = [self._ternary()]
        while self._peek() == ",":
            self._take()
            args.append(self._ternary())
        self._take(")")
        functions: dict[str, Any] = {
            "fma": _fma,
            "isNAN": lambda a: bool(np.isnan(a)),
            "isSignalNAN": lambda a: False,
            "abs": abs,
            "trunc": np.trunc,
            "floor": np.floor,
            "u32_to_f32": lambda a: np.float32(a),
            "i32_to_f32": lambda a: np.float32(a),
            "f32_to_u32": lambda a: _to_integer(a, 0, 2**32 - 1),
            "f32_to_i32": lambda a: _to_integer(a, -(2**31), 2**31 - 1),
            "f16_to_f32": lambda a: np.float32(a),
            "f32_to_f16": lambda a: np.float16(a),
            "v_max_f32": _max,
            "v_min_f32": _min,
            "v_max3_f32": lambda a, b, c: _max(_max(a, b), c),
            "v_min3_f32": lambda a, b, c: _min(_min(a, b), c),
            "v_maximum_f32": lambda a, b: np.float32(np.nan) if np.isnan(a) or np.isnan(b) else _max(a, b),
            "v_minimum_f32": lambda a, b: np.float32(np.nan) if np.isnan(a) or np.isnan(b) else _min(a, b),
            "v_min_i32": min,
            "v_max_i32": max,
            "v_min_u32": min,
            "v_max_u32": max,
            "cvtToQuietNAN": lambda a: a,
            "signext": lambda a: a,
            "sign": lambda a: int(np.signbit(a)),
            "exponent": lambda a: int(np.array(a, np.float32).view(np.uint32)) >> 23 & 255,
        }
        if name not in functions:
            raise Unsupported(name)
        with np.errstate(all="ignore"):
            return functions[name](*args)


def _max(a: Any, b: Any) -> Any:
    if np.isnan(a):
        return b
    if np.isnan(b):
        return a
    if a == b == 0:
        return b if np.signbit(a) else a
    return max(a, b)


def _min(a: Any, b: Any) -> Any:
    if np.isnan(a):
        return b
    if np.isnan(b):
        return a
    if a == b == 0:
        return a if np.signbit(a) else b
    return min(a, b)


def _to_integer(value: Any, low: int, high: int) -> int:
    if np.isnan(value):
        return 0
    if np.isinf(value):
        return high if value > 0 else low
    return min(max(int(value), low), high)


def _cast(size: int, kind: str, value: Any) -> Any:
    with np.errstate(all="ignore"):
        if kind == "F":
            return {16: np.float16, 32: np.float32, 64: np.float64}[size](value)
        if isinstance(value, np.floating):
            raise Unsupported("cast of a float to an integer")
        bits = int(value) & ((1 << size) - 1)
        return bits - (1 << size) if kind == "I" and bits >> (size - 1) else bits


def f32(value: float) -> int:
    """Bits of a float32."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])
