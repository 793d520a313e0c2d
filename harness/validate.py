"""`harness validate`: every fault of the bundles, their evidence, the pins and the generated files, in one
run.

Knows in which order to look; what a fault is, the modules that it asks know. Reads only; writes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness import bundle as bundles
from harness import evidence, meaning, pins
from harness.bundle import ROOT, Bundle
from harness.command import Outcome, Reporter
from harness.errors import HarnessError
from harness.faults import Fault, FaultError, spot
from harness.schemas import broken
from harness.verdict import ExitCode
from harness.yamlfile import Document, read

__all__ = ["configure", "run", "validate"]

VERDICTS = "verdicts.yaml"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "bundles", nargs="*", metavar="BUNDLE", help="bundle ids or directories (default: all)"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="directory of bundles")


def run(args: argparse.Namespace, reporter: Reporter) -> Outcome:
    """Exit 0 where there is no fault, else 2 with one line for each."""
    paths = bundles.directories(args.root, args.bundles)
    faults = validate(args.root, paths if args.bundles else None)
    data = {"bundles": [path.name for path in paths], "faults": [fault.to_json() for fault in faults]}
    bundles_ = f"{len(paths)} bundle{'' if len(paths) == 1 else 's'}"
    if not faults:
        return Outcome(ExitCode.OK, f"{bundles_}, no faults", data)
    lines = [fault.text() for fault in faults]
    lines.append(f"{bundles_}, {len(faults)} fault{'' if len(faults) == 1 else 's'}")
    return Outcome(ExitCode.USAGE, "\n".join(lines), data)


def validate(root: Path, paths: Sequence[Path] | None = None) -> list[Fault]:
    """Every fault of the bundles in `paths` (all under `root` without them), sorted by file and line."""
    known, out = _known(root)
    if paths is None:
        paths = bundles.directories(root, ())
        out += _strays(root)
    pairs: list[tuple[Document, Bundle]] = []
    for path in paths:
        found, pair = _bundle(path, known)
        out += found
        if pair is not None:
            pairs.append(pair)
        out += _evidence(path)
    out += meaning.across(pairs)
    out += _generated([bundle for _, bundle in pairs], root)
    return sorted(out, key=lambda fault: (fault.file, fault.line or 0))


def _strays(root: Path) -> list[Fault]:
    """Directories of bundles that are none."""
    return [
        Fault(f"{root.name}/{path.name}/bundle.yaml", None, "", "file", "is missing")
        for path in sorted(root.iterdir())
        if path.is_dir() and not path.name.startswith(".") and not (path / "bundle.yaml").exists()
    ]


def _known(root: Path) -> tuple[meaning.Known, list[Fault]]:
    """What claims may refer to, and the faults of pins.yaml (this repository's, where `root` has none beside
    it).
    """
    path = root.parent / pins.PATH.name
    try:
        found = pins.load(path if path.is_file() else pins.PATH)
    except FaultError as error:
        return meaning.Known(pins.PATH.parent, None), list(error.faults)
    layers = frozenset((found.flydsl.layer, found.flydsl.commit))
    return meaning.Known(pins.PATH.parent, layers), []


def _bundle(path: Path, known: meaning.Known) -> tuple[list[Fault], tuple[Document, Bundle] | None]:
    """The faults of one bundle.yaml. What breaks the schema in one claim does not hide what is wrong in
    another.
    """
    try:
        document = bundles.open_document(path)
    except FaultError as error:
        return list(error.faults), None
    faults = bundles.schema_faults(document)
    if not faults:
        bundle = bundles.build(document, path)
        return meaning.check(document, bundle, known), (document, bundle)
    sound = _sound_claims(document)
    if sound is None:
        return faults, None
    data = {**document.data, "claims": [document.data["claims"][index] for index in sound]}
    partial = bundles.build(Document(document.file, data, document.root), path)
    return faults + meaning.check(document, partial, known, sound), None


def _sound_claims(document: Document) -> list[int] | None:
    """The places of the claims that fit the schema, or None where something else does not."""
    bad: set[int] = set()
    for one in bundles.broken_rules(document):
        if len(one.path) < 2 or one.path[0] != "claims" or not isinstance(one.path[1], int):
            return None
        bad.add(one.path[1])
    sound = [index for index in range(len(document.data["claims"])) if index not in bad]
    return sound or None


def _evidence(path: Path) -> list[Fault]:
    """The faults of the evidence files of one bundle."""
    out: list[Fault] = []
    for file in evidence.files(path):
        shown = f"bundles/{path.name}/{evidence.DIRECTORY}/{file.name}"
        try:
            data = evidence.read(path, file.name)
        except FaultError as error:
            out += error.faults
            continue
        if evidence.schema_of(file.stem) is None:
            out.append(Fault(shown, None, "", "schema", f"there is no schema/{file.stem}.schema.json for it"))
            continue
        named = data.get("bundle") if isinstance(data, Mapping) else None
        if named is not None and named != path.name:
            out.append(
                Fault(shown, None, "bundle", "reference", f"must be {path.name} (got {named!r})", named)
            )
    return out


def _generated(found: Sequence[Bundle], root: Path) -> list[Fault]:
    """Generated files that are missing, edited or out of date."""
    from harness.report.generate import stale

    try:
        out = stale(found, root)
    except HarnessError as error:
        return [Fault(str(root.name), None, "", "generated", error.message)]
    touched = {fault.file for fault in out}
    for bundle in found:
        name = f"{root.name}/{bundle.id}/{VERDICTS}"
        if name in touched and (bundle.path / VERDICTS).is_file():
            out += _verdicts(bundle, name)
    return out


def _verdicts(bundle: Bundle, name: str) -> list[Fault]:
    """What is wrong inside a verdicts file that is not as it was generated."""
    try:
        document = read(bundle.path / VERDICTS, name, within=bundle.path)
    except FaultError as error:
        return list(error.faults)
    out = [
        Fault(name, document.line(one.path), spot(one.path), one.rule, one.message, one.value)
        for one in broken("verdicts", document.data)
    ]
    if out:
        return out
    claims = {claim.id for claim in bundle.claims}
    return [
        Fault(
            name,
            document.line(("claims", one)),
            f"claims.{one}",
            "reference",
            "is no claim of the bundle",
            one,
        )
        for one in document.data["claims"]
        if one not in claims
    ]
