"""The container on a real engine: built from scratch through the same code, run, limited, stopped, saved."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import engine
import pytest

from harness.command import Silent, Task
from harness.container import archive, image, runner
from harness.container.engine import connect
from harness.container.policy import Device, RunRequest
from harness.errors import HarnessError

pytestmark = pytest.mark.engine
TAG = "flydsl-repro-test:small"
SCRATCH = """FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
RUN echo built > /built
ARG PINS_SHA256=
LABEL flydsl-repro.pins="${PINS_SHA256}"
"""


class Heard(Silent):
    """A reporter that keeps what was said, with the time."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.times: list[float] = []

    def say(self, line: str) -> None:
        self.lines.append(line)
        self.times.append(time.monotonic())

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        with super().task(title, total) as task:
            yield task


@pytest.fixture(scope="module")
def docker_host() -> Iterator[str]:
    yield from engine.start()


@pytest.fixture(scope="module")
def client(docker_host: str) -> Iterator[Any]:
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = docker_host
    try:
        connected = connect()
        yield connected
        connected.close()
    finally:
        if before is None:
            del os.environ["DOCKER_HOST"]
        else:
            os.environ["DOCKER_HOST"] = before


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not engine.STATIC_BUSYBOX.exists():
        pytest.skip("no static busybox (tools/ci_engine.sh installs one)")
    place = tmp_path_factory.mktemp("context")
    shutil.copy(engine.STATIC_BUSYBOX, place / "busybox")
    (place / "Dockerfile").write_text(SCRATCH)
    (place / "pins.yaml").write_text("schema_version: 1\n")
    return place


@pytest.fixture(scope="module")
def small(client: Any, context: Path) -> image.Image:
    arguments = {"PINS_SHA256": image.pins_digest(context)}
    return image.build(client, image.BuildRequest(context, "Dockerfile", TAG, arguments), Silent())


def request(tmp_path: Path, *script: str, **changes: Any) -> RunRequest:
    (tmp_path / "source").mkdir(exist_ok=True)
    (tmp_path / "out").mkdir(exist_ok=True, mode=0o777)
    os.chmod(tmp_path / "out", 0o777)
    given: dict[str, Any] = {
        "image": TAG,
        "command": ["sh", "-c", "\n".join(script)],
        "repository": str(tmp_path / "source"),
        "output": str(tmp_path / "out"),
        "user": 4321,
        "group": 4321,
        "name": "flydsl-repro-test",
    }
    return RunRequest(**{**given, **changes})


def containers(client: Any) -> list[str]:
    return [found.name for found in client.containers.list(all=True)]


def test_a_build_streams_its_steps_and_labels_the_image(
    client: Any, context: Path, small: image.Image
) -> None:
    heard = Heard()
    arguments = {"PINS_SHA256": image.pins_digest(context)}
    again = image.build(client, image.BuildRequest(context, "Dockerfile", TAG, arguments), heard)
    assert again.id == small.id, "the same pins give the same image from cached layers"
    assert [line for line in heard.lines if line.startswith("Step 1/")]
    assert small.labels[image.PINS_LABEL] == image.pins_digest(context)


def test_an_image_of_other_pins_is_refused(client: Any, small: image.Image) -> None:
    assert image.require(client, TAG, small.labels[image.PINS_LABEL]).id == small.id
    with pytest.raises(HarnessError, match="other pins") as refused:
        image.require(client, TAG, "0" * 64)
    assert refused.value.exit_code == 40
    with pytest.raises(HarnessError, match="no such image"):
        image.require(client, "flydsl-repro-test:absent", "0" * 64)


def test_a_failing_step_is_named_with_its_last_lines(client: Any, context: Path, small: image.Image) -> None:
    (context / "Broken").write_text(SCRATCH + 'RUN echo "this is why"; exit 7\n')
    with pytest.raises(HarnessError) as failed:
        image.build(client, image.BuildRequest(context, "Broken", "t:broken", {}), Silent())
    assert "RUN echo" in failed.value.message and "this is why" in failed.value.message
    assert "code: 7" in failed.value.message
    assert containers(client) == []


def test_output_streams_and_the_exit_code_passes_through(
    client: Any, small: image.Image, tmp_path: Path
) -> None:
    heard = Heard()
    wanted = request(tmp_path, "echo one >&2", "sleep 1", "echo two >&2", "echo result", "exit 10")
    ended = runner.run(client, wanted, 60, heard)
    assert (ended.status, ended.output) == (10, "result")
    assert heard.lines == ["one", "two"]
    assert heard.times[1] - heard.times[0] > 0.5, "the first line came before the second was written"
    assert containers(client) == []


