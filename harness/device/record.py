"""Device evidence: a run's directory into one file, and that file read back and checked. Raw samples, all
hashed.

The only reader and writer of `evidence/device-*.json`. A truncated, edited or foreign file ends in a
HarnessError that says which. Knows nothing of verdicts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.device.plan import digest, plan_from_json
from harness.device.run import Run, write_text
from harness.errors import HarnessError
from harness.schemas import broken

__all__ = ["SCHEMA_VERSION", "assemble", "read", "render", "seal", "verify", "write"]

SCHEMA_VERSION = 1

_PROCESS_KEYS = (
    "index",
    "file",
    "complete",
    "fault",
    "message",
    "seed",
    "wall_s",
    "seconds",
    "gates",
    "sizing",
    "steady",
    "regimes",
)


def assemble(run: Run) -> dict[str, Any]:
    """Evidence of all that the processes of `run` wrote, interrupted ones included and marked. Sealed.

    HarnessError where processes of one run saw different devices.
    """
    walls = _json(run.directory / "walls.json")
    origin = _json(run.directory / "provenance.json")
    environment: dict[str, Any] = {}
    shapes = []
    for shape in run.plan.shapes:
        rows = []
        for process in run.processes[shape.id]:
            row = {key: process.get(key) for key in _PROCESS_KEYS}
            row["wall_s"] = process.get("wall_s", walls.get(process["file"]))
            row["regimes"] = _compact(process["regimes"])
            row["sha256"] = digest(row)
            rows.append(row)
            _same_device(environment, process)
        shapes.append({"id": shape.id, "processes": rows})
    return seal(
        {
            "schema_version": SCHEMA_VERSION,
            "tier": "device",
            "bundle": run.plan.bundle,
            "created": origin.get("created", "unknown"),
            "interrupted": run.interrupted,
            "plan": run.plan.to_json(),
            "plan_sha256": run.plan.sha256,
            "environment": {
                "device": environment.get("device"),
                "host": environment.get("host"),
                "versions": environment.get("versions"),
                "git": {k: origin.get(k, "unknown") for k in ("commit", "modified")},
                "pins_sha256": origin.get("pins_sha256", "unknown"),
            },
            "shapes": shapes,
        }
    )


def _same_device(environment: dict[str, Any], process: Mapping[str, Any]) -> None:
    if "device" not in process:
        return
    if not environment:
        environment.update({k: process[k] for k in ("device", "host", "versions")})
    here, there = environment["device"], process["device"]
    if (here["name"], here["arch"]) != (there["name"], there["arch"]):
        raise HarnessError(
            f"{process['file']}: measured on {there['name']}, the run on {here['name']}",
            remedy="resume a run on the machine that began it",
        )


def _compact(regimes: Mapping[str, Any]) -> dict[str, Any]:
    """Order as one letter a block: `a` for ABBA (the subject first and last), `b` for BAAB."""
    out = {}
    for name, regime in regimes.items():
        pairs = {
            pair: {"order": "".join("a" if o == "ABBA" else "b" for o in p["order"]), "ns": p["ns"]}
            for pair, p in regime["pairs"].items()
        }
        out[name] = {"blocks": regime["blocks"], "meter": regime["meter"], "pairs": pairs}
    return out


def seal(evidence: dict[str, Any]) -> dict[str, Any]:
    """`evidence` with the sha256 of everything else in it."""
    rest = {k: v for k, v in evidence.items() if k != "sha256"}
    return {**rest, "sha256": digest(rest)}


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def render(evidence: Mapping[str, Any]) -> str:
    """The file's text: one line a process, so that a diff shows which one changed."""
    lines = ["{"]
    head = {k: v for k, v in evidence.items() if k not in ("shapes", "sha256")}
    for key, value in head.items():
        lines.append(f"{json.dumps(key)}:{json.dumps(value, allow_nan=False, ensure_ascii=False)},")
    lines.append('"shapes":[')
    for number, shape in enumerate(evidence["shapes"]):
        lines.append(f'{{"id":{json.dumps(shape["id"])},"processes":[')
        rows = [json.dumps(p, separators=(",", ":"), allow_nan=False) for p in shape["processes"]]
        lines.append(",\n".join(rows))
        lines.append("]}" + ("," if number + 1 < len(evidence["shapes"]) else ""))
    lines.append(f'],\n"sha256":{json.dumps(evidence["sha256"])}\n}}\n')
    return "\n".join(lines)


_AGAIN = "copy the file again from where it was captured"


def write(path: Path, evidence: Mapping[str, Any]) -> None:
    """Write evidence and read it again: what does not survive that is a defect here, not in the data."""
    write_text(path, render(evidence))
    read(path)


def read(path: Path) -> dict[str, Any]:
    """Evidence from a file, checked by `verify`. HarnessError where it is not there, cut short or edited."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HarnessError(f"{path}: cannot be read ({error})") from error
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HarnessError(
            f"{path}: not JSON, perhaps cut short ({error})",
            remedy=_AGAIN,
        ) from error
    return verify(data, str(path))


def verify(data: Any, where: str = "device evidence") -> dict[str, Any]:
    """Schema, hashes of the whole, of each process and of the plan. HarnessError names the first that
    fails."""
    faults = list(broken("device", data))
    if faults:
        first = faults[0]
        at = ".".join(str(p) for p in first.path) or "the file"
        raise HarnessError(
            f"{where}: {at} {first.message}" + (f" (and {len(faults) - 1} more)" if faults[1:] else ""),
            remedy=_AGAIN,
        )
    evidence: dict[str, Any] = data
    if seal(evidence)["sha256"] != evidence["sha256"]:
        raise HarnessError(
            f"{where}: the contents do not match their sha256 (edited or damaged)", remedy=_AGAIN
        )
    for shape in evidence["shapes"]:
        for process in shape["processes"]:
            rest = {k: v for k, v in process.items() if k != "sha256"}
            if digest(rest) != process["sha256"]:
                raise HarnessError(f"{where}: process {process['file']} does not match its sha256 (edited)")
    if plan_from_json(evidence["plan"]).sha256 != evidence["plan_sha256"]:
        raise HarnessError(f"{where}: the plan does not match its sha256 (edited)")
    return evidence
