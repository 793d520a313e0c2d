"""The execute tier: runs the compiled binary of a bundle's launches on this CPU and writes down what it did.

It gathers; `harness.kinds` judges. The evidence has the shape of schema/executed.schema.json and holds no
time and no path, so that gathering again under the same pins gives the same bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import evidence
from harness.bundle import Bundle
from harness.compile.cache import Cache, open_cache
from harness.compile.layers import layer as python_layer
from harness.compile.request import CompileRequest
from harness.compile.toolchain import ARCH, Toolchain, assemble
from harness.errors import HarnessError
from harness.execute.counts import against_capture, pack, summary, unpack
from harness.execute.decode import Program
from harness.execute.dispatch import Run
from harness.execute.plan import Item, plan, profiled, sample
from harness.execute.recorded import Recorded, record_launch
from harness.execute.schedule import Fair, RandomOrder, RunAhead, Schedule, parse_schedule
from harness.execute.session import Session
from harness.kernels import get
from harness.kernels.base import KernelModule
from harness.pins import load as load_pins
from harness.sources import FLYDSL, SourceTree, obtain, verify
from harness.tiers import Context, Evidence, unavailable

__all__ = ["SEED", "execute_item", "gather", "record_item", "recorded_session"]

SEED = 0
"""Of the inputs and of the sampled workgroups, where the command line names none."""

RACE_GROUPS = 2
"""Workgroups that the race detector watches: they run the same code."""


def gather(bundle: Bundle, context: Context) -> Evidence:
    """Execute what the claims of `bundle` are about; `unavailable` where toolchain, decoder or source cannot
    be had.

    A launch that fails (an opcode that is missing, an access outside every buffer, ...) is a record with
    `error`.
    """
    try:
        cache = open_cache()
        toolchain = assemble(cache, offline=context.offline)
        import tinygrad.renderer.amd  # noqa: F401
    except ImportError:
        return unavailable("tinygrad's CDNA decoder is not installed", "pip install 'flydsl-repro[execute]'")
    except HarnessError as error:
        return unavailable(error.message, error.remedy or "see harness doctor")
    try:
        tree = obtain(FLYDSL, bundle.kernel.commit, cache, offline=context.offline)
        verify(tree, bundle.kernel.files)
    except HarnessError as error:
        return unavailable(error.message, error.remedy or f"set {FLYDSL.variable}")
    module = get(bundle.id)
    seed = int(context.options.get("seed") or SEED)
    layer = str(context.options.get("layer") or load_pins().flydsl.layer)
    items, unsaid = plan(bundle, module, context.options.get("workload"))
    hits = captured_hits(bundle)
    launches: list[dict[str, Any]] = []
    with context.reporter.task(f"execute {bundle.id}", len(items)) as task:
        for item in items:
            task.advance(note=item.workload)
            head = {"workload": item.workload, "also": list(item.also), "dims": dict(item.dims)}
            try:
                recorded = record_item(bundle, item, tree, layer, toolchain, cache, context.offline)
                launches += [
                    {**head, **found}
                    for found in execute_item(bundle, module, item, recorded, seed, hits, context.options)
                ]
            except HarnessError as error:
                launches.append({**head, "error": error.message})
    return {
        "schema_version": 1,
        "bundle": bundle.id,
        "arch": ARCH,
        "seed": seed,
        "source": {"repository": FLYDSL.name, "commit": tree.commit},
        "layer": layer,
        "launches": launches,
        "hits": {name: pack(values) for name, values in sorted(hits.items())},
        "unsaid": unsaid,
    }


def recorded_session(bundle: Bundle, context: Context) -> Session:
    """A session on the first planned launch of `bundle` (of `options["workload"]` where given)."""
    cache = open_cache()
    toolchain = assemble(cache, offline=context.offline)
    tree = obtain(FLYDSL, bundle.kernel.commit, cache, offline=context.offline)
    module = get(bundle.id)
    items, unsaid = plan(bundle, module, context.options.get("workload"))
    if not items:
        raise HarnessError(f"{bundle.id}: nothing to execute: {'; '.join(unsaid.values()) or 'no claim'}")
    layer = str(context.options.get("layer") or load_pins().flydsl.layer)
    recorded = record_item(bundle, items[0], tree, layer, toolchain, cache, context.offline)
    return Session(module, items[0].dims, recorded, int(context.options.get("seed") or SEED))


def record_item(
    bundle: Bundle,
    item: Item,
    tree: SourceTree,
    layer: str,
    toolchain: Toolchain,
    cache: Cache,
    offline: bool,
) -> Recorded:
    """The launches of one item, recorded with its full dimensions."""
    request = CompileRequest(
        module=f"harness.kernels.{bundle.id.replace('-', '_')}",
        dims=item.dims,
        sources=(tree.path,),
        layer=python_layer(layer, cache, offline=offline),
        digest=f"{tree.commit} {layer}",
    )
    return record_launch(request, toolchain, cache)


def execute_item(
    bundle: Bundle,
    module: KernelModule,
    item: Item,
    recorded: Recorded,
    seed: int,
    hits: Mapping[str, Sequence[int]],
    options: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Execute one item under every schedule, watch for races, and compare: one record for each kernel
    launched.
    """
    session = Session(module, item.dims, recorded, seed)
    asked = options.get("workgroups")
    count = int(asked) if asked else item.workgroups
    chosen = [sample(launch.workgroups, count, seed) for launch in recorded.launches]
    fair = session.run(chosen, Fair())
    names = str(options["schedule"]).split(",") if options.get("schedule") else None
    others: list[Schedule] = [RunAhead(), RunAhead(backwards=True), RandomOrder(seed)]
    if names is not None:
        others = [parse_schedule(name) for name in names if name != "fair"]
    schedules = []
    for schedule in (Fair(), *others):
        result = fair if schedule == Fair() else session.run(chosen, schedule)
        schedules.append(
            {
                "name": schedule.name,
                "same_as_fair": session.same(fair, result),
                "passed": all(entry["passed"] for entry in result.numerics.values()),
                "worst": _worst(result.numerics.values()),
            }
        )
    races = session.races(
        [part[:RACE_GROUPS] if count is not None or len(part) > 64 else part for part in chosen]
    )
    tolerance = module.tolerance(item.dims)
    out = []
    for index, (launch, program) in enumerate(zip(recorded.launches, recorded.programs, strict=True)):
        run: Run = fair.runs[index]
        found = races[index]
        out.append(
            {
                "symbol": launch.symbol,
                "instructions": len(program.instructions),
                "code_sha256": recorded.code_sha256(index),
                "grid": list(launch.grid),
                "block": list(launch.block),
                "lds": program.kernel.descriptor.lds_bytes + launch.lds,
                "workgroups": {"executed": len(chosen[index]), "of": launch.workgroups},
                "tolerance": {"atol": tolerance.atol, "rtol": tolerance.rtol, "reason": tolerance.reason},
                "numerics": fair.numerics if index == len(recorded.launches) - 1 else {},
                "schedules": schedules,
                "counts": summary(program, run),
                "captures": _captures(bundle, item, launch.symbol, program, run, hits, session, index),
                "races": found.to_json(),
            }
        )
    return out


