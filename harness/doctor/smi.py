"""Parsers for what `amd-smi`, `rocminfo` and the KFD topology print.

The JSON of `amd-smi` differs between its versions (top level a list or an object, keys in either case,
numbers bare or as {value, unit}, "N/A" for what is not there); each parser takes all the shapes that were
seen and returns None for what it does not find. Pure: text in, dataclasses out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "KfdNode",
    "SmiGpu",
    "SmiState",
    "parse_kfd_properties",
    "parse_partition",
    "parse_processes",
    "parse_rocminfo",
    "parse_smi_metric",
    "parse_smi_static",
]


@dataclass(frozen=True)
class SmiGpu:
    """`amd-smi static`: identity of one GPU. `power_cap_w` in watts."""

    index: int
    market_name: str | None
    device_id: int | None
    compute_units: int | None
    gfx: str | None
    power_cap_w: float | None


@dataclass(frozen=True)
class SmiState:
    """`amd-smi metric`: the state of one GPU. Clocks in MHz, power in W, temperature in °C."""

    index: int
    perf_level: str | None
    clock_mhz: float | None
    max_clock_mhz: float | None
    power_w: float | None
    hotspot_c: float | None
    ecc_uncorrectable: int | None
    throttle: str | None


@dataclass(frozen=True)
class KfdNode:
    """One GPU node of /sys/class/kfd/kfd/topology. `cu_count` = simd_count ÷ 4 (four SIMDs a CU on gfx9)."""

    node: int
    gfx: str
    device_id: int
    cu_count: int
    xcc_count: int
    render_minor: int


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _lower(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key).lower(): _lower(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_lower(item) for item in value]
    return value


def _gpus(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Each GPU's object: from {"gpu_data": [...]}, a bare list, or {"gpu_0": {...}} / {"card0": {...}}."""
    document = _lower(_json(text))
    if isinstance(document, dict):
        for key in ("gpu_data", "current_partition", "gpus"):
            if isinstance(document.get(key), list):
                document = document[key]
                break
    if isinstance(document, list):
        for position, item in enumerate(document):
            if isinstance(item, dict):
                index = item.get("gpu", item.get("gpu_id", position))
                yield (index if isinstance(index, int) else position), item
    elif isinstance(document, dict):
        for key, item in document.items():
            match = re.fullmatch(r"(?:gpu_?|card)(\d+)", key)
            if match and isinstance(item, dict):
                yield int(match.group(1)), item


def _number(value: Any) -> float | None:
    if isinstance(value, dict):
        value = value.get("value")
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return float(value)
    match = re.match(r"\s*(-?\d+(?:\.\d+)?)", str(value))
    return float(match.group(1)) if match else None


def _text(value: Any) -> str | None:
    if value is None or str(value).strip().upper() in ("", "N/A", "NONE"):
        return None
    return str(value).strip()


def _hex(value: Any) -> int | None:
    text = _text(value)
    try:
        return int(text, 0) if text else None
    except ValueError:
        return None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def parse_smi_static(text: str) -> tuple[SmiGpu, ...]:
    """`amd-smi static --json`."""
    found = []
    for index, gpu in _gpus(text):
        asic, limit = _object(gpu.get("asic")), _object(gpu.get("limit"))
        cap = limit.get("socket_power_limit", limit.get("max_power"))
        cap = _object(limit.get("ppt0")).get("socket_power_limit", cap)
        units = _number(asic.get("num_compute_units"))
        found.append(
            SmiGpu(
                index=index,
                market_name=_text(asic.get("market_name")),
                device_id=_hex(asic.get("device_id")),
                compute_units=int(units) if units is not None else None,
                gfx=_text(asic.get("target_graphics_version")),
                power_cap_w=_number(cap),
            )
        )
    return tuple(found)


