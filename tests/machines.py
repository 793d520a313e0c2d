"""Machines that are not here, as recordings for `RecordedHost`.

Made by hand from the shapes that public parsers and test fixtures show (amd-smi 26.2 of ROCm 7.2, older
versions where said); no figure in them was read off a real machine by this project.
"""

from __future__ import annotations

import copy
import json
from typing import Any

Recording = dict[str, Any]

_PROPERTIES = """cpu_cores_count 0
simd_count {simds}
max_waves_per_simd 8
simd_per_cu 4
num_xcc {xcc}
gfx_target_version 90500
vendor_id 4098
device_id {device}
drm_render_minor 128
"""

_ROCMINFO = """ROCk module is loaded
==========
HSA Agents
==========
*******
Agent 1
*******
  Name:                    AMD EPYC 9575F 64-Core Processor
  Device Type:             CPU
*******
Agent 2
*******
  Name:                    gfx950
  Marketing Name:          AMD Instinct MI350X
  Device Type:             GPU
    Wavefront Size:          64(0x40)
"""


def _static(name: str, device: str, units: int) -> str:
    asic = {
        "market_name": name,
        "device_id": device,
        "num_compute_units": units,
        "target_graphics_version": "gfx950",
    }
    limit = {"ppt0": {"socket_power_limit": {"value": 1000, "unit": "W"}}}
    return json.dumps({"gpu_data": [{"gpu": 0, "asic": asic, "limit": limit}]})


_METRIC = json.dumps(
    {
        "gpu_data": [
            {
                "gpu": 0,
                "perf_level": "AMDSMI_DEV_PERF_LEVEL_AUTO",
                "clock": {
                    "gfx_0": {"clk": {"value": 132, "unit": "MHz"}, "max_clk": {"value": 2200, "unit": "MHz"}}
                },
                "power": {"socket_power": {"value": 250, "unit": "W"}, "throttle_status": "UNTHROTTLED"},
                "temperature": {"hotspot": {"value": 41, "unit": "C"}},
                "ecc": {"total_correctable_count": 0, "total_uncorrectable_count": 0},
            }
        ]
    }
)


def _program(out: str) -> dict[str, Any]:
    return {"status": 0, "out": out}


def mi350x() -> Recording:
    """One idle MI350X, SPX / NPS1, ROCm 7.2.0 in the pinned container, everything open to the user."""
    render = "/sys/class/drm/renderD128/device"
    open_node = {"uid": 0, "gid": 44, "mode": 0o660, "readable": True, "writable": True}
    idle = [{"gpu": 0, "process_list": [{"process_info": "No running processes detected"}]}]
    partition = {"current_partition": [{"gpu_id": 0, "memory": "NPS1", "accelerator_type": "SPX"}]}
    packages = (
        "pyyaml",
        "jsonschema",
        "jsonschema-rs",
        "msgspec",
        "orjson",
        "rich",
        "numpy",
        "scipy",
        "docker",
    )
    return {
        "uid": 1000,
        "groups": [1000, 44, 109],
        "free_bytes": 500 << 30,
        "files": {
            "/sys/class/kfd/kfd/topology/nodes/0/properties": "cpu_cores_count 128\nsimd_count 0\n",
            "/sys/class/kfd/kfd/topology/nodes/1/properties": _PROPERTIES.format(
                simds=1024, xcc=8, device=0x75A0
            ),
            f"{render}/current_compute_partition": "SPX\n",
            f"{render}/current_memory_partition": "NPS1\n",
            f"{render}/mem_info_vram_used": "300000000\n",
            f"{render}/gpu_busy_percent": "0\n",
            "/sys/module/amdgpu/version": "6.16.6\n",
            "/opt/rocm/.info/version": "7.2.0-43\n",
        },
        "directories": {
            "/sys/class/kfd/kfd/topology/nodes": ["0", "1"],
            "/sys/class/kfd/kfd/proc": [],
        },
        "nodes": {
            "/dev/kfd": open_node,
            "/dev/dri/renderD128": {**open_node, "gid": 109},
            "/opt/rocm/lib/librocprof-trace-decoder.so": {**open_node, "mode": 0o644, "gid": 0},
            "/var/run/docker.sock": {**open_node, "gid": 999},
        },
        "digests": {"/opt/rocm/lib/librocprof-trace-decoder.so": "d" * 64},
        "programs": {
            "amd-smi static --json": _program(_static("AMD Instinct MI350X", "0x75a0", 256)),
            "amd-smi metric --json": _program(_METRIC),
            "amd-smi process --json": _program(json.dumps(idle)),
            "amd-smi partition --current --json": _program(json.dumps(partition)),
            "rocminfo": _program(_ROCMINFO),
            "rocprofv3 --version": _program("rocprofv3\n    version: 1.1.0\n"),
            "docker info --format {{json .}}": _program(
                json.dumps(
                    {"ServerVersion": "28.2.2", "Driver": "overlay2", "SecurityOptions": ["name=seccomp"]}
                )
            ),
        },
        "packages": {
            **dict.fromkeys(packages, "1"),
            "flydsl": "0.2.0",
            "torch": "2.9.1+rocm7.2.0",
            "triton": "3.6.0",
        },
        "network": {"github.com": True},
    }


