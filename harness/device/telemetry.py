"""What the machine says of itself while it is measured: read only, and "unknown" where it cannot be read.

NVML on NVIDIA, amdsmi and the KFD's sysfs on AMD. Never sets a clock, a limit or a mode. Knows nothing of
samples.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

__all__ = ["UNKNOWN", "Meter", "meter_for", "others_in_kfd"]

UNKNOWN = "unknown"

KFD_PROCESSES = Path("/sys/class/kfd/kfd/proc")


class Meter(Protocol):
    """One device's sensors. Every reading is a number, or "unknown"."""

    source: str

    def read(self) -> dict[str, int | float | str]:
        """sm_mhz, memory_mhz, power_w, temperature_c, throttle (bits as the vendor defines them)."""

    def identity(self) -> dict[str, int | float | str]:
        """driver, power_cap_w, partition, and the like."""

    def others(self) -> list[int] | None:
        """Process ids of others that use the device now; None where this cannot be told."""


def _try(call: Callable[[], Any]) -> Any:
    try:
        value = call()
    except Exception:
        # Any vendor library error means one thing here: this reading is not to be had on this machine.
        return UNKNOWN
    return value.decode() if isinstance(value, bytes) else value


class NoMeter:
    """A device without sensors that this process may read."""

    source = "none"
    _names = ("sm_mhz", "memory_mhz", "power_w", "temperature_c", "throttle")

    def read(self) -> dict[str, int | float | str]:
        return dict.fromkeys(self._names, UNKNOWN)

    def identity(self) -> dict[str, int | float | str]:
        return {"driver": UNKNOWN, "power_cap_w": UNKNOWN, "partition": UNKNOWN}

    def others(self) -> list[int] | None:
        return None


class NvmlMeter:
    """NVIDIA's management library through nvidia-ml-py."""

    source = "nvml"

    def __init__(self, nvml: Any, index: int) -> None:
        nvml.nvmlInit()
        self._nvml = nvml
        self._device = nvml.nvmlDeviceGetHandleByIndex(index)

    def read(self) -> dict[str, int | float | str]:
        n, d = self._nvml, self._device
        return {
            "sm_mhz": _try(lambda: n.nvmlDeviceGetClockInfo(d, n.NVML_CLOCK_SM)),
            "memory_mhz": _try(lambda: n.nvmlDeviceGetClockInfo(d, n.NVML_CLOCK_MEM)),
            "power_w": _try(lambda: round(n.nvmlDeviceGetPowerUsage(d) / 1000)),
            "temperature_c": _try(lambda: n.nvmlDeviceGetTemperature(d, n.NVML_TEMPERATURE_GPU)),
            "throttle": _try(lambda: n.nvmlDeviceGetCurrentClocksEventReasons(d)),
        }

    def identity(self) -> dict[str, int | float | str]:
        n, d = self._nvml, self._device
        return {
            "driver": _try(lambda: n.nvmlSystemGetDriverVersion()),
            "power_cap_w": _try(lambda: round(n.nvmlDeviceGetEnforcedPowerLimit(d) / 1000)),
            "partition": _try(lambda: "mig" if n.nvmlDeviceGetMigMode(d)[0] else "none"),
        }

    def others(self) -> list[int] | None:
        n, d = self._nvml, self._device
        found = _try(lambda: [p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(d)])
        return None if found == UNKNOWN else [pid for pid in found if pid != os.getpid()]


class AmdsmiMeter:
    """AMD's management library. Names as in the amdsmi Python interface; what a version lacks is
    "unknown"."""

    source = "amdsmi"

    def __init__(self, amdsmi: Any, index: int, kfd: Path = KFD_PROCESSES) -> None:
        amdsmi.amdsmi_init()
        self._smi = amdsmi
        self._device = amdsmi.amdsmi_get_processor_handles()[index]
        self._kfd = kfd

    def read(self) -> dict[str, int | float | str]:
        s, d = self._smi, self._device
        return {
            "sm_mhz": _try(lambda: s.amdsmi_get_clock_info(d, s.AmdSmiClkType.GFX)["clk"]),
            "memory_mhz": _try(lambda: s.amdsmi_get_clock_info(d, s.AmdSmiClkType.MEM)["clk"]),
            "power_w": _try(lambda: s.amdsmi_get_power_info(d)["current_socket_power"]),
            "temperature_c": _try(
                lambda: s.amdsmi_get_temp_metric(
                    d, s.AmdSmiTemperatureType.HOTSPOT, s.AmdSmiTemperatureMetric.CURRENT
                )
            ),
            "throttle": _try(lambda: s.amdsmi_get_gpu_metrics_info(d)["indep_throttle_status"]),
        }

    def identity(self) -> dict[str, int | float | str]:
        s, d = self._smi, self._device
        return {
            "driver": _try(lambda: s.amdsmi_get_gpu_driver_info(d)["driver_version"]),
            "power_cap_w": _try(lambda: s.amdsmi_get_power_cap_info(d)["power_cap"]),
            "partition": _try(lambda: str(s.amdsmi_get_gpu_compute_partition(d))),
        }

    def others(self) -> list[int] | None:
        # The management library has hidden other users' jobs; the kernel driver's own list is asked as well.
        listed = _try(lambda: [int(p["pid"]) for p in self._smi.amdsmi_get_gpu_process_list(self._device)])
        kernel = others_in_kfd(self._kfd)
        if listed == UNKNOWN and kernel is None:
            return None
        both = set(listed if listed != UNKNOWN else []) | set(kernel or [])
        return sorted(both - {os.getpid()})


def others_in_kfd(root: Path) -> list[int] | None:
    """Process ids with a KFD queue, from sysfs; None where the driver shows none of it."""
    try:
        return sorted(int(p.name) for p in root.iterdir() if p.name.isdigit() and int(p.name) != os.getpid())
    except OSError:
        return None


def meter_for(device: str, environment: Mapping[str, str] | None = None) -> Meter:
    """The meter of device 0 as this process sees it; `NoMeter` where no library or no permission is there."""
    env = os.environ if environment is None else environment
    if device == "cpu":
        return NoMeter()
    import torch

    first = (env.get("CUDA_VISIBLE_DEVICES") or env.get("HIP_VISIBLE_DEVICES") or "0").split(",")[0]
    index = int(first) if first.isdigit() else 0
    try:
        if torch.version.hip:
            import amdsmi

            return AmdsmiMeter(amdsmi, index)
        import pynvml

        return NvmlMeter(pynvml, index)
    except Exception:
        # No driver, no library, no rights: the run goes on and says "unknown".
        return NoMeter()
