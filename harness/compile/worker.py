"""The process in which one launch is compiled: `python -m harness.compile.worker REQUEST RESULT`.

It imports a kernel module, makes its tensors, calls its launch once, and writes what came of it: FlyDSL
itself dumps the code object, since the environment says so (`harness.compile.toolchain.environment`). A
second call in the same process would dump nothing, so a worker serves one request and ends.

A module with `triton_kernels(dims)` holds Triton kernels instead: mappings with name, function, signature,
constexprs, attrs (as `triton.compiler.ASTSource` takes them) and options.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import resource
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Any

__all__: list[str] = []


def main(arguments: list[str]) -> int:
    """Serve one request file; the result file is written whatever happens. Returns 0, or 1 where it
    failed.
    """
    request = json.loads(Path(arguments[0]).read_text())
    result: dict[str, Any] = {"ok": True, "error": None}
    try:
        _compile(request["module"], request["dims"], request["seed"], request["mode"])
    except BaseException as error:
        traceback.print_exc()
        result = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    result["files"] = _imported()
    result["peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
    aside = Path(arguments[1] + ".part")
    aside.write_text(json.dumps(result))
    os.replace(aside, arguments[1])
    return 0 if result["ok"] else 1


def _compile(name: str, dims: dict[str, Any], seed: int, mode: str) -> None:
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
    sys.exit(main(sys.argv[1:]))