def mi355x() -> Recording:
    """The same with an MI355X: another SKU of the same gfx target."""
    machine = copy.deepcopy(mi350x())
    node = "/sys/class/kfd/kfd/topology/nodes/1/properties"
    machine["files"][node] = _PROPERTIES.format(simds=1024, xcc=8, device=0x75A3)
    machine["programs"]["amd-smi static --json"] = _program(_static("AMD Instinct MI355X", "0x75a3", 256))
    return machine


def partitioned() -> Recording:
    """An MI350X in CPX: the device is one XCC of 32 CUs. amd-smi of ROCm 6: a bare list, and a starred
    mode.
    """
    machine = copy.deepcopy(mi350x())
    node = "/sys/class/kfd/kfd/topology/nodes/1/properties"
    machine["files"][node] = _PROPERTIES.format(simds=128, xcc=1, device=0x75A0)
    for name in ("current_compute_partition", "current_memory_partition"):
        del machine["files"][f"/sys/class/drm/renderD128/device/{name}"]
    listed = [{"gpu_id": 0, "memory": "NPS4", "accelerator_type": "CPX*"}]
    machine["programs"]["amd-smi partition --current --json"] = _program(json.dumps(listed))
    return machine


def busy() -> Recording:
    """Another user's job runs: all three signs show it."""
    machine = copy.deepcopy(mi350x())
    rows = [{"process_info": {"name": "python3", "pid": 4242}}]
    machine["programs"]["amd-smi process --json"] = _program(json.dumps([{"gpu": 0, "process_list": rows}]))
    machine["directories"]["/sys/class/kfd/kfd/proc"] = ["4242"]
    render = "/sys/class/drm/renderD128/device"
    machine["files"][f"{render}/mem_info_vram_used"] = str(120 << 30)
    machine["files"][f"{render}/gpu_busy_percent"] = "97"
    return machine


def denied() -> Recording:
    """The user is in neither group, and the engine's socket is closed to them."""
    machine = copy.deepcopy(mi350x())
    machine["groups"] = [1000]
    for path in ("/dev/kfd", "/dev/dri/renderD128", "/var/run/docker.sock"):
        machine["nodes"][path].update(readable=False, writable=False)
    return machine


def laptop() -> Recording:
    """No GPU, no engine, no network."""
    return {
        "uid": 1000,
        "groups": [1000],
        "free_bytes": 50 << 30,
        "packages": {**mi350x()["packages"], "torch": "2.13.0+cpu"},
        "network": {"github.com": False},
    }
