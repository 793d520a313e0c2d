"""Writes docs/kernels.md from the kernel files: nothing in it is typed by hand.

python tools/kernels_doc.py            # write it
python tools/kernels_doc.py --check    # exit 1 where it is not what would be written
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from harness.kernels import IDS, aiter, get  # noqa: E402
from harness.kernels.base import PEAK_BYTES_PER_S, PEAK_FLOPS, Baseline, Dims, KernelModule  # noqa: E402

TARGET = ROOT / "docs" / "kernels.md"

_PEAKS = ", ".join(f"{name} {PEAK_FLOPS[name] / 1e15:.1f} PFLOPS" for name in ("bf16", "fp8", "fp4"))

HEAD = f"""# Kernels: what is run, timed and compared

Written by `python tools/kernels_doc.py` from `harness/kernels/`; a test fails where it is not current.

- *bytes*: each operand once, in and out (compulsory traffic); *operations*: a multiply-add counts two, "-"
  where the study counts none. Formulas are in the names of the dimensions.
- *roofline*: the larger of bytes over {PEAK_BYTES_PER_S / 1e12:g} TB/s and operations over the dense peak
  of the input's type ({_PEAKS}), from the AMD Instinct MI350X data sheet. It is a bound, not a forecast.
- *memory*: what one set of tensors needs, named before anything is allocated.
- *claim*: the study's own baseline; *other*: a strong alternative, judged apart.
- AITER is {aiter.COMMIT}; a baseline whose kernel symbol does not match is
  NOT_COMPARABLE.
- `captured` workloads are those of the captured listings; the others are stated or timed.
"""


def operand_type(dims: Dims) -> str:
    """The dtype whose matrix peak bounds a launch."""
    for name in ("in_dtype", "dtype", "kv_dtype"):
        value = {"fp16": "f16", "fp8_e4m3": "fp8"}.get(str(dims.get(name)), str(dims.get(name)))
        if value in PEAK_FLOPS:
            return value
    return "fp8"


def roofline_us(module: KernelModule, dims: Dims, kind: str) -> float:
    """The shortest time of one launch at MI350X peaks, in microseconds."""
    traffic = module.traffic(dims)
    return max(traffic.bytes / PEAK_BYTES_PER_S, traffic.flops / PEAK_FLOPS[kind]) * 1e6


def size(count: float) -> str:
    """Three digits and a decimal unit."""
    for unit in ("", "k", "M", "G", "T"):
        if count < 1000 or unit == "T":
            return f"{count:.3g} {unit}".strip()
        count /= 1000
    raise AssertionError("the loop returns")


def shape(module: KernelModule, dims: Dims) -> str:
    """Every dimension, the fixed ones too, in the order of the kernel file."""
    return ", ".join(f"{name}={value}" for name, value in module.resolve(dims).items())


def baseline_lines(module: KernelModule) -> list[str]:
    """One line a baseline, over all workloads of the kernel, each once."""
    found: dict[str, Baseline] = {}
    for dims in module.WORKLOADS.values():
        for baseline in module.baselines(dims):
            found.setdefault(baseline.id, baseline)
    lines = []
    for baseline in found.values():
        branch = f"; expects a symbol like `{baseline.expects}`" if baseline.expects else ""
        compared = "" if baseline.outputs else "; its output is not compared with the reference"
        note = f"; {baseline.note}" if baseline.note else ""
        lines.append(
            f"- {baseline.role}: `{baseline.entry_point}` ({baseline.backend}{branch}{compared}{note}). "
            f"Inside: {', '.join(baseline.region.inside)}. Outside: {', '.join(baseline.region.outside)}."
        )
    return lines


def section(bundle: str) -> str:
    """The section of one kernel."""
    module = get(bundle)
    title = (module.__doc__ or "").split("\n\n")[0].replace("\n", " ").strip()
    kind = "fp4" if bundle == "mqa-logits-fp4" else None
    out = [
        f"## {bundle}",
        "",
        title,
        "",
        "| workload | bytes | operations | roofline µs | memory |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, dims in module.WORKLOADS.items():
        traffic = module.traffic(dims)
        bound = roofline_us(module, dims, kind or operand_type(module.resolve(dims)))
        flops = size(traffic.flops) if traffic.flops else "-"
        out.append(
            f"| {name} | {traffic.bytes:,} | {flops} | {bound:.3g} | {size(module.memory_bytes(dims))}B |"
        )
    out.append("")
    out += [f"- {name}: {shape(module, dims)}" for name, dims in module.WORKLOADS.items()]
    first = next(iter(module.WORKLOADS.values()))
    traffic, tolerance = module.traffic(first), module.tolerance(first)
    out += [
        "",
        f"Bytes: `{traffic.bytes_formula}`. Operations: `{traffic.flops_formula}`.",
        "",
        f"Subject: FlyDSL, launched by `harness/kernels/{bundle.replace('-', '_')}.py`. "
        f"Inside the timed region: {', '.join(module.REGION.inside)}. "
        f"Outside: {', '.join(module.REGION.outside)}.",
        "",
        f"Accepted error: {tolerance.atol:.3g} + {tolerance.rtol:.3g}·|reference| ({tolerance.reason}).",
        "",
        *baseline_lines(module),
    ]
    if module.CAPTURES:
        out += [
            "",
            "Captured listings:",
            *(f"- `{c.path}`: {c.workload}, `{c.symbol}`" for c in module.CAPTURES),
        ]
    if module.UNKNOWN:
        out += ["", "Unknown:", *(f"- {text}" for text in module.UNKNOWN)]
    return "\n".join(out) + "\n"


def document() -> str:
    """All of docs/kernels.md."""
    return "\n".join([HEAD, *(section(bundle) for bundle in IDS)])


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 where the file is not current"
    )
    args = parser.parse_args()
    wanted = document()
    if args.check:
        current = TARGET.read_text(encoding="utf-8") if TARGET.is_file() else ""
        if current != wanted:
            print("docs/kernels.md is not current: run python tools/kernels_doc.py", file=sys.stderr)
        return int(current != wanted)
    fresh = TARGET.with_suffix(".md.new")
    fresh.write_text(wanted, encoding="utf-8")
    os.replace(fresh, TARGET)
    return 0


if __name__ == "__main__":
    sys.exit(main())
