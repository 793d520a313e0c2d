"""A stand-in for rocprofv3: takes its command line, writes files in its formats, fails in its known ways.

Run by tests through a small executable; `STANDIN` in the environment names the failure. It refuses an
option that the real one does not document, as that one would.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness.trace.rocprofv3 import Job, undocumented
from tests import captures

WAVES = 8
LAUNCHES = 20
GRID = 32 * WAVES
"""Workgroups of one wave each: what the wave log of one engine of 32 scales to."""


def main(arguments: list[str]) -> int:
    """One run; the exit code."""
    wrong = undocumented(Job("standin", tuple(arguments), Path()))
    if wrong:
        print("usage error: " + "; ".join(wrong))
        return 2
    mode = os.environ.get("STANDIN", "good")
    options = arguments[: arguments.index("--")]
    out = Path(options[options.index("-d") + 1])
    out.mkdir(parents=True, exist_ok=True)
    if "--kernel-trace" in options:
        return _discover(mode, out)
    iteration = int(options[options.index("--kernel-iteration-range") + 1].strip("[]"))
    if "--att" in options:
        return _att(mode, out, options, iteration)
    return _pmc(mode, out, options, iteration)


def _write(out: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (out / name).write_bytes(data)


def _hang() -> int:
    """Leave a child behind and never come back."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
    Path(os.environ["STANDIN_PID"]).write_text(f"{os.getpid()} {child.pid}", encoding="utf-8")
    time.sleep(120)
    return 0


def _discover(mode: str, out: Path) -> int:
    files = captures.tables(grid=GRID, launches=LAUNCHES)
    if mode == "wrapped":
        text = files["out_kernel_trace.csv"].decode().replace(",1000000,", ",9000000,")
        files["out_kernel_trace.csv"] = text.encode()
    if mode == "other-name":
        files = captures.tables(grid=GRID, launches=LAUNCHES, kernel="another_0")
    if mode == "other-grid":
        files = captures.tables(grid=GRID // 2, launches=LAUNCHES)
    if mode == "slow-first":
        text = files["out_kernel_trace.csv"].decode().replace(",1000000,1007000,", ",1000000,1907000,")
        files["out_kernel_trace.csv"] = text.encode()
    if mode == "rocpd-v4":
        captures.rocpd(out / "host_1_results.db", version="4.0.0")
        return 0
    _write(out, files)
    return 0


def _att(mode: str, out: Path, options: list[str], iteration: int) -> int:
    cu = options[options.index("--att-target-cu") + 1]
    if mode == "decoder-37":
        print("E20260601 rocprofv3: Error loading decoder: 37")
        return 1
    if mode == "hang-att":
        return _hang()
    if mode == "crash":
        print("terminate called after throwing an instance of 'std::runtime_error'")
        os.abort()
    if mode == "no-ui":
        (out / "1_0_shader_engine_0.att").write_bytes(b"\0" * 64)
        return 0
    made = captures.make(WAVES, body=3 if mode == "partial" else None, source=mode != "no-source")
    if mode in ("null-code", "cu-1-null") and (mode == "null-code" or cu == "1"):
        made.files["code.json"] = captures.encode({"code": None, "version": "3.0.0"})
        made.files = {n: d for n, d in made.files.items() if not n.startswith("se")}
    if mode == "packets-lost":
        log = json.loads(made.files["occupancy.json"])
        made.files["occupancy.json"] = captures.encode({**log, "0": log["0"][:-3]})
    if mode == "data-lost":
        print("W20260601 thread trace: data lost, buffer full")
    if mode == "no-work":
        code: Any = json.loads(made.files["code.json"])
        for row in code["code"]:
            if "store" in row[0]:
                row[6:] = [0, 0, 0, 0]
        made.files["code.json"] = captures.encode(code)
    if mode == "other-kernel":
        made.files["code.json"] = made.files["code.json"].replace(b"; made_kernel_0", b"; another_0")
    del made.tables["out_kernel_trace.csv"]  # a thread trace records no launches
    dispatch = iteration + 3 if mode == "wrong-dispatch" else iteration
    made.write(out, dispatch=dispatch)
    return 0


def _pmc(mode: str, out: Path, options: list[str], iteration: int) -> int:
    names = []
    for word in options[options.index("--pmc") + 1 :]:
        if word.startswith("-"):
            break
        names.append(word)
    if mode == "hang-pmc":
        return _hang()
    if mode == "too-many" and len(names) > 2:
        print("E20260601 counters: Request exceeds the hardware limits")
        return 134
    if mode == "perfmon":
        print("W20260601 SYS_PERFMON capability missing: PMC may be inaccurate")
    if mode == "no-counters":
        return 0
    value = 0.0 if mode == "zero-counters" else 640.0
    values = dict.fromkeys(names, value)
    if "SQ_WAVES" in values and value:
        values["SQ_WAVES"] = GRID * {"jitter": 1.01, "many-waves": 8.0}.get(mode, 1.0)
    _write(out, {"out_counter_collection.csv": captures.counter_csv(values, dispatch=iteration)})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
