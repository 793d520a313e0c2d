"""The command line's edges: what ends a command, and what a user sees of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from copies import copy

from harness import cli, validate
from harness.command import Outcome

Capture = pytest.CaptureFixture[str]

RAISED = [
    (PermissionError(13, "Permission denied", "/place/file"), 2, "/place/file: Permission denied"),
    (OSError(28, "No space left on device"), 2, "No space left on device"),
    (TypeError("seven\nlines"), 1, "a fault of the harness itself: TypeError: seven"),
    (RecursionError(), 1, "a fault of the harness itself: RecursionError"),
]


@pytest.mark.parametrize(("error", "code", "said"), RAISED, ids=[type(row[0]).__name__ for row in RAISED])
def test_what_no_module_foresaw_is_one_line_and_a_remedy(
    error: Exception, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def run(args: object, reporter: object) -> Outcome:
        raise error

    monkeypatch.setattr(validate, "run", run)
    monkeypatch.delenv("HARNESS_DEBUG", raising=False)
    assert cli.main(["validate"]) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and said in lines[0] and lines[1].startswith("  remedy: ")
    monkeypatch.setenv("HARNESS_DEBUG", "1")
    with pytest.raises(type(error)):
        cli.main(["validate"])


def harness(*words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness", *words]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **changes}, timeout=60, check=False
    )


def test_an_encoding_without_the_signs_changes_the_signs_and_nothing_else() -> None:
    plain = harness("reproduce", "rope", "--tier", "record", PYTHONIOENCODING="ascii")
    assert plain.returncode == 0 and plain.stderr == ""
    assert "claims agree (exit 0)" in plain.stdout and plain.stdout.isascii()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_an_output_that_takes_no_more_is_named_once() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "harness", "doctor", "--offline"]
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "harness: No space left on device" and "Trace" not in done.stderr


def test_a_reader_that_leaves_early_is_no_fault() -> None:
    command = [sys.executable, "-m", "harness", "reproduce", "--tier", "record", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0  # the verdicts' own


def test_a_reader_that_leaves_early_changes_no_verdict(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "harness", "validate", "--root", str(copy(tmp_path, "rope"))]
    (tmp_path / "bundles" / "rope" / "bundle.yaml").write_text("")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
    assert process.returncode == 2


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_is_ended_cleans_up(sent: signal.Signals, tmp_path: Path) -> None:
    started, cleaned = tmp_path / "started", tmp_path / "cleaned"
    code = f"""
import pathlib, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from harness import cli, validate
def run(args, reporter):
    try:
        pathlib.Path({str(started)!r}).touch()
        time.sleep(60)
    finally:
        pathlib.Path({str(cleaned)!r}).touch()
validate.run = run
sys.argv = ["harness", "validate"]
sys.exit(cli.main())
"""
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as process:
        while not started.exists() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(sent)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 128 + sent and cleaned.exists() and b"Trace" not in said


def test_compile_into_a_file_ends_before_it_compiles(tmp_path: Path, capsys: Capture) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    assert cli.main(["compile", "softmax", "--offline", "--out", str(taken)]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"harness: {taken}: cannot be written: is a file"
    assert taken.read_text() == "mine"
