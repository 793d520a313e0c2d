"""What stands in for a GPU and for absent packages while a kernel's source is imported or compiled without
them.

Knows which names upstream looks for at import. Must not know any kernel's arguments.

Upstream's kernels import on a machine without a GPU but for three things: pytest markers in test files that
define a kernel, `torch.cuda.current_stream`, and `aiter` (paged attention). Each stand-in is put in place
only where the real thing is absent, and only while the `with` block runs."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.errors import HarnessError

__all__ = [
    "defining_test",
    "fly_stream",
    "gpu_present",
    "launcher",
    "no_gpu",
    "private_copy",
    "private_name",
    "upstream",
]


def gpu_present() -> bool:
    """Whether a subject can run here: torch is a ROCm build and sees a GPU, and this process is not one that
    only compiles (`COMPILE_ONLY`, FlyDSL's own variable)."""
    import torch

    return bool(torch.version.hip and torch.cuda.is_available()) and os.environ.get("COMPILE_ONLY") != "1"


def upstream(module: str) -> Any:
    """Upstream's `module` (`kernels.…`), which must be on sys.path. Raises HarnessError naming what is
    missing."""
    try:
        with no_gpu():
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise HarnessError(
            f"{module}: import failed at {error.name}",
            remedy="put FlyDSL's source tree on the path (FLYDSL_SRC) and install the compile extra",
            exit_code=50,
        ) from error


def fly_stream(stream: Any) -> Any:
    """`stream`, or FlyDSL's own null stream where None."""
    if stream is not None:
        return stream
    return upstream("flydsl.expr").Stream(None)


def launcher(jit: Any, *args: Any) -> Any:
    """A launch of `jit` on `args`: through `flyc.compile`, as upstream's own tests time these kernels, where
    a GPU is present; the launcher itself where none is (it then writes the code object and runs nothing)."""
    if not gpu_present():
        return lambda: jit(*args)
    compiled = upstream("flydsl.compiler").compile(jit, *args)
    return lambda: compiled(*args)


def grid_launcher(kernel: Any, allocator: Any, *, threads: int, operands: int) -> Any:
    """A launcher for a bare kernel: called with `operands` tensors, a scalar, the workgroups and a stream.

    The kernel takes the tensors and the scalar; `allocator` is its LDS allocator. FlyDSL reads a launcher's
    source, so its parameters are written out for the one number of operands that is needed."""
    flyc, fx = upstream("flydsl.compiler"), upstream("flydsl.expr")
    ir = upstream("flydsl._mlir").ir
    context = upstream("flydsl.compiler.kernel_function").CompilationContext
    typing = upstream("flydsl.expr.typing")
    if operands != 8:
        raise HarnessError(f"a launcher for {operands} operands is not written")

    def launch(a, b, c, d, e, f, g, h, scalar, groups, stream):  # type: ignore[no-untyped-def]
        allocator.finalized = False
        here = context.get_current()
        with ir.InsertionPoint(here.gpu_module_body):
            allocator.finalize()
        grid = fx.arith.index_cast(typing.T.index, groups.ir_value())
        kernel(a, b, c, d, e, f, g, h, scalar).launch(grid=(grid,), block=(threads, 1, 1), stream=stream)

    launch.__annotations__ = {"scalar": fx.Int32, "groups": fx.Int32, "stream": fx.Stream}
    return flyc.jit(launch)


@contextmanager
def without_aiter() -> Iterator[None]:
    """Where AITER is absent: `aiter.ops.attention.pa_reduce_v1` does nothing. Else nothing changes."""
    if "aiter" in sys.modules or importlib.util.find_spec("aiter") is not None:
        yield
        return
    names = ("aiter", "aiter.ops", "aiter.ops.attention")
    modules = {name: ModuleType(name) for name in names}
    modules["aiter.ops.attention"].pa_reduce_v1 = lambda *a, **k: None  # type: ignore[attr-defined]
    with _modules(modules):
        yield


def private_name(module: str) -> str:
    """The name under which a patched copy of upstream's `module` is loaded beside it."""
    return f"harness_private.{module}"


def private_copy(path: Path, module: str) -> Any:
    """The patched copy of upstream's `module` at `path`, loaded under `private_name`, so that both live in
    one process. Its own imports (`kernels.…`) are upstream's. Raises HarnessError where the file is not
    there."""
    if not path.is_file():
        raise HarnessError(f"{path}: no such file", remedy="write the patched copy first", exit_code=50)
    name = private_name(module)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise HarnessError(f"{path}: not a Python module")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


class _Anything(ModuleType):
    """A module whose every attribute is itself and which can be called: enough for decorators and markers."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self


@contextmanager
def _modules(stand_ins: dict[str, ModuleType]) -> Iterator[None]:
    before = {name: sys.modules.get(name) for name in stand_ins}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


@contextmanager
def no_gpu() -> Iterator[None]:
    """Where torch sees no GPU: `torch.cuda.current_stream()` gives None instead of raising. Else nothing
    changes."""
    import torch

    if torch.cuda.is_available():
        yield
        return
    real = torch.cuda.current_stream
    torch.cuda.current_stream = lambda *a, **k: None  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.cuda.current_stream = real


def defining_test(module: str) -> Any:
    """Upstream's test file `module` that defines a kernel, imported for that kernel alone.

    pytest and upstream's test helper are stood in for, and the tests' GPU guard is passed; no test is run.
    """
    import torch

    if module in sys.modules:
        return sys.modules[module]
    helper = _Anything("tests.test_common")
    guard = torch.cuda.is_available
    torch.cuda.is_available = lambda: True
    before = os.environ.get("FLYDSL_RUN_QUANT")
    os.environ["FLYDSL_RUN_QUANT"] = "1"
    hidden = {name: mod for name, mod in sys.modules.items() if name == "tests" or name.startswith("tests.")}
    for name in hidden:
        del sys.modules[name]
    package = ModuleType("tests")
    package.__path__ = _tests_path()
    inner = ModuleType("tests.kernels")
    inner.__path__ = [f"{root}/kernels" for root in package.__path__]
    try:
        with _modules(
            {
                "pytest": _Anything("pytest"),
                "tests": package,
                "tests.kernels": inner,
                "tests.test_common": helper,
            }
        ):
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise HarnessError(
            f"{module}: import failed at {error.name}",
            remedy="put FlyDSL's source tree on the path (FLYDSL_SRC) and install the compile extra",
            exit_code=50,
        ) from error
    finally:
        torch.cuda.is_available = guard
        if before is None:
            del os.environ["FLYDSL_RUN_QUANT"]
        else:
            os.environ["FLYDSL_RUN_QUANT"] = before
        sys.modules.update(hidden)


def _tests_path() -> list[str]:
    """Upstream's `tests` directories on sys.path: those beside a `kernels` package."""
    return [
        str(Path(entry or ".") / "tests")
        for entry in sys.path
        if (Path(entry or ".") / "kernels" / "softmax_kernel.py").is_file()
    ]
