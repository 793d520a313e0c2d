"""Figures of the trace readers and of the audit, on the study's captures where STUDY_SRC holds them.

Wall time on at most two CPUs, the least of three fresh processes; peak memory of the process and its child.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import ROOT, Figure

REPEATS = 3
_PEAK = "resource.getrusage(resource.RUSAGE_{}).ru_maxrss"
MEMORY = (
    "import resource, sys; from harness.cli import main; main(sys.argv[1:]); "
    f"print({_PEAK.format('SELF')} + {_PEAK.format('CHILDREN')}, file=sys.stderr)"
)


def _two_cpus() -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])


def measure(*arguments: str) -> tuple[float, float, float]:
    """(wall s, CPU s, peak MB with its child) of one command, each the least of `REPEATS` runs after one
    discarded."""
    walls, cpus, peaks = [], [], []
    for _ in range(REPEATS + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.perf_counter()
        ran = subprocess.run(
            [sys.executable, "-c", MEMORY, *arguments], cwd=ROOT, capture_output=True, text=True, check=False,
            preexec_fn=_two_cpus,
        )  # fmt: skip
        walls.append(time.perf_counter() - begin)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        peaks.append(int(ran.stderr.strip().splitlines()[-1]) / 1024)
    return min(walls[1:]), min(cpus[1:]), min(peaks[1:])


def figures() -> Iterator[Figure]:
    """Audit, one bundle, and the capture with the most wave files."""
    study = os.environ.get("STUDY_SRC")
    if not study:
        why = "STUDY_SRC is not set"
        yield Figure("harness audit, 13 kernels", None, "s", 4.0, note=why)
        yield Figure("harness trace, 2,056 wave files", None, "s", 1.2, note=why)
        return
    wall, cpu, peak = measure("audit", "--study", study)
    note = f"wall on 2 CPUs, least of {REPEATS}; {cpu:.2f} s of CPU"
    yield Figure("harness audit, 13 kernels", wall, "s", 4.0, note=note)
    yield Figure("harness audit, peak memory", peak, "MB", 300.0, note="the process and its child together")
    softmax = next(Path(study).glob("softmax/att_viewer/big/ui_output_*"), None)
    if softmax is not None:
        wall, cpu, _ = measure("trace", str(softmax))
        yield Figure(
            "harness trace, 2,056 wave files",
            wall,
            "s",
            1.2,
            note=f"{note.split(';')[0]}; {cpu:.2f} s of CPU",
        )
        tool = "tools/hotspot_analyzer.py"
        analyzer = next((d / tool for d in (Path(study), Path(study).parent) if (d / tool).is_file()), None)
        if analyzer is not None:
            begin = time.perf_counter()
            subprocess.run([sys.executable, str(analyzer), str(softmax)], capture_output=True, check=False)
            yield Figure(
                "the study's own analyzer, same capture", time.perf_counter() - begin, "s",
                note="reads code.json and no wave file",
            )  # fmt: skip
    yield throughput(Path(study))


def throughput(study: Path) -> Figure:
    """One bundle's files read and analysed in a warm process."""
    sys.path.insert(0, str(ROOT))
    import gc

    from harness.trace.session import analyses, read

    gc.disable()
    best, size = 0.0, 0
    for _ in range(REPEATS + 1):
        begin = time.perf_counter()
        session = read(study / "flash_attn_func")
        analyses(session)
        size = session.bytes
        best = max(best, size / 1e6 / (time.perf_counter() - begin))
    gc.enable()
    return Figure(
        "one bundle read and analysed", best, "MB/s", 80.0, at_least=True, note=f"{size / 1e6:.0f} MB, warm"
    )
