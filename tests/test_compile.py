"""The toolchain and the compiler's process: specimens compiled for real, and everything that can go wrong."""

from __future__ import annotations

import errno
import importlib.metadata
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.command import Silent
from harness.compile.cache import Cache, open_cache, write_errors
from harness.compile.compiler import compile_kernel
from harness.compile.describe import describe
from harness.compile.isa_command import run as isa
from harness.compile.request import CompiledKernel, CompileRequest
from harness.compile.selftest import SPECIMENS, self_test
from harness.compile.toolchain import Toolchain, assemble, environment
from harness.compile.warm import Warm
from harness.errors import HarnessError

MODULE = """
import os, pathlib, subprocess, sys, time

def make_inputs(dims, *, device, seed):
    return {}

def subject(dims, tensors, stream=None):
    def launch():
        BODY
    return launch
"""

DUMP = """
        directory = pathlib.Path(os.environ["FLYDSL_DUMP_DIR"]) / "k"
        directory.mkdir(parents=True)
        (directory / "00_final_isa.s").write_text("one")
        (directory / "00.hsaco").write_bytes(b"two")
"""


def write(directory: Path, name: str, body: str) -> CompileRequest:
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.py").write_text(MODULE.replace("BODY", body.strip()))
    return CompileRequest(name, {}, sources=(directory,), timeout_s=60)


def specimen(name: str, toolchain: Toolchain, cache: Cache, **more: Any) -> CompiledKernel:
    module, dims = SPECIMENS[name]
    made = compile_kernel(CompileRequest(f"harness.specimens.{module}", dims), toolchain, cache, **more)
    assert made.ok, made.stderr
    return made


def test_self_test_passes(toolchain: Toolchain, compile_cache: Cache) -> None:
    self_test(toolchain, compile_cache)


def test_self_test_refuses_without_flydsl_gpu_arch(toolchain: Toolchain, compile_cache: Cache) -> None:
    with pytest.raises(HarnessError, match="FLYDSL_GPU_ARCH") as raised:
        self_test(toolchain, compile_cache, arch=None)
    assert "another architecture" in raised.value.message
    assert "FLYDSL_GPU_ARCH=gfx950" in str(raised.value.remedy)


@pytest.mark.parametrize("dsl", ["FlyDSL", "Triton"])
def test_specimens_on_both_paths(dsl: str, toolchain: Toolchain, compile_cache: Cache) -> None:
    def counted(path: str) -> dict[str, int]:
        made = specimen(f"{dsl} softmax, {path}", toolchain, compile_cache)
        classes: dict[str, int] = describe(made.objects[0], toolchain)["histogram"]
        return classes

    scalar, vector = counted("scalar"), counted("128-bit")
    assert scalar["vmem load 16"] >= 4 and "vmem load 128" not in scalar
    assert vector["vmem load 128"] >= 1 and "vmem load 16" not in vector
    assert scalar["transcendental"] == vector["transcendental"]
    assert min(scalar["barrier"], vector["barrier"]) >= 1


def test_compiling_again_gives_the_same_code_object(toolchain: Toolchain, compile_cache: Cache) -> None:
    name = "Triton softmax, 128-bit"
    once = describe(specimen(name, toolchain, compile_cache).objects[0], toolchain)
    again = specimen(name, toolchain, compile_cache, fresh=True)
    assert not again.cached
    assert describe(again.objects[0], toolchain) == once


def test_a_worker_forked_warm_gives_the_same(toolchain: Toolchain, compile_cache: Cache) -> None:
    name = "FlyDSL softmax, scalar"
    cold = describe(specimen(name, toolchain, compile_cache).objects[0], toolchain)
    warm = specimen(name, toolchain, compile_cache, fresh=True, warm=True)
    assert not warm.cached
    assert describe(warm.objects[0], toolchain) == cold


def test_a_crash_in_a_warm_worker_names_the_signal(
    toolchain: Toolchain, compile_cache: Cache, tmp_path: Path
) -> None:
    body = 'print("LLVM ERROR: no", file=sys.stderr, flush=True); os.abort()'
    made = compile_kernel(write(tmp_path / "src", "ends", body), toolchain, compile_cache, warm=True)
    assert made.error == "the compiler ended with signal SIGABRT: LLVM ERROR: no"


