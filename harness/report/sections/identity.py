"""What the claims are about: kernel, source, subject, baseline, workloads, and what the study leaves
unsaid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.bundle import Bundle, Implementation
from harness.report.words import escape
from harness.verdicts import Committed

ORDER = 0


def render(bundle: Bundle, evidence: Mapping[str, Any], verdicts: Committed) -> str | None:
    """The identity of everything below it."""
    kernel = bundle.kernel
    out = ["## What this is about", ""]
    out.append(f"- Kernel: {', '.join(f'`{symbol}`' for symbol in kernel.symbols)}")
    out += [f"- Source: `{one.path}` in {kernel.repository} @ `{kernel.commit[:12]}`" for one in kernel.files]
    out.append(f"- Subject: {_implementation(bundle.subject)}")
    out.append(f"- Baseline: {_implementation(bundle.baseline) if bundle.baseline is not None else 'none'}")
    for one in bundle.workloads:
        dims = ", ".join(f"{name}={'?' if value is None else value}" for name, value in one.dims.items())
        out.append(f"- Workload `{one.id}`: {escape(dims)}")
    out += [f"- Unsaid by the study: {escape(one)}" for one in bundle.unknown]
    return "\n".join(out)


def _implementation(one: Implementation) -> str:
    parts = [part for part in (one.library, one.entry_point, one.backend, one.version) if part]
    return escape(", ".join(parts)) or "not said"
