"""An image as a file that outlives the registry: saved with its digest beside it, loaded only when that
holds.

The file is an OCI archive. Engines from Docker 25 on write one by themselves; an older one writes its own
format, which `skopeo` turns into OCI where it is installed. What was written is named in the record beside
the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from harness.command import Reporter
from harness.container.engine import translated
from harness.container.image import inspect
from harness.errors import HarnessError

__all__ = ["load", "record_path", "save"]

_BLOCK = 1 << 20


def record_path(archive: Path) -> Path:
    """The record beside an archive: format, sha256, image id and labels."""
    return archive.with_name(archive.name + ".json")


def save(client: Any, name: str, archive: Path, reporter: Reporter) -> dict[str, Any]:
    """Write image `name` to `archive` and its record beside it; returns the record.

    Raises HarnessError: no such image, the disk is full, the target exists.
    """
    if archive.exists():
        raise HarnessError(f"{archive}: exists", remedy="name another file, or remove it")
    image = inspect(client, name)
    archive.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{archive.name}-", dir=archive.parent)
    path = Path(temporary)
    try:
        with os.fdopen(handle, "wb") as out, translated(f"save {name}"):
            for block in client.images.get(name).save(named=True):
                out.write(block)
        form = _form(path)
        if form != "oci-archive" and shutil.which("skopeo"):
            reporter.say("the engine wrote a docker-archive; skopeo turns it into an OCI archive")
            path = _to_oci(path, name)
            form = _form(path)
        record = {
            "schema_version": 1,
            "image": name,
            "image_id": image.id,
            "repo_digests": list(image.repo_digests),
            "labels": dict(image.labels),
            "format": form,
            "bytes": path.stat().st_size,
            "sha256": _sha256(path),
        }
        path.chmod(0o644)
        path.rename(archive)
    except OSError as error:
        raise HarnessError(
            f"{archive}: {error.strerror}", remedy="free some space, or name another place"
        ) from None
    finally:
        path.unlink(missing_ok=True)
    record_path(archive).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return record


def load(client: Any, archive: Path, reporter: Reporter) -> dict[str, Any]:
    """Load `archive` when it has the sha256 that its record says; returns the record with the loaded
    image's id.

    Raises HarnessError: no archive, no record, another hash, an image other than the recorded one.
    """
    record = _record(archive)
    digest = _sha256(archive)
    if digest != record["sha256"]:
        raise HarnessError(
            f"{archive}: sha256 is {digest[:16]}…, its record says {str(record['sha256'])[:16]}…",
            remedy="the file is damaged or another one: copy it again",
        )
    path, converted = archive, None
    if record["format"] == "oci-archive" and not _engine_reads_oci(client):
        if not shutil.which("skopeo"):
            raise HarnessError(f"{archive}: this engine reads no OCI archive", remedy="install skopeo")
        converted = path = _from_oci(archive, str(record["image"]))
    try:
        with translated(f"load {archive.name}"), path.open("rb") as handle:
            loaded = client.images.load(handle)
    finally:
        if converted is not None:
            converted.unlink(missing_ok=True)
    ids = [str(image.id) for image in loaded]
    if record["image_id"] not in ids:
        reporter.say(
            f"the engine gives the image another id ({', '.join(ids)}); its labels are compared at each run"
        )
    return {**record, "loaded": ids}


def _record(archive: Path) -> dict[str, Any]:
    if not archive.is_file():
        raise HarnessError(f"{archive}: no such file")
    path = record_path(archive)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HarnessError(f"{path}: missing: the archive cannot be verified", remedy="copy it too") from None
    except ValueError as error:
        raise HarnessError(f"{path}: no JSON ({error})") from None
    wanted = {"image", "image_id", "format", "sha256"}
    if not isinstance(record, dict) or not wanted <= record.keys():
        raise HarnessError(f"{path}: lacks one of {', '.join(sorted(wanted))}")
    return record


def _form(path: Path) -> str:
    with tarfile.open(path) as tar:
        return "oci-archive" if "oci-layout" in tar.getnames() else "docker-archive"


def _engine_reads_oci(client: Any) -> bool:
    # Docker loads an OCI layout from version 25 on; podman always has.
    version = str(client.version().get("Version", "0")).split(".")[0]
    podman = any(
        "podman" in str(part.get("Name", "")).lower() for part in client.version().get("Components") or ()
    )
    return podman or (version.isdigit() and int(version) >= 25)


def _to_oci(source: Path, name: str) -> Path:
    return _skopeo(f"docker-archive:{source}", "oci-archive", source, name)


def _from_oci(source: Path, name: str) -> Path:
    return _skopeo(f"oci-archive:{source}", "docker-archive", source, name, remove=False)


def _skopeo(source: str, kind: str, beside: Path, name: str, *, remove: bool = True) -> Path:
    target = beside.with_name(beside.name + f".{kind}")
    tagged = name if ":" in name.rsplit("/", 1)[-1] else f"{name}:latest"
    command = ["skopeo", "copy", "--quiet", "--insecure-policy", source, f"{kind}:{target}:{tagged}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if remove:
        beside.unlink(missing_ok=True)
    if done.returncode:
        target.unlink(missing_ok=True)
        raise HarnessError(f"skopeo: {done.stderr.strip() or done.returncode}")
    return target


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        for block in iter(lambda: handle.read(_BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()
