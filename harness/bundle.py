"""Bundles, claims and workloads as frozen dataclasses; the only reader of `bundle.yaml`.

Knows the shape of a bundle and nothing of evidence, tiers or verdicts. What a bundle means (do its references
resolve, do its numbers agree) is checked by `harness.meaning`; what is loaded here already fits the schema.

Keys that every claim has or may have: id, kind, statement, origin, workload, published, unit, tolerance,
regime, cites, note. All other keys are the kind's own and come as `Claim.fields`:

- ratio: subject_latency, baseline_latency (claim ids, null where none is published), cache (cold, warm,
  unstated), comparison (text), kernel_symbols, stage, variant; sku, baseline, published_se, published_df,
  evidence for ratios that this project measured
- class: of (ratio claim id)
- latency: side (subject, baseline, other), implementation, stage, variant, kernel_symbols
- throughput: quantity (bytes, flops), latency (claim id or null), side, implementation, stage, variant
- resource: metric (vgpr, agpr, sgpr, lds, scratch, spills, occupancy, occupancy_limiter, workgroup_size,
  grid_workgroups), symbol, capture, stage, variant
- isa: check (identity, pattern), symbol, variant; identity: capture, instructions, sha256, layer; pattern:
  mnemonic (regular expression) and one of count, min and max, absent
- compiles: expect, error (text to be found), layer (commit of the FlyDSL Python layer), symbol, variant
- trace: metric, symbol, capture, variant
- numerics: metric, reference, implementation, symbol, variant
- counts: capture, symbol
- race: symbol, variant
- geomean: op, baseline_provider, shapes, weighted, variant
- control: control, cache, variant

`variant` tells apart what is otherwise the same: another of the study's runs (sweep, readme, finding), or
another form of the kernel (fast). `capture` is a capture directory of the study, below `examples/`, or
`manifest` for the one that the study quotes and did not publish. `published` is a number or text as printed;
two numbers in a list are a published range (`[4.4, 6.5]`); for sizes and grids three are x, y, z.

A claim whose `published` is null was not published as a figure: the statement itself is the claim.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.errors import HarnessError
from harness.faults import Fault, FaultError, spot
from harness.schemas import Broken, broken
from harness.yamlfile import Document, read

__all__ = [
    "COMMON",
    "ROOT",
    "SCHEMA_VERSION",
    "Bundle",
    "Claim",
    "Implementation",
    "Kernel",
    "SourceFile",
    "Workload",
    "broken_rules",
    "build",
    "directories",
    "find",
    "ids",
    "load",
    "load_all",
    "open_document",
    "require_workload",
    "schema_faults",
]

ROOT = Path(__file__).resolve().parent.parent / "bundles"
"""Where this repository keeps its bundles."""

SCHEMA_VERSION = 1
"""The version of `bundle.yaml` that this harness reads (schema/bundle.schema.json)."""

COMMON = frozenset(
    (
        "id",
        "kind",
        "statement",
        "origin",
        "workload",
        "published",
        "unit",
        "tolerance",
        "regime",
        "cites",
        "note",
    )
)
"""The keys that are no kind's own."""


@dataclass(frozen=True)
class SourceFile:
    """One upstream file: path inside its repository, and the sha256 (hex) of its bytes."""

    path: str
    sha256: str


@dataclass(frozen=True)
class Kernel:
    """The kernel of a bundle: its symbols in the trace, and where its source is."""

    symbols: tuple[str, ...]
    repository: str
    commit: str
    files: tuple[SourceFile, ...]


@dataclass(frozen=True)
class Workload:
    """Named dimensions, dtypes and layout of one launch. A dimension that the study leaves unsaid is None.

    `dims` holds the dtypes too, as the kernel files want them. `unknown` names the dimensions that are None.
    """

    id: str
    dims: Mapping[str, int | float | str | bool | None]
    dtypes: Mapping[str, str]
    unknown: tuple[str, ...]
    cites: tuple[str, ...]
    note: str | None = None


@dataclass(frozen=True)
class Implementation:
    """A subject or baseline: library, entry point, backend, version (None where the study does not say)."""

    library: str | None
    entry_point: str | None
    backend: str | None
    version: str | None
    cites: tuple[str, ...]
    note: str | None = None


@dataclass(frozen=True)
class Claim:
    """One falsifiable statement.

    `fields` holds what only this kind has (see `harness/kinds/<kind>.py`); `published` is the value as
    printed (a number, a text, a mapping, or None for a claim of this project, `origin: project`).
    """

    id: str
    kind: str
    statement: str
    origin: str
    workload: str | None
    published: Any
    unit: str | None
    tolerance: float | None
    regime: str | None
    cites: tuple[str, ...]
    fields: Mapping[str, Any]
    line: int
    note: str | None = None


@dataclass(frozen=True)
class Bundle:
    """One kernel's bundle, read from `path`/bundle.yaml."""

    id: str
    title: str
    path: Path
    kernel: Kernel
    workloads: tuple[Workload, ...]
    subject: Implementation
    baseline: Implementation | None
    claims: tuple[Claim, ...]
    unknown: tuple[str, ...]
    raw: Mapping[str, Any]

    def workload(self, name: str) -> Workload:
        """The workload called `name`. Raises KeyError."""
        for workload in self.workloads:
            if workload.id == name:
                return workload
        raise KeyError(name)

    def claim(self, name: str) -> Claim:
        """The claim called `name`. Raises KeyError."""
        for claim in self.claims:
            if claim.id == name:
                return claim
        raise KeyError(name)


