"""The JSON Schemas in `schema/`, and what breaks them said in words.

Knows schemas and values; must not know what a bundle means. Schemas are JSON Schema 2020-12, compiled once.
"""

from __future__ import annotations

import json
import re
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
def _schema(name: str) -> Any:
    path = SCHEMAS / f"{name}.schema.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise HarnessError(f"schema/{path.name}: cannot be read: {error.strerror}") from error


@cache
def _fast(name: str) -> Any:
    import jsonschema_rs

    return jsonschema_rs.Draft202012Validator(_schema(name))


def broken(name: str, value: Any) -> Iterator[Broken]:
    """Every rule of the schema `name` that `value` breaks, in the order of the schema.

    Whether a value fits at all is asked of jsonschema-rs, which is fast enough for every start; what is
    wrong with one that does not is asked of jsonschema, whose errors hold the rule and the value.
    """
    try:
        if _fast(name).is_valid(value):
            return
    except UnicodeEncodeError:
        yield Broken((), "text", "holds half a character (a lone surrogate)", None)
        return
    from jsonschema import Draft202012Validator

    said = False
    absent: set[tuple[str | int, ...]] = set()
    for error in Draft202012Validator(_schema(name)).iter_errors(value):
        said = True
        path = tuple(error.absolute_path)
        if error.validator == "required":
            # One error a missing name, each with the whole list: say them all at the first.
            if path not in absent:
                absent.add(path)
                missing = (one for one in error.validator_value if one not in error.instance)
                yield from (Broken((*path, one), "required", "is missing", None) for one in missing)
        else:
            yield from _say(path, str(error.validator), error)
    if not said:
        raise HarnessError(f"schema {name}: the two validators disagree", remedy="report this file")


def _say(path: tuple[str | int, ...], rule: str, error: Any) -> Iterator[Broken]:
    value = error.instance
    if rule in ("additionalProperties", "unevaluatedProperties"):
        known = {*error.schema.get("properties", ())}
        patterns = [re.compile(text) for text in error.schema.get("patternProperties", ())]
        for name in value:
            if name not in known and not any(pattern.search(name) for pattern in patterns):
                yield Broken((*path, name), rule, "is not a known field here", value[name])
    else:
        words = _rule(rule, error.validator_value, error.message)
        yield Broken(path, rule, f"{words} (got {shown(value)})", value)


def _rule(rule: str, limit: Any, plain: str) -> str:
    if rule == "type":
        names = [limit] if isinstance(limit, str) else limit
        return "must be " + " or ".join(_TYPES.get(name, name) for name in names)
    if rule == "enum":
        return "must be one of " + ", ".join(shown(option) for option in limit)
    if rule == "const":
        return f"must be {shown(limit)}"
    if rule == "pattern":
        return f"must match {limit}"
    if rule in _LIMITS:
        return _LIMITS[rule].format(limit)
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
