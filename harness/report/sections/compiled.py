"""The compiled section: what the code objects hold that were compiled here, and what compiled them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.bundle import Bundle
from harness.report.words import escape
from harness.verdicts import Committed

ORDER = 30

SHOWN = 10
"""Instruction classes that are named; the rest is added up."""

_HEAD = (
    "launch",
    "layer",
    "kernel",
    "instructions",
    "listing",
    "VGPR",
    "SGPR",
    "LDS",
    "scratch",
    "waves/SIMD",
)


def render(bundle: Bundle, evidence: Mapping[str, Any], verdicts: Committed) -> str | None:
    """A row a compiled kernel, or None where the bundle has no compile evidence."""
    found = evidence.get("compiled")
    if not found:
        return None
    tools = ", ".join(f"{name} {version}" for name, version in found["toolchain"].items())
    out = ["## Compiled for " + found["arch"], "", f"With {tools}, without a GPU.", ""]
    out += ["| " + " | ".join(_HEAD) + " |", "|---" * len(_HEAD) + "|"]
    classes: dict[str, Mapping[str, int]] = {}
    for launch in found["launches"]:
        for row in _rows(launch):
            out.append("| " + " | ".join(escape(part) for part in row) + " |")
        for one in launch["objects"]:
            classes.setdefault(f"`{one['symbol']}`, {_name(launch)}", one["histogram"])
    out += ["", "Instructions by class:", ""]
    seen: list[Mapping[str, int]] = []
    for name, histogram in classes.items():
        if histogram not in seen:
            seen.append(histogram)
            out.append(f"- {escape(name)}: {_histogram(histogram)}")
    return "\n".join(out if seen else out[:-3])


def _name(launch: Mapping[str, Any]) -> str:
    return str(launch["workload"]) + (f", {launch['variant']}" if launch["variant"] else "")


def _rows(launch: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    layer = str(launch["layer"] or "")[:8]
    if not launch["objects"]:
        error = str(launch["error"] or "nothing was compiled").splitlines()[0]
        yield (_name(launch), layer, error[:90], *("",) * 7)
    for one in launch["objects"]:
        registers, fits = one["registers"], one["occupancy"]
        vgprs = f"{registers['vgpr']}" + (f" + {registers['agpr']} AGPR" if registers["agpr"] else "")
        yield (
            _name(launch),
            layer,
            f"`{one['symbol']}`",
            f"{one['instructions']:,}",
            f"`{one['sha256'][:12]}`",
            f"{vgprs}, {registers['vgpr_allocated']} allocated",
            str(registers["sgpr"]),
            f"{one['lds_bytes']:,} B",
            f"{one['scratch_bytes']:,} B",
            f"{fits['waves_per_simd']} ({', '.join(fits['limiters'])})",
        )


def _histogram(histogram: Mapping[str, int]) -> str:
    ranked = sorted(histogram.items(), key=lambda pair: (-pair[1], pair[0]))
    named = [f"{name} {count}" for name, count in ranked[:SHOWN]]
    rest = sum(count for _, count in ranked[SHOWN:])
    return ", ".join([*named, f"others {rest}"] if rest else named)
