"""`ld.lld` for MLIR, over the linker that the Triton wheel carries in-process.

Run as a program: `linker.py LIBTRITON -shared IN -o OUT`. It loads that one shared library directly and imports
nothing else, neither Triton's package nor this one. MLIR calls its linker with exactly these arguments
(GPU to ROCDL serialization); anything else is refused, since it would be ignored silently.
"""

from __future__ import annotations

import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location


def main(arguments: list[str]) -> int:
    """Link one object into one HSACO. Returns the exit code."""
    library, rest = arguments[0], arguments[1:]
    if len(rest) != 4 or rest[0] != "-shared" or rest[2] != "-o":
        print(f"ld.lld wrapper: cannot serve these arguments: {' '.join(rest)}", file=sys.stderr)
        return 2
    spec = spec_from_file_location("libtriton", library, loader=ExtensionFileLoader("libtriton", library))
    if spec is None or spec.loader is None:
        print(f"ld.lld wrapper: cannot load {library}", file=sys.stderr)
        return 2
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.llvm.init_targets()
    module.amd.link_hsaco(rest[1], rest[3])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
