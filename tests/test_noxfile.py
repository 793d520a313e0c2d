"""The nox sessions: there is one for every bundle, they are thin, and their pins are those of pins.yaml."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from harness.bundle import ids


@pytest.fixture(scope="module")
def noxfile(repo_root: Path) -> ModuleType:
    pytest.importorskip("nox")
    spec = importlib.util.spec_from_file_location("noxfile", repo_root / "noxfile.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sessions(repo_root: Path) -> set[str]:
    pytest.importorskip("nox")
    command = [sys.executable, "-m", "nox", "--noxfile", str(repo_root / "noxfile.py"), "--list"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True, cwd=repo_root).stdout
    return set(re.findall(r"^[*-] (\S+)", listing, re.M))


def test_every_bundle_has_its_session(repo_root: Path) -> None:
    found = sessions(repo_root)
    assert {f"reproduce-{name}" for name in ids(repo_root / "bundles")} <= found
    assert found >= {"validate-bundles", "reproduce", "audit", "rehearse", "doctor", "container"}
    assert found >= {"tests", "lint", "bench", "bench-gpu"}


def test_torch_is_the_pinned_one(
    noxfile: ModuleType, repo_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HARNESS_TORCH", raising=False)
    pins = yaml.safe_load((repo_root / "pins.yaml").read_text())
    assert noxfile.torch_requirement() == f"torch=={pins['torch']['tested']}"
    monkeypatch.setenv("HARNESS_TORCH", "torch==2.11.0")
    assert noxfile.torch_requirement() == "torch==2.11.0"


def test_an_interpreter_with_torch_is_seen(
    noxfile: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('imported')\n")
    bare = [sys._base_executable] if hasattr(sys, "_base_executable") else [sys.executable]  # type: ignore[attr-defined]
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert noxfile.has_torch(bare[0])


def test_the_noxfile_is_a_script_that_needs_nox_alone(repo_root: Path) -> None:
    text = (repo_root / "noxfile.py").read_text()
    header = re.match(r"# /// script\n(?:# .*\n)+# ///\n", text)
    assert header is not None and 'dependencies = ["nox' in header[0]
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else name.name) or ""
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in node.names
    }
    assert {name.split(".")[0] for name in imported} <= {"nox", *sys.stdlib_module_names}


def test_the_readme_names_sessions_and_files_that_exist(repo_root: Path) -> None:
    text = (repo_root / "README.md").read_text()
    named = set(re.findall(r"nox -s ([a-z-]+)(?![a-z<-])", text)) - {"reproduce-"}
    assert named and named <= sessions(repo_root)
    for link in re.findall(r"\]\(((?!http)[^)]+)\)", text):
        assert (repo_root / link).exists(), link


def test_the_readme_has_both_first_commands_on_its_first_screen(repo_root: Path) -> None:
    screen = (repo_root / "README.md").read_text().splitlines()[:24]
    assert any("reproduce-softmax" in line and "--require device" not in line for line in screen)
    assert any("--require device" in line for line in screen)


def test_ci_runs_the_commands_of_the_readme(repo_root: Path) -> None:
    script = (repo_root / ".ci" / "run").read_text()
    assert os.access(repo_root / ".ci" / "run", os.X_OK)
    readme = (repo_root / "README.md").read_text()
    for line in ("python3 -m venv .venv", ".venv/bin/nox -s tests"):
        assert line in script and line in readme
    assert ".venv/bin/nox -s lint" in script
    assert "set -euo pipefail" in script and script.index("-s lint") < script.index("-s tests")


def test_the_picture_is_of_this_repository(repo_root: Path) -> None:
    """Whatever the run was, its rows are the bundle's claims and what was published of them."""
    import html

    picture = html.unescape((repo_root / "docs" / "reproduce-softmax.svg").read_text())
    words = picture.replace("\xa0", " ")
    data = yaml.safe_load((repo_root / "bundles" / "softmax" / "bundle.yaml").read_text())
    assert all(f"{claim['id']} " in words for claim in data["claims"])
    assert "fonts" not in picture and "@font-face" not in picture


class Session:
    """A nox session that only writes down what it was asked to run."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.warned: list[str] = []
        self.posargs: list[str] = []

    def run(self, *command: str, **options: object) -> None:
        self.ran.append(" ".join(command))

    def warn(self, text: str) -> None:
        self.warned.append(text)


@pytest.fixture
def environment(noxfile: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(noxfile, "ENVIRONMENT", tmp_path)
    monkeypatch.setattr(noxfile, "STAMP", tmp_path / "requirements.sha256")
    monkeypatch.setattr(noxfile, "has_torch", lambda python: False)
    monkeypatch.setattr(noxfile, "_worked", lambda python, module: True)
    for name in ("HARNESS_TORCH", "HARNESS_TORCH_INDEX"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_the_environment_is_made_once(noxfile: ModuleType, environment: Path) -> None:
    first, second = Session(), Session()
    noxfile.python(first)
    made, base, torch, rest = first.ran
    assert " -m venv " in made and base.endswith("--editable .[dev]")
    assert torch.endswith(noxfile.torch_requirement()) and rest.endswith(f"--editable .[{noxfile.EXTRAS}]")
    assert noxfile.python(second) == str(environment / "bin" / "python") and second.ran == []


def test_other_requirements_make_it_anew(
    noxfile: ModuleType, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noxfile.python(Session())
    monkeypatch.setenv("HARNESS_TORCH", "torch==2.11.0")
    again = Session()
    noxfile.python(again)
    assert not any(" -m venv " in one for one in again.ran) and any(
        "torch==2.11.0" in one for one in again.ran
    )


def test_a_torch_of_ones_own_is_kept(
    noxfile: ModuleType, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noxfile, "has_torch", lambda python: True)
    session = Session()
    noxfile.python(session)
    assert "--system-site-packages" in session.ran[0]
    assert not any("torch==" in one for one in session.ran)


def test_without_torch_the_session_says_so_and_tries_only_that_again(
    noxfile: ModuleType, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noxfile, "_worked", lambda python, module: False)
    first, second = Session(), Session()
    noxfile.python(first)
    assert "the record tier runs" in first.warned[0] and len(first.ran) == 3
    noxfile.python(second)
    assert len(second.ran) == 1 and "torch==" in second.ran[0] and second.warned


def test_an_index_for_torch_is_used_for_torch_alone(
    noxfile: ModuleType, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_TORCH_INDEX", "https://index.invalid/cpu")
    session = Session()
    noxfile.python(session)
    assert ["--index-url https://index.invalid/cpu" in one for one in session.ran] == [
        False,
        False,
        True,
        False,
    ]