def test_what_a_run_sees(client: Any, small: image.Image, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_text("mine\n")
    wanted = request(
        tmp_path,
        "id -u; id -G",
        "cat file; pwd",
        "touch file 2>/dev/null && echo wrote source",
        "touch /built 2>/dev/null && echo wrote root",
        "echo done > /out/file && echo wrote out",
        "grep -E '^(CapEff|NoNewPrivs)' /proc/self/status",
        "cut -d: -f1 /proc/net/dev | grep -c eth",
        "df -k /dev/shm | tail -n 1 | awk '{print $2}'",
        shared_memory=64 << 20,
        devices=(Device("/dev/null", 44), Device("/dev/zero", 109)),
    )
    ended = runner.run(client, wanted, 60, Silent())
    lines = ended.output.splitlines()
    assert lines[:4] == ["4321", "4321 44 109", "mine", "/repo"]
    assert "wrote out" in lines and "wrote source" not in lines and "wrote root" not in lines
    assert "CapEff:\t0000000000000000" in lines and "NoNewPrivs:\t1" in lines
    assert lines[-2:] == ["0", "65536"]
    assert (tmp_path / "out" / "file").read_text() == "done\n"
    assert (tmp_path / "out" / "file").stat().st_uid == 4321


def test_a_missing_device_is_a_clear_line(client: Any, small: image.Image, tmp_path: Path) -> None:
    wanted = request(tmp_path, "true", devices=(Device("/dev/no-such-kfd", 44),))
    with pytest.raises(HarnessError, match="no-such-kfd") as refused:
        runner.run(client, wanted, 60, Silent())
    assert "harness doctor" in str(refused.value.remedy)
    assert containers(client) == []


def test_the_memory_limit_kills_and_says_so(client: Any, small: image.Image, tmp_path: Path) -> None:
    wanted = request(tmp_path, "tail -c 200000000 /dev/zero", memory=32 << 20)
    with pytest.raises(HarnessError, match="memory limit") as killed:
        runner.run(client, wanted, 60, Silent())
    assert killed.value.exit_code == 30 and "--memory" in str(killed.value.remedy)
    assert containers(client) == []


def test_the_time_limit_stops_and_says_so(client: Any, small: image.Image, tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="time limit"):
        runner.run(client, request(tmp_path, "sleep 60"), 1, Silent())
    assert containers(client) == []


def test_a_second_run_beside_the_first_is_refused(client: Any, small: image.Image, tmp_path: Path) -> None:
    first = threading.Thread(target=runner.run, args=(client, request(tmp_path, "sleep 3"), 60, Silent()))
    first.start()
    try:
        deadline = time.monotonic() + 20
        while "flydsl-repro-test" not in [c.name for c in client.containers.list()]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with pytest.raises(HarnessError, match="another run is going on") as refused:
            runner.run(connect_again(), request(tmp_path, "true"), 60, Silent())
        assert "docker stop" in str(refused.value.remedy)
    finally:
        first.join()
    assert containers(client) == []


def connect_again() -> Any:
    again = connect()
    connections.append(again)
    return again


connections: list[Any] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while connections:
        connections.pop().close()


def test_ctrl_c_stops_the_container_and_leaves_nothing_half_copied(
    client: Any, docker_host: str, context: Path, small: image.Image, tmp_path: Path, repo_root: Path
) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from harness.command import Silent\n"
        "from harness.container import runner\n"
        "from harness.container.engine import connect\n"
        "from harness.container.policy import RunRequest\n"
        "with runner.staged(Path(sys.argv[1]), 4321, 4321) as stage:\n"
        f"    r = RunRequest('{TAG}', ['sh', '-c', 'echo half > /out/half; echo up >&2; sleep 60'],\n"
        "                   sys.argv[2], str(stage), 4321, 4321, name='flydsl-repro-test')\n"
        "    class R(Silent):\n"
        "        def say(self, line):\n"
        "            print(line, flush=True)\n"
        "    runner.run(connect(), r, 60, R())\n"
    )
    out = tmp_path / "results"
    environment = {**os.environ, "DOCKER_HOST": docker_host, "PYTHONPATH": str(repo_root)}
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(out), str(context)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == b"up\n"
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=30) != 0
    assert containers(client) == []
    assert not out.exists()
    assert (tmp_path / "results.incomplete" / "half").read_text() == "half\n"


def test_save_and_load_hold_the_digest(client: Any, small: image.Image, tmp_path: Path) -> None:
    target = tmp_path / "image.tar"
    record = archive.save(client, TAG, target, Silent())
    assert record["format"] == ("oci-archive" if shutil.which("skopeo") else "docker-archive")
    assert record == json.loads(archive.record_path(target).read_text())
    client.images.remove(TAG, force=True)
    loaded = archive.load(client, target, Silent())
    assert loaded["sha256"] == record["sha256"]
    assert image.inspect(client, TAG).labels == dict(small.labels)
    with target.open("r+b") as handle:
        handle.seek(2000)
        handle.write(b"damaged")
    with pytest.raises(HarnessError, match="its record says"):
        archive.load(client, target, Silent())
    with pytest.raises(HarnessError, match="exists"):
        archive.save(client, TAG, target, Silent())
    archive.record_path(target).unlink()
    with pytest.raises(HarnessError, match="cannot be verified"):
        archive.load(client, target, Silent())


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("no docker-registry (tools/ci_engine.sh installs one)")
    place = tmp_path_factory.mktemp("registry")
    address = "127.0.0.1:5055"
    (place / "config.yml").write_text(
        f"version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {place}/data\nhttp:\n  addr: {address}\n"
    )
    served = subprocess.Popen(
        [program, "serve", str(place / "config.yml")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(1)
    yield address
    served.terminate()
    served.wait(timeout=10)


def test_a_base_by_digest_and_a_wrong_digest(
    client: Any, context: Path, small: image.Image, registry: str
) -> None:
    repository = f"{registry}/base"
    client.images.get(TAG).tag(repository, "1")
    pushed = [json.loads(line) for line in client.images.push(repository, tag="1").splitlines()]
    digest = next(row["aux"]["Digest"] for row in pushed if "aux" in row)
    (context / "Pinned").write_text(
        f"ARG BASE_DIGEST={digest}\nFROM {repository}:1@${{BASE_DIGEST}}\nRUN echo more > /more\n"
    )
    built = image.build(client, image.BuildRequest(context, "Pinned", "t:pinned", {}), Silent())
    assert built.id.startswith("sha256:")
    wrong = {"BASE_DIGEST": "sha256:" + "0" * 64}
    with pytest.raises(HarnessError) as refused:
        image.build(client, image.BuildRequest(context, "Pinned", "t:wrong", wrong), Silent())
    assert "Step" in refused.value.message and refused.value.remedy is not None
    assert "digest" in refused.value.remedy
