"""What a schema cannot say of a bundle: do its references resolve, its cites, units, ratios and shapes agree.

Pure but for looking up whether a cited document of this project has the cited section. Knows claims; must not
know evidence or verdicts. A wrong figure is no fault here (the record tier contradicts it); a figure that
cannot be read the way it is labelled is one: an inverted ratio, a rate in the unit of another quantity, a
range upside down.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import log
from pathlib import Path
from typing import Any

from harness.bundle import Bundle, Claim
from harness.errors import HarnessError
from harness.faults import Fault, shown, spot
from harness.yamlfile import Document

__all__ = ["Known", "across", "check"]

STUDY_CITE = re.compile(
    r"(?P<file>[A-Za-z0-9_.][A-Za-z0-9_./-]*):(?P<first>[1-9][0-9]*)(?:-(?P<last>[1-9][0-9]*))?\Z"
)
"""FILE:LINE or FILE:LINE-LINE."""

PROJECT_CITE = re.compile(r"(?P<file>[A-Za-z0-9_.][A-Za-z0-9_./-]*\.md), (?P<section>\S.*)\Z")
"""DOCUMENT.md, Section."""

INVERTED_WITHIN = log(1.02)
"""Margin of being equal here: inverted is a ratio that equals its latencies' inverse and not their ratio."""


@dataclass(frozen=True)
class Known:
    """What claims may refer to: this repository's root, and the layers of pins.yaml (None: it is broken)."""

    root: Path
    layers: frozenset[str] | None


@dataclass(frozen=True)
class _Place:
    """A bundle while it is checked. `named`: every claim id of the file, its kind, None if it is broken."""

    document: Document
    bundle: Bundle
    known: Known
    named: Mapping[str, str | None]

    def fault(self, path: Sequence[str | int], rule: str, message: str, value: Any = None) -> Fault:
        line = self.document.line(path)
        return Fault(self.document.file, line, spot(path), rule, message, value)


At = tuple[str | int, ...]
Rule = Callable[[_Place, Claim, At], Iterator[Fault]]


def check(document: Document, bundle: Bundle, known: Known, at: Sequence[int] | None = None) -> list[Fault]:
    """Every fault of meaning. `at` gives the place of each claim of `bundle` in the file, where some were
    left out.
    """
    named: dict[str, str | None] = {
        one["id"]: None
        for one in document.data["claims"]
        if isinstance(one, Mapping) and isinstance(one.get("id"), str)
    }
    named |= {claim.id: claim.kind for claim in bundle.claims}
    place = _Place(document, bundle, known, named)
    out = [*_bundle(place)]
    for index, claim in zip(at or range(len(bundle.claims)), bundle.claims, strict=True):
        for rule in (_references, _claim_cites, _layer, *_RULES.get(claim.kind, ())):
            out += rule(place, claim, ("claims", index))
    out += _identities(place, at or range(len(bundle.claims)))
    return out


def across(pairs: Sequence[tuple[Document, Bundle]]) -> list[Fault]:
    """Faults that only several bundles together show: one id twice, one source file with two hashes."""
    out: list[Fault] = []
    owner: dict[str, str] = {}
    hashes: dict[tuple[str, str, str], tuple[str, str]] = {}
    for document, bundle in pairs:
        if bundle.id in owner:
            message = f"is the id of {owner[bundle.id]} too (got {bundle.id!r})"
            out.append(Fault(document.file, document.line(("id",)), "id", "unique", message, bundle.id))
        owner.setdefault(bundle.id, document.file)
        for index, file in enumerate(bundle.kernel.files):
            key = (bundle.kernel.repository, bundle.kernel.commit, file.path)
            sha, where = hashes.setdefault(key, (file.sha256, document.file))
            if sha != file.sha256:
                path = ("kernel", "files", index, "sha256")
                message = f"differs from that of the same file in {where} (got {file.sha256[:12]}…)"
                out.append(
                    Fault(document.file, document.line(path), spot(path), "source", message, file.sha256)
                )
    return out


