"""Speed of the execute tier on one core, on the project's own specimen softmax (no upstream source).

usage: python tools/bench_execute.py [--json]. Prints million lane-instructions a second for one workgroup
and for 256 uniform ones together, against the figures that the tier must reach.
"""

from __future__ import annotations

import argparse
import json
import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

NEEDED = {1: 2.0, 256: 50.0}
"""Workgroups -> million lane-instructions a second."""


def main() -> int:
    """Exit code 1 where a figure is not reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    from harness.compile.cache import open_cache
    from harness.compile.request import CompileRequest
    from harness.compile.toolchain import assemble
    from harness.execute.dispatch import dispatch
    from harness.execute.outputs import buffers_of
    from harness.execute.recorded import record_launch
    from harness.specimens import row_softmax

    cache = open_cache()
    toolchain = assemble(cache)
    results = {}
    for groups, needed in NEEDED.items():
        dims = {"M": groups, "N": 2048, "path": "vector"}
        recorded = record_launch(CompileRequest("harness.specimens.row_softmax", dims), toolchain, cache)
        (launch,), (program,) = recorded.launches, recorded.programs
        best = 0.0
        for _ in range(5):
            tensors = row_softmax.make_inputs(dims, device="cpu", seed=0)
            before = time.process_time()
            run = dispatch(program, launch, buffers_of(tensors, launch), batch=groups)
            best = max(best, run.lane_instructions / (time.process_time() - before) / 1e6)
        results[groups] = best
        if not args.json:
            print(
                f"{groups:4d} workgroups: {best:7.1f} M lane-instructions/s of CPU time (needed {needed:g})"
            )
    if args.json:
        print(json.dumps({str(groups): round(value, 1) for groups, value in results.items()}))
    return int(any(results[groups] < needed for groups, needed in NEEDED.items()))


if __name__ == "__main__":
    raise SystemExit(main())
