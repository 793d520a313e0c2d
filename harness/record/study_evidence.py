"""`evidence/study.json` made again from the study's raw files.

Knows the layout of the study (examples/<kernel>/{att_viewer,compute_viewer}, benchmarks/<operator>) and the
shape of `schema/study.schema.json`. What the raw files here do not hold is kept as it was, with its own
origin. Must not judge and must not know published figures.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from harness.bundle import Bundle
from harness.record import multishape
from harness.trace.analysis import Analysis, Hotspot
from harness.trace.csvs import Dispatches, KernelTrace
from harness.trace.faults import Fault
from harness.trace.files import Entry
from harness.trace.session import Session, analyses, read

__all__ = ["Raw", "example_of", "gather", "renew"]

SYMBOL_LIMIT = 160
_EXAMPLE = re.compile(r"^examples/([^/]+)/")


@dataclass
class Raw:
    """All that the study's raw files hold here: captures by directory, traces by file, benchmark rows by
    operator."""

    captures: dict[str, Analysis] = field(default_factory=dict)
    traces: dict[str, KernelTrace] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    rows: dict[str, multishape.Rows] = field(default_factory=dict)
    weights: dict[str, dict[str, float]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    bytes: int = 0


def _short(path: str) -> str:
    return path.removeprefix("examples/")


def gather(study: Path) -> Raw:
    """Read the study below `study`: unpacked, a checkout, or a directory of `.tar.gz`. HarnessError."""
    raw = Raw()

    def other(entry: Entry) -> bool:
        if entry.name not in ("benchmark_results.jsonl", "shape_ledger.jsonl"):
            return False
        operator = entry.directory.rpartition("/")[2]
        with entry.open() as plain, io.BufferedReader(cast(io.RawIOBase, plain), 1 << 20) as stream:
            if entry.name == "benchmark_results.jsonl":
                raw.rows[operator] = multishape.rows(_lines(stream), operator)
            else:
                raw.weights[operator] = multishape.weights(_lines(stream))
        return True

    session: Session = read(study, inside=True, other=other)
    for analysis in analyses(session):
        raw.captures[_short(analysis.directory)] = analysis
    raw.traces = {_short(path): trace for path, trace in session.traces.items() if path.endswith(".csv")}
    raw.hashes = {_short(path): value for path, value in session.hashes.items()}
    raw.faults = session.faults
    raw.bytes = session.bytes
    return raw


class _Readline(Protocol):
    def readline(self, size: int = -1, /) -> bytes: ...


def _lines(stream: _Readline) -> Iterator[bytes]:
    """Lines; one that never ends comes in pieces, which no reader takes for a row."""
    return iter(lambda: stream.readline(multishape.LINE_LIMIT), b"")


def example_of(bundle: Bundle, old: Mapping[str, Any] | None) -> str | None:
    """The study's directory for this kernel: where its evidence or most of its cites point. None for none."""
    for capture in (old or {}).get("captures", ()):
        return str(capture["directory"]).split("/")[0]
    cited = Counter(
        found[1] for claim in bundle.claims for cite in claim.cites if (found := _EXAMPLE.match(cite))
    )
    return cited.most_common(1)[0][0] if cited else None


def renew(bundle: Bundle, old: Mapping[str, Any], raw: Raw) -> dict[str, Any]:
    """`old` with every record that the raw files hold made again; the order of the records stays."""
    new = dict(old)
    example = example_of(bundle, old)
    if example is not None:
        new["captures"] = _captures(old.get("captures", ()), raw, example)
        new["kernel_traces"] = _traces(old.get("kernel_traces", ()), raw, example, bundle)
    new["multishape"] = _multishape(old.get("multishape", ()), raw)
    return new


def _captures(old: Any, raw: Raw, example: str) -> list[dict[str, Any]]:
    fresh = {path: _capture(a) for path, a in raw.captures.items() if path.startswith(f"{example}/")}
    kept = [fresh.pop(one["directory"], one) for one in old]
    return kept + list(fresh.values())


def _hot(spots: tuple[Hotspot, ...]) -> list[dict[str, Any]]:
    return [
        {
            "where": spot.where, "what": spot.what, "hits": spot.hits, "cycles": spot.cycles,
            "stall": spot.stall, "share": round(spot.share, 2),
        }
        for spot in spots
    ]  # fmt: skip


