"""The command line: the one module that prints and exits.

Each command is a module of its own (see `harness.command`), imported only when it is called, so that
`harness --help` costs nothing.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast

from harness.command import Command, Outcome, Reporter, Task
from harness.errors import HarnessError

__all__ = ["main"]

COMMANDS: dict[str, tuple[str, str]] = {
    "validate": ("harness.validate", "check bundles against their schemas and their meaning"),
    "reproduce": ("harness.reproduce", "gather fresh evidence, judge it, diff with the committed verdicts"),
    "compile": ("harness.compile.command", "compile a bundle's kernel for gfx950 on this machine"),
    "isa": (
        "harness.compile.isa_command",
        "counts, histogram and hash of an ISA listing; or the difference of two",
    ),
    "execute": ("harness.execute.command", "run the compiled gfx950 binary on this CPU"),
    "trace": ("harness.trace.command", "read and check one rocprofv3 thread-trace capture"),
    "judge": ("harness.judge_command", "judge recorded samples again"),
    "audit": (
        "harness.record.audit_command",
        "re-derive every published figure that raw captures can decide",
    ),
    "rehearse": ("harness.device.rehearse", "run the device tier on whatever torch device is here"),
    "doctor": ("harness.doctor", "what this machine can do, tier by tier, and what to do about the rest"),
    "container": ("harness.container", "build and run the pinned container"),
}


class _Lines:
    """Progress as plain lines on standard error (no terminal)."""

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        outer = self

        class _Task:
            done = 0

            def advance(self, steps: int = 1, note: str | None = None) -> None:
                self.done += steps
                of = f"/{total}" if total is not None else ""
                outer.say(f"{title}: {self.done}{of}" + (f" {note}" if note else ""))

        yield _Task()


class _Live:
    """Progress as a live bar (rich) on a terminal's standard error."""

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            handle = progress.add_task(title, total=total)

            class _Task:
                def advance(self, steps: int = 1, note: str | None = None) -> None:
                    text = f"{title}: {note}" if note else title
                    progress.update(handle, advance=steps, description=text)

            yield _Task()


def _parser(called: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="harness", description="Checks published GPU-kernel claims.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, help_text) in COMMANDS.items():
        sub = commands.add_parser(name, help=help_text, description=help_text)
        sub.add_argument("--json", action="store_true", help="print the result as JSON on standard output")
        if name == called:
            _load(module).configure(sub)
    return parser


def _load(module: str) -> Command:
    return cast(Command, importlib.import_module(module))


def _default(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _ended(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. A user never sees a traceback unless HARNESS_DEBUG is set."""
    if argv is None:
        # As Ctrl-C: what is running is ended and cleaned up, and not left behind without a parent.
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _ended)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a sign that the terminal's encoding lacks is no fault
    arguments = list(sys.argv[1:] if argv is None else argv)
    called = next((a for a in arguments if not a.startswith("-")), None)
    code = 0
    reporter: Reporter = _Live() if sys.stderr.isatty() else _Lines()
    try:
        args = _parser(called).parse_args(arguments)
        outcome: Outcome = _load(COMMANDS[args.command][0]).run(args, reporter)
        code = outcome.exit_code
        if args.json:
            print(json.dumps(dict(outcome.data), indent=2, default=_default, allow_nan=False), flush=True)
        elif outcome.text:
            print(outcome.text, flush=True)
        return code
    except HarnessError as error:
        return _refusal(error, error.message, error.remedy, error.exit_code)
    except BrokenPipeError:
        _drop_output()
        return code  # a reader that has seen enough changes no verdict
    except KeyboardInterrupt:
        print("harness: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        _drop_output()
        where = f"{error.filename}: " if error.filename is not None else ""
        what = f"{where}{error.strerror or error}"
        return _refusal(error, what, "see that it is there, of the right kind, writable, with room", 2)
    except Exception as error:
        said = (str(error).splitlines() or [""])[0]
        what = f"a fault of the harness itself: {type(error).__name__}: {said}"
        return _refusal(error, what, "run it again with HARNESS_DEBUG=1 and report what it prints", 1)


def _refusal(error: Exception, message: str, remedy: str | None, code: int) -> int:
    """What is wrong, and what to do, on standard error. Raises `error` under HARNESS_DEBUG."""
    if os.environ.get("HARNESS_DEBUG"):
        raise error
    print(f"harness: {message}", file=sys.stderr)
    if remedy:
        print(f"  remedy: {remedy}", file=sys.stderr)
    return code


def _drop_output() -> None:
    """Where standard output takes no more, what its buffer still holds goes nowhere, without a word."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
