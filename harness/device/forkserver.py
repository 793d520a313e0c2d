"""The fork server: imports once, touches no device, and forks a fresh child for each job that it reads.

One JSON line in: {"job", "log"}. Two JSON lines out: {"pid"} when the child runs, {"pid", "returncode"}
when it has ended. A child has a context, caches and a process group of its own; what it shares is the
interpreter's address-space layout and the imported modules. Ends when its input ends.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
from typing import Any

__all__ = ["main"]


def _say(answer: dict[str, Any]) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")


def _child(request: dict[str, Any]) -> int:
    from harness.device.child import die_with_parent, work

    os.setsid()
    die_with_parent()
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    return work(request["job"])


def main(modules: list[str]) -> int:
    """Serve until standard input ends."""
    from harness.device.child import die_with_parent

    die_with_parent()
    for name in modules:
        importlib.import_module(name)
    with contextlib.suppress(ImportError):  # a CPU has no need of it
        importlib.import_module("triton")
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise RuntimeError("an import opened the GPU: children of this server would share its context")
    gc.freeze()
    _say({"ready": True})
    for line in sys.stdin.buffer:
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                code = _child(json.loads(line))
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _say({"pid": pid})
        _, status = os.waitpid(pid, 0)
        returncode = os.waitstatus_to_exitcode(status)
        if returncode < 0:
            _sweep(pid)
        _say({"pid": pid, "returncode": returncode})
    return 0


def _sweep(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
