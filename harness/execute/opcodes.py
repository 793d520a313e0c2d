"""The whole opcode table: importing this fills `OPS`."""

from __future__ import annotations

from harness.execute import (
    opcodes_control,
    opcodes_crosslane,
    opcodes_float,
    opcodes_memory,
    opcodes_mfma,
    opcodes_salu,
    opcodes_valu,
)
from harness.execute.table import OPS

__all__ = ["FAMILIES", "OPS"]

FAMILIES = (
    opcodes_control,
    opcodes_crosslane,
    opcodes_float,
    opcodes_memory,
    opcodes_mfma,
    opcodes_salu,
    opcodes_valu,
)
"""The modules that hold the entries."""
