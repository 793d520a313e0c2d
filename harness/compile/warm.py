"""Processes that have torch and FlyDSL imported already and fork one worker for each compile.

Half of a small kernel's compile is importing; here it is done once for each Python layer. Each compile
is still a process of its own, with its own directories, time limit and process group. Where a warm
process cannot be had or has died, the caller starts a cold worker instead. They end with this process:
their input closes.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["Warm", "warm_process"]

POLL_S = 0.01


class Warm:
    """One warm process."""

    def __init__(self, environment: Mapping[str, str], directory: Path) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.compile.worker", "--warm"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=directory,
            env=dict(environment),
            start_new_session=True,
        )

    def alive(self) -> bool:
        """Whether it can take a job."""
        return self._process.poll() is None

    def start(self, work: Path, environment: Mapping[str, str], path: Sequence[Path]) -> bool:
        """Fork a worker for the request in `work`; False where that cannot be."""
        job = {"work": str(work), "environment": dict(environment), "path": [str(entry) for entry in path]}
        line = json.dumps(job).encode() + b"\n"
        try:
            with self._lock:
                assert self._process.stdin is not None
                self._process.stdin.write(line)
                self._process.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def wait(self, work: Path, timeout_s: float) -> int | None:
        """The worker's exit code (minus its signal), or None after `timeout_s`. OSError where the
        process died.
        """
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if (work / "exit").is_file():
                return int((work / "exit").read_text())
            if not self.alive():
                raise ProcessLookupError("the warm process died")
            time.sleep(POLL_S)
        return None

    def close(self) -> None:
        """Let it end."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_warm: dict[str, Warm] = {}
_guard = threading.Lock()


def warm_process(key: str, environment: Mapping[str, str], directory: Path) -> Warm:
    """The warm process for `key` (all that its imports depend on), started where there is none alive."""
    with _guard:
        found = _warm.get(key)
        if found is None or not found.alive():
            if found is not None:
                found.close()
            if not _warm:
                atexit.register(_close_all)
            directory.mkdir(parents=True, exist_ok=True)
            found = _warm[key] = Warm(environment, directory)
        return found


def _close_all() -> None:
    for process in _warm.values():
        process.close()
    _warm.clear()
