"""YAML as this project writes it: a small, safe part of YAML 1.1, read once, with a line for every value.

Knows files and syntax; must not know what a bundle is. The text is composed by libyaml (`CSafeLoader`) into
nodes, and the nodes become plain values here, so that no tag, alias or merge ever runs and each value keeps
its line. What a reader would not see at a glance is a fault: a tab, an alias, a duplicate key, a tag, a
number that is neither plain decimal nor finite, `yes` for true.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.faults import Fault, FaultError, shown, spot

__all__ = ["MAX_BYTES", "MAX_DEPTH", "Document", "parse", "read"]

MAX_BYTES = 1 << 20
"""The largest file read: the largest bundle is about a twentieth of it."""

MAX_DEPTH = 24
"""Deepest nesting; a bundle needs 6. Keeps the reader far from Python's recursion limit."""

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_PLAIN = "tag:yaml.org,2002:"
_PROBLEM_AT = re.compile(r"\s+")
_STRING = _PLAIN + "str"
_MAYBE = frozenset("0123456789+-.~<=nNtTfFyYoO")
"""First characters of plain text that YAML may take for something else than text."""


class _Loader(_Base):  # type: ignore[misc]
    """The safe loader, with a short cut for what can only be text: composing is most of the work here."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        """The tag of a node without one."""
        if kind is yaml.ScalarNode and implicit[0] and value and value[0] not in _MAYBE:
            return _STRING
        return super().resolve(kind, value, implicit)

    def descend_resolver(self, node: Any, index: Any) -> None:
        """Nothing: there are no path resolvers."""

    def ascend_resolver(self) -> None:
        """Nothing: there are no path resolvers."""


Spot = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """What a file holds: its name in messages, `data` as plain values, and a line for every path in it."""

    file: str
    data: Any
    root: yaml.Node

    def line(self, path: Sequence[str | int]) -> int:
        """The line (from 1) of the key or item at `path`, or of the nearest value around it."""
        node = self.root
        line: int = node.start_mark.line + 1
        for part in path:
            if isinstance(node, yaml.MappingNode):
                found = next(((key, value) for key, value in node.value if key.value == part), None)
                if found is None:
                    return line
                line, node = found[0].start_mark.line + 1, found[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line + 1
            else:
                return line
        return line


def read(
    path: Path, file: str | None = None, *, within: Path | None = None, limit: int = MAX_BYTES
) -> Document:
    """The document in `path`, named `file` in messages. Raises FaultError with every fault found.

    With `within`, a file that really lies outside that directory (a symbolic link out of it) is a fault.
    """
    name = file if file is not None else str(path)
    if within is not None and not path.resolve().is_relative_to(within.resolve()):
        raise FaultError(
            [Fault(name, None, "", "inside", f"leads out of {within.name}/", str(path.resolve().name))]
        )
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise FaultError([Fault(name, None, "", "file", "is not a file")])
        if size > limit:
            message = f"is too large: at most {limit} bytes (got {size})"
            raise FaultError([Fault(name, None, "", "size", message, size)])
        content = path.read_bytes()
    except OSError as error:
        raise FaultError([Fault(name, None, "", "file", f"cannot be read: {error.strerror}")]) from error
    return parse(content, name)


def parse(content: bytes, file: str) -> Document:
    """The document in `content`. Raises FaultError with every fault found."""
    text = _text(content, file)
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
    except yaml.YAMLError as error:
        raise FaultError([_syntax(error, file)]) from error
    except (ValueError, RecursionError) as error:
        raise FaultError([Fault(file, None, "", "syntax", f"is not YAML: {error}")]) from error
    finally:
        loader.dispose()
    if root is None:
        raise FaultError([Fault(file, 1, "", "empty", "is empty")])
    builder = _Builder(file)
    data = builder.value(root, ())
    if builder.faults:
        raise FaultError(builder.faults)
    return Document(file, data, root)


def _text(content: bytes, file: str) -> str:
    if b"\0" in content:
        raise FaultError([Fault(file, None, "", "text", "is a binary file, not UTF-8 text")])
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise FaultError([Fault(file, line, "", "text", "is a binary file, not UTF-8 text")]) from error
    if "\t" in text:
        line = text[: text.index("\t")].count("\n") + 1
        raise FaultError([Fault(file, line, "", "tab", "holds a tab: indent with blanks")])
    return text


def _syntax(error: yaml.YAMLError, file: str) -> Fault:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    message = "is not YAML: " + _PROBLEM_AT.sub(" ", str(problem))
    return Fault(file, mark.line + 1 if mark is not None else None, "", "syntax", message)


class _Builder:
    """Nodes to plain values, collecting faults."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.faults: list[Fault] = []
        self.seen: set[int] = set()

    def fault(self, node: yaml.Node, path: Spot, rule: str, message: str, value: Any = None) -> None:
        self.faults.append(Fault(self.file, node.start_mark.line + 1, spot(path), rule, message, value))

    def value(self, node: yaml.Node, path: Spot) -> Any:
        if id(node) in self.seen:
            self.fault(node, path, "alias", "an alias (*name) is not allowed: write the value out")
            return None
        self.seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        if len(path) > MAX_DEPTH:
            self.fault(node, path[:4], "depth", f"is nested more than {MAX_DEPTH} deep")
            return None
        if isinstance(node, yaml.SequenceNode):
            if node.tag != _PLAIN + "seq":
                self.fault(node, path, "tag", f"the tag {node.tag} is not allowed")
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        if node.tag != _PLAIN + "map":
            self.fault(node, path, "tag", f"the tag {node.tag} is not allowed")
        out: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag != _PLAIN + "str":
                self.fault(
                    key_node, path, "key", "a key must be text", shown(getattr(key_node, "value", "?"))
                )
                continue
            key = key_node.value
            if key in out:
                self.fault(key_node, (*path, key), "duplicate-key", f"the key {key!r} stands twice", key)
            out[key] = self.value(value_node, (*path, key))
        return out

    def scalar(self, node: yaml.ScalarNode, path: Spot) -> Any:
        text: str = node.value
        kind = node.tag[len(_PLAIN) :] if node.tag.startswith(_PLAIN) else node.tag
        if kind in ("str", "timestamp"):
            return text
        if kind == "int" and _INTEGER.match(text) and len(text) < 20:
            return int(text)
        if kind == "float":
            try:
                number = float(text)
            except ValueError:
                number = math.nan
            if math.isfinite(number):
                return number
            self.fault(node, path, "finite", f"must be a finite number (got {text})", text)
            return None
        if kind == "null":
            return None
        if kind == "bool" and text in ("true", "false"):
            return text == "true"
        if kind in ("int", "bool"):
            self.fault(
                node, path, "plain", f"write a plain number, true or false, or quote it (got {text})", text
            )
            return None
        self.fault(node, path, "tag", f"the tag {node.tag} is not allowed", text)
        return None
