"""The trace section: what the captured thread traces hold, and where each number comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.bundle import Bundle
from harness.report.words import escape
from harness.verdicts import Committed

ORDER = 40

SHOWN = 5


def render(bundle: Bundle, evidence: Mapping[str, Any], verdicts: Committed) -> str | None:
    """Markdown for all captures of this bundle, or None where its record holds none."""
    captures: Sequence[Mapping[str, Any]] = (evidence.get("study") or {}).get("captures", ())
    runs = {
        f"{name}, {workload}": one
        for name, data in sorted(evidence.items())
        if name.startswith("device") and isinstance(data, Mapping)
        for workload, one in sorted((data.get("trace") or {}).items())
    }
    if not captures and not runs:
        return None
    parts = ["## Thread traces"]
    parts += [
        "Cycles are shader-clock cycles summed over the sampled waves of one CU; they time nothing. Wave "
        "states are the decoder's own (1 IDLE, 2 EXEC, 3 WAIT, 4 STALL)."
    ]
    for one in captures:
        parts += _capture(one, one["directory"], one["faults"])
    for title, run in runs.items():
        parts += _recapture(title, run)
    return "\n\n".join(parts)


def _recapture(title: str, run: Mapping[str, Any]) -> Iterator[str]:
    if run["trace"] is not None:
        trace = {**run["trace"], "origin": "recaptured", "valid": run["valid"]}
        yield from _capture(trace, f"Recaptured: {title}", run["faults"])
    else:
        yield f"### Recaptured: {title}"
        yield "\n".join(_fault(fault) for fault in run["faults"])
    launch = run["launch"]
    if launch is not None:
        yield (
            f"Dispatch {launch['dispatch']}, median {launch['median_us']:.3f} µs of {launch['launches']} "
            "launches in the discovery job; the traced and counted launches time nothing."
        )
    if run["counters"]:
        yield _table(
            ("counter", "value"), [(name, f"{value:,.0f}") for name, value in run["counters"].items()]
        )


_ORIGINS = {
    "captures": "summed from the raw files",
    "facts": "collected facts; no raw files here",
    "recaptured": "recaptured with rocprofv3",
}


def _capture(one: Mapping[str, Any], title: str, faults: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"### {title}"
    origin = _ORIGINS[one["origin"]]
    verdict = "carries what it should" if one["valid"] else "**INVALID** for what is named below"
    yield f"`{one['symbol']}` on {one['arch'] or 'an unnamed GPU'}; {origin}; {verdict}."
    if faults:
        yield "\n".join(_fault(fault) for fault in faults)
    yield _table(("figure", "value", "source"), list(_rows(one)))
    if one["taxonomy"]:
        shares = [(name, f"{share:.2f} %") for name, share in one["taxonomy"].items() if share >= 0.05]
        yield _table(("stall cycles at", "share"), shares)
        if one.get("combined_wait_share"):
            yield (
                f"{one['combined_wait_share']:.2f} % of the stall cycles are at waits on two counters, split "
                "equally between the two."
            )
    for key, title in (("hotspots", "instruction"), ("source_lines", "source line")):
        spots = one.get(key) or ()
        if spots:
            rows = [
                (f"`{s['where']}`", s["what"], f"{s['stall']:,}", f"{s['share']:.1f} %", f"{s['hits']:,}")
                for s in spots[:SHOWN]
            ]
            yield _table((title, "what", "stall cycles", "share", "hits"), rows)


def _fault(fault: Mapping[str, Any]) -> str:
    text = f"- {fault['rule']}: {fault['message']}"
    if fault.get("spoils"):
        text += f". Cannot carry: {', '.join(fault['spoils'])}"
    if fault.get("remedy"):
        text += f". Remedy: {fault['remedy']}"
    return text + "."


def _rows(one: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    cycles, vgpr, occupancy = one["cycles"], one["vgpr"], one["occupancy"]
    rows = (
        f"{_n(one['instructions'])}, {_n(one['executed'])} executed, {_n(one['mapped'])} with a source line"
    )
    yield "instruction rows", rows, "code.json, label row left out"
    waves = _n(one["waves"])
    if one.get("waves_with_work") is not None:
        waves += f", {_n(one['waves_with_work'])} ran the kernel's body"
    yield "waves sampled", waves, "wave files"
    if cycles["total"] is not None:
        share = 100 * cycles["stall"] / cycles["total"] if cycles["total"] else 0.0
        text = (
            f"{cycles['total']:,} total, {cycles['stall']:,} stalled ({share:.2f} %), {cycles['idle']:,} idle"
        )
        yield "cycles", text, "code.json; equal to the wave files' sums" if one["valid"] else "code.json"
    if one["wave_states"]:
        text = ", ".join(f"{name.upper()} {share:.2f} %" for name, share in one["wave_states"].items())
        yield "wave states", text, "timelines of the wave files"
    yield (
        "registers",
        f"{_n(vgpr['allocated'])} VGPRs allocated, code names {_n(vgpr['max_index'])}; profiler's field "
        f"{_n(vgpr['field'])}",
        "listing, kernel trace, gfx950 descriptor rule",
    )
    yield "LDS", f"{_n(one['lds'])} B", "symbol record, or kernel trace (rounded up to 512)"
    limit = f"{_n(occupancy['limit'])} waves/SIMD"
    if occupancy["limited_by"]:
        limit += f" by {occupancy['limited_by']}"
    yield "occupancy limit", limit, "gfx950: 512 unified registers a lane, 160 KiB of LDS a CU"
    yield (
        "occupancy observed",
        f"{_n(occupancy['observed'])} waves/SIMD",
        "wave starts and ends in occupancy.json",
    )
    if one["grid_workgroups"]:
        grid = "x".join(map(str, one["grid_workgroups"]))
        size = "x".join(map(str, one["workgroup_size"])) if one["workgroup_size"] else "unknown"
        yield "launch", f"{grid} workgroups of {size}", "kernel trace of the same dispatch"
    if one.get("effective_clock_ghz") is not None:
        yield "effective clock", f"{one['effective_clock_ghz']:.3f} GHz", "realtime.json"


def _n(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(escape, row)) + " |" for row in rows])
