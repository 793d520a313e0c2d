"""The container without an engine: what a run may have, the pins of the Dockerfile, and its refusals."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import main
from harness.container import inner_command
from harness.container.policy import Device, RunRequest, engine_arguments
from harness.container.runner import staged, unprivileged
from harness.errors import HarnessError

DOCKERFILE = "Dockerfile.rocm72"


def request(**changes: object) -> RunRequest:
    given: dict[str, object] = {
        "image": "i",
        "command": ("doctor",),
        "repository": "/r",
        "output": "/o",
        "user": 1000,
        "group": 1000,
    }
    return RunRequest(**{**given, **changes})  # type: ignore[arg-type]


def test_a_run_has_no_privilege_it_does_not_need() -> None:
    arguments = engine_arguments(request())
    assert arguments["cap_drop"] == ["ALL"] and arguments["cap_add"] == []
    assert arguments["security_opt"] == ["no-new-privileges"]
    assert arguments["read_only"] and arguments["network_mode"] == "none" and arguments["devices"] == []
    assert "privileged" not in arguments
    writable = [bind["bind"] for bind in arguments["volumes"].values() if bind["mode"] == "rw"]
    assert writable == ["/out"]


def test_devices_bring_their_groups_by_number() -> None:
    devices = (Device("/dev/kfd", 44), Device("/dev/dri/renderD130", 109))
    arguments = engine_arguments(request(devices=devices))
    assert arguments["devices"] == ["/dev/kfd:/dev/kfd:rw", "/dev/dri/renderD130:/dev/dri/renderD130:rw"]
    assert arguments["group_add"] == ["44", "109"]


def test_only_tracing_opens_seccomp_and_ptrace() -> None:
    arguments = engine_arguments(request(tracing=True))
    assert "seccomp=unconfined" in arguments["security_opt"]
    assert arguments["cap_add"] == ["SYS_PTRACE"] and arguments["cap_drop"] == ["ALL"]


def test_a_memory_limit_leaves_no_swap_beside_it() -> None:
    arguments = engine_arguments(request(memory=1 << 30))
    assert arguments["mem_limit"] == arguments["memswap_limit"] == 1 << 30
    assert "mem_limit" not in engine_arguments(request())


def test_root_runs_as_somebody_else() -> None:
    assert unprivileged(request(user=0, group=0)).user == 10001
    assert unprivileged(request()).user == 1000


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        (["reproduce-softmax"], ["reproduce", "softmax", "--out", "/out/results"]),
        (["--", "reproduce-softmax", "--json"], ["reproduce", "softmax", "--json", "--out", "/out/results"]),
        (["reproduce", "--tier", "record"], ["reproduce", "--tier", "record", "--out", "/out/results"]),
        (["reproduce-rope", "--out", "/out/x"], ["reproduce", "rope", "--out", "/out/x"]),
        (["validate-bundles"], ["validate"]),
        (["doctor", "--json"], ["doctor", "--json"]),
    ],
)
def test_what_a_reviewer_types(typed: list[str], command: list[str]) -> None:
    assert inner_command(typed) == command


def test_no_command_is_a_clear_line() -> None:
    with pytest.raises(HarnessError, match="no command"):
        inner_command(["--"])


def test_results_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "results"
    with staged(out, 0, 0) as stage:
        (stage / "a").write_text("1")
        assert not out.exists()
    assert (out / "a").read_text() == "1"
    other = tmp_path / "other"
    with pytest.raises(KeyboardInterrupt), staged(other, 0, 0) as stage:
        (stage / "half").write_text("1")
        raise KeyboardInterrupt
    assert not other.exists()
    assert (tmp_path / "other.incomplete" / "half").exists()
    with pytest.raises(KeyboardInterrupt), staged(tmp_path / "third", 0, 0):
        raise KeyboardInterrupt
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.incomplete", "results"]


def test_an_output_that_is_not_empty_or_not_writable_is_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    with pytest.raises(HarnessError, match="not empty"), staged(tmp_path / "full", 0, 0):
        pass
    (tmp_path / "file").write_text("mine")
    with pytest.raises(HarnessError, match="no directory"), staged(tmp_path / "file", 0, 0):
        pass
    with pytest.raises(HarnessError) as refused, staged(tmp_path / "file" / "below", 0, 0):
        pass
    assert refused.value.remedy is not None
    assert (tmp_path / "full" / "x").read_text() == "mine"


def test_no_engine_is_a_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], repo_root: Path
) -> None:
    pytest.importorskip("docker")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.chdir(repo_root)
    assert main(["container", "run", "--gpu", "none", "--out", str(tmp_path / "o"), "--", "doctor"]) == 2
    said = capsys.readouterr().err
    assert "no engine answers at" in said and "remedy:" in said and "Traceback" not in said
    assert not (tmp_path / "o").exists()


def test_a_gpu_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str], repo_root: Path) -> None:
    if Path("/dev/kfd").exists():
        pytest.skip("this machine has an AMD GPU")
    assert main(["container", "run", "--root", str(repo_root), "--gpu", "0", "--", "doctor"]) == 2
    assert "/dev/kfd is not there" in capsys.readouterr().err


def test_a_dry_run_shows_what_a_container_would_get(
    capsys: pytest.CaptureFixture[str], repo_root: Path
) -> None:
    words = [
        "container",
        "run",
        "--root",
        str(repo_root),
        "--gpu",
        "none",
        "--dry-run",
        "--",
        "reproduce-softmax",
    ]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "would run reproduce softmax" in said and "network_mode: none" in said
    assert f"'{Path('out').absolute()}': {{'bind': '/out', 'mode': 'rw'}}" in said


@pytest.mark.parametrize(
    "words", [("--timeout", "-5"), ("--timeout", "nan"), ("--decoder-sha256", "zz"), ("--memory", "12x")]
)
def test_a_value_that_is_none_is_refused_before_anything_starts(
    words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["container", "run", *words, "--", "doctor"])
    assert ended.value.code == 2 and f"argument {words[0]}: {words[1]!r} is no" in capsys.readouterr().err


def test_an_output_that_is_taken_is_refused_before_a_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], repo_root: Path
) -> None:
    (tmp_path / "mine").touch()
    words = ["--root", str(repo_root), "--gpu", "none", "--build", "--out", str(tmp_path), "--", "doctor"]
    assert main(["container", "run", *words]) == 2
    assert f"{tmp_path}: is not empty" in capsys.readouterr().err


def defaults(text: str) -> dict[str, str]:
    return dict(re.findall(r"^ARG (\w+)=(.*)$", text, flags=re.M))


def test_the_dockerfile_names_what_the_pins_name(repo_root: Path) -> None:
    from harness.pins import load

    pins = load(repo_root / "pins.yaml")
    found = defaults((repo_root / DOCKERFILE).read_text(encoding="utf-8"))
    assert found == {
        "BASE_IMAGE": pins.base_image.tag,
        "BASE_DIGEST": pins.base_image.digest,
        "TRACE_DECODER_VERSION": pins.trace_decoder.version,
        "TRACE_DECODER_SHA256": pins.trace_decoder.sha256 or "",
        "FLYDSL_COMMIT": pins.flydsl.commit,
        "AITER_COMMIT": pins.aiter.commit,
        "PINS_SHA256": "",
    }


def test_every_locked_package_has_hashes_and_the_pinned_ones_their_version(repo_root: Path) -> None:
    from harness.pins import load

    pins = load(repo_root / "pins.yaml")
    text = (repo_root / "requirements" / "container.txt").read_text(encoding="utf-8")
    entries = [entry for entry in re.split(r"\n(?=\S)", text) if not entry.startswith("#")]
    assert len(entries) > 20
    for entry in entries:
        assert re.match(r"[A-Za-z0-9._-]+==\S+ \\\n", entry), entry[:60]
        assert "--hash=sha256:" in entry
    locked = dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, flags=re.M))
    assert locked["flydsl"] == pins.flydsl.version and locked["triton"] == pins.triton.version
    assert locked["tinygrad"] == pins.tinygrad
    assert f"tinygrad=={pins.tinygrad}" in (repo_root / "pyproject.toml").read_text(encoding="utf-8")
    assert "torch" not in locked


def test_no_download_of_the_dockerfile_goes_unchecked(repo_root: Path) -> None:
    lines = (repo_root / DOCKERFILE).read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    assert re.search(r"^FROM \$\{BASE_IMAGE\}@\$\{BASE_DIGEST\}$", text, flags=re.M)
    for block in re.split(r"\n(?=RUN|COPY|ARG|FROM|ENV|LABEL|WORKDIR)", text):
        if "curl" in block:
            assert "sha256sum --check" in block
        if "git fetch" in block:
            assert 'test "$(git rev-parse HEAD)" = ' in block
        if "pip install" in block:
            assert "--require-hashes" in block


def test_hadolint_finds_nothing(repo_root: Path) -> None:
    program = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        pytest.skip("hadolint is not installed (pip install -e '.[dev]')")
    done = subprocess.run(
        [program, str(repo_root / DOCKERFILE)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_evidence_records_the_image_it_was_made_in(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.container.policy import BASE_VARIABLE, IMAGE_VARIABLE
    from harness.device.machine import versions

    assert not {"container_image", "container_base"} & versions().keys()
    monkeypatch.setenv(IMAGE_VARIABLE, "sha256:abc")
    monkeypatch.setenv(BASE_VARIABLE, "sha256:def")
    found = versions()
    assert (found["container_image"], found["container_base"]) == ("sha256:abc", "sha256:def")


def test_a_step_that_fills_the_disk_is_told_from_one_that_is_wrong() -> None:
    from collections import deque

    from harness.container.image import _failed

    lines = deque(["dd: error writing '/big': No space left on device"])
    full = _failed("Step 3/3 : RUN dd", "The command returned a non-zero code: 1", lines)
    assert "docker system df" in str(full.remedy) and "No space left" in full.message
    wrong = _failed("Step 3/3 : RUN false", "The command returned a non-zero code: 1", deque(["no"]))
    assert "mend that step" in str(wrong.remedy)