def _bundle(place: _Place) -> Iterator[Fault]:
    bundle, data = place.bundle, place.document.data
    if bundle.path.name != bundle.id:
        yield place.fault(
            ("id",), "directory", f"must be the directory's name, {bundle.path.name} (got {bundle.id!r})"
        )
    for name, items in (("workloads", data["workloads"]), ("claims", data["claims"])):
        seen: set[str] = set()
        for index, one in enumerate(items):
            key = one.get("id") if isinstance(one, Mapping) else None
            if isinstance(key, str) and key in seen:
                yield place.fault((name, index, "id"), "unique", f"stands twice in {name} (got {key!r})", key)
            seen.add(str(key))
    for index, file in enumerate(bundle.kernel.files):
        if ".." in Path(file.path).parts:
            yield place.fault(
                ("kernel", "files", index, "path"), "inside", "leads out of the repository", file.path
            )
    for name, cited in (("subject", bundle.subject), ("baseline", bundle.baseline)):
        if cited is not None:
            yield from _cites(place, (name, "cites"), cited.cites, "study")
    for index, workload in enumerate(bundle.workloads):
        yield from _cites(place, ("workloads", index, "cites"), workload.cites, "study")


def _cites(place: _Place, path: At, cites: Sequence[str], origin: str) -> Iterator[Fault]:
    for index, cite in enumerate(cites):
        spot_ = (*path, index)
        if origin == "project":
            found = PROJECT_CITE.match(cite)
            if found is None:
                yield place.fault(spot_, "cite", f"must be DOCUMENT.md, Section (got {shown(cite)})", cite)
            elif found["section"] not in _sections(place.known.root / found["file"]):
                yield place.fault(spot_, "cite", f"{found['file']} has no section {found['section']!r}", cite)
            continue
        found = STUDY_CITE.match(cite)
        if found is None:
            yield place.fault(spot_, "cite", f"must be FILE:LINE or FILE:LINE-LINE (got {shown(cite)})", cite)
        elif found["last"] is not None and int(found["last"]) < int(found["first"]):
            yield place.fault(spot_, "cite", f"ends before it begins (got {shown(cite)})", cite)


