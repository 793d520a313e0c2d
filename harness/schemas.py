"""The JSON Schemas in `schema/`, and what breaks them said in words.

Knows schemas and values; must not know what a bundle means. Schemas are JSON Schema 2020-12, compiled once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.faults import shown

__all__ = ["SCHEMAS", "Broken", "broken", "names"]

SCHEMAS = Path(__file__).resolve().parent.parent / "schema"


@dataclass(frozen=True)
class Broken:
    """One broken rule: where (`path`), which keyword of JSON Schema (`rule`), in words, and the value that
    broke it.
    """

    path: tuple[str | int, ...]
    rule: str
    message: str
    value: Any


@cache
def names() -> tuple[str, ...]:
    """The schemas there are, by name (`bundle` for `schema/bundle.schema.json`)."""
    return tuple(sorted(path.name.removesuffix(".schema.json") for path in SCHEMAS.glob("*.schema.json")))


@cache
def _validator(name: str) -> Any:
    try:
        import jsonschema_rs
    except ImportError as error:
        raise HarnessError("jsonschema-rs is not installed", remedy="pip install -e .") from error

    path = SCHEMAS / f"{name}.schema.json"
    try:
        return jsonschema_rs.Draft202012Validator(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise HarnessError(f"schema/{path.name}: cannot be read: {error.strerror}") from error


def broken(name: str, value: Any) -> Iterator[Broken]:
    """Every rule of the schema `name` that `value` breaks, in the order of the schema."""
    validator = _validator(name)
    try:
        errors = () if validator.is_valid(value) else list(validator.iter_errors(value))
    except UnicodeEncodeError:
        yield Broken((), "text", "holds half a character (a lone surrogate)", None)
        return
    for error in errors:
        path = tuple(error.instance_path)
        yield from _say(path, error.kind.name, error.kind.as_dict(), error.instance, error.message)


def _say(
    path: tuple[str | int, ...], rule: str, detail: dict[str, Any], value: Any, plain: str
) -> Iterator[Broken]:
    if rule == "required":
        yield Broken((*path, str(detail["property"])), rule, "is missing", None)
    elif rule in ("additionalProperties", "unevaluatedProperties"):
        for name in detail["unexpected"]:
            yield Broken((*path, name), rule, "is not a known field here", value.get(name))
    else:
        yield Broken(path, rule, f"{_rule(rule, detail, plain)} (got {shown(value)})", value)


def _rule(rule: str, detail: dict[str, Any], plain: str) -> str:
    if rule == "type":
        return "must be " + " or ".join(_TYPES.get(name, name) for name in detail["types"])
    if rule == "enum":
        return "must be one of " + ", ".join(shown(option) for option in detail["options"])
    if rule == "const":
        return f"must be {shown(detail['expected_value'])}"
    if rule == "pattern":
        return f"must match {detail['pattern']}"
    if rule in _LIMITS:
        return _LIMITS[rule].format(detail.get("limit"))
    return plain


_TYPES = {
    "string": "text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}
_LIMITS = {
    "exclusiveMinimum": "must be greater than {}",
    "minimum": "must be at least {}",
    "exclusiveMaximum": "must be less than {}",
    "maximum": "must be at most {}",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minProperties": "must have at least {} entries",
    "maxProperties": "must have at most {} entries",
}
