"""Evidence files: the only reader and writer of `bundles/<id>/evidence/`.

Knows JSON files, their safety and their hash; must not know what an observation means. Each file has a schema
in `schema/<name>.schema.json` that the tier which writes it keeps; `device-2026-06-01-a.json` has the schema
`device`.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from harness.faults import Fault, FaultError, shown, spot
from harness.schemas import broken
from harness.schemas import names as schemas

__all__ = ["DIRECTORY", "MAX_BYTES", "check", "digest", "files", "parse", "read", "schema_of", "write"]

DIRECTORY = "evidence"

MAX_BYTES = 16 << 20
"""The largest evidence file read: raw samples of one device run are about a hundredth of it."""

_REMEDY = "restore it: git checkout, or gather again"

_ODD = re.compile(rb"[eE][+]?[0-9]{3}|[0-9]{300}|\\u[dD][89a-fA-F]")
"""What numbers beyond the range of a float, and surrogates, look like; no other file is searched for them."""


def read(bundle_path: Path, name: str) -> Mapping[str, Any] | None:
    """The evidence `name` (`compiled`, or `compiled.json`) of a bundle, or None where there is none.

    Raises FaultError where the file is there and is not JSON of this project: too large, not UTF-8, a
    duplicate key, NaN or infinity, not an object, no `schema_version`, a link out of the bundle, or what its
    schema (where there is one) does not allow.
    """
    path = _path(bundle_path, name)
    if not path.is_file() and not path.is_symlink():
        return None
    file = _shown(path, bundle_path)
    data = parse(_content(path, bundle_path), file)
    faults = check(data, path.stem, file)
    if faults:
        raise FaultError(faults, remedy=_REMEDY)
    return data


def write(bundle_path: Path, name: str, data: Mapping[str, Any]) -> Path:
    """Write the evidence `name` of a bundle, whole or not at all; returns the file.

    The data must hold a whole `schema_version` and no NaN or infinity, and fit its schema where there is one.
    Raises FaultError, and then nothing is written. Keys keep their order.
    """
    path = _path(bundle_path, name)
    file = _shown(path, bundle_path)
    faults = check(data, path.stem, file) or _odd(data, file)
    if faults:
        raise FaultError(faults)
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def digest(data: Mapping[str, Any]) -> str:
    """sha256 (hex) of the content: of its JSON with sorted keys and no blanks, so that layout does not
    matter.
    """
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return sha256(text.encode("utf-8")).hexdigest()


def files(bundle_path: Path) -> tuple[Path, ...]:
    """The evidence files of a bundle, sorted by name."""
    return tuple(sorted((bundle_path / DIRECTORY).glob("*.json")))


def schema_of(name: str) -> str | None:
    """The schema of the evidence `name`: the longest schema name that it is or begins with, or None."""
    stem = name.removesuffix(".json")
    fitting = [one for one in schemas() if stem == one or stem.startswith(one + "-")]
    return max(fitting, key=len, default=None)


def check(data: Any, name: str, file: str) -> list[Fault]:
    """Every fault of evidence given as plain data: not an object, no version, against its schema."""
    if not isinstance(data, Mapping):
        return [Fault(file, None, "", "type", f"must be an object (got {shown(data)})")]
    version = data.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        message = f"must be a whole number from 1 (got {shown(version)})"
        return [Fault(file, None, "schema_version", "schema-version", message, version)]
    schema = schema_of(name)
    if schema is None:
        return []
    return [
        Fault(file, None, spot(one.path), one.rule, one.message, one.value) for one in broken(schema, data)
    ]


def parse(content: bytes, file: str) -> Mapping[str, Any]:
    """The object in `content`. Raises FaultError (see `read`)."""

    def refuse(rule: str, message: str) -> FaultError:
        return FaultError([Fault(file, None, "", rule, message)], remedy=_REMEDY)

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(items)
        if len(out) != len(items):
            names = [key for key, _ in items]
            twice = next(key for key in names if names.count(key) > 1)
            raise refuse("duplicate-key", f"the key {twice!r} stands twice")
        return out

    def constant(text: str) -> Any:
        raise refuse("finite", f"must hold finite numbers (got {text})")

    try:
        data = json.loads(content.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant)
    except UnicodeDecodeError as error:
        raise refuse("text", "is a binary file, not UTF-8 text") from error
    except RecursionError as error:
        raise refuse("depth", "is nested too deep") from error
    except ValueError as error:
        raise refuse("syntax", f"is not JSON: {error}") from error
    faults = check(data, "", file)
    if not faults and _ODD.search(content):
        faults = _odd(data, file)
    if faults:
        raise FaultError(faults, remedy=_REMEDY)
    found: Mapping[str, Any] = data
    return found


def _content(path: Path, bundle_path: Path) -> bytes:
    file = _shown(path, bundle_path)
    if not path.resolve().is_relative_to(bundle_path.resolve()):
        raise FaultError([Fault(file, None, "", "inside", "leads out of the bundle")])
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise FaultError(
                [Fault(file, None, "", "size", f"is too large: at most {MAX_BYTES} bytes (got {size})")]
            )
        return path.read_bytes()
    except OSError as error:
        raise FaultError([Fault(file, None, "", "file", f"cannot be read: {error.strerror}")]) from error


def _path(bundle_path: Path, name: str) -> Path:
    stem = name.removesuffix(".json")
    if not stem or Path(stem).name != stem or stem.startswith("."):
        raise FaultError(
            [Fault(str(bundle_path), None, "", "path", f"{name!r} is no name of an evidence file")]
        )
    return bundle_path / DIRECTORY / f"{stem}.json"


def _shown(path: Path, bundle_path: Path) -> str:
    return f"bundles/{bundle_path.name}/{DIRECTORY}/{path.name}"


def _odd(data: Any, file: str) -> list[Fault]:
    """Values that Python's JSON knows and nobody else's: infinities and lone surrogates."""
    try:
        json.dumps(data, ensure_ascii=False, allow_nan=False).encode("utf-8")
        return []  # as all evidence of this repository; what follows finds the place, and is slow
    except ValueError:
        pass
    out = [Fault(file, None, spot(at), "finite", "must be a finite number") for at in _infinite(data)]
    try:
        json.dumps(data, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        out.append(Fault(file, None, "", "text", "holds half a character (a lone surrogate)"))
    return out


def _infinite(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if isinstance(value, float):
        return [] if math.isfinite(value) else [at]
    if isinstance(value, Mapping):
        return [spot_ for key, one in value.items() for spot_ in _infinite(one, (*at, str(key)))]
    if isinstance(value, (list, tuple)):
        return [spot_ for index, one in enumerate(value) for spot_ in _infinite(one, (*at, index))]
    return []