def _capture(a: Analysis) -> dict[str, Any]:
    full = a.to_json()
    names = (
        "code_sha256", "listing_sha256", "arch", "symbol", "instructions", "executed", "mapped", "cycles",
        "taxonomy", "taxonomy_study_rule", "combined_wait_share", "waves", "waves_with_work", "wave_starts",
        "wave_states", "vgpr", "lds", "sgpr", "occupancy", "workgroup_size", "grid_workgroups",
        "effective_clock_ghz",
    )  # fmt: skip
    full["wave_starts"] = full["occupancy"].pop("wave_starts")
    full["vgpr"].pop("rule")
    return {
        "directory": _short(a.directory),
        "origin": "captures",
        **{name: full[name] for name in names},
        "hotspots": _hot(a.by_instruction),
        "source_lines": _hot(a.by_line),
        "valid": a.valid,
        "faults": [fault.to_json() for fault in a.faults],
    }


def _traces(old: Any, raw: Raw, example: str, bundle: Bundle) -> list[dict[str, Any]]:
    roles = {
        kernel["symbol"]: kernel["role"]
        for trace in old
        for kernel in trace["kernels"]
    }  # fmt: skip
    roles.update(dict.fromkeys(bundle.kernel.symbols, "subject"))
    fresh = {
        path: {
            "file": path,
            "origin": "captures",
            "sha256": raw.hashes.get(path),
            "kernels": _kernels(trace, roles),
        }
        for path, trace in raw.traces.items()
        if path.startswith(f"{example}/")
    }
    kept = [fresh.pop(one["file"], one) for one in old]
    return kept + [trace for trace in fresh.values() if trace["kernels"]]


def _kernels(trace: KernelTrace, roles: Mapping[str, str]) -> list[dict[str, Any]]:
    merged: dict[tuple[Any, ...], list[Dispatches]] = {}
    for group in trace.kernels:
        symbol = group.symbol[:SYMBOL_LIMIT]
        if symbol in roles:
            merged.setdefault((symbol, group.grid, group.workgroup), []).append(group)
    out = []
    for (symbol, grid, workgroup), groups in merged.items():
        durations = sorted(d for group in groups for d in group.durations)
        main = max(groups, key=lambda group: len(group.durations))
        middle = len(durations) // 2
        median = durations[middle] if len(durations) % 2 else sum(durations[middle - 1 : middle + 1]) / 2
        out.append(
            {
                "symbol": symbol,
                "role": roles[symbol],
                "n": len(durations),
                "median_us": round(median / 1000, 3),
                "min_us": round(durations[0] / 1000, 3),
                "max_us": round(durations[-1] / 1000, 3),
                "q01_us": round(durations[-(-len(durations) // 100) - 1] / 1000, 3),
                "q99_us": round(durations[-(-99 * len(durations) // 100) - 1] / 1000, 3),
                "grid_workgroups": list(grid),
                "workgroup_size": list(workgroup),
                "vgpr_field": main.vgpr,
                "lds": main.lds,
            }
        )
    return sorted(out, key=lambda k: (k["role"] != "subject", -k["n"], k["symbol"], k["grid_workgroups"]))


def _multishape(old: Any, raw: Raw) -> list[dict[str, Any]]:
    """Every mean that was there, from the rows where they are; a baseline without a record before gets
    one."""
    out: list[dict[str, Any]] = []
    operators = list(dict.fromkeys(one["op"] for one in old))
    for operator in operators:
        records = [one for one in old if one["op"] == operator]
        if operator not in raw.rows:
            out += records
            continue
        rows = raw.rows[operator]
        fresh = {s.provider: s for s in multishape.summaries(rows, raw.weights.get(operator))}
        for record in records:
            summary = fresh.pop(record["baseline_provider"], None)
            out.append(_mean(summary, rows, record) if summary is not None else record)
        out += [_mean(summary, rows, {}) for summary in fresh.values()]
    return out


def _mean(s: multishape.Summary, rows: multishape.Rows, old: Mapping[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {
        "op": rows.op,
        "baseline_provider": s.provider,
        "shapes": s.shapes,
        "geomean": round(s.geomean, 4),
        "weighted": round(s.weighted, 4) if s.weighted is not None else None,
        "weighted_shapes": s.weighted_shapes,
        "wins": s.wins,
        "losses": s.losses,
        "timing_floor_rows": s.floor,
        "mixed_timing_rows": s.mixed,
        "origin": "captures",
    }
    if s.provider == "best":
        record |= {
            "status": dict(rows.status),
            "impossible_rows": rows.impossible,
            "commits": list(rows.commits),
        }
    for name in ("dtype", "stated"):
        if name in old:
            record[name] = old[name]
    return record
