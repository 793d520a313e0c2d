"""Fresh processes: one job, one process, in a process group of its own, killed as a group when its time is
up.

Two ways to start one: `Spawn` (an interpreter of its own) and `Fork` (a child of a server that has imported
everything and touched no GPU; docs/measuring.md shows both side by side). Knows nothing of what a job
measures.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from harness.errors import HarnessError

__all__ = ["Fork", "Spawn", "Starter", "starter"]


class Starter(Protocol):
    """Runs one job to its end. Returns `exited <code>`, `signal <number>` or `timeout`."""

    def run(self, job: Mapping[str, Any], limit_s: float, log: Path) -> str: ...
    def close(self) -> None: ...


def kill_group(pid: int) -> None:
    """End a process and every child it left behind. A group that is gone already is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _how(returncode: int) -> str:
    return f"signal {-returncode}" if returncode < 0 else f"exited {returncode}"


class Spawn:
    """`python -m harness.device.child`, the job on its standard input."""

    def run(self, job: Mapping[str, Any], limit_s: float, log: Path) -> str:
        command = [sys.executable, "-m", "harness.device.child"]
        with log.open("ab") as out:
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env=_environment(),
            )
            try:
                child.communicate(json.dumps(job).encode(), timeout=limit_s)
            except subprocess.TimeoutExpired:
                return "timeout"
            finally:
                kill_group(child.pid)
                child.wait()
        return _how(child.returncode)

    def close(self) -> None:
        return None


class Fork:
    """A server that imports `modules` once and forks a child for each job. It is restarted where it dies."""

    def __init__(self, modules: tuple[str, ...], start_limit_s: float = 120.0) -> None:
        self._modules = modules
        self._limit = start_limit_s
        self._server: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self.start_s = 0.0

    def run(self, job: Mapping[str, Any], limit_s: float, log: Path) -> str:
        server = self._running(log)
        assert server.stdin is not None
        server.stdin.write(json.dumps({"job": dict(job), "log": str(log)}).encode() + b"\n")
        server.stdin.flush()
        deadline = time.monotonic() + limit_s
        pid = 0
        try:
            answer = self._line(deadline)
            if answer is None:
                self.close()
                return "timeout"
            pid = int(answer["pid"])
            answer = self._line(deadline)
            if answer is None:
                kill_group(pid)
                self._line(time.monotonic() + 10)
                return "timeout"
            return _how(int(answer["returncode"]))
        finally:
            if pid:
                kill_group(pid)

    def close(self) -> None:
        if self._server is not None:
            kill_group(self._server.pid)
            self._server.wait()
            for pipe in (self._server.stdin, self._server.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self._server = None
            self._buffer = b""

    def _running(self, log: Path) -> subprocess.Popen[bytes]:
        if self._server is not None and self._server.poll() is None:
            return self._server
        self.close()
        begun = time.monotonic()
        with log.open("ab") as err:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "harness.device.forkserver", *self._modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                start_new_session=True,
                env=_environment(),
            )
        if self._line(begun + self._limit) is None:
            self.close()
            raise HarnessError(
                "the fork server did not start", remedy=f"read {log}, or start with --start spawn"
            )
        self.start_s += time.monotonic() - begun
        return self._server

    def _line(self, deadline: float) -> dict[str, Any] | None:
        assert self._server is not None and self._server.stdout is not None
        pipe = self._server.stdout.fileno()
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                return None
            more = os.read(pipe, 65536)
            if not more:
                raise HarnessError(
                    "the fork server ended", remedy="start again with --resume, or with --start spawn"
                )
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _environment() -> dict[str, str]:
    """The parent's environment with this package importable from anywhere."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{path}" if path else root}


def starter(kind: str, kernel: str) -> Starter:
    """`spawn` or `fork` by name."""
    if kind == "spawn":
        return Spawn()
    if kind == "fork":
        return Fork(
            (
                "torch",
                "numpy",
                "harness.device.child",
                "harness.device.graphs",
                "harness.device.gates",
                kernel,
            )
        )
    raise HarnessError(f"start must be spawn or fork (got {kind!r})")