@cache
def _sections(path: Path) -> frozenset[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    return frozenset(line.lstrip("#").strip() for line in lines if line.startswith("#"))


def _claim_cites(place: _Place, claim: Claim, at: At) -> Iterator[Fault]:
    yield from _cites(place, (*at, "cites"), claim.cites, claim.origin)


_REFERENCES = (
    ("subject_latency", "latency"),
    ("baseline_latency", "latency"),
    ("latency", "latency"),
    ("of", "ratio"),
)


def _references(place: _Place, claim: Claim, at: At) -> Iterator[Fault]:
    workloads = [one.id for one in place.bundle.workloads]
    if claim.workload is not None and claim.workload not in workloads:
        message = f"is no workload here: {', '.join(workloads)} (got {claim.workload!r})"
        yield place.fault((*at, "workload"), "reference", message, claim.workload)
    for name, kind in _REFERENCES:
        target = claim.fields.get(name)
        if target is None:
            continue
        found = place.named.get(target)
        if target not in place.named:
            yield place.fault((*at, name), "reference", f"is no claim here (got {target!r})", target)
        elif found not in (kind, None):
            message = f"must be a claim of kind {kind} (got {target!r}, a {found})"
            yield place.fault((*at, name), "reference", message, target)
    for symbol in claim.fields.get("kernel_symbols", ()):
        if symbol not in place.bundle.kernel.symbols:
            yield place.fault(
                (*at, "kernel_symbols"), "reference", f"is no symbol of the kernel (got {symbol!r})", symbol
            )


def _layer(place: _Place, claim: Claim, at: At) -> Iterator[Fault]:
    layer = claim.fields.get("layer")
    layers = place.known.layers
    if layer is not None and layers is not None and layer not in layers:
        yield place.fault(
            (*at, "layer"), "pins", f"is no FlyDSL commit of pins.yaml (got {shown(layer)})", layer
        )


def _other(place: _Place, claim: Claim, name: str) -> Claim | None:
    target = claim.fields.get(name)
    return next((one for one in place.bundle.claims if one.id == target), None)


def _ratio(place: _Place, claim: Claim, at: At) -> Iterator[Fault]:
    yield from _range(place, claim, at)
    sides = {side: _other(place, claim, f"{side}_latency") for side in ("subject", "baseline")}
    for side, latency in sides.items():
        if latency is None or latency.kind != "latency":
            continue
        path = (*at, f"{side}_latency")
        if latency.fields.get("side") not in (side, "other" if side == "baseline" else side):
            message = (
                f"must be a latency of the {side} (got {latency.id!r}, of the {latency.fields.get('side')})"
            )
            yield place.fault(path, "side", message, latency.id)
        yield from _same(place, claim, latency, path, ("workload", "regime"))
    subject, baseline = sides["subject"], sides["baseline"]
    if subject is None or baseline is None:
        return
    numbers = (claim.published, subject.published, baseline.published)
    if not all(isinstance(one, (int, float)) and not isinstance(one, bool) and one > 0 for one in numbers):
        return
    published, s, b = (float(one) for one in numbers)
    direct, inverse = abs(log(published * s / b)), abs(log(published * b / s))
    if inverse <= INVERTED_WITHIN < direct:
        message = f"is inverted: baseline {b:g} over subject {s:g} is {b / s:.4g} (got {published:g})"
        yield place.fault((*at, "published"), "direction", message, claim.published)


def _same(place: _Place, claim: Claim, other: Claim, path: At, names: Sequence[str]) -> Iterator[Fault]:
    for name in names:
        mine, theirs = getattr(claim, name), getattr(other, name)
        if name == "workload" and not {mine, theirs} <= {one.id for one in place.bundle.workloads}:
            continue  # no such workload is a fault of its own
        if mine != theirs:
            message = f"has another {name} than the claim: {theirs} against {mine} (got {other.id!r})"
            yield place.fault(path, name, message, other.id)


def _range(place: _Place, claim: Claim, at: At) -> Iterator[Fault]:
    value = claim.published
    if isinstance(value, list) and len(value) == 2 and value[0] > value[1]:
        yield place.fault((*at, "published"), "range", f"must not fall (got {shown(value)})", value)


def _class(place: _Place, claim: Claim, at: At) -> Iterator[Fault]:
    ratio = _other(place, claim, "of")
    if ratio is not None and ratio.kind == "ratio":
        yield from _same(place, claim, ratio, (*at, "of"), ("workload", "regime"))


_UNITS = {"bytes": ("GB/s", "TB/s"), "flops": ("TFLOPS",)}


def _throughput(place: _Place, claim: Claim, at: At) -> Iterator[Fault]:
    yield from _range(place, claim, at)
    quantity = str(claim.fields["quantity"])
    if claim.unit not in _UNITS[quantity]:
        message = f"must be {' or '.join(_UNITS[quantity])} for {quantity} (got {claim.unit!r})"
        yield place.fault((*at, "unit"), "unit", message, claim.unit)
    latency = _other(place, claim, "latency")
    if latency is None or latency.kind != "latency":
        return
    yield from _same(place, claim, latency, (*at, "latency"), ("workload", "regime"))
    yield from _arithmetic(place, claim, at)


def _arithmetic(place: _Place, claim: Claim, at: At) -> Iterator[Fault]:
    """The workload must give the kernel's arithmetic all that it needs, where there is a kernel file."""
    from harness.kernels import get

    workload = next((one for one in place.bundle.workloads if one.id == claim.workload), None)
    if workload is None:
        return
    if workload.unknown:
        message = f"leaves {', '.join(workload.unknown)} unsaid, which the rate needs (got {workload.id!r})"
        yield place.fault((*at, "workload"), "dims", message, workload.id)
        return
    try:
        module = get(place.bundle.id)
    except HarnessError:
        return
    try:
        module.traffic(workload.dims)
    except (HarnessError, KeyError, TypeError, ValueError) as error:
        message = (
            f"does not fix the kernel's arithmetic: {' '.join(str(error).split())} (got {workload.id!r})"
        )
        yield place.fault((*at, "workload"), "dims", message, workload.id)


_MAPPED = re.compile(r"([0-9]+)/([0-9]+)\Z")
_PRINTED = re.compile(r"[0-9][0-9,]*(?:\.[0-9]+)?[KMG]?\Z")


def _resource(place: _Place, claim: Claim, at: At) -> Iterator[Fault]:
    yield from _range(place, claim, at)
    metric, value = claim.fields["metric"], claim.published
    size = metric in ("workgroup_size", "grid_workgroups")
    if size and not (isinstance(value, list) and len(value) == 3):
        yield place.fault(
            (*at, "published"), "shape", f"must be three numbers, x, y, z (got {shown(value)})", value
        )
    elif metric == "occupancy_limiter" and not isinstance(value, str):
        yield place.fault((*at, "published"), "shape", f"must name what limits (got {shown(value)})", value)
    elif not size and metric != "occupancy_limiter" and not _count_or_range(value):
        yield place.fault((*at, "published"), "shape", f"must be a count or two (got {shown(value)})", value)
    unit = {"occupancy": "waves/SIMD", "lds": "B"}.get(metric)
    if claim.unit != unit:
        yield place.fault(
            (*at, "unit"), "unit", f"must be {shown(unit)} for {metric} (got {shown(claim.unit)})", claim.unit
        )


def _count_or_range(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, list) and len(value) == 2)


