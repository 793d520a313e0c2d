"""One run of a container: start, stream, stop, and its results whole or not at all.

The results directory appears under its own name only when the run has ended by itself; what an interrupted
run had written is kept beside it as `<name>.incomplete`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.command import Reporter
from harness.container.engine import translated
from harness.container.policy import RunRequest, engine_arguments
from harness.errors import HarnessError
from harness.verdict import ExitCode

__all__ = ["Ended", "refuse_taken", "run", "staged", "unprivileged", "with_output"]

_STOP_SECONDS = 5
_STDOUT = 1
_UNPRIVILEGED = 10001


@dataclass(frozen=True)
class Ended:
    """How a run ended: exit status, standard output, and what stopped it if it did not end by itself."""

    status: int
    output: str
    stopped_by: str | None


def refuse_taken(output: Path) -> None:
    """Raises HarnessError when `output` is a file or is not empty."""
    if output.exists() and not output.is_dir():
        raise HarnessError(f"{output}: is no directory", remedy="name another with --out")
    if output.is_dir() and any(output.iterdir()):
        raise HarnessError(f"{output}: is not empty", remedy="name another directory with --out, or empty it")


@contextmanager
def staged(output: Path, user: int, group: int) -> Iterator[Path]:
    """A fresh directory beside `output` that becomes `output` when the block ends well.

    Raises HarnessError when `output` is a file, is not empty, or its parent is not writable.
    """
    output = output.absolute()
    refuse_taken(output)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=f".{output.name}-", dir=output.parent))
    except OSError as error:
        raise HarnessError(
            f"{output.parent}: {error.strerror}", remedy="name a writable place with --out"
        ) from None
    stage.chmod(0o755)
    with suppress(PermissionError):
        os.chown(stage, user, group)
    try:
        yield stage
    except BaseException:
        _keep(stage, output)
        raise
    if output.is_dir():
        output.rmdir()
    stage.rename(output)


def _keep(stage: Path, output: Path) -> None:
    if any(stage.iterdir()):
        kept = output.with_name(f"{output.name}.incomplete")
        shutil.rmtree(kept, ignore_errors=True)
        stage.rename(kept)
    else:
        stage.rmdir()


def run(client: Any, request: RunRequest, seconds: float, reporter: Reporter) -> Ended:
    """Run to the end: standard error goes to `reporter` line by line, standard output is returned.

    The container is removed whatever happens. Raises HarnessError: a second run beside this one, a device
    that is not there, an engine that goes away; (exit 30, INVALID) killed by the memory limit or the time
    limit.
    """
    _refuse_second(client, request.name)
    with translated("create container"):
        container = client.containers.create(**engine_arguments(request))
    stopped: list[str] = []
    try:
        timer = threading.Timer(seconds, _kill, (container, stopped))
        timer.daemon = True
        with _attached(client, container) as frames:
            with translated("start container"):
                container.start()
            timer.start()
            try:
                output = _follow(frames, reporter)
                with translated("wait for container"):
                    status = int(container.wait()["StatusCode"])
                    container.reload()
            finally:
                timer.cancel()
        if container.attrs["State"].get("OOMKilled"):
            raise HarnessError(
                f"the container was killed by its memory limit ({_size(request.memory)})",
                remedy="raise it with --memory",
                exit_code=ExitCode.INVALID,
            )
        if stopped:
            raise HarnessError(
                f"the container was stopped after its time limit ({seconds:.0f} s)",
                remedy="raise it with --timeout",
                exit_code=ExitCode.INVALID,
            )
        return Ended(status, output, None)
    except KeyboardInterrupt:
        reporter.say("stopping the container")
        raise
    finally:
        with suppress(Exception):
            container.stop(timeout=_STOP_SECONDS)
        with suppress(Exception):
            container.remove(force=True)


def _refuse_second(client: Any, name: str) -> None:
    with translated("list containers"):
        for other in client.containers.list(all=True, filters={"name": f"^/?{name}$"}):
            if other.status == "running":
                raise HarnessError(
                    f"another run is going on (container {name}, {other.short_id})",
                    remedy=f"wait for it, or end it: docker stop {name}",
                )
            other.remove(force=True)


def _kill(container: Any, stopped: list[str]) -> None:
    stopped.append("time")
    with suppress(Exception):
        container.kill()


@contextmanager
def _attached(client: Any, container: Any) -> Iterator[Iterator[tuple[int, bytes]]]:
    """The container's output as (stream, bytes) frames from its start on; the socket is closed afterwards."""
    from docker.utils import socket as frames

    read: Any = frames.frames_iter
    with translated("attach to container"):
        wanted = {"stdout": 1, "stderr": 1, "stream": 1}
        socket = client.api.attach_socket(container.id, wanted)
    try:
        yield read(socket, tty=False)
    finally:
        # The SDK keeps the HTTP response on the socket; closing only one of the two leaves the other open.
        response = getattr(socket, "_response", None)
        with suppress(Exception):
            if response is not None:
                response.raw.close()
        socket.close()


def _follow(frames: Iterator[tuple[int, bytes]], reporter: Reporter) -> str:
    kept: list[bytes] = []
    pending = b""
    for stream, data in frames:
        if stream == _STDOUT:
            kept.append(data)
        else:
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                reporter.say(line.decode("utf-8", "replace").rstrip("\r"))
    if pending:
        reporter.say(pending.decode("utf-8", "replace"))
    return b"".join(kept).decode("utf-8", "replace").rstrip("\n")


def _size(size: int | None) -> str:
    return "none set" if size is None else f"{size / (1 << 30):.2f} GiB"


def unprivileged(request: RunRequest) -> RunRequest:
    """The request with a user that is not root: the caller's own, or 10001 where the caller is root."""
    if request.user != 0:
        return request
    return replace(request, user=_UNPRIVILEGED, group=_UNPRIVILEGED)


def with_output(request: RunRequest, output: str, environment: Mapping[str, str]) -> RunRequest:
    """The request with its writable directory, and `environment` added to its own."""
    return replace(request, output=output, environment={**request.environment, **environment})
