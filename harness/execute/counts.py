"""What was executed, counted: instructions by class, bytes by width, divergence; and against a captured
trace.

Pure functions over a `Run`. The capture's `Hit` is the number of executions summed over the waves that the
trace sampled, so it must be a sum of the profiles of waves that exist in the launch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.execute.decode import Instruction, Program
from harness.execute.dispatch import Run
from harness.execute.opcodes_memory import MOVES
from harness.execute.table import OPS

__all__ = ["Comparison", "against_capture", "class_of", "pack", "summary", "unpack"]


def class_of(entry: Instruction) -> str:
    """VALU, SALU, MFMA, VMEM, LDS, SMEM, wait, barrier, branch or nop."""
    name = entry.name
    if name in ("s_waitcnt", "s_barrier", "s_nop"):
        return name[2:].replace("waitcnt", "wait")
    if name.startswith(("s_cbranch", "s_branch", "s_endpgm", "s_setpc")):
        return "branch"
    unit = OPS[name].unit if name in OPS else ""
    known = {
        "salu": "SALU",
        "vmem": "VMEM",
        "lds": "LDS",
        "smem": "SMEM",
        "mfma": "MFMA",
        "lanes": "LDS",
        "control": "SALU",
    }
    return known.get(unit, "VALU")


def summary(program: Program, run: Run) -> dict[str, Any]:
    """Figures for evidence: instructions a wave (mean, least, most), classes, bytes moved a wave, lanes
    active.
    """
    per = run.executed.sum(axis=1, dtype=np.int64)
    waves = run.executed.shape[1]
    each = run.executed.sum(axis=0, dtype=np.int64)
    classes: Counter[str] = Counter()
    bytes_by: Counter[str] = Counter()
    for entry in program.instructions:
        count = int(per[entry.index])
        classes[class_of(entry)] += count
        move = MOVES.get(entry.name)
        if move is not None and move.kind in ("load", "store", "atomic", "transpose"):
            width = move.unit * move.count * move.pairs
            space = (
                "lds"
                if entry.encoding.startswith("DS")
                else "scalar"
                if entry.encoding == "SMEM"
                else "global"
            )
            direction = "load" if move.kind in ("load", "transpose") else move.kind
            lanes = count if space == "scalar" else int(run.lanes[entry.index])
            bytes_by[f"{space} {direction} {8 * width}"] += width * lanes
    total = int(each.sum())
    lanes_active = float(run.lanes.sum()) / (64 * total) if total else 0.0
    return {
        "waves": waves,
        "instructions_per_wave": {
            "mean": round(total / waves, 3),
            "min": int(each.min()),
            "max": int(each.max()),
        },
        "classes": {name: round(count / waves, 3) for name, count in sorted(classes.items()) if count},
        "bytes_per_wave": {
            name: round(count / waves, 3) for name, count in sorted(bytes_by.items()) if count
        },
        "lanes_active": round(lanes_active, 4),
        "never_executed": int((per == 0).sum()),
    }


@dataclass(frozen=True)
class Comparison:
    """Executed counts against a capture.

    equal of `instructions` agree. how: "mean" (each wave profile occurs in the same share), "mixture" (the
    capture is
    a sum of `waves` wave profiles of this launch, with `parts` of them different), or "differs". first: what
    the first instruction that differs says.
    """

    equal: int
    instructions: int
    waves: int
    how: str
    parts: int
    first: str | None

    def to_json(self) -> dict[str, Any]:
        """The JSON form in executed.json."""
        return dict(vars(self))


def against_capture(program: Program, run: Run, hits: Sequence[int]) -> Comparison:
    """Compare `hits` (one a captured instruction, in program order) with what was executed."""
    count = len(program.instructions)
    if len(hits) != count:
        return Comparison(
            0, count, 0, "differs", 0, f"the capture has {len(hits)} instructions, the program {count}"
        )
    captured = np.asarray(hits, np.int64)
    waves = int(captured.max(initial=0)) if captured[0] == 0 else int(captured[0])
    per = run.executed.sum(axis=1, dtype=np.int64)
    total = run.executed.shape[1]
    same = captured * total == per * waves
    if same.all():
        return Comparison(count, count, waves, "mean", 1, None)
    groups = run.executed.reshape(count, -1, run.per_group).sum(axis=2, dtype=np.int64)
    for columns in (groups, run.executed.astype(np.int64)):  # whole workgroups, then single waves
        profiles = np.unique(columns, axis=1)
        weights = _mixture(profiles, captured)
        if weights is not None:
            return Comparison(count, count, waves, "mixture", int((weights > 0).sum()), None)
    at = int(np.flatnonzero(~same)[0])
    entry = program.instructions[at]
    first = f"{entry.where()}: captured {captured[at] / waves:g} a wave, executed {per[at] / total:g}"
    return Comparison(int(same.sum()), count, waves, "differs", 0, first)


def _mixture(profiles: Any, captured: Any) -> Any:
    """Whole non-negative numbers of each profile that sum to the capture exactly, or None.

    An integer program over the distinct rows; profiles of loops are linearly dependent, so least squares
    would find a sum of fractions.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    rows = np.unique(np.concatenate([profiles, captured[:, None]], axis=1), axis=0)
    left, right = rows[:, :-1].astype(np.float64), rows[:, -1].astype(np.float64)
    number = left.shape[1]
    found = milp(
        np.ones(number),
        constraints=LinearConstraint(left, right, right),
        integrality=np.ones(number),
        bounds=Bounds(0, np.inf),
        options={"time_limit": 20},
    )
    if found.x is None:
        return None
    weights = np.rint(found.x).astype(np.int64)
    return weights if (profiles @ weights == captured).all() else None


def pack(values: Sequence[int]) -> list[list[int]]:
    """Run-length form: [[value, repeats], ...]."""
    out: list[list[int]] = []
    for value in values:
        if out and out[-1][0] == value:
            out[-1][1] += 1
        else:
            out.append([int(value), 1])
    return out


def unpack(packed: Sequence[Sequence[int]]) -> list[int]:
    """The inverse of `pack`."""
    return [value for value, repeats in packed for _ in range(repeats)]
