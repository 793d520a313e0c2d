"""Process files back into replicates: read, check, summarise. The only reader of what a child wrote.

A file is whole when its last line hashes all lines before it. A file without that line is an interrupted
process: kept, marked, never a replicate. Pure apart from reading one file; knows no torch.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import HarnessError

__all__ = ["halves", "log_ratio", "log_ratios", "mean_ns", "read_process"]


def read_process(path: Path, plan_sha256: str) -> dict[str, Any]:
    """One process as evidence holds it: start record, gates, sizing, blocks by regime, seconds, fault.

    `complete` says that its hash closes it. HarnessError where the file was edited or belongs to another
    plan; a file cut short is complete: false with fault `interrupted`.
    """
    raw = path.read_bytes()
    lines = raw.split(b"\n")
    hashed = hashlib.sha256()
    out: dict[str, Any] = {
        "file": path.name,
        "complete": False,
        "fault": None,
        "message": None,
        "gates": [],
        "steady": {},
    }
    blocks: dict[str, Any] = {}
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            record = json.loads(line)
            kind = record.pop("record")
        except (ValueError, KeyError, AttributeError, TypeError):
            if number == len(lines):
                break  # the last line was being written when the process ended
            raise HarnessError(f"{path}:{number}: not a record of a process (edited or damaged)") from None
        if kind == "end":
            if record["sha256"] != hashed.hexdigest():
                raise HarnessError(f"{path}: the samples do not match their hash (edited or damaged)")
            out["complete"] = True
            out["sha256"] = record["sha256"]
            break
        hashed.update(line + b"\n")
        _take(out, blocks, kind, record)
    if "plan_sha256" in out and out["plan_sha256"] != plan_sha256:
        raise HarnessError(
            f"{path}: samples of another plan ({out['plan_sha256'][:12]}, this is {plan_sha256[:12]})",
            remedy="give the directory of this claim's own run",
        )
    if not out["complete"] and out["fault"] is None:
        out["fault"] = "interrupted"
        out["message"] = "the process ended before it had written its last line"
    out["regimes"] = blocks
    return out


def _take(out: dict[str, Any], blocks: dict[str, Any], kind: str, record: dict[str, Any]) -> None:
    if kind == "start":
        out.update(record)
    elif kind == "gate":
        out["gates"].append(record)
    elif kind == "steady":
        out["steady"][record["regime"]] = {"steady": record["steady"], "samples": record["samples"]}
    elif kind in ("sizing", "seconds"):
        out[kind] = record
    elif kind == "fault":
        out["fault"], out["message"] = record["fault"], record["message"]
    elif kind == "block":
        regime = blocks.setdefault(record["regime"], {"blocks": [], "meter": [], "pairs": {}})
        regime["blocks"].append(record["block"])
        regime["meter"].append(record["meter"])
        for pair, sample in record["pairs"].items():
            into = regime["pairs"].setdefault(pair, {"order": [], "ns": []})
            into["order"].append(sample["order"])
            into["ns"].append(sample["ns"])


def halves(order: str, ns: list[int]) -> tuple[int, int]:
    """(subject, baseline) nanoseconds of one block: A is the subject."""
    subject = ns[0] + ns[3] if order in ("ABBA", "a") else ns[1] + ns[2]
    return subject, sum(ns) - subject


def log_ratios(process: Mapping[str, Any], regime: str, pair: str) -> list[float]:
    """log(baseline / subject) of each block that counts (0 and up; the discarded ones are negative)."""
    samples = process["regimes"][regime]
    taken = samples["pairs"][pair]
    out = []
    for block, order, ns in zip(samples["blocks"], taken["order"], taken["ns"], strict=True):
        if block >= 0:
            subject, baseline = halves(order, ns)
            out.append(math.log(baseline / subject))
    return out


def log_ratio(process: Mapping[str, Any], regime: str, pair: str) -> float:
    """A process's value: the mean log ratio of its blocks (measuring: Sampling, 2)."""
    values = log_ratios(process, regime, pair)
    return math.fsum(values) / len(values)


def mean_ns(process: Mapping[str, Any], regime: str, pair: str, side: str, launches: int) -> float:
    """Mean nanoseconds of one launch of `side` (`subject` or `baseline`) over the blocks that count."""
    samples = process["regimes"][regime]
    taken = samples["pairs"][pair]
    which = 0 if side == "subject" else 1
    values = [
        halves(order, ns)[which] / (2 * launches)
        for block, order, ns in zip(samples["blocks"], taken["order"], taken["ns"], strict=True)
        if block >= 0
    ]
    return math.fsum(values) / len(values)
