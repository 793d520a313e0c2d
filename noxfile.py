# /// script
# requires-python = ">=3.10"
# dependencies = ["nox>=2024.4.15"]
# ///
"""The sessions of this repository; all work is in `python -m harness`.

    nox -s reproduce-softmax        one bundle, every tier as far as this machine can
    nox -s reproduce                all bundles
    nox -s tests | lint | bench

All sessions share one virtual environment, `.nox/harness`, made again only when its requirements change.
What is after `--` goes to the command: `nox -s reproduce-softmax -- --tier record`.

HARNESS_TORCH_INDEX   a package index with the torch build you want (a CPU build is enough without a GPU)
HARNESS_TORCH         another requirement than the pinned one, for example `torch==2.11.0`
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".nox" / "harness"
STAMP = ENVIRONMENT / "requirements.sha256"
EXTRAS = "compile,execute,container,dev"

nox.options.default_venv_backend = "none"
nox.options.sessions = ["reproduce-softmax"]


def torch_requirement() -> str:
    """The torch build that the compile tier was tested with (pins.yaml, torch.tested), or HARNESS_TORCH."""
    pinned = re.search(r'^torch:\n(?:[ #].*\n)*?  tested: "([^"]+)"', (ROOT / "pins.yaml").read_text(), re.M)
    if pinned is None:
        raise SystemExit("pins.yaml: torch.tested is missing")
    return os.environ.get("HARNESS_TORCH", f"torch=={pinned.group(1)}")


def bundle_ids() -> list[str]:
    """The bundles there are."""
    return sorted(path.parent.name for path in (ROOT / "bundles").glob("*/bundle.yaml"))


def base_python() -> str:
    """The interpreter beneath the virtual environment that nox may run in."""
    return getattr(sys, "_base_executable", None) or sys.executable


def has_torch(python: str) -> bool:
    """Whether this interpreter brings a torch of its own (a ROCm container does); it is then used as it
    is."""
    code = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
    return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def python(session: nox.Session) -> str:
    """The shared environment's interpreter; the environment is made where it is missing or out of date."""
    base = base_python()
    own = has_torch(base)
    torch = torch_requirement()
    parts = ((ROOT / "pyproject.toml").read_text(), torch, base, str(own), EXTRAS)
    wanted = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    found = str(ENVIRONMENT / "bin" / "python")
    stamp = STAMP.read_text() if STAMP.exists() else ""
    if stamp == wanted:
        return found
    pip = (found, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "2")
    if stamp != f"without a compiler {wanted}":
        if not stamp:
            options = ["--system-site-packages"] if own else []
            session.run(base, "-m", "venv", "--clear", *options, str(ENVIRONMENT), external=True)
        STAMP.unlink(missing_ok=True)
        session.run(*pip, "--editable", ".[dev]", external=True)
    made = install_compiler(session, pip, torch, own)
    STAMP.write_text(wanted if made else f"without a compiler {wanted}")
    return found


def install_compiler(session: nox.Session, pip: tuple[str, ...], torch: str, own: bool) -> bool:
    """torch first, then what needs it. False, and a word, where it cannot be had: the record tier runs
    without."""
    index = os.environ.get("HARNESS_TORCH_INDEX")
    source = ["--index-url", index] if index else []
    codes = (0, 1, 2)
    if not own:
        session.run(*pip, *source, torch, external=True, success_codes=codes, silent=True)
    made = _worked(pip[0], "torch")
    if made:
        session.run(*pip, "--editable", f".[{EXTRAS}]", external=True, success_codes=codes, silent=True)
        made = _worked(pip[0], "flydsl")
    if not made:
        session.warn(
            f"{torch} or flydsl could not be installed: the record tier runs, the others are not measured. "
            "Set HARNESS_TORCH_INDEX to an index that has torch, and run this again."
        )
    return made


def _worked(python: str, module: str) -> bool:
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def harness(session: nox.Session, *arguments: str) -> None:
    """`python -m harness` with these arguments and those after `--`; its exit code is the session's."""
    session.run(python(session), "-m", "harness", *arguments, *session.posargs, external=True)


@nox.session(name="validate-bundles")
def validate_bundles(session: nox.Session) -> None:
    """Check all bundles: schema, meaning, generated files."""
    harness(session, "validate")


@nox.session
def reproduce(session: nox.Session) -> None:
    """Gather, judge and compare all bundles (or those named after `--`)."""
    harness(session, "reproduce")


def _reproduce_one(bundle: str) -> None:
    def one(session: nox.Session) -> None:
        harness(session, "reproduce", bundle)

    one.__doc__ = f"Gather, judge and compare {bundle}."
    nox.session(one, name=f"reproduce-{bundle}")


for _bundle in bundle_ids():
    _reproduce_one(_bundle)


@nox.session
def audit(session: nox.Session) -> None:
    """Re-derive every published figure that the study's raw captures decide: -- --study DIR."""
    harness(session, "audit")


@nox.session
def rehearse(session: nox.Session) -> None:
    """The device tier with its controls on whatever torch device is here."""
    harness(session, "rehearse")


@nox.session
def doctor(session: nox.Session) -> None:
    """What this machine can do, tier by tier."""
    harness(session, "doctor")


@nox.session
def container(session: nox.Session) -> None:
    """One command in the pinned container (-- reproduce-softmax), or build | run | save | load."""
    words = session.posargs
    actions = ("build", "run", "save", "load")
    if not words or words[0].startswith("-") or words[0] in actions:
        harness(session, "container")
        return
    # One line for a reviewer: build (from cached layers, seconds), then run.
    command = ("container", "run", "--build", "--", *words)
    session.run(python(session), "-m", "harness", *command, external=True)


@nox.session
def tests(session: nox.Session) -> None:
    """The test suite."""
    session.run(python(session), "-m", "pytest", *session.posargs, external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, mypy, hadolint."""
    found = python(session)
    session.run(found, "-m", "ruff", "check", external=True)
    session.run(found, "-m", "ruff", "format", "--check", external=True)
    session.run(found, "-m", "mypy", external=True)
    session.run(str(Path(found).parent / "hadolint"), "Dockerfile.rocm72", external=True)


@nox.session
def bench(session: nox.Session) -> None:
    """Print the measured figures beside what they may be."""
    session.run(python(session), "tools/bench.py", *session.posargs, external=True)


@nox.session(name="bench-gpu")
def bench_gpu(session: nox.Session) -> None:
    """The instrument's own error on the GPU that is here."""
    session.run(python(session), "tools/bench_gpu.py", *session.posargs, external=True)


if __name__ == "__main__":
    nox.main()
