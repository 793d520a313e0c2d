"""What the doctor may ask of a machine: read a file, list a directory, stat a path, run a read-only program.

`LiveHost` asks this machine. `RecordedHost` answers from a recording (a JSON file of tests/machines), so
that the rules can be tried on machines that are not here. Nothing in this module changes anything.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Host", "LiveHost", "Node", "Ran", "RecordedHost"]

_MAX_TEXT = 4 << 20
_PROGRAM_SECONDS = 1.5


@dataclass(frozen=True)
class Node:
    """A path's owner: numeric ids, permission bits, whether it is a character device, and if we may open
    it.
    """

    uid: int
    gid: int
    mode: int
    readable: bool
    writable: bool


@dataclass(frozen=True)
class Ran:
    """A program that ran: exit status (124 for a time-out) and what it printed."""

    status: int
    out: str
    err: str = ""


class Host(Protocol):
    """The machine under examination. Every answer may be None: "cannot tell" is an answer."""

    def read(self, path: str) -> str | None:
        """The text of a file, or None where it is absent or unreadable."""

    def listing(self, path: str) -> tuple[str, ...] | None:
        """The names in a directory, sorted; None where it is absent or unreadable."""

    def node(self, path: str) -> Node | None:
        """Owner and permissions of a path, None where it is absent."""

    def run(self, *command: str) -> Ran | None:
        """Run a program that only reads; None where it is not installed."""

    def which(self, program: str) -> str | None:
        """The full path of a program on PATH."""

    def env(self, name: str) -> str | None:
        """An environment variable."""

    def groups(self) -> tuple[int, ...]:
        """The numeric group ids of this process."""

    def uid(self) -> int:
        """The user id of this process."""

    def free_bytes(self, path: str) -> int | None:
        """Free space of the file system that holds the nearest existing parent of `path`."""

    def reaches(self, name: str, port: int) -> bool | None:
        """Whether a TCP connection opens within a second; None when it was not tried."""

    def package(self, name: str) -> str | None:
        """The version of an installed Python distribution."""

    def digest(self, path: str) -> str | None:
        """The sha256 (hex) of a file, None where it cannot be read."""

    def load_fault(self, path: str) -> str | None:
        """Why a shared library does not load; None when it does."""


@dataclass(frozen=True)
class LiveHost:
    """This machine."""

    network: bool = True

    def read(self, path: str) -> str | None:
        try:
            with open(path, encoding="utf-8", errors="replace") as handle:
                return handle.read(_MAX_TEXT)
        except OSError:
            return None

    def listing(self, path: str) -> tuple[str, ...] | None:
        try:
            return tuple(sorted(os.listdir(path)))
        except OSError:
            return None

    def node(self, path: str) -> Node | None:
        try:
            found = os.stat(path)
        except OSError:
            return None
        mode = stat.S_IMODE(found.st_mode)
        return Node(found.st_uid, found.st_gid, mode, os.access(path, os.R_OK), os.access(path, os.W_OK))

    def run(self, *command: str) -> Ran | None:
        program = shutil.which(command[0])
        if program is None:
            return None
        try:
            done = subprocess.run(
                [program, *command[1:]],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_PROGRAM_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Ran(124, "", f"no answer within {_PROGRAM_SECONDS} s")
        except OSError as error:
            return Ran(126, "", str(error))
        return Ran(done.returncode, done.stdout, done.stderr)

    def which(self, program: str) -> str | None:
        return shutil.which(program)

    def env(self, name: str) -> str | None:
        return os.environ.get(name)

    def groups(self) -> tuple[int, ...]:
        return tuple(sorted({os.getgid(), *os.getgroups()}))

    def uid(self) -> int:
        return os.getuid()

    def free_bytes(self, path: str) -> int | None:
        here = Path(path)
        while not here.exists() and here != here.parent:
            here = here.parent
        try:
            return shutil.disk_usage(here).free
        except OSError:
            return None

    def reaches(self, name: str, port: int) -> bool | None:
        if not self.network:
            return None
        try:
            with socket.create_connection((name, port), timeout=1.0):
                return True
        except OSError:
            return False

    def package(self, name: str) -> str | None:
        from importlib import metadata

        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    def digest(self, path: str) -> str | None:
        digest = hashlib.sha256()
        try:
            with open(path, "rb") as handle:
                for block in iter(lambda: handle.read(1 << 20), b""):
                    digest.update(block)
        except OSError:
            return None
        return digest.hexdigest()

    def load_fault(self, path: str) -> str | None:
        import ctypes

        try:
            ctypes.CDLL(path)
        except OSError as error:
            return str(error)
        return None


@dataclass(frozen=True)
class RecordedHost:
    """A machine from a recording: `files`, `directories`, `nodes`, `programs`, `env`, `groups`,
    `packages`.
    """

    recording: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> RecordedHost:
        """Read a recording (JSON)."""
        return cls(json.loads(path.read_text(encoding="utf-8")))

    def _part(self, name: str) -> Mapping[str, Any]:
        part: Mapping[str, Any] = self.recording.get(name, {})
        return part

    def read(self, path: str) -> str | None:
        text: str | None = self._part("files").get(path)
        return text

    def listing(self, path: str) -> tuple[str, ...] | None:
        names: Sequence[str] | None = self._part("directories").get(path)
        return None if names is None else tuple(sorted(names))

    def node(self, path: str) -> Node | None:
        found = self._part("nodes").get(path)
        return None if found is None else Node(**found)

    def run(self, *command: str) -> Ran | None:
        found = self._part("programs").get(" ".join(command))
        return None if found is None else Ran(**found)

    def which(self, program: str) -> str | None:
        if any(name.split(" ")[0] == program for name in self._part("programs")):
            return f"/usr/bin/{program}"
        return None

    def env(self, name: str) -> str | None:
        value: str | None = self._part("env").get(name)
        return value

    def groups(self) -> tuple[int, ...]:
        return tuple(self.recording.get("groups", ()))

    def uid(self) -> int:
        return int(self.recording.get("uid", 1000))

    def free_bytes(self, path: str) -> int | None:
        free: int | None = self.recording.get("free_bytes")
        return free

    def reaches(self, name: str, port: int) -> bool | None:
        reached: bool | None = self._part("network").get(name)
        return reached

    def package(self, name: str) -> str | None:
        version: str | None = self._part("packages").get(name)
        return version

    def digest(self, path: str) -> str | None:
        digest: str | None = self._part("digests").get(path)
        return digest

    def load_fault(self, path: str) -> str | None:
        fault: str | None = self._part("load_faults").get(path)
        return fault
