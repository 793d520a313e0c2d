"""Launches of a kernel module, recorded in a process of their own and kept in the cache.

The recording itself is `harness.compile.launch`; this finds it again while nothing that it depends on has
changed. Knows directories and processes. Must not know claims.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.compile.cache import Cache, write_errors
from harness.compile.request import CompileRequest
from harness.compile.toolchain import Toolchain, environment
from harness.errors import HarnessError
from harness.execute.abi import Launch, Pointer
from harness.execute.decode import Program, decode

__all__ = ["Recorded", "load_recorded", "record_launch"]


@dataclass(frozen=True)
class Recorded:
    """The launches of one subject call, with the program of each and the sha256 of its code."""

    launches: tuple[Launch, ...]
    programs: tuple[Program, ...]

    def code_sha256(self, index: int) -> str:
        """sha256 of the instructions' bytes of launch `index`."""
        return hashlib.sha256(self.programs[index].kernel.code).hexdigest()


def record_launch(request: CompileRequest, toolchain: Toolchain, cache: Cache) -> Recorded:
    """Record the launches of `request`, or find them. HarnessError with the process's own words where
    that fails.
    """
    place = cache.root / "launches" / _key(request, toolchain)
    if not (place / "result.json").is_file():
        with write_errors(cache.root):
            (cache.root / "runs").mkdir(parents=True, exist_ok=True)
            work = Path(tempfile.mkdtemp(dir=cache.root / "runs"))
        try:
            _run(request, toolchain, work)
            place.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):  # another process was first: its result is the same
                (work / "kept").rename(place)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return load_recorded(place)


def load_recorded(place: Path) -> Recorded:
    """The launches that `harness.compile.launch` wrote into `place`."""
    data = json.loads((place / "result.json").read_text())
    launches, programs = [], []
    for entry in data["launches"]:
        launches.append(_launch(entry, place))
        hsaco = (place / entry["hsaco"]).read_bytes()
        programs.append(decode(hsaco, entry["symbol"], entry["symbol"]))
    return Recorded(tuple(launches), tuple(programs))


def _launch(entry: dict[str, Any], place: Path) -> Launch:
    pointers = tuple(
        Pointer(item["offset"], item.get("tensor") or item["file"], item["byte"])
        for item in entry["pointers"]
    )
    files = {item["file"]: place / item["file"] for item in entry["pointers"] if "file" in item}
    grid, block = (tuple(int(value) for value in entry[name]) for name in ("grid", "block"))
    return Launch(
        entry["symbol"],
        (grid[0], grid[1], grid[2]),
        (block[0], block[1], block[2]),
        int(entry["lds"]),
        bytes.fromhex(entry["kernarg"]),
        pointers,
        files,
    )


def _key(request: CompileRequest, toolchain: Toolchain) -> str:
    """A launch depends on this project's kernel files too, which decide dims, inputs and arguments."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256(request.key(toolchain.digest).encode())
    files = [root / "compile" / "launch.py", root / "compile" / "hollow.py"]
    stem = request.module.rsplit(".", 1)[1]
    folder = root / request.module.split(".")[1]
    files += [folder / f"{stem}.py", *sorted(folder.glob("*.py"))]
    for path in files:
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def _run(request: CompileRequest, toolchain: Toolchain, work: Path) -> None:
    for name in ("dump", "cache", "triton", "tmp", "home", "kept"):
        (work / name).mkdir()
    (work / "request.json").write_text(json.dumps(request.to_json()))
    path = [request.layer, *request.sources] if request.layer is not None else list(request.sources)
    env = environment(toolchain, work, path)
    env |= {"COMPILE_ONLY": "0", "FLYDSL_DUMP_IR": "0", "FLYDSL_DEBUG_ENABLE_DEBUG_INFO": "1"}
    command = [sys.executable, "-m", "harness.compile.launch"]
    command += [str(work / "request.json"), str(work / "kept" / "result.json")]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=work / "home",
        env=env,
        start_new_session=True,
        text=True,
    )
    try:
        _, said = process.communicate(timeout=request.timeout_s)
    except subprocess.TimeoutExpired:
        said = f"did not finish within {request.timeout_s:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    result = work / "kept" / "result.json"
    error = json.loads(result.read_text())["error"] if result.is_file() else None
    if not result.is_file() or error:
        last = said.strip().splitlines()[-1] if said.strip() else "it said nothing"
        raise HarnessError(
            f"{request.module}: its launch could not be recorded: {error or last}", exit_code=50
        )
