"""Synthetic device evidence with known log ratios, in the very shape that real runs give. For tests; no
torch."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from harness.device.plan import COLD, EAGER, REGIMES, Plan, Shape
from harness.device.record import SCHEMA_VERSION, digest, seal

DEVICE = {
    "type": "cuda",
    "name": "NVIDIA H200",
    "arch": "sm_90",
    "units": 132,
    "memory_bytes": 150_000_000_000,
    "l2_bytes": 62_914_560,
    "last_level_cache_bytes": 62_914_560,
    "telemetry": "nvml",
    "driver": "580.0",
    "power_cap_w": 700,
    "partition": "none",
}


def plan(**changes: Any) -> Plan:
    """A plan of one shape against one baseline."""
    shape = Shape("1024x8192", {"M": 1024, "N": 8192}, ("torch-softmax",), judged=(COLD,))
    fields: dict[str, Any] = {
        "shapes": (shape,),
        "regimes": REGIMES,
        "blocks": 4,
        "discarded": 1,
        "blocks_beside": 4,
    }
    bundle = changes.pop("bundle", "instrument")
    return Plan(bundle, "harness.kernels.instrument", "cuda", **{**fields, **changes})


def process(
    plan: Plan, index: int, ratio: float, aa: float = 0.0, positive: float | None = None
) -> dict[str, Any]:
    """One whole process whose pairs read exactly these log ratios in every regime, to the nanosecond."""
    positive = math.log1p(plan.extra) if positive is None else positive
    logs = {"ratio:torch-softmax": ratio, "a/a": aa, "positive": positive}
    regimes = {}
    rng = random.Random(index)
    for regime in plan.regimes:
        scale = 50 if regime == EAGER else 70
        pairs = {}
        for pair, log in logs.items():
            a, b = 9_000 * scale, round(9_000 * scale * math.exp(log))
            order = "".join(rng.choice("ab") for _ in range(plan.blocks + plan.discarded))
            ns = [[a, b, b, a] if o == "a" else [b, a, a, b] for o in order]
            pairs[pair] = {"order": order, "ns": ns}
        blocks = list(range(-plan.discarded, plan.blocks))
        regimes[regime] = {
            "blocks": blocks,
            "meter": [[1980, 3201, 400, 45, 0] for _ in blocks],
            "pairs": pairs,
        }
    row = {
        "index": index,
        "file": f"1024x8192.{index:03d}.jsonl",
        "complete": True,
        "fault": None,
        "message": None,
        "seed": index,
        "wall_s": 2.5,
        "seconds": {"start": 0.1, "import": 0.0, "context": 0.25, "sample": 1.0},
        "gates": [{"name": "exclusive", "passed": True, "detail": "0 other processes"}],
        "sizing": {
            "sets": 7,
            "launches": 70,
            "surplus": 7,
            "slowed": 0,
            "swapped": False,
            "floor_ns": 8800,
            "launch_ns": 9000.0,
            "bytes_per_launch": 33_554_432,
            "rotation_bytes": 234_881_024,
            "rotation": 3.733,
        },
        "steady": {regime: {"steady": True, "samples": 12} for regime in plan.regimes},
        "regimes": regimes,
    }
    return {**row, "sha256": digest(row)}


def evidence(plan: Plan, processes: Sequence[dict[str, Any]], **device: Any) -> dict[str, Any]:
    """Sealed evidence of these processes on an H200, or on the device that the keywords make of it."""
    return seal(
        {
            "schema_version": SCHEMA_VERSION,
            "tier": "device",
            "bundle": plan.bundle,
            "created": "2026-12-01T00:00:00Z",
            "interrupted": False,
            "plan": plan.to_json(),
            "plan_sha256": plan.sha256,
            "environment": {
                "device": {**DEVICE, **device},
                "host": {"system": "Linux"},
                "versions": {"torch": "2.11.0"},
                "git": {"commit": "0" * 40, "modified": False},
                "pins_sha256": "unknown",
            },
            "shapes": [{"id": plan.shapes[0].id, "processes": list(processes)}],
        }
    )


def noisy(plan: Plan, center: float, sd: float, count: int, seed: int = 1) -> list[dict[str, Any]]:
    """`count` processes with gaussian log ratios around `center`, and A/A and positive control with a tenth
    of it."""
    rng = random.Random(seed)
    built = math.log1p(plan.extra)
    return [
        process(plan, i, rng.gauss(center, sd), rng.gauss(0, sd / 10), rng.gauss(built, sd / 10))
        for i in range(count)
    ]
