"""What a command is: a module with `configure(parser)` and `run(args, reporter) -> Outcome`.

A command module does no printing and never exits: `cli` prints the outcome's text, or its data under
`--json`, and ends with its exit code. What it says while it works goes through the `Reporter`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Command", "Outcome", "Reporter", "Silent", "Task"]


@dataclass(frozen=True)
class Outcome:
    """What a command came to: exit code, the text for a person, the data for `--json`."""

    exit_code: int
    text: str
    data: Mapping[str, Any]


class Task(Protocol):
    """One piece of long work with a known or unknown length."""

    def advance(self, steps: int = 1, note: str | None = None) -> None:
        """`steps` more are done; `note` says what runs now."""


class Reporter(Protocol):
    """Where a command speaks while it works (standard error; a live bar on a terminal, plain lines
    elsewhere)."""

    def say(self, line: str) -> None:
        """One line of progress."""

    def task(self, title: str, total: int | None = None) -> Any:
        """A context manager that yields a `Task`."""


class _NoTask:
    def advance(self, steps: int = 1, note: str | None = None) -> None:
        pass


class Silent:
    """A reporter that says nothing (tests, `--json` consumers)."""

    def say(self, line: str) -> None:
        pass

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        yield _NoTask()


class Command(Protocol):
    """The interface of a command module; `cli` imports it only when the command is called."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments (`--json` is there already)."""

    def run(self, args: argparse.Namespace, reporter: Reporter) -> Outcome:
        """Do the work. Raises `HarnessError` for what the user can act on."""
