"""Checks for the container: a Docker or podman engine that this user may use."""

from __future__ import annotations

import json
from collections.abc import Iterator

from harness.doctor.check import Check, bad, good, unknown, warning
from harness.doctor.host import Host

__all__ = ["engine_checks"]

_IMAGE_GIB = 60
_GIB = 1 << 30


def engine_checks(host: Host) -> Iterator[Check]:
    """Socket, permission, version, rootless, disk."""
    address = host.env("DOCKER_HOST")
    podman = f"/run/user/{host.uid()}/podman/podman.sock"
    if address is None and host.node("/var/run/docker.sock") is None and host.node(podman) is not None:
        yield warning(
            "container",
            "engine",
            f"podman's socket is at {podman}, and DOCKER_HOST does not name it",
            f"export DOCKER_HOST=unix://{podman}",
        )
        address = f"unix://{podman}"
    path = (address or "unix:///var/run/docker.sock").removeprefix("unix://")
    if path.startswith("/"):
        node = host.node(path)
        if node is None:
            installed = host.which("dockerd") or host.which("podman")
            remedy = (
                "start it: sudo systemctl start docker (or: systemctl --user start podman.socket)"
                if installed
                else "install Docker (docs.docker.com/engine/install) or podman; reading claims needs neither"
            )
            yield bad("container", "engine", f"no engine listens at {path}", remedy)
            return
        if not (node.readable and node.writable):
            remedy = (
                f"sudo usermod -aG $(stat -c %G {path}) $USER, then log in again; or use a rootless engine"
            )
            found = f"{path} belongs to {node.uid}:{node.gid} (mode {node.mode:o}); this user is {host.uid()}"
            yield bad("container", "engine", f"no permission: {found}, groups {_ids(host.groups())}", remedy)
            return
    ran = host.run("docker", "info", "--format", "{{json .}}")
    if ran is None:
        yield good("container", "engine", f"a socket at {path} (no docker client here to ask it more)")
    elif ran.status != 0:
        first = (ran.err or ran.out).strip().splitlines()[:1]
        yield unknown("container", "engine", f"{path} does not answer: {first[0] if first else ran.status}")
    else:
        yield from _info(host, ran.out)
    if host.package("docker") is None:
        yield bad("container", "docker (Python)", "not installed", "pip install -e '.[container]'")


def _info(host: Host, text: str) -> Iterator[Check]:
    try:
        info = json.loads(text)
    except ValueError:
        yield unknown("container", "engine", "its answer is no JSON")
        return
    rootless = any("rootless" in str(option) for option in info.get("SecurityOptions") or ())
    kind = "rootless" if rootless else "rootful"
    yield good("container", "engine", f"{info.get('ServerVersion', '?')}, {kind}, {info.get('Driver', '?')}")
    if rootless:
        yield warning(
            "container",
            "rootless",
            "a rootless engine maps group ids: /dev/kfd stays closed unless this user's own groups open it",
            "podman: run with --group-add keep-groups; Docker: use the rootful engine for the device tier",
        )
    root = str(info.get("DockerRootDir", "/var/lib/docker"))
    free = host.free_bytes(root)
    if free is not None and free < _IMAGE_GIB * _GIB:
        found = (
            f"{free / _GIB:.0f} GiB free in {root}, the pinned image with its layers needs about {_IMAGE_GIB}"
        )
        yield warning("container", "disk", found, "move the engine's data root to a larger disk")


def _ids(groups: tuple[int, ...]) -> str:
    return ",".join(map(str, groups))