def ids(root: Path = ROOT) -> tuple[str, ...]:
    """The names of the bundles under `root`, sorted: each directory that has a `bundle.yaml`."""
    if not root.is_dir():
        raise HarnessError(f"{root}: no such directory of bundles")
    return tuple(sorted(path.parent.name for path in root.glob("*/bundle.yaml")))


def load(path: Path) -> Bundle:
    """The bundle in the directory `path`. Raises FaultError with every fault of syntax and schema."""
    document = open_document(path)
    faults = schema_faults(document)
    if faults:
        raise FaultError(faults, remedy="run `harness validate` for all faults of all bundles")
    return build(document, path)


def load_all(root: Path = ROOT) -> tuple[Bundle, ...]:
    """All bundles under `root`, sorted by id. Raises FaultError."""
    return tuple(load(root / name) for name in ids(root))


def find(root: Path, wanted: Iterable[str]) -> tuple[Bundle, ...]:
    """The bundles called `wanted`: ids or directories, in that order; all of them for none or for "all".

    Raises HarnessError for a name that is no bundle, with the nearest ones, and FaultError for a bad bundle.
    """
    return tuple(load(path) for path in directories(root, wanted))


def require_workload(bundles: Iterable[Bundle], name: str) -> str:
    """`name` where one of `bundles` has a workload called so. Raises HarnessError where none has."""
    known = sorted({workload.id for bundle in bundles for workload in bundle.workloads})
    if name not in known:
        raise HarnessError(f"no workload {name!r} in these bundles", remedy=f"one of: {', '.join(known)}")
    return name


def directories(root: Path, wanted: Iterable[str]) -> tuple[Path, ...]:
    """The directories of the bundles called `wanted` (see `find`), not opened. Raises HarnessError."""
    names = tuple(wanted)
    known = ids(root)
    if not names or "all" in names:
        if not known:
            raise HarnessError(f"{root}: there are no bundles here", remedy="name another with --root")
        return tuple(root / name for name in known)
    paths: list[Path] = []
    for name in names:
        if name in known:
            path = root / name
        elif (Path(name) / "bundle.yaml").is_file():
            path = Path(name)
        else:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known
            known_here = (
                f"one of: {', '.join(near)}" if near else f"{root} holds none: name another with --root"
            )
            raise HarnessError(f"no bundle {name!r}", remedy=known_here)
        if path not in paths:
            paths.append(path)
    return tuple(paths)


def open_document(path: Path) -> Document:
    """`path`/bundle.yaml as plain values with lines. Raises FaultError for what is not our YAML."""
    return read(path / "bundle.yaml", _file(path), within=path)


def schema_faults(document: Document) -> list[Fault]:
    """Every rule of `schema/bundle.schema.json` that the document breaks."""
    version = document.data.get("schema_version") if isinstance(document.data, Mapping) else None
    if isinstance(version, int) and not isinstance(version, bool) and version > SCHEMA_VERSION:
        line = document.line(("schema_version",))
        message = f"is from the future: this harness reads version {SCHEMA_VERSION} (got {version})"
        return [Fault(document.file, line, "schema_version", "schema-version", message, version)]
    return [
        Fault(document.file, document.line(one.path), spot(one.path), one.rule, one.message, one.value)
        for one in broken_rules(document)
    ]


def broken_rules(document: Document) -> tuple[Broken, ...]:
    """The broken rules of the schema, as paths into the data."""
    return tuple(broken("bundle", document.data))


def build(document: Document, path: Path) -> Bundle:
    """The bundle that a document without schema faults describes."""
    data: Mapping[str, Any] = document.data
    kernel = data["kernel"]
    return Bundle(
        id=data["id"],
        title=data["title"],
        path=path,
        kernel=Kernel(
            symbols=tuple(kernel["symbols"]),
            repository=kernel["repository"],
            commit=kernel["commit"],
            files=tuple(SourceFile(one["path"], one["sha256"]) for one in kernel["files"]),
        ),
        workloads=tuple(_workload(one) for one in data["workloads"]),
        subject=_implementation(data["subject"]),
        baseline=_implementation(data["baseline"]) if data["baseline"] is not None else None,
        claims=tuple(_claim(one, document.line(("claims", n))) for n, one in enumerate(data["claims"])),
        unknown=tuple(data["unknown"]),
        raw=data,
    )


def _file(path: Path) -> str:
    """How messages name the bundle file in `path`: from the repository's root where it lies there."""
    try:
        return str((path / "bundle.yaml").absolute().relative_to(ROOT.parent))
    except ValueError:
        return str(path / "bundle.yaml")


def _workload(one: Mapping[str, Any]) -> Workload:
    dims: dict[str, Any] = {**one["dims"], **one.get("dtypes", {})}
    return Workload(
        id=one["id"],
        dims=MappingProxyType(dims),
        dtypes=MappingProxyType(dict(one.get("dtypes", {}))),
        unknown=tuple(name for name, value in dims.items() if value is None),
        cites=tuple(one["cites"]),
        note=one.get("note"),
    )


def _implementation(one: Mapping[str, Any]) -> Implementation:
    return Implementation(
        library=one["library"],
        entry_point=one["entry_point"],
        backend=one["backend"],
        version=one["version"],
        cites=tuple(one["cites"]),
        note=one.get("note"),
    )


def _claim(one: Mapping[str, Any], line: int) -> Claim:
    return Claim(
        id=one["id"],
        kind=one["kind"],
        statement=one["statement"],
        origin=one["origin"],
        workload=one.get("workload"),
        published=one.get("published"),
        unit=one.get("unit"),
        tolerance=one.get("tolerance"),
        regime=one.get("regime"),
        cites=tuple(one["cites"]),
        fields=MappingProxyType({key: value for key, value in one.items() if key not in COMMON}),
        line=line,
        note=one.get("note"),
    )
