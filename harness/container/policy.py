"""What a container may have: a pure function from what a run needs to the engine's arguments.

Least privilege: every capability dropped, no new privileges, a read-only root, no network, one writable
directory. Never `--privileged`. Devices are named one by one, and their groups given by number, since the
image's own /etc/group says nothing of the host's (ROCm/ROCm-docker#116).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BASE_VARIABLE", "IMAGE_VARIABLE", "Device", "RunRequest", "engine_arguments"]

IMAGE_VARIABLE, BASE_VARIABLE = "FLYDSL_REPRO_IMAGE", "FLYDSL_REPRO_BASE_DIGEST"
"""Tell the harness inside which image it runs in; its evidence records both."""

REPOSITORY = "/repo"
OUTPUT = "/out"
_SCRATCH = "/tmp"


@dataclass(frozen=True)
class Device:
    """One device node of the host and the numeric group that owns it."""

    path: str
    gid: int


@dataclass(frozen=True)
class RunRequest:
    """A run as asked for. Sizes in bytes, `seconds` the time limit, ids numeric."""

    image: str
    command: Sequence[str]
    repository: str
    output: str
    user: int
    group: int
    devices: tuple[Device, ...] = ()
    network: bool = False
    tracing: bool = False
    memory: int | None = None
    shared_memory: int = 8 << 30
    processes: int = 4096
    environment: Mapping[str, str] = field(default_factory=dict)
    name: str = "flydsl-repro-run"


def engine_arguments(request: RunRequest) -> dict[str, Any]:
    """Keyword arguments for `client.containers.create`.

    `tracing` adds ptrace alone (SYS_PTRACE and an open seccomp profile), which rocprofv3's attach needs;
    without it the engine's own profile stays.
    """
    groups = sorted({device.gid for device in request.devices} - {request.group})
    environment = {
        "HOME": f"{_SCRATCH}/home",
        "TMPDIR": _SCRATCH,
        "HARNESS_CACHE": f"{_SCRATCH}/cache",
        "AITER_JIT_DIR": f"{_SCRATCH}/aiter",
        "PYTHONPATH": REPOSITORY,
        "PYTHONUNBUFFERED": "1",
        **request.environment,
    }
    security = ["no-new-privileges"]
    if request.tracing:
        security.append("seccomp=unconfined")
    arguments: dict[str, Any] = {
        "image": request.image,
        "command": list(request.command),
        "name": request.name,
        "labels": {"flydsl-repro.run": "1"},
        "user": f"{request.user}:{request.group}",
        "group_add": [str(gid) for gid in groups],
        "devices": [f"{device.path}:{device.path}:rw" for device in request.devices],
        "cap_drop": ["ALL"],
        "cap_add": ["SYS_PTRACE"] if request.tracing else [],
        "security_opt": security,
        "read_only": True,
        "tmpfs": {_SCRATCH: "rw,exec,mode=1777"},
        "volumes": {
            request.repository: {"bind": REPOSITORY, "mode": "ro"},
            request.output: {"bind": OUTPUT, "mode": "rw"},
        },
        "working_dir": REPOSITORY,
        "environment": environment,
        "network_mode": "bridge" if request.network else "none",
        "ipc_mode": "private",
        "shm_size": request.shared_memory,
        "pids_limit": request.processes,
        "init": True,
        "stdin_open": False,
        "tty": False,
    }
    if request.memory is not None:
        arguments["mem_limit"] = request.memory
        arguments["memswap_limit"] = request.memory
    return arguments
