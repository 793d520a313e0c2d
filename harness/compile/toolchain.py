"""The gfx950 toolchain, assembled from Python wheels alone: no root, no ROCm, no system package.

FlyDSL's wheel holds MLIR and LLVM; MLIR asks for a ROCm tree with two bitcode libraries and a linker. The
Triton wheel has all three, so a small tree over them is made in the cache. Knows wheels, versions and
that tree; must not know kernels or claims.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shlex
import shutil
import site
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.compile.cache import Cache
from harness.errors import HarnessError

__all__ = ["ARCH", "Toolchain", "assemble", "environment"]

ARCH = "gfx950"
TRITON = "3.6.0"
FLYDSL = "0.2.0"

_OURS = ("FLYDSL_", "TRITON_", "AITER_", "HIP_", "HSA_", "ROCM_", "ROCR_", "MLIR_", "LLVM_")
"""Prefixes of the variables that steer a compile; none is inherited from the user's shell."""


@dataclass(frozen=True)
class Toolchain:
    """A ROCm tree for MLIR and the wheels behind it.

    `triton` is the directory of the `triton` package that it was made from; `versions` are those of the
    wheels, `digest` tells two toolchains apart (versions, bitcode, linker).
    """

    sysroot: Path
    triton: Path
    versions: Mapping[str, str]
    digest: str

    @property
    def library(self) -> Path:
        """The shared library with LLVM's assembler and linker."""
        return self.triton / "_C" / "libtriton.so"


def assemble(cache: Cache, *, offline: bool = False) -> Toolchain:
    """The toolchain, made in `cache` on first use. HarnessError where a wheel is missing or of another
    version.
    """
    versions = {"flydsl": _flydsl_version(), "torch": _torch_version(), "triton": TRITON}
    versions["python"] = ".".join(str(part) for part in sys.version_info[:3])
    triton = _triton_package(cache, offline=offline)
    bitcode = {name: triton / "backends" / "amd" / "lib" / name for name in ("ocml.bc", "ockl.bc")}
    library = triton / "_C" / "libtriton.so"
    tool = Path(__file__).with_name("llvm_tool.py")
    missing = [str(path) for path in (*bitcode.values(), library) if not path.is_file()]
    if missing:
        raise HarnessError(
            f"the Triton {TRITON} wheel is incomplete: no {', '.join(missing)}",
            remedy=f"pip install --no-deps --force-reinstall triton=={TRITON}",
        )
    parts = [f"{name} {_sha256(path)}" for name, path in sorted(bitcode.items())]
    parts += [
        f"tool {_sha256(tool)}",
        *(f"{name} {version}" for name, version in sorted(versions.items())),
    ]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    place = hashlib.sha256(f"{digest}\n{library}\n{sys.executable}".encode()).hexdigest()[:16]

    def make(root: Path) -> None:
        (root / "amdgcn" / "bitcode").mkdir(parents=True)
        (root / "llvm" / "bin").mkdir(parents=True)
        for name, path in bitcode.items():
            shutil.copyfile(path, root / "amdgcn" / "bitcode" / name)
        shutil.copyfile(tool, root / "llvm" / "bin" / tool.name)
        lld = root / "llvm" / "bin" / "ld.lld"
        command = " ".join(shlex.quote(word) for word in (sys.executable, "-I"))
        lld.write_text(
            f'#!/bin/sh\nexec {command} "$(dirname "$0")/{tool.name}" {shlex.quote(str(library))} link "$@"\n'
        )
        lld.chmod(0o755)

    return Toolchain(cache.directory("sysroot", place, make=make), triton, versions, digest)


