"""Figures of the doctor and the container.

The container's overhead is what `harness container run` adds to a command: the time of one whole run of
`true` in an image of nothing but a static busybox, with the engine that DOCKER_HOST names.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import Figure

__all__ = ["figures"]

BUSYBOX = Path("/bin/busybox")
TAG = "flydsl-repro-bench:small"


def figures() -> Iterator[Figure]:
    """Doctor, then container."""
    import subprocess

    times = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "harness", "doctor"], capture_output=True, check=False)
        times.append(time.perf_counter() - start)
    yield Figure("harness doctor", min(times), "s", 2.0, note="wall time of a fresh process, least of 3")
    yield _overhead()


def _overhead() -> Figure:
    from harness.command import Silent
    from harness.container import image, runner
    from harness.container.engine import connect
    from harness.container.policy import RunRequest
    from harness.errors import HarnessError

    name = "harness container run, overhead over the bare command"
    try:
        client = connect()
    except HarnessError as error:
        return Figure(name, None, "s", 1.0, note=error.message)
    if not BUSYBOX.exists():
        return Figure(name, None, "s", 1.0, note="no static busybox to make an image of")
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        shutil.copy(BUSYBOX, context / "busybox")
        install = 'FROM scratch\nCOPY busybox /bin/busybox\nRUN ["/bin/busybox", "--install", "-s", "/bin"]\n'
        (context / "Dockerfile").write_text(install)
        image.build(client, image.BuildRequest(context, "Dockerfile", TAG, {}), Silent())
        times = []
        for number in range(4):
            start = time.perf_counter()
            with runner.staged(context / f"out{number}", 65534, 65534) as stage:
                request = RunRequest(
                    TAG, ["true"], folder, str(stage), 65534, 65534, name="flydsl-repro-bench"
                )
                runner.run(client, request, 60, Silent())
            times.append(time.perf_counter() - start)
    client.close()
    return Figure(name, min(times), "s", 1.0, note="wall time of `true` in a busybox image, least of 4")
