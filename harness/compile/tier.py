"""The compile tier: compiles a bundle's launches for gfx950 on this machine and describes what came out.

It gathers; `harness.kinds` judges. The evidence has the shape of schema/compiled.schema.json and holds
no time and no path, so that gathering again under the same pins gives the same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.bundle import Bundle
from harness.compile.cache import Cache, open_cache
from harness.compile.captures import captured, differences
from harness.compile.compiler import compile_kernel
from harness.compile.describe import remembered_description
from harness.compile.layers import layer as python_layer
from harness.compile.request import CompiledKernel, CompileRequest
from harness.compile.selftest import compile_specimens, self_test
from harness.compile.toolchain import ARCH, Toolchain, assemble
from harness.compile.variants import ALWAYS, PUBLISHED, Variant, patched, variant_of
from harness.errors import HarnessError
from harness.kernels import get
from harness.kernels.base import KernelModule
from harness.pins import load as load_pins
from harness.sources import FLYDSL, SourceTree, obtain, verify
from harness.tiers import Context, Evidence, unavailable

__all__ = ["Launch", "compilable", "gather", "launches"]

COMPILES = ("isa", "compiles", "resource")
"""The kinds whose claims name what is to be compiled."""


@dataclass(frozen=True)
class Launch:
    """One compile that the claims ask for: a workload's dimensions, a Python layer, a variant and one
    of its shapes.

    `also` names the workloads that give the same code (their smallest launch is the same).
    """

    workload: str
    dims: Mapping[str, Any]
    layer: str
    variant: Variant
    shape: Mapping[str, Any]
    also: tuple[str, ...] = ()


def compilable(bundle: Bundle) -> bool:
    """Whether the bundle's kernel is one of FlyDSL's: this tier compiles no other."""
    return bundle.kernel.repository.rstrip("/").removesuffix(".git") == FLYDSL.url


def gather(bundle: Bundle, context: Context) -> Evidence:
    """Compile what the claims of `bundle` are about; `unavailable` where toolchain or source cannot be
    had here.
    """
    if not compilable(bundle):
        return unavailable(
            f"{bundle.id}: no kernel of {FLYDSL.name}", "this tier compiles FlyDSL's kernels only"
        )
    try:
        cache = open_cache()
        toolchain = assemble(cache, offline=context.offline)
        _say_once(context, cache.note)
        self_test(toolchain, cache)
    except HarnessError as error:
        return unavailable(error.message, error.remedy or "see harness doctor")
    try:
        tree = obtain(FLYDSL, bundle.kernel.commit, cache, offline=context.offline)
        files = verify(tree, bundle.kernel.files)
    except HarnessError as error:
        _say_once(context, compile_specimens(toolchain, cache))
        return unavailable(error.message, error.remedy or f"set {FLYDSL.variable}")
    module = get(bundle.id)
    primary = str(context.options.get("layer") or load_pins().flydsl.layer)
    wanted, unsaid = launches(bundle, module, primary, context.options.get("workload"))
    texts: dict[str, tuple[str, ...]] = {}
    found = _compile_all(bundle, wanted, tree, toolchain, cache, context, texts)
    return {
        "schema_version": 1,
        "bundle": bundle.id,
        "arch": ARCH,
        "toolchain": dict(sorted(toolchain.versions.items())),
        "source": {"repository": FLYDSL.name, "commit": tree.commit, "files": dict(files)},
        "layer": primary,
        "launches": found,
        "unsaid": unsaid,
        "captures": captured(bundle),
        "differences": differences(bundle, found, texts),
    }


def launches(
    bundle: Bundle, module: KernelModule, primary: str, only: str | None = None
) -> tuple[tuple[Launch, ...], dict[str, str]]:
    """What to compile for the claims of `bundle`, each once, and workload -> why not for what cannot be.

    Every workload is compiled as published under the layer `primary`; a claim adds its own layer and variant.
    """
    dims: dict[str, dict[str, Any]] = {}
    unsaid: dict[str, str] = {}
    for workload in bundle.workloads:
        if only is not None and workload.id != only:
            continue
        try:
            dims[workload.id] = module.resolve(workload.dims)
        except HarnessError as error:
            unsaid[workload.id] = error.message
    asked: list[tuple[str, str, Variant, Mapping[str, Any]]] = []
    for name in dims:
        asked += [(name, primary, PUBLISHED, shape) for shape in PUBLISHED.shapes]
    for claim in bundle.claims:
        if claim.kind not in COMPILES or claim.workload not in dims:
            continue
        variant = variant_of(bundle.id, claim)
        layers = [str(claim.fields.get("layer") or primary), *variant.layers]
        asked += [(claim.workload, one, variant, shape) for one in layers for shape in variant.shapes]
    for variant in ALWAYS.get(bundle.id, ()):
        asked += [(name, primary, variant, shape) for name in list(dims)[:1] for shape in variant.shapes]
    return _deduplicated(asked, dims, module), unsaid


def _deduplicated(
    asked: Iterable[tuple[str, str, Variant, Mapping[str, Any]]],
    dims: Mapping[str, Mapping[str, Any]],
    module: KernelModule,
) -> tuple[Launch, ...]:
    kept: dict[str, Launch] = {}
    for workload, layer, variant, shape in asked:
        full = module.resolve({**dims[workload], **shape})
        key = json.dumps([layer, variant.name, module.small(full)], sort_keys=True, default=str)
        before = kept.get(key)
        if before is None:
            kept[key] = Launch(workload, full, layer, variant, shape)
        elif workload not in (before.workload, *before.also):
            kept[key] = Launch(**{**vars(before), "also": (*before.also, workload)})
    return tuple(kept.values())


def _compile_all(
    bundle: Bundle,
    wanted: tuple[Launch, ...],
    tree: SourceTree,
    toolchain: Toolchain,
    cache: Cache,
    context: Context,
    texts: dict[str, tuple[str, ...]],
) -> list[dict[str, Any]]:
    """The record of each launch, in the order of `wanted`; a launch that cannot be made is a record too.

    `texts` receives sha256 -> normal form of every listing.
    """

    def one(launch: Launch) -> dict[str, Any]:
        record = _record(launch)
        try:
            made = _compile(bundle, launch, tree, toolchain, cache, context)
            record |= _outcome(made, toolchain, texts)
            if context.out is not None and made.ok:
                _export(made, context.out / bundle.id / _directory(launch))
        except HarnessError as error:
            record |= {"ok": False, "error": error.message, "ran": False, "imported": {}, "objects": []}
        return record

    workers = max(1, min(4, os.cpu_count() or 1))
    with context.reporter.task(f"compile {bundle.id}", len(wanted)) as task:
        records = []
        with ThreadPoolExecutor(workers) as pool:
            for launch, record in zip(wanted, pool.map(one, wanted), strict=True):
                task.advance(note=_title(launch))
                records.append(record)
    return records


def _compile(
    bundle: Bundle, launch: Launch, tree: SourceTree, toolchain: Toolchain, cache: Cache, context: Context
) -> CompiledKernel:
    root = patched(tree, launch.variant, cache)
    request = CompileRequest(
        module=f"harness.kernels.{bundle.id.replace('-', '_')}",
        dims=launch.dims,
        sources=(root,),
        layer=python_layer(launch.layer, cache, offline=context.offline),
        digest=f"{tree.commit} {launch.layer} {root}",
        mode=launch.variant.mode,
    )
    return compile_kernel(request, toolchain, cache, warm=True)


def _record(launch: Launch) -> dict[str, Any]:
    return {
        "workload": launch.workload,
        "also": list(launch.also),
        "layer": launch.layer,
        "variant": launch.variant.name,
        "shape": dict(launch.shape),
        "dims": dict(launch.dims),
    }


def _outcome(made: CompiledKernel, toolchain: Toolchain, texts: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    objects = []
    for entry in made.objects:
        record, normal = remembered_description(entry, toolchain)
        objects.append(record)
        texts[record["sha256"]] = normal
    return {
        "ok": made.ok,
        "error": _one_line(made.error),
        "ran": not (made.error or "").startswith("did not finish"),
        "imported": _relative(made.files),
        "objects": objects,
    }


def _relative(files: Mapping[str, str]) -> dict[str, str]:
    """The upstream files among those imported, from their package (`kernels/…`, `flydsl/…`) on."""
    out = {}
    for name, value in files.items():
        parts = Path(name).parts
        for package in ("kernels", "flydsl", "tests"):
            if package in parts and "harness" not in parts:
                out["/".join(parts[parts.index(package) :])] = value
                break
    return dict(sorted(out.items()))


def _one_line(error: str | None) -> str | None:
    """An error without the paths of this machine, on one line of at most 300 characters."""
    if error is None:
        return None
    words = [word if not word.startswith("/") else Path(word).name for word in error.split()]
    return " ".join(words)[:300]


def _title(launch: Launch) -> str:
    extra = f" {launch.variant.name}" if launch.variant.name else ""
    shape = " " + " ".join(f"{k}={v}" for k, v in launch.shape.items()) if launch.shape else ""
    return f"{launch.workload} layer {launch.layer[:8]}{extra}{shape}"


def _directory(launch: Launch) -> str:
    return _title(launch).replace(" layer ", "-").replace(",", "").replace(" ", "-").replace("=", "")


def _export(made: CompiledKernel, directory: Path) -> None:
    """Copy assembly, LLVM IR and code objects to where anyone can look at them."""
    directory.mkdir(parents=True, exist_ok=True)
    for entry in made.objects:
        for path in (entry.isa, entry.ir, entry.hsaco):
            if path is not None:
                shutil.copyfile(path, directory / path.name)


_said: set[str] = set()


def _say_once(context: Context, line: str | None) -> None:
    if line is not None and line not in _said:
        _said.add(line)
        context.reporter.say(line)
