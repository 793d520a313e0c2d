"""Building the pinned image, and refusing one that was built from other pins."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.command import Reporter
from harness.container.engine import remedy_for, translated
from harness.errors import HarnessError
from harness.verdict import ExitCode

__all__ = ["PINS_LABEL", "BuildRequest", "Image", "build", "pins_digest", "require"]

PINS_LABEL = "flydsl-repro.pins"
_KEPT_LINES = 15
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
"""Engines colour a step's standard error."""


@dataclass(frozen=True)
class BuildRequest:
    """A build: context directory, Dockerfile inside it, tag, build arguments."""

    context: Path
    dockerfile: str
    tag: str
    arguments: Mapping[str, str]
    fresh: bool = False


@dataclass(frozen=True)
class Image:
    """An image of the engine: its id (sha256:…), its labels, and the digests it is known by in registries."""

    id: str
    labels: Mapping[str, str]
    repo_digests: tuple[str, ...]


def pins_digest(root: Path) -> str:
    """The sha256 (hex) of pins.yaml, by which an image is known to hold these pins."""
    return hashlib.sha256((root / "pins.yaml").read_bytes()).hexdigest()


def build(client: Any, request: BuildRequest, reporter: Reporter) -> Image:
    """Build and return the image, streaming the engine's log. Raises HarnessError with the failing step's
    end."""
    if not (request.context / request.dockerfile).is_file():
        raise HarnessError(f"{request.context / request.dockerfile}: no such file")
    step = "before the first step"
    last: deque[str] = deque(maxlen=_KEPT_LINES)
    with translated("build"):
        stream = client.api.build(
            path=str(request.context),
            dockerfile=request.dockerfile,
            tag=request.tag,
            buildargs=dict(request.arguments),
            nocache=request.fresh,
            rm=True,
            forcerm=True,
            decode=True,
        )
        failure: HarnessError | None = None
        for line, error in _lines(stream):
            if error is not None:
                # The stream is read to its end: the engine closes it, and with it the connection.
                failure = failure or _failed(step, error, last)
                continue
            if line.startswith("Step "):
                step = line
                last.clear()
            else:
                last.append(line)
            reporter.say(line)
        if failure is not None:
            raise failure
        return inspect(client, request.tag)


def _lines(stream: Iterator[Mapping[str, Any]]) -> Iterator[tuple[str, str | None]]:
    """The engine's build messages as lines; (text, error)."""
    seen: set[tuple[str, str]] = set()
    for message in stream:
        if "error" in message:
            yield "", str(message["error"])
        elif "stream" in message:
            for line in str(message["stream"]).splitlines():
                plain = _COLOUR.sub("", line).rstrip()
                if plain:
                    yield plain, None
        elif "status" in message:
            # Pull progress repeats itself many times a second; each layer's new status is said once.
            key = (str(message.get("id", "")), str(message["status"]))
            if key not in seen:
                seen.add(key)
                yield ": ".join(part for part in key if part), None


def _failed(step: str, error: str, last: deque[str]) -> HarnessError:
    shown = "".join(f"\n    {line}" for line in last)
    # A step that fills the disk fails like any other: its own last lines say why.
    disk = "no space left"
    full = remedy_for(disk) if any(disk in line.lower() for line in last) else None
    remedy = remedy_for(error) or full or "mend that step, or load a saved image with harness container load"
    return HarnessError(f"build failed at {step}: {error.strip()}{shown}", remedy=remedy)


def inspect(client: Any, name: str) -> Image:
    """The image called `name`. Raises HarnessError when the engine has none."""
    with translated(f"image {name}"):
        found = client.images.get(name)
    labels = found.labels or {}
    return Image(str(found.id), dict(labels), tuple(found.attrs.get("RepoDigests") or ()))


def require(client: Any, name: str, pins: str) -> Image:
    """The image called `name`, if it was built from these pins.

    Raises HarnessError (exit 40, NOT_COMPARABLE) when it was built from others.
    """
    image = inspect(client, name)
    built = image.labels.get(PINS_LABEL)
    if built != pins:
        raise HarnessError(
            f"{name} has other pins ({(built or 'no label')[:12]}…, this pins.yaml is {pins[:12]}…)",
            remedy="harness container build",
            exit_code=ExitCode.NOT_COMPARABLE,
        )
    return image
