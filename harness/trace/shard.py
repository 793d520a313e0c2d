"""A second process for the wave files of large captures: they are most of the bytes, and their sums simply
add up.

The parent hands over a list of files and gets `WaveCollector`s back, by directory. A fresh interpreter, not
a fork: the parent may hold threads and a GPU. Where the child fails, the parent reads the files itself.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from typing import NamedTuple

from harness.trace import att
from harness.trace.faults import Fault, ReadFault
from harness.trace.files import Entry, on_disk
from harness.trace.ints import keep_freed
from harness.trace.waves import WaveCollector

__all__ = ["HEAD_START", "LEAST_GAIN", "Part", "Shard", "read_waves", "split"]

HEAD_START = 16 << 20
"""Bytes of wave files that one process sums in the time in which a second interpreter starts."""

LEAST_GAIN = 4 << 20
"""A child that would get less than this costs more than it saves."""

OTHER_COST = 0.25
"""What a byte of another file costs, in bytes of a wave file."""


class Part(NamedTuple):
    """What one process read of one directory."""

    waves: WaveCollector
    faults: list[Fault]
    files: int
    bytes: int


def read_waves(files: list[Entry]) -> dict[str, Part]:
    """Sum wave files, by directory; unreadable ones become faults."""
    if sum(entry.size for entry in files) >= LEAST_GAIN:
        keep_freed()
    parts: dict[str, Part] = {}
    for entry in files:
        part = parts.get(entry.directory) or Part(WaveCollector(), [], 0, 0)
        try:
            part.waves.add(att.wave(entry.read(), entry.name))
        except ReadFault as error:
            part.faults.append(error.fault)
        parts[entry.directory] = part._replace(files=part.files + 1, bytes=part.bytes + entry.size)
    for part in parts.values():
        part.waves.flush()
    return parts


def split(files: list[Entry], other_bytes: int = 0) -> tuple[list[Entry], list[Entry]]:
    """(mine, the child's): all mine where it does not pay, or where there is one CPU.

    `other_bytes` of other files are the parent's too. The child gets half of what is left to do when it has
    started, so that both end at the same time.
    """
    total = sum(entry.size for entry in files)
    share = min(float(total), (total + OTHER_COST * other_bytes - HEAD_START) / 2)
    if share < LEAST_GAIN or len(os.sched_getaffinity(0)) < 2 or not all(entry.disk for entry in files):
        return files, []
    taken = 0
    for at, entry in enumerate(files):
        taken += entry.size
        if taken >= share:
            return files[at + 1 :], files[: at + 1]
    return [], files


class Shard:
    """The child at work on `files`; `finish` gives its parts."""

    def __init__(self, files: list[Entry]) -> None:
        self._files = files
        with tempfile.TemporaryFile() as told:  # a pipe would hold the parent until the child has started
            told.write(pickle.dumps([(e.path, e.size, e.disk) for e in files]))
            told.seek(0)
            self._child = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=told,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={
                    **os.environ,
                    "OPENBLAS_NUM_THREADS": "1",
                    "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
                },
            )

    def finish(self) -> dict[str, Part]:
        """What the child summed; read here instead where it failed."""
        assert self._child.stdout is not None  # asked for above
        with self._child.stdout as stream:
            data = stream.read()
        if self._child.wait() == 0 and data:
            parts: dict[str, Part] = pickle.loads(data)
            return parts
        return read_waves(self._files)


def main() -> int:
    """The child: a list of files on standard input, parts on standard output."""
    import gc

    gc.disable()
    files = [on_disk(path, size, disk) for path, size, disk in pickle.loads(sys.stdin.buffer.read())]
    sys.stdout.buffer.write(pickle.dumps(read_waves(files)))
    return 0


if __name__ == "__main__":
    # run as a module, this file is not the one that pickle names: the classes must come from the other
    from harness.trace import shard

    sys.exit(shard.main())
