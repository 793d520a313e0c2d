"""Checks for the device tier: devices and permissions, identity, partition, state, other users.

Each fact is taken from where it is cheapest to read and hardest to get wrong: KFD sysfs first, `amd-smi`
beside it. Three signs of other users are read apart (KFD's process list, amd-smi's, memory and load of the
card), since each has been seen to miss jobs (ROCm/rocm-systems#8396); "cannot tell" is never taken for
"exclusive".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from harness.doctor.check import Check, bad, good, unknown, warning
from harness.doctor.host import Host
from harness.doctor.smi import (
    KfdNode,
    SmiGpu,
    SmiState,
    parse_kfd_properties,
    parse_partition,
    parse_processes,
    parse_rocminfo,
    parse_smi_metric,
    parse_smi_static,
)

__all__ = ["gpu_checks"]

_TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
_SKUS = {0x75A0: "AMD Instinct MI350X", 0x75A3: "AMD Instinct MI355X"}
_CLAIMED_SKU = "AMD Instinct MI350X"
_CLAIMED_CUS = 256
_IDLE_VRAM = 2 << 30


@dataclass(frozen=True)
class _Card:
    """One GPU as KFD sees it and its sysfs directory."""

    kfd: KfdNode
    sysfs: str


def gpu_checks(host: Host, rocm: str | None) -> Iterator[Check]:
    """All checks of the device tier. `rocm` is the pinned ROCm version."""
    if host.node("/dev/kfd") is None:
        yield bad(
            "device",
            "/dev/kfd",
            "absent: no AMD GPU driver here",
            "use a machine with an MI350X and the amdgpu driver; in a container pass --device /dev/kfd",
        )
        return
    yield _access(host, "/dev/kfd")
    cards = _cards(host)
    if not cards:
        yield bad(
            "device", "GPUs", "KFD lists no GPU", "check dmesg for amdgpu errors; rocminfo must list the GPU"
        )
        return
    for card in cards:
        path = f"/dev/dri/renderD{card.kfd.render_minor}"
        if host.node(path) is not None:
            yield _access(host, path)
    if not any(host.node(f"/dev/dri/renderD{card.kfd.render_minor}") for card in cards):
        yield bad("device", "/dev/dri", "no render node", "in a container pass --device /dev/dri/renderD<N>")
    static = parse_smi_static(_out(host, "amd-smi", "static", "--json"))
    yield from _identity(host, cards, static)
    yield from _partition(host, cards)
    yield from _versions(host, rocm)
    yield from _users(host, cards)
    yield from _state(host, cards, static)


def _out(host: Host, *command: str) -> str:
    ran = host.run(*command)
    return ran.out if ran is not None and ran.status == 0 else ""


def _access(host: Host, path: str) -> Check:
    node = host.node(path)
    if node is None:
        return bad("device", path, "absent", f"in a container pass --device {path}")
    if node.readable and node.writable:
        return good("device", path, f"{node.uid}:{node.gid} mode {node.mode:o}, open to this user")
    mine = ",".join(map(str, host.groups()))
    found = f"denied: it belongs to group {node.gid}, this user's groups are {mine}"
    remedy = f"sudo usermod -aG {node.gid} $USER and log in again; in a container: --group-add {node.gid}"
    return bad("device", path, found, remedy)


def _cards(host: Host) -> tuple[_Card, ...]:
    found = []
    for name in host.listing(_TOPOLOGY) or ():
        text = host.read(f"{_TOPOLOGY}/{name}/properties")
        node = parse_kfd_properties(int(name), text) if text and name.isdigit() else None
        if node is not None:
            found.append(_Card(node, f"/sys/class/drm/renderD{node.render_minor}/device"))
    return tuple(found)


def _identity(host: Host, cards: tuple[_Card, ...], static: tuple[SmiGpu, ...]) -> Iterator[Check]:
    for position, card in enumerate(cards):
        label = f"GPU {position}"
        kfd = card.kfd
        if kfd.gfx == "gfx950":
            yield good("device", f"{label} target", kfd.gfx)
        else:
            found = f"{kfd.gfx}: the kernels of this study are gfx950 code"
            yield bad("device", f"{label} target", found, "use a gfx950 GPU (MI350X)")
        smi = next((gpu for gpu in static if gpu.index == position), None)
        name = (smi.market_name if smi else None) or _SKUS.get(kfd.device_id)
        sku = f"{name or 'unknown'} (device id 0x{kfd.device_id:04x})"
        if name == _CLAIMED_SKU:
            yield good("device", f"{label} SKU", sku)
        elif name is None:
            yield unknown(
                "device", f"{label} SKU", sku, "compare the device id with AMD's list; MI350X is 0x75a0"
            )
        else:
            remedy = "ratios are judged NOT_COMPARABLE here: the claims are about MI350X"
            yield warning("device", f"{label} SKU", f"{sku} is not {_CLAIMED_SKU}", remedy)
        if kfd.cu_count == _CLAIMED_CUS:
            yield good("device", f"{label} CUs", f"{kfd.cu_count} in {kfd.xcc_count} XCCs")
        else:
            found = f"{kfd.cu_count} CUs in {kfd.xcc_count} XCCs, the claims are about {_CLAIMED_CUS}"
            yield bad(
                "device",
                f"{label} CUs",
                found,
                "choose an unpartitioned GPU, or ask the administrator for SPX mode",
            )
    listed = parse_rocminfo(_out(host, "rocminfo"))
    if listed and len(listed) != len(cards):
        yield warning(
            "device",
            "visible GPUs",
            f"rocminfo lists {len(listed)}, KFD {len(cards)}",
            "ROCR_VISIBLE_DEVICES or missing render nodes hide some; harmless when intended",
        )


def _partition(host: Host, cards: tuple[_Card, ...]) -> Iterator[Check]:
    smi = parse_partition(_out(host, "amd-smi", "partition", "--current", "--json"))
    for position, card in enumerate(cards):
        compute = (host.read(f"{card.sysfs}/current_compute_partition") or "").strip() or None
        memory = (host.read(f"{card.sysfs}/current_memory_partition") or "").strip() or None
        from_smi = smi.get(position, (None, None))
        compute, memory = compute or from_smi[0], memory or from_smi[1]
        label, found = f"GPU {position} partition", f"{compute or 'unknown'} / {memory or 'unknown'}"
        if compute is None:
            yield unknown("device", label, found, "amd-smi partition --current must print SPX")
        elif compute != "SPX" or memory not in ("NPS1", None):
            remedy = "the claims are about SPX / NPS1: ask the administrator, or choose another GPU"
            yield bad("device", label, found, remedy)
        else:
            yield good("device", label, found)


def _versions(host: Host, rocm: str | None) -> Iterator[Check]:
    driver = (host.read("/sys/module/amdgpu/version") or "").strip()
    if driver:
        yield good("device", "amdgpu driver", driver)
    else:
        yield unknown(
            "device", "amdgpu driver", "its version cannot be read (the kernel's own driver names none)"
        )
    version = (host.read("/opt/rocm/.info/version") or "").strip()
    if not version:
        remedy = "use the pinned container: nox -s container -- reproduce-softmax"
        yield warning("device", "ROCm", "no ROCm in /opt/rocm", remedy)
    elif rocm and not version.startswith(rocm):
        yield warning("device", "ROCm", f"{version}, pinned is {rocm}", "use the pinned container")
    else:
        yield good("device", "ROCm", version)
    if version and host.package("torch") and "rocm" not in (host.package("torch") or ""):
        found = f"torch {host.package('torch')} is no ROCm build: it sees no GPU here"
        yield bad("device", "torch", found, "use the pinned container: nox -s container -- reproduce-softmax")


def _users(host: Host, cards: tuple[_Card, ...]) -> Iterator[Check]:
    wait = "wait until it is idle, or choose another GPU with ROCR_VISIBLE_DEVICES"
    own = str(os.getpid())
    pids = host.listing("/sys/class/kfd/kfd/proc")
    if pids is None:
        yield unknown("device", "users (KFD)", "KFD's process list cannot be read: cannot tell")
    else:
        others = [pid for pid in pids if pid != own]
        if others:
            yield bad(
                "device",
                "users (KFD)",
                f"{len(others)} processes hold the KFD: {', '.join(others[:8])}",
                wait,
            )
        else:
            yield good("device", "users (KFD)", "none")
    listed = parse_processes(_out(host, "amd-smi", "process", "--json"))
    if listed is None:
        yield unknown("device", "users (amd-smi)", "amd-smi lists no processes: cannot tell")
    else:
        rows = [f"GPU {gpu}: {name} ({pid})" for gpu, users in listed.items() for pid, name in users]
        if rows:
            yield bad("device", "users (amd-smi)", "; ".join(rows[:8]), wait)
        else:
            yield good("device", "users (amd-smi)", "none")
    for position, card in enumerate(cards):
        used = (host.read(f"{card.sysfs}/mem_info_vram_used") or "").strip()
        busy = (host.read(f"{card.sysfs}/gpu_busy_percent") or "").strip()
        label = f"users (GPU {position} memory and load)"
        if not used.isdigit() and not busy.isdigit():
            yield unknown("device", label, "neither can be read: cannot tell")
        elif (used.isdigit() and int(used) > _IDLE_VRAM) or (busy.isdigit() and int(busy) > 0):
            gib = f"{int(used) / (1 << 30):.1f} GiB in use" if used.isdigit() else "memory unknown"
            yield bad("device", label, f"{gib}, busy {busy or 'unknown'} %", wait)
        else:
            yield good(
                "device", label, f"{int(used or 0) / (1 << 30):.1f} GiB in use, busy {busy or 'unknown'} %"
            )


def _state(host: Host, cards: tuple[_Card, ...], static: tuple[SmiGpu, ...]) -> Iterator[Check]:
    metric = {state.index: state for state in parse_smi_metric(_out(host, "amd-smi", "metric", "--json"))}
    caps = {gpu.index: gpu.power_cap_w for gpu in static}
    for position in range(len(cards)):
        yield from _one_state(position, metric.get(position), caps.get(position))


def _one_state(position: int, state: SmiState | None, cap: float | None) -> Iterator[Check]:
    label = f"GPU {position}"
    if state is None:
        yield unknown(
            "device", f"{label} state", "amd-smi metric gives nothing: clocks, ECC and throttle unknown"
        )
        return
    clock = "unknown" if state.clock_mhz is None else f"{state.clock_mhz:.0f}"
    top = "unknown" if state.max_clock_mhz is None else f"{state.max_clock_mhz:.0f}"
    yield good(
        "device",
        f"{label} clocks",
        f"{clock} of {top} MHz, level {state.perf_level or 'unknown'}; not lockable, so logged",
    )
    if cap is None:
        yield unknown("device", f"{label} power cap", "not reported")
    else:
        yield good("device", f"{label} power cap", f"{cap:.0f} W")
    if state.ecc_uncorrectable is None:
        yield unknown("device", f"{label} ECC", "not reported")
    elif state.ecc_uncorrectable:
        found = f"{state.ecc_uncorrectable} uncorrectable errors since boot"
        yield warning(
            "device", f"{label} ECC", found, "results of a failing card are not to be trusted: use another"
        )
    else:
        yield good("device", f"{label} ECC", "no uncorrectable errors")
    if state.throttle is None:
        yield unknown("device", f"{label} throttle", "not reported")
    elif state.throttle.upper() == "UNTHROTTLED":
        yield good("device", f"{label} throttle", "none")
    else:
        yield warning(
            "device", f"{label} throttle", state.throttle, "let it cool; a throttled block is marked"
        )
