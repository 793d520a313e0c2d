"""A Docker engine of the tests' own: started with its own socket and data, stopped with the session.

Where the machine has no dockerd or this user may not start one, the tests that need it are skipped by name.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

STATIC_BUSYBOX = Path("/bin/busybox")


def start() -> Iterator[str]:
    """Start dockerd; yields its DOCKER_HOST. Skips where it cannot be started."""
    program = shutil.which("dockerd") or ("/usr/sbin/dockerd" if Path("/usr/sbin/dockerd").exists() else None)
    if program is None:
        pytest.skip("no Docker engine is installed (tools/ci_engine.sh installs one)")
    if os.getuid() != 0:
        pytest.skip("a Docker engine needs root to start")
    pytest.importorskip("docker")
    place = Path(tempfile.mkdtemp(prefix="engine-"))
    address = f"unix://{place}/docker.sock"
    log = (place / "log").open("wb")
    command = [program, "--data-root", str(place / "data"), "--exec-root", str(place / "exec")]
    command += ["--pidfile", str(place / "pid"), "-H", address, "--insecure-registry", "127.0.0.0/8"]
    engine = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )
    try:
        if not _answers(place / "docker.sock", engine):
            pytest.skip(f"the engine does not start here: {_last_line(place / 'log')}")
        yield address
    finally:
        engine.send_signal(signal.SIGTERM)
        try:
            engine.wait(timeout=30)
        except subprocess.TimeoutExpired:
            engine.kill()
            engine.wait()
        log.close()
        shutil.rmtree(place, ignore_errors=True)


def _answers(socket: Path, engine: subprocess.Popen[bytes]) -> bool:
    import docker
    import docker.errors

    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and engine.poll() is None:
        if socket.exists():
            try:
                client = docker.DockerClient(base_url=f"unix://{socket}")
            except docker.errors.DockerException:
                pass
            else:
                client.close()
                return True
        time.sleep(0.1)
    return False


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][-200:] if lines else "it said nothing"
