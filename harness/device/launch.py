"""`python -m harness.device.launch`: launch one subject a few times, the same way each time, for a profiler.

One JSON object on standard input or as the argument: {"kernel": module, "dims", "launches", "seed"}. Times
nothing.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module

__all__ = ["main"]


def main(text: str) -> int:
    """Build the subject and launch it; then wait for the device."""
    job = json.loads(text)
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    module = import_module(job["kernel"])
    dims = module.resolve(job["dims"])
    tensors = module.make_inputs(dims, device=device, seed=int(job.get("seed", 1)))
    launch = module.subject(dims, tensors)
    for _ in range(int(job["launches"])):
        launch()
    if device == "cuda":
        torch.cuda.synchronize()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else sys.stdin.read()))
