"""Records what one launch would send to a GPU: `python -m harness.compile.launch REQUEST RESULT`.

FlyDSL compiles a launcher to host code that loads the code object and launches it through a few runtime
functions (`mgpuModuleLoad`, `mgpuLaunchKernel`, ...). Here that host code runs on the CPU with those
functions
replaced: the launch is written down, not made. So grid, block, dynamic LDS and every argument's bytes come
from the launcher itself, and nothing is guessed. Pointers are told apart from numbers by the code object's
metadata, and each is written as (tensor, byte offset).

Knows FlyDSL's execution engine and torch storages. Must not know how a kernel is executed.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

__all__ = ["RUNTIME", "record_launches"]

RUNTIME = (
    "mgpuModuleLoad",
    "mgpuModuleLoadJIT",
    "mgpuModuleUnload",
    "mgpuModuleGetFunction",
    "mgpuLaunchKernel",
)
"""The runtime functions that a launcher of FlyDSL 0.2.0 calls (MLIR's GPU runtime wrappers)."""


def main(arguments: list[str]) -> int:
    """Serve one request file; the result file is written whatever happens. Returns 0, or 1 where it
    failed.
    """
    request = json.loads(Path(arguments[0]).read_text())
    target = Path(arguments[1])
    try:
        result = record_launches(request["module"], request["dims"], request["seed"], target.parent)
    except BaseException as error:
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {error}", "launches": []}
    aside = target.with_suffix(".part")
    aside.write_text(json.dumps(result))
    os.replace(aside, target)
    return 1 if result["error"] else 0


def record_launches(module: str, dims: dict[str, Any], seed: int, directory: Path) -> dict[str, Any]:
    """Call `subject(dims, make_inputs(dims))()` of a kernel module and write down the launches it makes.

    Returns `{"error": None, "launches": [...], "tensors": [...]}`; each launch has `symbol`, `hsaco` (a
    file in `directory`), `grid`, `block` (x, y, z), `lds` (dynamic bytes), `kernarg` (hex), `pointers`
    (a list of `{"offset", "tensor", "byte"}`: where in the kernarg, which tensor, which byte of its
    storage). A tensor that the kernel module does not name is saved as a file (`extra-<n>.bin`).
    """
    from harness.compile.hollow import hollow_tensors

    recorder = _Recorder(directory)
    with hollow_tensors():
        kernel = importlib.import_module(module)
        tensors = kernel.make_inputs(dims, device="cpu", seed=seed)
        before = {name: _storage(tensor) for name, tensor in tensors.items() if _is_tensor(tensor)}
        recorder.patch()
        launch = kernel.subject(dims, tensors)
        launch()
    return {"error": None, "launches": recorder.finish(before)}


def _runner_libraries() -> list[str]:
    """What a host module needs besides the GPU runtime: MLIR's runner utilities, from the wheel."""
    from flydsl._mlir import _mlir_libs

    path = Path(_mlir_libs.__file__).with_name("libmlir_c_runner_utils.so")
    return [str(path)] if path.is_file() else []


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _storage(tensor: Any) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


class _Recorder:
    """Stands in for the GPU runtime of one process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.modules: list[bytes] = []
        self.functions: list[tuple[int, str]] = []
        self.launches: list[dict[str, Any]] = []
        self.keep: list[Any] = []

    def patch(self) -> None:
        """Every execution engine made from now on calls this recorder instead of HIP."""
        os.environ["COMPILE_ONLY"] = "0"
        from flydsl.compiler import jit_executor

        base = jit_executor.ExecutionEngine
        recorder = self

        class Engine(base):  # type: ignore[misc,valid-type]
            def __init__(self, module: Any, opt_level: int = 2, shared_libs: Any = ()) -> None:
                super().__init__(module, opt_level=0, shared_libs=list(shared_libs))
                for name, callback in recorder.callbacks().items():
                    recorder.keep.append(callback)
                    self.raw_register_runtime(name, ctypes.cast(callback, ctypes.c_void_p))

        jit_executor.ExecutionEngine = Engine
        jit_executor._resolve_runtime_libs = _runner_libraries

    def callbacks(self) -> dict[str, Any]:
        """The replacements by name, with the C signatures of MLIR's ROCm runtime wrappers."""
        pointer, word, size = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t
        nothing: Any = None
        return {
            "mgpuModuleLoad": ctypes.CFUNCTYPE(pointer, pointer, size)(self.load),
            "mgpuModuleLoadJIT": ctypes.CFUNCTYPE(pointer, pointer, word)(lambda data, level: 0),
            "mgpuModuleUnload": ctypes.CFUNCTYPE(nothing, pointer)(lambda module: None),
            "mgpuModuleGetFunction": ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_char_p)(self.function),
            "mgpuLaunchKernel": ctypes.CFUNCTYPE(
                nothing, pointer, size, size, size, size, size, size, word, pointer, pointer, pointer, size
            )(self.launch),
            "mgpuStreamCreate": ctypes.CFUNCTYPE(pointer)(lambda: 0),
            "mgpuStreamDestroy": ctypes.CFUNCTYPE(nothing, pointer)(lambda stream: None),
            "mgpuStreamSynchronize": ctypes.CFUNCTYPE(nothing, pointer)(lambda stream: None),
            "mgpuSetDefaultDevice": ctypes.CFUNCTYPE(nothing, word)(lambda device: None),
        }

    def load(self, data: int, size: int) -> int:
        self.modules.append(ctypes.string_at(data, size))
        return len(self.modules)

    def function(self, module: int, name: bytes) -> int:
        self.functions.append((module, name.decode()))
        return len(self.functions)

    def launch(
        self,
        function: int,
        gx: int,
        gy: int,
        gz: int,
        bx: int,
        by: int,
        bz: int,
        lds: int,
        stream: int,
        params: int,
        extra: int,
        count: int,
    ) -> None:
        try:
            module, symbol = self.functions[function - 1]
            self.launches.append(
                {
                    "symbol": symbol,
                    "module": module - 1,
                    "grid": [gx, gy, gz],
                    "block": [bx, by, bz],
                    "lds": lds,
                    **self.arguments(self.modules[module - 1], symbol, params),
                }
            )
        except Exception as error:  # an exception must not cross the C frames above
            self.launches.append({"symbol": "?", "error": f"{type(error).__name__}: {error}"})

    def arguments(self, hsaco: bytes, symbol: str, params: int) -> dict[str, Any]:
        """The kernarg segment that the runtime would build from `params`, by the metadata's offsets and
        sizes.
        """
        from harness.compile.codeobject import read_code_object

        metadata = read_code_object(hsaco, symbol).kernel(symbol).metadata
        buffer = bytearray(int(metadata[".kernarg_segment_size"]))
        pointers = []
        array = ctypes.cast(params, ctypes.POINTER(ctypes.c_void_p))
        explicit = [
            entry for entry in metadata.get(".args", ()) if not entry[".value_kind"].startswith("hidden")
        ]
        for index, entry in enumerate(explicit):
            at, size = int(entry[".offset"]), int(entry[".size"])
            buffer[at : at + size] = ctypes.string_at(array[index], size)
            if size == 8:
                # A pointer may hide behind an integer argument (Int64 addresses), so any 8 bytes that
                # point into a live tensor are one; the metadata's kind says where it must be one.
                value = int.from_bytes(buffer[at : at + 8], "little")
                pointers.append(
                    {"offset": at, "value": value, "must": entry[".value_kind"] == "global_buffer"}
                )
        storages = _live_storages()
        for pointer in pointers:
            pointer["storage"] = _owner(storages, int(pointer["value"]))
        return {"kernarg": bytes(buffer).hex(), "pointers": pointers, "implicit": len(explicit)}

    def finish(self, named: dict[str, tuple[int, int]]) -> list[dict[str, Any]]:
        """The launches with pointers named, code objects and unnamed tensors written."""
        files: dict[int, str] = {}
        extras: dict[tuple[int, int], str] = {}
        for launch in self.launches:
            if "error" in launch:
                raise RuntimeError(launch["error"])
            index = launch.pop("module")
            if index not in files:
                files[index] = f"code-{index}.hsaco"
                (self.directory / files[index]).write_bytes(self.modules[index])
            launch["hsaco"] = files[index]
            kept = []
            for pointer in launch["pointers"]:
                storage = pointer.pop("storage")
                value = pointer.pop("value")
                must = pointer.pop("must")
                if storage is None:
                    if must and value:
                        raise RuntimeError(
                            f"argument at {pointer['offset']}: {value:#x} points into no tensor"
                        )
                    continue
                base, size = storage
                names = [name for name, entry in named.items() if entry[0] == base]
                if names:
                    pointer["tensor"] = names[0]
                else:
                    if storage not in extras:
                        extras[storage] = f"extra-{len(extras)}.bin"
                        (self.directory / extras[storage]).write_bytes(ctypes.string_at(base, size))
                    pointer["file"] = extras[storage]
                pointer["byte"] = value - base
                kept.append(pointer)
            launch["pointers"] = kept
        return self.launches


def _live_storages() -> list[tuple[int, int]]:
    """(address, bytes) of every torch storage that lives in this process."""
    import torch

    found = set()
    for value in gc.get_objects():
        # `type`, not isinstance: asking a stranger's class runs its code (lazy modules import themselves).
        plain = type(value) is torch.Tensor or type(value) is torch.nn.Parameter
        if plain and value.device.type == "cpu" and value.layout is torch.strided:
            found.add(_storage(value))
    return sorted(entry for entry in found if entry[1])


def _owner(storages: list[tuple[int, int]], address: int) -> tuple[int, int] | None:
    for base, size in storages:
        if base <= address < base + size:
            return base, size
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
