"""The executed section: what the compiled binaries did on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.bundle import Bundle
from harness.report.words import escape
from harness.verdicts import Committed

ORDER = 35

_HEAD = (
    "workload",
    "kernel",
    "workgroups",
    "output",
    "max error",
    "of allowed",
    "cosine",
    "instructions a wave",
    "lanes",
)


def render(bundle: Bundle, evidence: Mapping[str, Any], verdicts: Committed) -> str | None:
    """One row an output; below, counts against captures, schedules and races. None where nothing was
    executed.
    """
    data = evidence.get("executed")
    if not data or not data["launches"]:
        return None
    out = ["## Executed on a CPU", "", "| " + " | ".join(_HEAD) + " |", "|---" * len(_HEAD) + "|"]
    notes: list[str] = []
    for launch in data["launches"]:
        names = ", ".join([launch["workload"], *launch["also"]])
        if "error" in launch:
            notes.append(f"{names}: stopped: {launch['error']}")
            continue
        out += _rows(names, launch)
        notes += [f"{names}: {note}" for note in _notes(launch)]
    notes += [f"{name}: not executed: {why}" for name, why in data["unsaid"].items()]
    return "\n".join([*out, "", *(f"- {escape(note)}" for note in notes)])


def _rows(names: str, launch: Mapping[str, Any]) -> list[str]:
    groups, each = launch["workgroups"], launch["counts"]["instructions_per_wave"]
    span = str(each["min"]) if each["min"] == each["max"] else f"{each['min']}-{each['max']}"
    rows = []
    for output, one in launch["numerics"].items():
        cells = [names, launch["symbol"], f"{groups['executed']} of {groups['of']}", output]
        cells += [
            "no number" if one[key] is None else f"{one[key]:.3g}" for key in ("max_abs_error", "worst")
        ]
        cells.append("no number" if one["cosine"] is None else f"{one['cosine']:.6f}")
        cells += [span, f"{100 * launch['counts']['lanes_active']:.1f} %"]
        rows.append("| " + " | ".join(escape(cell) for cell in cells) + " |")
    return rows


def _notes(launch: Mapping[str, Any]) -> list[str]:
    notes = []
    for name, one in launch["captures"].items():
        how = {"mean": "as captured", "mixture": "as a sum of this launch's profiles"}.get(one["how"], "")
        tail = f", {how}" if how else f"; first that differs: {one['first']}"
        notes.append(f"{one['equal']} of {one['instructions']} instructions executed as often{tail} ({name})")
    other = [one["name"] for one in launch["schedules"] if not one["same_as_fair"]]
    names = ", ".join(one["name"] for one in launch["schedules"])
    notes.append(
        f"outputs differ under schedule {', '.join(other)}" if other else f"same outputs under {names}"
    )
    races = launch["races"]
    if not races["found"]:
        notes.append(f"no race ({races['workgroups']} workgroups watched)")
        return notes
    met: dict[str, int] = {}
    verbs = {"r": "read", "w": "write", "a": "update"}
    for race in races["found"]:
        sides = " and ".join(
            f"{verbs[side['kind']]} at {side['source']}" for side in (race["first"], race["second"])
        )
        told = f"race in {race['space']}, {race['reason']}: {sides}"
        met[told] = met.get(told, 0) + 1
    notes += [
        told if count == 1 else f"{told} ({count} pairs of instructions)" for told, count in met.items()
    ]
    if races["witness"] is not None:
        notes.append(f"shown by {races['witness']['schedule']}: {races['witness']['says']}")
    return notes