def test_where_no_warm_process_lives_a_cold_one_serves(
    toolchain: Toolchain, compile_cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = Warm({"PYTHONPATH": ""}, tmp_path)
    monkeypatch.setattr("harness.compile.compiler.warm_process", lambda *a: dead)
    made = compile_kernel(write(tmp_path / "src", "cold", DUMP), toolchain, compile_cache, warm=True)
    assert made.ok, made.stderr
    dead.close()


def test_isa_command(toolchain: Toolchain, compile_cache: Cache) -> None:
    def args(*paths: Path) -> Any:
        a, b = (*paths, None)[:2]
        return SimpleNamespace(a=a, b=b, symbol=None, offline=True, json=True)

    scalar = specimen("Triton softmax, scalar", toolchain, compile_cache).objects[0]
    vector = specimen("Triton softmax, 128-bit", toolchain, compile_cache).objects[0]
    same = isa(args(scalar.isa, scalar.hsaco), Silent())
    assert same.exit_code == 0
    assert same.data["identical"] is True and same.data["differences"] == 0
    assert same.data["first_difference"] is None
    other = isa(args(scalar.isa, vector.isa), Silent())
    assert other.exit_code == 10
    assert other.data["identical"] is False and other.data["differences"] > 0
    first = other.data["first_difference"]
    assert first["a"] != first["b"] and f"- {first['a']}" in other.text
    alone = isa(args(vector.hsaco), Silent())
    assert alone.data["sha256"] == other.data["b"]["sha256"]
    assert sum(alone.data["histogram"].values()) == alone.data["instructions"]


def test_assembly_of_another_kernel_is_not_the_listing(
    toolchain: Toolchain, compile_cache: Cache, tmp_path: Path
) -> None:
    made = specimen("Triton softmax, scalar", toolchain, compile_cache).objects[0]
    (tmp_path / "k.hsaco").write_bytes(made.hsaco.read_bytes())
    (tmp_path / "k.s").write_text(made.isa.read_text().replace("s_barrier", "s_nop 0", 1))
    arguments = SimpleNamespace(a=tmp_path / "k.hsaco", b=None, symbol=None, offline=True, json=False)
    with pytest.raises(HarnessError, match="not the listing of the code object"):
        isa(arguments, Silent())  # type: ignore[arg-type]


def test_a_kernel_that_does_not_compile_keeps_its_error(
    toolchain: Toolchain, compile_cache: Cache, tmp_path: Path
) -> None:
    request = write(tmp_path / "src", "raises", 'raise ValueError("no such tile")')
    made = compile_kernel(request, toolchain, compile_cache)
    assert (made.ok, made.error) == (False, "ValueError: no such tile")
    assert "Traceback" in made.stderr
    again = compile_kernel(request, toolchain, compile_cache)
    assert again.cached and (again.ok, again.error) == (False, made.error)


def test_a_missing_package_is_tried_again(toolchain: Toolchain, compile_cache: Cache, tmp_path: Path) -> None:
    request = write(tmp_path / "src", "lacks", "import no_such_package")
    for _ in range(2):
        made = compile_kernel(request, toolchain, compile_cache)
        assert not made.cached and str(made.error).startswith("ModuleNotFoundError")


def test_a_crash_names_the_signal(toolchain: Toolchain, compile_cache: Cache, tmp_path: Path) -> None:
    body = 'print("LLVM ERROR: cannot select", file=sys.stderr, flush=True); os.abort()'
    made = compile_kernel(write(tmp_path / "src", "aborts", body), toolchain, compile_cache)
    assert not made.ok
    assert made.error == "the compiler ended with signal SIGABRT: LLVM ERROR: cannot select"


def test_a_hang_ends_with_its_children(toolchain: Toolchain, compile_cache: Cache, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    request = write(tmp_path / "src", "hangs", "pass")
    (tmp_path / "src" / "hangs.py").write_text(
        "import pathlib, subprocess, sys, time\n"
        'child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])\n'
        f"pathlib.Path({str(pid)!r}).write_text(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    request = CompileRequest(request.module, {}, sources=request.sources, timeout_s=6)
    made = compile_kernel(request, toolchain, compile_cache)
    assert not made.ok and str(made.error).startswith("did not finish within 6 s")
    for _ in range(50):
        if not _running(int(pid.read_text())):
            break
        time.sleep(0.1)
    assert not _running(int(pid.read_text()))


def _running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_remembered_until_an_imported_file_changes(
    toolchain: Toolchain, compile_cache: Cache, tmp_path: Path
) -> None:
    request = write(tmp_path / "src", "dumps", DUMP)
    assert not compile_kernel(request, toolchain, compile_cache).cached
    start = time.perf_counter()
    assert compile_kernel(request, toolchain, compile_cache).cached
    assert time.perf_counter() - start < 1
    write(tmp_path / "src", "dumps", DUMP.replace("one", "three"))
    made = compile_kernel(request, toolchain, compile_cache)
    assert not made.cached and made.objects[0].isa.read_text() == "three"


def test_the_environment_is_private(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FLYDSL_GPU_ARCH", "FLYDSL_COMPILE_OPT_LEVEL", "TRITON_OVERRIDE_DIR", "PYTHONPATH"):
        monkeypatch.setenv(name, "from-the-shell")
    found = environment(toolchain, tmp_path, ())
    assert found["FLYDSL_GPU_ARCH"] == found["ARCH"] == "gfx950"
    assert "from-the-shell" not in found.values()
    assert found["HOME"].startswith(str(tmp_path)) and found["FLYDSL_DUMP_DIR"].startswith(str(tmp_path))
    assert "FLYDSL_GPU_ARCH" not in environment(toolchain, tmp_path, (), arch=None)


@pytest.mark.parametrize(("code", "word"), [(errno.ENOSPC, "no space left"), (errno.EROFS, "not writable")])
def test_a_full_or_read_only_cache_is_one_line(code: int, word: str, tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=word) as raised, write_errors(tmp_path):
        raise OSError(code, os.strerror(code))
    assert "HARNESS_CACHE" in str(raised.value.remedy)


def test_what_fails_elsewhere_is_not_the_caches_fault(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), write_errors(tmp_path / "cache"):
        raise PermissionError(13, "Permission denied", "/elsewhere/python")
    for named in (tmp_path, tmp_path / "cache" / "a.s"):
        with pytest.raises(HarnessError, match="not writable"), write_errors(tmp_path / "cache"):
            raise PermissionError(13, "Permission denied", str(named))


def test_a_named_cache_must_be_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(HarnessError, match="cannot be used"):
        open_cache()


def test_a_read_only_home_falls_back_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("HARNESS_CACHE", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *a, **k: str(tmp_path / "file" / "cache"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    found = open_cache()
    assert found.root.parent == tmp_path and found.root.stat().st_mode & 0o077 == 0
    assert found.note is not None and "cannot be written" in found.note


def test_a_directory_is_made_once_and_whole(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def fails(directory: Path) -> None:
        (directory / "half").write_text("")
        raise HarnessError("no")

    with pytest.raises(HarnessError):
        cache.directory("a", "b", make=fails)
    assert list((tmp_path / "a").iterdir()) == []
    made = cache.directory("a", "b", make=lambda directory: (directory / "whole").touch())
    assert cache.directory("a", "b", make=fails) == made and (made / "whole").is_file()


def versions(monkeypatch: pytest.MonkeyPatch, **told: str | None) -> None:
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name not in told:
            return real(name)
        found = told[name]
        if found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr("importlib.metadata.version", version)


@pytest.mark.parametrize("installed", ["3.5.1", None])
def test_another_triton_is_not_used(
    installed: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions(monkeypatch, triton=installed)
    with pytest.raises(HarnessError, match=r"needs Triton 3\.6\.0") as raised:
        assemble(Cache(tmp_path), offline=True)
    assert (f"triton {installed} is installed" if installed else "not installed") in raised.value.message
    assert "pip install --no-deps triton==3.6.0" in str(raised.value.remedy)


def test_an_unpacked_wheel_in_the_cache_serves(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    versions(monkeypatch, triton="3.5.1")
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    unpacked = tmp_path / "wheels" / f"triton-3.6.0-{tag}"
    unpacked.mkdir(parents=True)
    (unpacked / "triton").symlink_to(toolchain.triton)
    found = assemble(Cache(tmp_path), offline=True)
    assert found.versions["triton"] == "3.6.0"
    assert environment(found, tmp_path, ())["PYTHONPATH"].startswith(str(unpacked))


def test_another_flydsl_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch, flydsl="0.1.8")
    with pytest.raises(HarnessError, match=r"flydsl 0\.1\.8 is installed"):
        assemble(Cache(tmp_path))
    versions(monkeypatch, flydsl=None)
    with pytest.raises(HarnessError, match="not installed"):
        assemble(Cache(tmp_path))
