"""The process in which one launch is compiled: `python -m harness.compile.worker REQUEST RESULT`.

    python -m harness.compile.worker --warm     forks one such process a line of its input
    (`harness.compile.warm`)

It imports a kernel module, makes its tensors, calls its launch once, and writes what came of it: FlyDSL
itself dumps the code object, since the environment says so (`harness.compile.toolchain.environment`). A
second call in the same process would dump nothing, so a worker serves one request and ends.

A module with `triton_kernels(dims)` holds Triton kernels instead: mappings with name, function, signature,
constexprs, attrs (as `triton.compiler.ASTSource` takes them) and options.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import re
import resource
import select
import signal
import sys
import sysconfig
import tempfile
import traceback
from pathlib import Path
from typing import Any

__all__: list[str] = []


def main(arguments: list[str]) -> int:
    """Serve one request, or fork servers. Returns the exit code."""
    if arguments == ["--warm"]:
        return warm()
    return serve(Path(arguments[0]), Path(arguments[1]))


def serve(request_file: Path, result_file: Path) -> int:
    """Serve one request file; the result file is written whatever happens. Returns 0, or 1 where it failed.

    `imports.json` beside the result holds the files imported before the launch, for one that takes the
    process with it.
    """
    request = json.loads(request_file.read_text())
    result: dict[str, Any] = {"ok": True, "error": None}
    try:
        _compile(request["module"], request["dims"], request["seed"], request["mode"], result_file.parent)
    except BaseException as error:
        traceback.print_exc()
        result = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    result["files"] = _imported()
    result["peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
    _write(result_file, result)
    return 0 if result["ok"] else 1


def _write(path: Path, data: Any) -> None:
    aside = path.with_name(path.name + ".part")
    aside.write_text(json.dumps(data))
    os.replace(aside, path)


def warm() -> int:
    """Import what every FlyDSL compile begins with, then fork a server for each line of standard input.

    A line is JSON: `work` (the run's directory), `environment`, `path` (put first on the import path).
    The server's exit code (or minus its signal) is written to `work`/exit, its process id, which is its
    group's too, to `work`/pid. Ends with its input.
    """
    import flydsl.compiler
    import flydsl.expr  # noqa: F401
    import torch  # noqa: F401

    running: dict[int, Path] = {}
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    lines = b""
    while True:
        ready, _, _ = select.select([0, wake], [], [])
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
            _reap(running)
        if 0 in ready:
            more = os.read(0, 1 << 16)
            if not more:
                return 0
            *whole, lines = (lines + more).split(b"\n")
            for line in whole:
                job = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    os._exit(_forked(job))
                running[pid] = Path(job["work"])
                _write(running[pid] / "pid", pid)


def _reap(running: dict[int, Path]) -> None:
    while running:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in running:
            _write(running.pop(pid) / "exit", os.waitstatus_to_exitcode(status))


def _forked(job: dict[str, Any]) -> int:
    """In the forked server: become a process like any other worker, then serve."""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        work = Path(job["work"])
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(work / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(work / "home")
        os.environ.clear()
        os.environ.update(job["environment"])
        tempfile.tempdir = None
        sys.path[0:0] = job["path"]
        return serve(work / "request.json", work / "result.json")
    except BaseException:
        traceback.print_exc()
        return 70
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()


def _compile(name: str, dims: dict[str, Any], seed: int, mode: str, directory: Path) -> None:
    module = importlib.import_module(name)
    if hasattr(module, "triton_kernels"):
        for kernel in module.triton_kernels(dims):
            _compile_triton(**kernel)
        return
    from harness.compile.hollow import hollow_tensors

    with hollow_tensors():
        tensors = module.make_inputs(dims, device="cpu", seed=seed)
        if mode == "dispatch":
            from harness.compile.dispatch import try_dispatch

            try_dispatch(*module.arguments(module.resolve(dims), tensors, None))
            return
        launch = module.subject(dims, tensors)
        _write(directory / "imports.json", _imported())
        launch()


def _compile_triton(
    name: str,
    function: Any,
    signature: dict[str, str],
    constexprs: dict[str, Any],
    attrs: dict[Any, Any],
    options: dict[str, Any],
) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(fn=function, signature=signature, constexprs=constexprs, attrs=attrs)
    target = GPUTarget("hip", os.environ["ARCH"], 64)
    compiled = triton.compile(source, target=target, options=options)
    directory = Path(os.environ["FLYDSL_DUMP_DIR"]) / re.sub(r"[^\w.-]", "_", name)
    directory.mkdir(parents=True)
    (directory / "00_final_isa.s").write_text(compiled.asm["amdgcn"])
    (directory / "00_llvm_ir.ll").write_text(compiled.asm["llir"])
    (directory / "00.hsaco").write_bytes(compiled.asm["hsaco"])


def _imported() -> dict[str, str]:
    """sha256 of every imported source file that belongs to no installed wheel and not to Python itself."""
    roots = tuple(
        {str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "purelib", "platlib")}
    )
    files: dict[str, str] = {}
    for module in list(sys.modules.values()):
        origin = getattr(module, "__file__", None)
        if not origin or not origin.endswith(".py"):
            continue
        path = Path(origin).resolve()
        if not str(path).startswith(roots) and path.is_file():
            files[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return files


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # MLIR and torch take most of a second to take themselves down