def _trace(place: _Place, claim: Claim, at: At) -> Iterator[Fault]:
    yield from _range(place, claim, at)
    metric, value = claim.fields["metric"], claim.published
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    printed = isinstance(value, str) and _PRINTED.match(value) is not None
    pair = _MAPPED.match(value) if isinstance(value, str) else None
    if metric == "mapped" and isinstance(value, str):
        fits = pair is not None and int(pair[1]) <= int(pair[2])
    elif metric in ("taxonomy", "wave_states"):
        fits = isinstance(value, Mapping)
    elif metric == "dominant_stall":
        fits = isinstance(value, str)
    else:
        fits = number or printed or (metric == "stall_share" and isinstance(value, list))
    if not fits:
        yield place.fault(
            (*at, "published"), "shape", f"is no figure of {metric} (got {shown(value)})", value
        )
    share = metric in ("stall_share", "taxonomy", "wave_states") or (
        metric == "mapped" and not isinstance(value, str)
    )
    unit = "%" if share else "cycles" if metric in ("total_cycles", "stall_cycles") else None
    if claim.unit != unit:
        yield place.fault(
            (*at, "unit"), "unit", f"must be {shown(unit)} for {metric} (got {shown(claim.unit)})", claim.unit
        )


def _isa(place: _Place, claim: Claim, at: At) -> Iterator[Fault]:
    if claim.fields["check"] != "pattern":
        return
    fields = claim.fields
    try:
        re.compile(str(fields["mnemonic"]))
    except re.error as error:
        message = f"is no regular expression: {error} (got {shown(fields['mnemonic'])})"
        yield place.fault((*at, "mnemonic"), "pattern", message, fields["mnemonic"])
    asked = [name for name in ("count", "absent") if name in fields]
    asked += ["min or max"] if "min" in fields or "max" in fields else []
    if len(asked) != 1:
        message = f"must ask for one of count, absent, min or max (got {', '.join(asked) or 'none'})"
        yield place.fault(at, "pattern", message, asked)
    if fields.get("min", 0) > fields.get("max", fields.get("min", 0)):
        yield place.fault((*at, "max"), "range", f"is below min (got {fields['max']})", fields["max"])


def _numerics(place: _Place, claim: Claim, at: At) -> Iterator[Fault]:
    flag = claim.fields["metric"] == "correct"
    if flag != isinstance(claim.published, bool):
        want = "true or false" if flag else "a number"
        message = f"must be {want} for {claim.fields['metric']} (got {shown(claim.published)})"
        yield place.fault((*at, "published"), "shape", message, claim.published)


def _compiles(place: _Place, claim: Claim, at: At) -> Iterator[Fault]:
    if claim.fields["expect"] and "error" in claim.fields:
        yield place.fault(
            (*at, "error"), "shape", "is for a claim that expects failure", claim.fields["error"]
        )


_RULES: Mapping[str, tuple[Rule, ...]] = {
    "ratio": (_ratio,),
    "class": (_class,),
    "throughput": (_throughput,),
    "resource": (_resource,),
    "trace": (_trace,),
    "isa": (_isa,),
    "numerics": (_numerics,),
    "compiles": (_compiles,),
}


def _identities(place: _Place, at: Sequence[int]) -> Iterator[Fault]:
    from harness.kinds import identity

    seen: dict[tuple[str, ...], str] = {}
    for index, claim in zip(at, place.bundle.claims, strict=True):
        key = identity(claim)
        if key in seen and seen[key] != claim.id:
            message = f"states the same as {seen[key]!r}, field by field (got {claim.id!r})"
            yield place.fault(("claims", index), "identity", message, claim.id)
        seen.setdefault(key, claim.id)
