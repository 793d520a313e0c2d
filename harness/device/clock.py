"""Clocks: how long did the device take for one call. Events on a GPU (CUDA and ROCm alike), the host's on a
CPU.

A clock that runs backwards or stands still makes the process invalid: it raises `ClockFault`, never a number.
Knows torch only through the object it is given; knows nothing of kernels.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Clock", "ClockFault", "EventClock", "HostClock", "clock_for"]


class ClockFault(Exception):
    """The clock gave a time that cannot be one."""


class Clock(Protocol):
    """Times one call. `resolution_ns` is the step that it can tell apart, as documented."""

    name: str
    resolution_ns: int

    def time(self, call: Callable[[], object]) -> int:
        """Nanoseconds of device time that `call` took. Raises ClockFault for zero or less."""

    def wait(self) -> None:
        """Return when the device has nothing left to do."""


def _checked(name: str, elapsed: int) -> int:
    if elapsed <= 0:
        raise ClockFault(f"{name} clock ran backwards or stood still: {elapsed} ns between start and end")
    return elapsed


class HostClock:
    """The host's clock of this thread's CPU time around a call that has returned: for a CPU device.

    CPU time and not wall time: what a neighbour on the same core takes is not in it.
    """

    name = "host"
    resolution_ns = 1

    def __init__(self, now: Callable[[], int] = time.thread_time_ns) -> None:
        self._now = now

    def time(self, call: Callable[[], object]) -> int:
        start = self._now()
        call()
        return _checked(self.name, self._now() - start)

    def wait(self) -> None:
        return None


class EventClock:
    """Device events on the current stream around a call (torch.cuda is the same interface on CUDA and ROCm).

    Events cannot be recorded inside a HIP graph, so they stand around its replay (measuring: Sampling, 3).
    """

    name = "events"
    resolution_ns = 500

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def time(self, call: Callable[[], object]) -> int:
        self._start.record()
        call()
        self._end.record()
        self._end.synchronize()
        return _checked(self.name, round(self._start.elapsed_time(self._end) * 1e6))

    def wait(self) -> None:
        self._torch.cuda.synchronize()


def clock_for(device: str) -> Clock:
    """The clock of a torch device type (`cuda` or `cpu`)."""
    if device == "cpu":
        return HostClock()
    import torch

    return EventClock(torch)