def environment(
    toolchain: Toolchain, work: Path, path: Sequence[Path], *, arch: str | None = ARCH
) -> dict[str, str]:
    """The environment of one compile in its private directory `work`, with `path` first on the import path.

    `arch` None leaves FLYDSL_GPU_ARCH out, which a test does: builders ask for it and fall back to
    gfx942 while ARCH still makes the backend assemble for gfx950.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OURS) and name not in ("ARCH", "COMPILE_ONLY", "PYTHONPATH", "PYTHONHOME")
    }
    packages = Path(__file__).resolve().parents[2]
    pythonpath = [*path, packages]
    if _installed_triton() != TRITON:
        pythonpath.insert(0, toolchain.triton.parent)
    ours = {
        "COMPILE_ONLY": "1",
        "ARCH": ARCH,
        "FLYDSL_RUNTIME_ENABLE_CACHE": "0",
        "FLYDSL_RUNTIME_CACHE_DIR": str(work / "cache"),
        "FLYDSL_DUMP_IR": "1",
        "FLYDSL_DUMP_DIR": str(work / "dump"),
        "ROCM_PATH": str(toolchain.sysroot),
        "TRITON_CACHE_DIR": str(work / "triton"),
        "TMPDIR": str(work / "tmp"),
        "HOME": str(work / "home"),
        "PYTHONUSERBASE": site.getuserbase(),
        "PYTHONPATH": os.pathsep.join(str(entry) for entry in pythonpath),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }
    if arch is not None:
        ours["FLYDSL_GPU_ARCH"] = arch
    return {**kept, **ours}


def _flydsl_version() -> str:
    try:
        version = importlib.metadata.version("flydsl")
    except importlib.metadata.PackageNotFoundError:
        raise HarnessError(
            "the compile tier needs the FlyDSL wheel, which is not installed",
            remedy=f"pip install flydsl=={FLYDSL} (x86-64 Linux)",
        ) from None
    if version != FLYDSL:
        raise HarnessError(
            f"flydsl {version} is installed; the claimed kernels are compiled with the binaries of {FLYDSL}",
            remedy=f"pip install flydsl=={FLYDSL}",
        )
    return version


def _torch_version() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise HarnessError(
            "the compile tier needs torch (any build: FlyDSL imports it), which is not installed",
            remedy="pip install torch (a CPU build will do), then the pinned Triton with --no-deps",
        ) from None


def _installed_triton() -> str | None:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return None


def _triton_package(cache: Cache, *, offline: bool) -> Path:
    """The directory of the `triton` package 3.6.0: the environment's, or the pinned wheel unpacked in
    the cache.

    Another version's bitcode would be linked into kernels that call exp2, and the ISA would not be the
    claimed one; the environment's own Triton is left alone.
    """
    if _installed_triton() == TRITON:
        spec = importlib.util.find_spec("triton")
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).resolve().parent
    here = f"triton {_installed_triton()} is installed" if _installed_triton() else "triton is not installed"
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    target = cache.root / "wheels" / f"triton-{TRITON}-{tag}" / "triton"
    if target.is_dir():
        return target
    remedy = f"pip install --no-deps triton=={TRITON}, or run once with network"
    if offline:
        raise HarnessError(
            f"the toolchain needs Triton {TRITON}; {here}, and this run is offline", remedy=remedy
        )

    def make(directory: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="harness-wheel-") as scratch:
            wheel = _download(Path(scratch), tag, here, remedy)
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(directory)

    return cache.directory("wheels", f"triton-{TRITON}-{tag}", make=make) / "triton"


def _download(scratch: Path, tag: str, here: str, remedy: str) -> Path:
    from harness.pins import triton_wheel_sha256

    expected = triton_wheel_sha256(tag)
    requirements = scratch / "requirements.txt"
    requirements.write_text(f"triton=={TRITON} --hash=sha256:{expected}\n")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
    ]
    command += [
        "--disable-pip-version-check",
        "--no-input",
        "-q",
        "-d",
        str(scratch),
        "-r",
        str(requirements),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = sorted(scratch.glob("triton-*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        last = (done.stderr.strip() or "no wheel came").splitlines()[-1]
        raise HarnessError(
            f"the toolchain needs Triton {TRITON}; {here}, and pip says: {last}", remedy=remedy
        )
    return wheels[0]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