def parse_smi_metric(text: str) -> tuple[SmiState, ...]:
    """`amd-smi metric --json`."""
    found = []
    for index, gpu in _gpus(text):
        clock = _object(_object(gpu.get("clock")).get("gfx_0"))
        power, ecc = _object(gpu.get("power")), _object(gpu.get("ecc"))
        throttle = gpu.get("throttle", power.get("throttle_status"))
        uncorrectable = _number(ecc.get("total_uncorrectable_count"))
        found.append(
            SmiState(
                index=index,
                perf_level=_text(gpu.get("perf_level")),
                clock_mhz=_number(clock.get("clk")),
                max_clock_mhz=_number(clock.get("max_clk")),
                power_w=_number(power.get("socket_power")),
                hotspot_c=_number(_object(gpu.get("temperature")).get("hotspot")),
                ecc_uncorrectable=int(uncorrectable) if uncorrectable is not None else None,
                throttle=_text(throttle) if not isinstance(throttle, dict) else _active(throttle),
            )
        )
    return tuple(found)


def _active(throttle: Mapping[str, Any]) -> str | None:
    """The names of the throttle reasons that are active, of an object of statuses; None where it says
    none.
    """
    statuses = {k: str(v).upper() for k, v in throttle.items() if k.endswith(("status", "active"))}
    known = {k: v for k, v in statuses.items() if v not in ("N/A", "NONE")}
    if not known:
        return None
    active = sorted(k for k, v in known.items() if v in ("ACTIVE", "TRUE", "THROTTLED", "1"))
    return ", ".join(active) if active else "UNTHROTTLED"


def parse_processes(text: str) -> dict[int, tuple[tuple[int | None, str], ...]] | None:
    """`amd-smi process --json`: GPU index → (pid, name) of each process; None when the text is not
    understood.
    """
    document = _lower(_json(text))
    if not isinstance(document, (list, dict)):
        return None
    found: dict[int, tuple[tuple[int | None, str], ...]] = {}
    for index, gpu in _gpus(text):
        rows = gpu.get("process_list", gpu.get("processes", []))
        users: list[tuple[int | None, str]] = []
        for row in rows if isinstance(rows, list) else [rows]:
            info = row.get("process_info", row) if isinstance(row, dict) else row
            if isinstance(info, dict):
                pid = _number(info.get("pid"))
                users.append((int(pid) if pid is not None else None, str(info.get("name", "?"))))
        found[index] = tuple(users)
    return found or None


def parse_partition(text: str) -> dict[int, tuple[str | None, str | None]]:
    """`amd-smi partition --current --json`: GPU index → (compute, memory), as "SPX" and "NPS1"."""
    found = {}
    for index, gpu in _gpus(text):
        compute = _text(gpu.get("accelerator_type", gpu.get("compute_partition", gpu.get("accelerator"))))
        memory = _text(gpu.get("memory", gpu.get("memory_partition")))
        found[index] = (compute.rstrip("*") if compute else None, memory.rstrip("*") if memory else None)
    return found


def parse_rocminfo(text: str) -> tuple[str, ...]:
    """`rocminfo`: the gfx name of each agent whose device type is GPU, in order."""
    found = []
    for block in re.split(r"^\s*Agent \d+\s*$", text, flags=re.M)[1:]:
        name = re.search(r"^\s*Name:\s*(gfx\w+)", block, flags=re.M)
        if name and re.search(r"^\s*Device Type:\s*GPU\s*$", block, flags=re.M):
            found.append(name.group(1))
    return tuple(found)


def parse_kfd_properties(node: int, text: str) -> KfdNode | None:
    """A `properties` file of the KFD topology; None for a CPU node.

    gfx_target_version is major·10000 + minor·100 + stepping (90500 → gfx950), minor and stepping printed
    in hex (Linux, drivers/gpu/drm/amd/amdkfd).
    """
    values: dict[str, int] = {}
    for line in text.splitlines():
        key, _, number = line.strip().partition(" ")
        if number.strip().isdigit():
            values[key] = int(number)
    target = values.get("gfx_target_version", 0)
    if not target or not values.get("simd_count"):
        return None
    major, minor, stepping = target // 10000, target // 100 % 100, target % 100
    return KfdNode(
        node=node,
        gfx=f"gfx{major}{minor:x}{stepping:x}",
        device_id=values.get("device_id", 0),
        cu_count=values["simd_count"] // 4,
        xcc_count=values.get("num_xcc", 1),
        render_minor=values.get("drm_render_minor", -1),
    )
