"""What to compile, and what came of it: plain data, shared by the compiler and its worker process.

Knows nothing of how either works.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["CompileRequest", "CompiledKernel", "CompiledObject"]


@dataclass(frozen=True)
class CompileRequest:
    """One launch to compile.

    module: dotted name of a kernel module (`harness.kernels.softmax`: `make_inputs(dims, device=, seed=)` and
    `subject(dims, tensors) -> launch`), or of a Triton one (`triton_kernels(dims)`, see
    `harness.compile.worker`).
    dims: the workload's dimensions. sources: directories put first on the import path, upstream's root among
    them. layer: a directory holding a `flydsl` package that stands before the wheel's, or None for the
    wheel as published. mode: "launch", or "dispatch" for FlyDSL's host path alone
    (`harness.compile.dispatch`). digest: what identifies the content of `sources` and `layer` (a
    commit, or a hash).
    """

    module: str
    dims: Mapping[str, Any]
    sources: tuple[Path, ...] = ()
    layer: Path | None = None
    digest: str = ""
    mode: str = "launch"
    seed: int = 0
    timeout_s: float = 600.0

    def key(self, toolchain: str) -> str:
        """Hex name of this request under one toolchain; the files that it will import are not part of it."""
        parts = [self.module, dict(self.dims), self.digest, self.layer is not None]
        parts += [self.mode, self.seed, toolchain]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The form that the worker reads."""
        return {"module": self.module, "dims": dict(self.dims), "mode": self.mode, "seed": self.seed}


@dataclass(frozen=True)
class CompiledObject:
    """One code object: the kernel's symbol and its three files."""

    symbol: str
    isa: Path
    ir: Path | None
    hsaco: Path


@dataclass(frozen=True)
class CompiledKernel:
    """What one request came to.

    ok: whether the launch compiled. error: the exception's type and message, or what ended the process.
    stderr: its last lines. seconds: wall time of the process (of the first compile, where `cached`).
    files: every file outside the wheels that was imported, name -> sha256.
    """

    ok: bool
    objects: tuple[CompiledObject, ...]
    error: str | None
    stderr: str
    seconds: float
    peak_mb: float
    cached: bool = False
    files: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The form kept in the cache; paths by name, since the directory moves."""
        out = asdict(self)
        out.pop("cached")
        for entry in out["objects"]:
            for name in ("isa", "ir", "hsaco"):
                entry[name] = entry[name].name if entry[name] is not None else None
        return out

    @staticmethod
    def from_json(data: Mapping[str, Any], directory: Path, *, cached: bool) -> CompiledKernel:
        """Inverse of `to_json`, with the files in `directory`."""
        objects = tuple(
            CompiledObject(
                entry["symbol"],
                directory / entry["isa"],
                directory / entry["ir"] if entry["ir"] else None,
                directory / entry["hsaco"],
            )
            for entry in data["objects"]
        )
        rest = {name: data[name] for name in ("ok", "error", "stderr", "seconds", "peak_mb", "files")}
        return CompiledKernel(objects=objects, cached=cached, **rest)
