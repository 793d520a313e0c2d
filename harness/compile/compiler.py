"""Compiles one launch in a process of its own and collects its code objects; remembers what it made.

Each compile has a private directory (dump, caches, home, temporary files), a time limit that ends its whole
process group, and its stderr kept. Knows FlyDSL's dump layout. Must not know claims or bundles.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from harness.compile.cache import Cache, write_errors
from harness.compile.remembered import remember
from harness.compile.request import CompiledKernel, CompiledObject, CompileRequest
from harness.compile.toolchain import ARCH, Toolchain, environment
from harness.compile.warm import warm_process
from harness.errors import HarnessError

__all__ = ["compile_kernel"]

STDERR_LINES = 40

UNSERVED = -(1 << 30)
"""No exit code: the warm process could not serve."""

PASSING = (
    "HarnessError",
    "ImportError",
    "ModuleNotFoundError",
    "OSError",
    "MemoryError",
    "KeyboardInterrupt",
)
"""Exceptions that another try, or another package, may not raise: their failures are not remembered."""


def compile_kernel(
    request: CompileRequest,
    toolchain: Toolchain,
    cache: Cache,
    *,
    fresh: bool = False,
    warm: bool = False,
    arch: str | None = ARCH,
) -> CompiledKernel:
    """Compile `request` for gfx950, or find what an equal request gave while no imported file has changed.

    A kernel that does not compile is a result (`ok` False, `error`), not an exception. `warm` forks the
    worker from a process that has FlyDSL imported, which pays from the second compile on. `arch` None
    removes FLYDSL_GPU_ARCH (see `toolchain.environment`); that is never remembered. HarnessError where
    the cache cannot be written.
    """
    place = cache.root / "compiled" / request.key(toolchain.digest)[:32]
    if not fresh and arch is not None:
        known = _remembered(place)
        if known is not None:
            return known
    with write_errors(cache.root):
        runs = cache.root / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=runs))
    try:
        with write_errors(work):
            made = _run(request, toolchain, work, arch, warm)
            return _keep(made, work, cache, place if arch is not None and _lasting(made) else None)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _lasting(made: CompiledKernel) -> bool:
    """Whether the same request would come to the same: a success, or a failure of the compiler itself."""
    if made.ok:
        return True
    error = made.error or ""
    ended = "SIGKILL" in error or error.startswith("did not finish")
    return bool(made.files) and not ended and not error.startswith(PASSING)


def _remembered(place: Path) -> CompiledKernel | None:
    try:
        data = json.loads((place / "result.json").read_text())
        made = CompiledKernel.from_json(data, place, cached=True)
        unchanged = all(_sha256(Path(name)) == value for name, value in made.files.items())
        whole = all(entry.hsaco.is_file() and entry.isa.is_file() for entry in made.objects)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return made if unchanged and whole else None


def _run(
    request: CompileRequest, toolchain: Toolchain, work: Path, arch: str | None, warm: bool
) -> CompiledKernel:
    for name in ("dump", "cache", "triton", "tmp", "home"):
        (work / name).mkdir()
    (work / "request.json").write_text(json.dumps(request.to_json()))
    start = time.monotonic()
    code = _warm(request, toolchain, work) if warm and arch is not None else UNSERVED
    if code == UNSERVED:
        code = _cold(request, toolchain, work, arch)
    seconds = time.monotonic() - start
    lines = (work / "stderr").read_text(errors="replace").strip().splitlines()
    last = "\n".join(lines[-STDERR_LINES:])
    if code is None:
        error = f"did not finish within {request.timeout_s:g} s; its process group was ended"
        return CompiledKernel(False, (), error, last, seconds, 0.0)
    if not (work / "result.json").is_file():
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        error = f"the compiler ended with {how}: {_telling(lines)}"
        imported = work / "imports.json"
        files = json.loads(imported.read_text()) if imported.is_file() else {}
        return CompiledKernel(False, (), error, last, seconds, 0.0, files=files)
    result = json.loads((work / "result.json").read_text())
    files, peak = result["files"], float(result["peak_mb"])
    if not result["ok"]:
        return CompiledKernel(False, (), result["error"], last, seconds, peak, files=files)
    objects = _collect(work / "dump")
    if not objects and request.mode == "launch":
        error = "the launch returned and dumped no code object"
        return CompiledKernel(False, (), error, last, seconds, peak, files=files)
    return CompiledKernel(True, tuple(objects), None, last, seconds, peak, files=files)


def _cold(request: CompileRequest, toolchain: Toolchain, work: Path, arch: str | None) -> int | None:
    """Run a worker of its own; its exit code, or None where the time limit ended it."""
    path = [request.layer, *request.sources] if request.layer is not None else list(request.sources)
    command = [sys.executable, "-m", "harness.compile.worker"]
    command += [str(work / "request.json"), str(work / "result.json")]
    with (work / "stdout").open("wb") as stdout, (work / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=work / "home",
            env=environment(toolchain, work, path, arch=arch),
            start_new_session=True,
        )
        try:
            return process.wait(timeout=request.timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end_group(process.pid)
            process.wait()


def _warm(request: CompileRequest, toolchain: Toolchain, work: Path) -> int | None:
    """Run a worker forked from a warm process; its exit code, None at the time limit, or UNSERVED."""
    layer = [request.layer] if request.layer is not None else []
    key = f"{toolchain.sysroot} {request.layer}"
    place = work.parent.parent / "warm"
    process = warm_process(key, environment(toolchain, place, layer), place)
    if not process.start(work, environment(toolchain, work, layer), request.sources):
        return UNSERVED
    try:
        return process.wait(work, request.timeout_s)
    except ProcessLookupError:
        return UNSERVED
    finally:
        if (work / "pid").is_file():
            _end_group(int((work / "pid").read_text()))


def _end_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _telling(lines: Sequence[str]) -> str:
    """The line of a crash that says most: an assertion or an error, else the last one."""
    for line in lines:
        if re.search(r"Assertion|error:|LLVM ERROR|MLIRError", line):
            return line.strip()
    return lines[-1].strip() if lines else "it said nothing"


def _collect(dump: Path) -> list[CompiledObject]:
    """The code objects of a dump: one directory each, `*final_isa.s`, `*llvm_ir.ll`, and the HSACO."""
    found = []
    for isa in sorted(dump.glob("*/*final_isa.s")):
        directory = isa.parent
        hsaco = next(iter(sorted(directory.glob("*.hsaco"))), None)
        if hsaco is None:
            binaries = sorted(directory.glob("*gpu_module_to_binary.mlir"))
            if not binaries:
                continue
            hsaco = directory / "code.hsaco"
            hsaco.write_bytes(_binary_attribute(binaries[-1].read_text()))
        ir = next(iter(sorted(directory.glob("*llvm_ir.ll"))), None)
        found.append(CompiledObject(_symbol(isa), isa, ir, hsaco))
    return found


_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)


def _binary_attribute(text: str) -> bytes:
    """The bytes of the first `bin = "..."` attribute of an MLIR module (escapes: backslash and two hex
    digits).
    """
    match = re.search(r'\bbin = "((?:[^"\\]|\\.)*)"', text, re.DOTALL)
    if match is None:
        raise HarnessError("the dumped module holds no binary: FlyDSL's dump format is not the one of 0.2.0")

    def unescape(escape: re.Match[bytes]) -> bytes:
        digits = escape.group(1)
        return bytes([int(digits, 16)]) if len(digits) == 2 else digits

    return _ESCAPE.sub(unescape, match.group(1).encode("utf-8", "surrogateescape"))


def _symbol(isa: Path) -> str:
    match = re.search(r"^\s*\.amdhsa_kernel\s+(\S+)", isa.read_text(), re.MULTILINE)
    return match.group(1) if match else isa.parent.name


def _keep(made: CompiledKernel, work: Path, cache: Cache, place: Path | None) -> CompiledKernel:
    """Move the objects of a run to `place`, or (None) to a directory of the run's own that outlives it."""
    if not made.objects and place is None:
        return made
    home = work.parent.parent / "kept" / work.name if place is None else place
    aside = Path(tempfile.mkdtemp(dir=work))
    objects = []
    for entry in made.objects:
        stem = re.sub(r"[^\w.-]", "_", entry.symbol)
        files = []
        for source, suffix in ((entry.isa, ".s"), (entry.ir, ".ll"), (entry.hsaco, ".hsaco")):
            if source is not None:
                shutil.move(source, aside / (stem + suffix))
            files.append(home / (stem + suffix) if source is not None else None)
        isa, ir, hsaco = files
        assert isa is not None and hsaco is not None
        objects.append(CompiledObject(entry.symbol, isa, ir, hsaco))
    kept = CompiledKernel(**{**vars(made), "objects": tuple(objects)})
    for entry in objects:
        name = entry.hsaco.name
        remember((aside / name).read_bytes(), (aside / entry.isa.name).read_text(), cache)
    (aside / "result.json").write_text(json.dumps(kept.to_json(), indent=1))
    home.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(2):
        try:
            aside.rename(home)
            break
        except OSError:  # a stale entry, or another process was first: the newest wins
            shutil.rmtree(home, ignore_errors=True)
    return kept


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