def _worst(outputs: Iterable[Mapping[str, Any]]) -> float | None:
    """The largest share of the allowed error, None where one is no number."""
    values = [one["worst"] for one in outputs]
    return None if None in values else max(values, default=0.0)


def _captures(
    bundle: Bundle,
    item: Item,
    symbol: str,
    program: Program,
    run: Run,
    hits: Mapping[str, Sequence[int]],
    session: Session,
    index: int,
) -> dict[str, Any]:
    """Comparison with each capture that a counts claim names for this workload and symbol.

    Where the sampled workgroups do not explain a capture, more of them are executed, for their counts alone.
    """
    out = {}
    wider: Run | None = None
    for claim in bundle.claims:
        if claim.kind != "counts" or claim.workload not in (item.workload, *item.also):
            continue
        name = str(claim.fields["capture"])
        if name not in hits or claim.fields.get("symbol", symbol) != symbol:
            continue
        found = against_capture(program, run, hits[name])
        launch = session.recorded.launches[index]
        if found.how == "differs" and len(run.workgroups) < launch.workgroups:
            if wider is None:
                chosen = [profiled(one.workgroups) for one in session.recorded.launches]
                wider = session.count(chosen)[index]
            found = against_capture(program, wider, hits[name])
        out[name] = found.to_json()
    return out


def captured_hits(bundle: Bundle) -> dict[str, list[int]]:
    """Executions of each instruction in each capture that a counts claim names: from the study's files where
    STUDY_SRC names them, else from the committed evidence. A capture found in neither is left out.
    """
    out: dict[str, list[int]] = {}
    committed: Mapping[str, Any] = evidence.read(bundle.path, "executed") or {}
    study = os.environ.get("STUDY_SRC")
    for claim in bundle.claims:
        if claim.kind != "counts":
            continue
        name = str(claim.fields["capture"])
        for root in (Path(study), Path(study) / "examples") if study else ():
            path = root / name / "code.json"
            if path.is_file():
                out[name] = _hits(json.loads(path.read_text()))
                break
        else:
            packed = committed.get("hits", {}).get(name)
            if packed is not None:
                out[name] = unpack(packed)
    return out


def _hits(data: Mapping[str, Any]) -> list[int]:
    """Column Hit of an ATT code.json, without label rows."""
    return [int(row[6]) for row in data["code"] or () if not str(row[0]).startswith(";")]
