"""A/A error and cost of the device tier on the GPU that is here, beside two usual ways of timing.

    python tools/bench_gpu.py [aa]   --out DIR    the harness, triton do_bench (median), an eager 10+50 loop
    python tools/bench_gpu.py start  --out DIR    between-process spread of forked against spawned processes

Everything is the instrument's own softmax against itself: the truth is 1. Writes DIR/<command>.json, prints
a table.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.device.plan import COLD, CONTROL_AA, Plan, Shape
from harness.device.run import Decision, measure, open_run
from harness.device.samples import log_ratio

SHAPES = ("64x256", "1024x8192", "32768x8192")
DECISION = 5
"""Processes that a decision takes where nothing is in doubt: the first look."""


class Lines:
    """Progress as lines."""

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def task(self, title: str, total: int | None = None) -> Any:
        import contextlib

        class Task:
            def advance(self, steps: int = 1, note: str | None = None) -> None:
                return None

        return contextlib.nullcontext(Task())


def shapes(names: tuple[str, ...], baselines: tuple[str, ...] = ()) -> tuple[Shape, ...]:
    """The instrument's shapes by name."""
    from harness.kernels.instrument import WORKLOADS

    return tuple(Shape(n, dict(WORKLOADS[n]), baselines) for n in names)


def run(
    out: Path, start: str, names: tuple[str, ...], processes: int, baselines: tuple[str, ...] = ()
) -> Any:
    """`processes` replicates of each shape, A/A and positive control only unless baselines are named."""
    plan = Plan(
        "instrument",
        "harness.kernels.instrument",
        "cuda",
        shapes(names, baselines),
        start=start,
        regimes=(COLD,),
        looks=(processes,),
    )
    return measure(open_run(out, plan), Lines(), lambda p, s, w: Decision(False, ""))


def quantile(values: list[float], q: float) -> float:
    """The q-quantile, linear between order statistics."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def others(repeats: int) -> dict[str, dict[str, list[float]]]:
    """log A/A ratios of the two usual ways, `repeats` of each, in this process, by shape."""
    import torch
    import triton

    from harness.kernels import instrument

    def eager(launch: Any) -> float:
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(10):
            launch()
        torch.cuda.synchronize()
        first.record()
        for _ in range(50):
            launch()
        last.record()
        torch.cuda.synchronize()
        return float(first.elapsed_time(last))

    def bench(launch: Any) -> float:
        return float(triton.testing.do_bench(launch, return_mode="median"))

    found: dict[str, dict[str, list[float]]] = {}
    for name in SHAPES:
        dims = instrument.WORKLOADS[name]
        pair = [instrument.subject(dims, instrument.make_inputs(dims, device="cuda", seed=s)) for s in (1, 2)]
        for launch in pair:
            launch()
        torch.cuda.synchronize()
        found[name] = {
            way: [math.log(timer(pair[1]) / timer(pair[0])) for _ in range(repeats)]
            for way, timer in (("eager 10+50", eager), ("do_bench median", bench))
        }
    return found


def aa(out: Path, processes: int, repeats: int) -> dict[str, Any]:
    """A/A error by shape: p95 over repeats of |ratio - 1|, and what a decision costs."""
    begun = time.monotonic()
    done = run(out / "aa", "fork", SHAPES, processes)
    wall = time.monotonic() - begun
    rest = others(repeats)
    rows = []
    for name in SHAPES:
        whole = done.whole(name)
        values = [log_ratio(p, COLD, CONTROL_AA) for p in whole]
        pools = [values[i : i + DECISION] for i in range(0, len(values) - DECISION + 1, DECISION)]
        pooled = [abs(math.expm1(statistics.fmean(pool))) for pool in pools]
        seconds = [p["wall_s"] for p in whole]
        started = [p["seconds"]["start"] + p["seconds"]["import"] + p["seconds"]["context"] for p in whole]
        rows.append(
            {
                "shape": name,
                "processes": len(values),
                "repeats": len(pooled),
                "harness_p95": quantile(pooled, 0.95),
                "harness_ratio": math.exp(statistics.fmean(values)),
                "between_process_sd": statistics.stdev(values),
                "seconds_to_decision": statistics.fmean(seconds) * DECISION,
                "start_up_share": sum(started) / sum(seconds),
                "log_ratios": [round(v, 7) for v in values],
                **{
                    way: {"p95": quantile([abs(math.expm1(v)) for v in logs], 0.95), "repeats": len(logs)}
                    for way, logs in rest[name].items()
                },
            }
        )
    return {
        "what": "aa",
        "wall_s": round(wall, 1),
        "device": whole[0]["device"],
        "versions": whole[0]["versions"],
        "rows": rows,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """A/A error and cost, one line a shape."""
    lines = ["shape         A/A error, p95: harness  do_bench  eager   seconds to a decision  start-up share"]
    for row in rows:
        lines.append(
            f"{row['shape']:<14}{100 * row['harness_p95']:22.2f} %"
            f"{100 * row['do_bench median']['p95']:8.1f} %"
            f"{100 * row['eager 10+50']['p95']:6.1f} %{row['seconds_to_decision']:22.0f}"
            f"{100 * row['start_up_share']:14.0f} %"
        )
    return "\n".join(lines)


def start(out: Path, processes: int, names: tuple[str, ...]) -> dict[str, Any]:
    """Forked against spawned: spread between processes of the A/A and the Triton-torch ratio, and what one
    costs."""
    rows = []
    for name in names:
        for kind in ("fork", "spawn"):
            done = run(out / f"start-{kind}-{name}", kind, (name,), processes, ("torch-softmax",))
            whole = done.whole(name)
            for pair in (CONTROL_AA, "ratio:torch-softmax"):
                values = [log_ratio(p, COLD, pair) for p in whole]
                rows.append(
                    {
                        "shape": name,
                        "start": kind,
                        "pair": pair,
                        "processes": len(values),
                        "ratio": math.exp(statistics.fmean(values)),
                        "between_process_sd": statistics.stdev(values),
                        "wall_s": statistics.fmean(p["wall_s"] for p in whole),
                        "seconds": {
                            k: round(statistics.fmean(p["seconds"][k] for p in whole), 3)
                            for k in whole[0]["seconds"]
                        },
                        "log_ratios": [round(v, 7) for v in values],
                    }
                )
    return {"what": "start", "device": whole[0]["device"], "versions": whole[0]["versions"], "rows": rows}


def main() -> int:
    """Run one of the two and write what it found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs="?", choices=("aa", "start"), default="aa")
    parser.add_argument("--out", type=Path, default=Path("build/bench-gpu"))
    parser.add_argument("--processes", type=int, default=0, help="replicates a shape (aa: 20, start: 12)")
    parser.add_argument("--shape", action="append", choices=SHAPES, help="start: only this shape, repeatable")
    parser.add_argument("--repeats", type=int, default=20, help="repeats of the two usual ways (aa)")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.command == "aa":
        found = aa(args.out, args.processes or 20, args.repeats)
    else:
        found = start(args.out, args.processes or 12, tuple(args.shape or ("64x256", "1024x8192")))
    (args.out / f"{args.command}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if args.command == "aa":
        print(table(found["rows"]))
        return 0
    for row in found["rows"]:
        print({k: (round(v, 5) if isinstance(v, float) else v) for k, v in row.items() if k != "log_ratios"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
