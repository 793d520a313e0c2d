"""The linker and the assembler that the Triton wheel carries in-process, as a program.

    llvm_tool.py LIBTRITON link -shared IN -o OUT      what MLIR asks of `ld.lld`
    llvm_tool.py LIBTRITON assemble PROCESSOR IN OUT   assembly text to an object file

It loads that one shared library directly and imports nothing else, neither Triton's package nor this
one. MLIR calls its linker with exactly these arguments; anything else is refused, since it would be
ignored silently.
"""

from __future__ import annotations

import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any


def main(arguments: list[str]) -> int:
    """Run one tool. Returns the exit code."""
    library, tool, rest = arguments[0], arguments[1], arguments[2:]
    if tool == "link" and len(rest) == 4 and rest[0] == "-shared" and rest[2] == "-o":
        _load(library).amd.link_hsaco(rest[1], rest[3])
        return 0
    if tool == "assemble" and len(rest) == 3:
        with open(rest[1], encoding="utf-8") as source:
            text = source.read()
        made = _load(library).amd.assemble_amdgcn(text, rest[0], "")
        with open(rest[2], "wb") as out:
            out.write(made)
        return 0
    print(f"{tool}: cannot serve these arguments: {' '.join(rest)}", file=sys.stderr)
    return 2


def _load(library: str) -> Any:
    loader = ExtensionFileLoader("libtriton", library)
    spec = spec_from_file_location("libtriton", library, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    module.llvm.init_targets()
    return module


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
