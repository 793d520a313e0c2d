"""Writes docs/execute.md from the bundles' evidence/executed.json and the opcode table: no figure in it is
typed by hand.

python tools/execute_doc.py            # write it
python tools/execute_doc.py --check    # exit 1 where it is not what would be written
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from harness import evidence  # noqa: E402
from harness.bundle import ROOT as BUNDLES  # noqa: E402
from harness.bundle import find  # noqa: E402
from harness.execute.opcodes import FAMILIES, OPS  # noqa: E402

TARGET = ROOT / "docs" / "execute.md"

HEAD = """# Executing the compiled binary on a CPU

Written by `python tools/execute_doc.py` from `bundles/*/evidence/executed.json`; a test fails where it is
not current.

The execute tier runs the gfx950 code object that the compile tier makes, on this machine's CPU. It answers
three
kinds of claim: `numerics` (outputs against a float64 reference), `counts` (executions of each instruction
against a captured trace) and `race` (two accesses that nothing orders).

    harness execute BUNDLE [--workload W] [--workgroups N] [--schedule S,...] [--trace FILE]

## How

1. The launch is recorded: FlyDSL's own host code runs with its GPU runtime replaced
   (`harness/compile/launch.py`), so grid, block, LDS and arguments are the launcher's.
2. The code object is decoded ([ADR 0011](adr/0011-decoder.md)) and each instruction bound to arrays over
   [workgroups x waves x 64 lanes]. Waves at one PC step together; a branch that they take differently splits
   them.
3. Memory is the workload's tensors. An access outside every tensor stops the run with PC, source line and
lane.
4. Races are found by happens-before over barriers and waits on one execution; then a schedule is looked for
in which
   one changes the outputs. Schedules: `fair` (all waves in step), `ahead` and `reversed` (one wave after the
   other to its next barrier), `random:SEED`, `leader:WAVE@INTERVAL` (one wave ahead in one barrier interval).

Rows, columns or tokens that only multiply workgroups are executed in smaller number
(`harness/execute/plan.py`; the
evidence has the dimensions), and large launches by sampled workgroups; the code is the claimed one, by its
hash. A capture counts some waves of a launch: where waves differ, its counts must be a whole-numbered sum of
profiles that the launch has ("mixture" below).

A race with "no barrier between" its accesses contradicts a kernel's freedom of races. One with "no wait
before the
barrier" needs an LDS access to be overtaken after its wave has passed the barrier: the memory model allows
it, no schedule here shows it, and the claim stays open.

What it does not know: time, caches, the order and width in which matrix instructions accumulate (sums here
are float64, rounded once), races between workgroups.

## Bad input

| input | answer |
|---|---|
| damaged HSACO, another architecture | one line that says which |
| bytes that are no instruction | address and first word |
| an opcode or form that the table lacks | its name, PC and source line, when it is reached |
| access outside every buffer; store beyond LDS | address, PC, source line, workgroup, wave, lane |
| endless loop | the budget, and the PC where the wave stands |
| a barrier that not all waves reach | deadlock, with each wave's state and PC |
| kernarg of another size | both sizes |
| NaN in inputs | computed as the hardware does; equal to the reference's NaN |

## An opcode more

Add an entry to the fitting `harness/execute/opcodes_*.py`: name, signature, section of the ISA document, and
one pure function over arrays. `tests/test_execute_opcodes.py` interprets the document's pseudo-code as the
oracle; where it cannot, add a case with edge values there. A test fails for an entry that no test covers.
"""


def table() -> str:
    """One row a launch: share executed, numerics, counts, schedules, races."""
    lines = [
        "## Results",
        "",
        "| bundle | workload | workgroups | max error | of allowed | cosine | counts | schedules | races |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    notes: list[str] = []
    for bundle in find(BUNDLES, ["all"]):
        data = evidence.read(bundle.path, "executed")
        if data is None:
            lines.append(f"| {bundle.id} | | not executed | | | | | | |")
            continue
        for launch in data["launches"]:
            lines.append(_row(bundle.id, launch, notes))
        for name, why in data["unsaid"].items():
            lines.append(f"| {bundle.id} | {name} | not executed: {why} | | | | | | |")
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)])


def _row(bundle: str, launch: Mapping[str, Any], notes: list[str]) -> str:
    names = ", ".join([launch["workload"], *launch["also"]])
    if "error" in launch:
        return f"| {bundle} | {names} | stopped: {launch['error']} | | | | | | |"
    outputs = launch["numerics"].values()
    groups = launch["workgroups"]
    error = max((one["max_abs_error"] or 0.0 for one in outputs), default=0.0)
    worst = max((one["worst"] or 0.0 for one in outputs), default=0.0)
    cosine = min((one["cosine"] for one in outputs if one["cosine"] is not None), default=1.0)
    counts = ", ".join(
        f"{one['equal']} of {one['instructions']}" + (" (mixture)" if one["how"] == "mixture" else "")
        for one in launch["captures"].values()
    )
    for name, one in launch["captures"].items():
        if one["first"]:
            notes.append(f"{bundle}, {name}: {one['first']}.")
    other = [one["name"] for one in launch["schedules"] if not one["same_as_fair"]]
    races = launch["races"]["found"]
    met: dict[str, int] = {}
    for race in races:
        sides = " and ".join(f"{s['kind']} at {s['source']}" for s in (race["first"], race["second"]))
        told = f"{bundle}: {race['reason']} in {race['space']}: {sides}"
        met[told] = met.get(told, 0) + 1
    notes += [
        f"{told}." if count == 1 else f"{told} ({count} pairs of instructions)."
        for told, count in met.items()
    ]
    cells = [bundle, names, f"{groups['executed']} of {groups['of']}", f"{error:.3g}", f"{worst:.2f}"]
    cells += [f"{cosine:.6f}", counts or "no capture", f"differs: {', '.join(other)}" if other else "same"]
    return "| " + " | ".join([*cells, str(len(races) or "none")]) + " |"


def opcodes() -> str:
    """How many opcodes each family has."""
    lines = ["", "## Opcodes", "", f"{len(OPS)} in all; the 191 of the captured listings are among them.", ""]
    for family in FAMILIES:
        first = (family.__doc__ or "").split("\n")[0]
        lines.append(f"- `{family.__name__.rsplit('.', 1)[1]}.py`: {first}")
    return "\n".join(lines)


def text() -> str:
    """The whole file."""
    return HEAD + "\n" + table() + "\n" + opcodes() + "\n"


def main() -> int:
    """Write, or check. Exit code 1 where `--check` finds a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    made = text()
    if args.check:
        same = TARGET.is_file() and TARGET.read_text() == made
        print(
            "docs/execute.md is current"
            if same
            else "docs/execute.md is not current: run tools/execute_doc.py"
        )
        return 0 if same else 1
    aside = TARGET.with_suffix(".part")
    aside.write_text(made)
    os.replace(aside, TARGET)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
