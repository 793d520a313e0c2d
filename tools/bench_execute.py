"""Speed of the execute tier on one core, on the project's own specimen softmax (no upstream source).

Million lane-instructions a second of CPU time, the best of five runs, for one workgroup and for 256 uniform
ones together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from bench import Figure

NEEDED = {1: 2.0, 256: 50.0}
"""Workgroups -> million lane-instructions a second."""


def figures() -> Iterator[Figure]:
    """One figure for each number of workgroups."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import time

    from harness.compile.cache import open_cache
    from harness.compile.request import CompileRequest
    from harness.compile.toolchain import assemble
    from harness.execute.dispatch import dispatch
    from harness.execute.outputs import buffers_of
    from harness.execute.recorded import record_launch
    from harness.specimens import row_softmax

    cache = open_cache()
    toolchain = assemble(cache)
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
        name = f"execute, {groups} workgroup{'s' if groups > 1 else ''} together"
        yield Figure(name, best, "M/s", needed, at_least=True, note="lane-instructions, CPU time, best of 5")
