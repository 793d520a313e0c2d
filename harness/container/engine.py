"""The connection to a Docker-compatible engine (Docker, or podman's socket), and its errors as one line each.

The only module that opens a client. Knows nothing of what is built or run.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.errors import HarnessError

__all__ = ["connect", "translated"]

_INSTALL = "install and start Docker or podman (`harness doctor` says what is missing)"


def connect() -> Any:
    """A `docker.DockerClient` that has answered a ping. `DOCKER_HOST` chooses the engine.

    Raises HarnessError: no SDK, no engine, no permission.
    """
    try:
        import docker
        import docker.errors
    except ImportError:
        raise HarnessError(
            "the Docker SDK is not installed", remedy="pip install -e '.[container]'"
        ) from None
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    try:
        _knock(address)
        client = docker.from_env(timeout=600)
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        raise _refused(address, error) from None
    return client


def _knock(address: str) -> None:
    """Open and close the engine's Unix socket: the SDK leaves its own half open when nobody answers."""
    if address.startswith("unix://"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(5)
            probe.connect(address.removeprefix("unix://"))


def _refused(address: str, error: Exception) -> HarnessError:
    text = str(error)
    path = address.removeprefix("unix://")
    denied = "Permission denied" in text or (os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK))
    if denied:
        return HarnessError(
            f"no permission to use the engine at {address}",
            remedy=f"sudo usermod -aG $(stat -c %G {path}) $USER and log in again, or use a rootless engine",
        )
    if "No such file" in text or "Connection refused" in text or "FileNotFoundError" in text:
        return HarnessError(f"no engine answers at {address}", remedy=_INSTALL)
    return HarnessError(f"the engine at {address} does not answer: {_first_line(text)}", remedy=_INSTALL)


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """What the engine refuses while `doing` becomes a HarnessError with its own words and a remedy."""
    import docker.errors
    import requests.exceptions

    try:
        yield
    except docker.errors.ImageNotFound as error:
        raise HarnessError(
            f"{doing}: no such image ({_first_line(str(error.explanation or error))})",
            remedy="build it first: harness container build",
        ) from None
    except docker.errors.APIError as error:
        text = _first_line(str(error.explanation or error))
        raise HarnessError(f"{doing}: {text}", remedy=remedy_for(text)) from None
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise HarnessError(
            f"{doing}: the engine stopped answering ({_first_line(str(error))})", remedy="restart the engine"
        ) from None


def remedy_for(text: str) -> str | None:
    """What to do about an engine's message, where it is one of the known ones."""
    known = (
        ("no space left", "free some space in the engine's data root (docker system df)"),
        ("error gathering device information", "the device is not there; see harness doctor"),
        ("is already in use by container", "another run is going on; wait for it, or stop it"),
        ("manifest unknown", "the digest is not in the registry: compare pins.yaml with the registry's own"),
        ("not found", "compare the image's tag and digest in pins.yaml with the registry's own"),
        ("lookup", "the registry cannot be reached: load a saved image with harness container load"),
        (
            "operation not permitted",
            "the engine itself lacks a privilege that this needs; see harness doctor",
        ),
    )
    lower = text.lower()
    return next((remedy for sign, remedy in known if sign in lower), None)


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0]
