"""Program flow, waits and hints: which opcodes do what to a wave's progress.

References: CDNA4 ISA, "SOPP Instructions", "SOP1 Instructions" (S_SETPC, S_GETPC). Waits matter to the race
detector
only: every step is complete when the next begins. Hints (priority, sleep, cache control) change no result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.execute.state import EXEC, VCC, State
from harness.execute.table import Op, register

__all__ = ["CONTROL", "Action"]


@dataclass(frozen=True)
class Action:
    """What a control step asks of the machine: end, barrier, wait, branch, split or jump.

    target: index of the instruction to go on at; taken: which selected waves go there (split); addresses:
    byte addresses (jump); value: the immediate.
    """

    kind: str
    target: int = -1
    taken: Any = None
    addresses: Any = None
    value: int = 0


def _pair_zero(code: int) -> Callable[[State], Any]:
    return lambda st: (st.s[code][st.sel] | st.s[code + 1][st.sel]) == 0


def _not(test: Callable[[State], Any]) -> Callable[[State], Any]:
    return lambda st: ~test(st)


def _scc(st: State) -> Any:
    return st.scc[st.sel]


_BRANCHES: dict[str, Callable[[State], Any] | None] = {
    "s_branch": None,
    "s_cbranch_scc0": _not(_scc),
    "s_cbranch_scc1": _scc,
    "s_cbranch_vccz": _pair_zero(VCC),
    "s_cbranch_vccnz": _not(_pair_zero(VCC)),
    "s_cbranch_execz": _pair_zero(EXEC),
    "s_cbranch_execnz": _not(_pair_zero(EXEC)),
}
CONTROL: dict[str, tuple[str, Callable[[State], Any] | None]] = {
    name: ("branch", condition) for name, condition in _BRANCHES.items()
}
CONTROL.update(
    {
        "s_endpgm": ("end", None),
        "s_barrier": ("barrier", None),
        "s_waitcnt": ("wait", None),
        "s_setpc_b64": ("setpc", None),
        "s_getpc_b64": ("getpc", None),
    }
)
_HINTS = (
    "s_nop",
    "s_setprio",
    "s_sleep",
    "s_icache_inv",
    "s_dcache_inv",
    "s_dcache_wb",
    "s_sethalt",
    "s_ttracedata",
    "buffer_wbl2",
    "buffer_inv",
    "buffer_wbinvl1",
    "buffer_wbinvl1_vol",
    "s_inst_prefetch",
    "s_incperflevel",
    "s_decperflevel",
    "ds_nop",
)
for _name in _HINTS:
    CONTROL[_name] = ("none", None)


def _nothing() -> None:
    return None


for _name in CONTROL:
    register(Op(_name, "control", (), (), _nothing, "SOPP Instructions"))
for _name in ("v_accvgpr_read", "v_accvgpr_write", "v_accvgpr_mov_b32"):
    register(
        Op(
            _name,
            "acc",
            ("u32",),
            ("u32",),
            lambda value: np.asarray(value),
            "VOP3P-MAI and VOP1 Instructions",
        )
    )
