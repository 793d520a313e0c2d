"""The opcode table: what each opcode reads, what it writes, and the pure function between.

An entry names its operands by type, in the order of the ISA's own operand list, and has one function over
numpy arrays. Where the operands lie in an encoding, and how lanes are masked, is `bind`'s business, not the
entry's. References are sections of AMD's "CDNA4 Instruction Set Architecture" reference guide.

Types
    u32 i32 f32      one register          u64 i64 f64   two        u128  four (as a list of u32)
    u16 i16 f16      16 bits of one        mask          a lane mask (SGPR pair), as bool [waves, 64]
    scc              the scalar condition code, as bool [waves]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["OPS", "Op", "register", "salu", "valu"]


@dataclass(frozen=True)
class Op:
    """One opcode. unit: salu, valu, packed, crosslane, mfma, vmem, smem, lds or control.

    outs, ins: operand types. function: pure, arrays in, arrays out (a tuple for more than one output).
    reference: section of the ISA document, and what of it matters here. implicit: registers read or written
    that no field names (`vcc`, `scc`, `exec`, `m0`, `dst` for an accumulator that is also the destination).
    """

    name: str
    unit: str
    outs: tuple[str, ...]
    ins: tuple[str, ...]
    function: Callable[..., Any]
    reference: str
    implicit: tuple[str, ...] = ()


OPS: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Put `op` in the table. ValueError where its name is taken."""
    if op.name in OPS:
        raise ValueError(f"opcode {op.name} is in the table already")
    OPS[op.name] = op
    return op


def _entry(unit: str, name: str, signature: str, reference: str, function: Callable[..., Any]) -> None:
    left, right = signature.split("=")
    outs = tuple(word.strip() for word in left.split(",") if word.strip())
    ins = tuple(word.strip() for word in right.split(",") if word.strip())
    register(Op(name, unit, outs, ins, function, reference))


def valu(
    name: str, signature: str, reference: str, unit: str = "valu"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: a vector opcode with `signature` such as "f32 = f32, f32"."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        _entry(unit, name, signature, reference, function)
        return function

    return add


def salu(name: str, signature: str, reference: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: a scalar opcode with `signature` such as "u32, scc = u32, u32"."""
    return valu(name, signature, reference, unit="salu")
