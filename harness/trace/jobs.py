"""Runs profiler jobs: each in a process group of its own, with a time limit and a cold cache, its log kept
and read.

Knows processes and the lines that known failures leave in a log. Must not know what a job is for.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.trace.faults import METRICS, Fault, fault
from harness.trace.rocprofv3 import Job

__all__ = ["Ran", "Runner", "log_faults"]


@dataclass(frozen=True)
class Ran:
    """One job that ran: `status` is `exited N`, `signal N` or `timeout`; `log` the end of what it said."""

    job: Job
    status: str
    seconds: float
    log: str


class Runner:
    """Runs jobs in process groups of their own and keeps what they said."""

    def __init__(self, program: str, out: Path, limit_s: float, environment: Mapping[str, str]) -> None:
        self._program = program
        self._out = out
        self._limit_s = limit_s
        self._given = dict(environment)
        self.ran: list[Ran] = []

    def __call__(self, job: Job) -> Ran:
        log = self._out / f"{job.name}.log"
        begin = time.monotonic()
        with log.open("wb") as sink:
            child = subprocess.Popen(
                [self._program, *job.arguments],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=self._environment(job),
                start_new_session=True,
            )
            try:
                code = child.wait(timeout=self._limit_s)
                status = f"exited {code}" if code >= 0 else f"signal {-code}"
            except subprocess.TimeoutExpired:
                status = "timeout"
            finally:
                _end_group(child)
        text = log.read_bytes()[-(1 << 20) :].decode("utf-8", "replace")
        ran = Ran(job, status, time.monotonic() - begin, text)
        self.ran.append(ran)
        return ran

    def _environment(self, job: Job) -> dict[str, str]:
        """The plan's environment with a cold debug cache: a stale one has no source lines or another
        kernel."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ROCPROF")}
        cold = self._out / "cache" / job.name
        cold.mkdir(parents=True, exist_ok=True)
        return (
            environment
            | self._given
            | {
                "FLYDSL_RUNTIME_CACHE_DIR": str(cold),
                "FLYDSL_DEBUG_ENABLE_DEBUG_INFO": "1",
                "TRITON_CACHE_DIR": str(cold / "triton"),
            }
        )


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End the job's whole process group: an aborted profiler leaves its application behind."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, sent)
        except (ProcessLookupError, PermissionError):
            break
        try:
            child.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            continue
    child.wait()


_LOG_RULES: tuple[tuple[str, re.Pattern[str], str, tuple[str, ...]], ...] = (
    ("decoder-mismatch", re.compile(r"Error loading decoder|decoder.{0,40}(mismatch|incompatible)", re.I),
     "SDK and decoder do not fit: ROCm 7.2 needs decoder 0.1.x (ROCm/rocprof-trace-decoder#1)", METRICS),
    ("decoder-missing", re.compile(r"trace.decoder.{0,60}not found|library path not found", re.I),
     "install librocprof-trace-decoder.so (ROCm/rocm-systems issue 2454)", METRICS),
    ("data-lost", re.compile(r"data (was )?lost|buffer (is )?full|lost packets", re.I),
     "raise --att-buffer-size (plain bytes) or trace fewer shader engines (ROCm/rocm-systems issue 7969)",
     METRICS),
    ("too-many-counters", re.compile(r"exceeds the (hardware|number)|cannot be collected together|too many "
                                     r"counters|Request exceeds", re.I),
     "split the set (ROCm/rocm-systems pull 8331)", ()),
    ("no-permission", re.compile(r"SYS_PERFMON|PMC may be inaccurate", re.I),
     "give the process CAP_PERFMON; until then counters may be wrong", ()),
)  # fmt: skip


def log_faults(ran: Ran) -> list[Fault]:
    found = [
        fault(rule, f"{ran.job.name}: {_line(ran.log, pattern)}", remedy, spoils)
        for rule, pattern, remedy, spoils in _LOG_RULES
        if pattern.search(ran.log)
    ]
    if ran.status == "timeout":
        found.append(
            fault(
                "timeout",
                f"{ran.job.name}: killed with its process group after {ran.seconds:.0f} s",
                "raise the limit or shorten the application; counters may hang (ROCm/rocm-systems pull 7477)",
            )
        )
    elif ran.status != "exited 0":
        found.append(
            fault("job-failed", f"{ran.job.name}: {ran.status}: {_last(ran.log)}", f"read {ran.job.name}.log")
        )
    return found


def _line(log: str, pattern: re.Pattern[str]) -> str:
    return next((line.strip() for line in log.splitlines() if pattern.search(line)), "")[:300]


def _last(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "said nothing"
