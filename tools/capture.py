"""Capture the instrument on the GPU that is here: every process to the last look, so that others can be
judged by it.

    python tools/capture.py --out DIR [--slowdown 0.06 --shape 1024x8192 --processes 8]

Writes the run's directory; `python tools/capture.py --assemble DIR FILE` turns it into one evidence file.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.device.plan import COLD, LOOKS, REGIMES, Plan, Shape
from harness.device.run import Decision, measure, open_run
from tools.bench_gpu import SHAPES, Lines


def main() -> int:
    """Capture or assemble."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--slowdown", type=float, default=0.0)
    parser.add_argument("--shape", action="append")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--start", default="fork")
    parser.add_argument("--seed", type=int, default=20)
    args = parser.parse_args()
    from harness.kernels.instrument import WORKLOADS

    shapes = tuple(Shape(n, dict(WORKLOADS[n]), ("torch-softmax",)) for n in args.shape or SHAPES)
    looks = tuple(k for k in LOOKS if args.processes is None or k < args.processes)
    looks += () if args.processes is None else (args.processes,)
    plan = Plan(
        "instrument",
        "harness.kernels.instrument",
        "cuda",
        shapes,
        start=args.start,
        regimes=(COLD,) if args.slowdown else REGIMES,
        slowdown=args.slowdown,
        seed=args.seed,
        looks=looks,
        all_looks=True,
    )
    run = measure(open_run(args.out, plan), Lines(), lambda p, s, w: Decision(False, ""))
    for name, processes in run.processes.items():
        seconds = sum(p["wall_s"] for p in processes)
        print(name, len(run.whole(name)), "of", len(processes), "processes,", round(seconds, 1), "s")
        for p in processes:
            if p["fault"]:
                print("  ", p["fault"], p["message"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
