"""The device tier: plan a bundle, measure it here, hand back evidence. It never judges.

Knows where upstream's kernels come from and that a GPU must be here; what to time, `planning` knows. The
parent opens no GPU context: a probe process asks which device this is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.bundle import Bundle
from harness.device.plan import Plan
from harness.device.planning import Planned, installed, plan_for, table
from harness.errors import HarnessError
from harness.kernels import get
from harness.kernels.softmax import PATCHED
from harness.tiers import Context, Evidence, unavailable

__all__ = ["dry_run", "gather", "probe"]

DEVICE_FILES = (Path("/dev/kfd"), Path("/dev/nvidiactl"))

REMEDY = "run it on a machine with one {device}: harness reproduce {bundle} --tier device"


def gather(bundle: Bundle, context: Context) -> Evidence:
    """Evidence of the timed workloads of `bundle` from the GPU that is here; `unavailable` where there is
    none."""
    if not any(path.exists() for path in DEVICE_FILES):
        return unavailable("no GPU here", _remedy(bundle))
    try:
        module = get(bundle.id)
        planned = plan_for(bundle, module, context.options, _pins(), installed)
    except HarnessError as error:
        return unavailable(error.message, error.remedy or "see docs/kernels.md")
    if planned.plan is None:
        why = (
            "; ".join(f"{k}: {v}" for k, v in planned.left_out.items()) or "no claim names a workload to time"
        )
        return unavailable(why, "the publication must say the shape")
    device = probe()
    if "unavailable" in device:
        return unavailable(str(device["unavailable"]), _without_torch(bundle))
    wanted = planned.plan.requires_arch
    if wanted is not None and device["arch"] != wanted:
        return _other_device(planned.plan, device)
    try:
        paths = _sources(bundle, planned.plan, context) if wanted is not None else ()
    except HarnessError as error:
        return unavailable(error.message, error.remedy or "see harness doctor")
    for shape, reason in planned.left_out.items():
        context.reporter.say(f"{bundle.id} {shape}: not timed, {reason}")
    return _measured(bundle, planned.plan, paths, context)


def _remedy(bundle: Bundle) -> str:
    study = any(claim.origin == "study" for claim in bundle.claims)
    return REMEDY.format(bundle=bundle.id, device="MI350X" if study else "GPU that torch sees")


def _without_torch(bundle: Bundle) -> str:
    """The remedy on a machine that has a GPU which this Python's torch does not see."""
    if DEVICE_FILES[0].exists():
        return f"this Python has no ROCm torch; in the container: nox -s container -- reproduce-{bundle.id}"
    return _remedy(bundle)


def _other_device(plan: Plan, device: Mapping[str, Any]) -> Evidence:
    """Evidence that names the device and holds no samples: nothing here compares with claims about
    another."""
    from harness.device import record
    from harness.device.machine import host, versions
    from harness.device.run import Run

    empty = record.assemble(Run(Path(os.devnull).parent, plan, {shape.id: [] for shape in plan.shapes}))
    environment = {**empty["environment"], "device": dict(device), "host": host(), "versions": versions()}
    return record.seal({**empty, "environment": environment})


def _measured(bundle: Bundle, plan: Plan, paths: tuple[Path, ...], context: Context) -> Evidence:
    from harness.device import record
    from harness.device.judging import stopping
    from harness.device.run import measure, open_run

    with tempfile.TemporaryDirectory(prefix="harness-device-") as folder, _on_path(paths):
        kept = Path(folder) if context.out is None else context.out / bundle.id
        directory = kept / "device-run"
        directory.mkdir(parents=True, exist_ok=True)
        done = measure(open_run(directory, plan), context.reporter, stopping)
        evidence = record.assemble(done)
        traces = {} if done.interrupted else _recaptured(bundle, plan, kept, context)
    return record.seal({**evidence, "trace": traces}) if traces else evidence


def _recaptured(bundle: Bundle, plan: Plan, kept: Path, context: Context) -> dict[str, Any]:
    """What rocprofv3 says of each shape's subject, where it is here: by shape. It times by a clock of its
    own."""
    if profiler() is None or plan.requires_arch is None:
        return {}
    from harness.trace.recapture import RecapturePlan, recapture

    traces: dict[str, Any] = {}
    for shape in plan.shapes:
        job = json.dumps({"kernel": plan.kernel, "dims": dict(shape.dims), "launches": 5, "seed": plan.seed})
        wanted = RecapturePlan(
            (sys.executable, "-m", "harness.device.launch", job),
            bundle.kernel.symbols[0],
            grid=_claimed_grid(bundle, shape.id),
            environment={"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        )
        try:
            traces[shape.id] = recapture(wanted, kept / "trace" / shape.id, context.reporter)
        except HarnessError as error:
            context.reporter.say(f"{bundle.id} {shape.id}: no trace, {error.message}")
    return traces


def _claimed_grid(bundle: Bundle, workload: str) -> tuple[int, int, int] | None:
    """The workgroups that this workload's launch is claimed to have: what is traced must be that launch."""
    for claim in bundle.claims:
        plain = claim.workload == workload and not claim.fields.get("variant")
        published = claim.published
        if plain and claim.fields.get("metric") == "grid_workgroups" and isinstance(published, list):
            x, y, z = (int(part) for part in published)
            return (x, y, z)
    return None


class _on_path:
    """Children import upstream's kernels from `paths`; the parent itself imports none of them."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._paths = paths
        self._before: str | None = None

    def __enter__(self) -> None:
        self._before = os.environ.get("PYTHONPATH")
        if self._paths:
            parts = [str(p) for p in self._paths] + ([self._before] if self._before else [])
            os.environ["PYTHONPATH"] = os.pathsep.join(parts)

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = self._before


def _sources(bundle: Bundle, plan: Plan, context: Context) -> tuple[Path, ...]:
    """The pinned FlyDSL layer and kernel sources, verified, in import order.

    Where a shape wants a variant of the kernel, its patched private copy is made and children are told of it.
    """
    from harness.compile.cache import open_cache
    from harness.compile.layers import layer
    from harness.compile.variants import VARIANTS, patched
    from harness.pins import load
    from harness.sources import FLYDSL, obtain, verify

    cache = open_cache()
    tree = obtain(FLYDSL, bundle.kernel.commit, cache, offline=context.offline)
    verify(tree, bundle.kernel.files)
    for shape in plan.shapes:
        variant = VARIANTS.get((bundle.id, str(shape.dims.get("variant"))))
        if variant is not None and variant.patches:
            os.environ[PATCHED] = str(patched(tree, variant, cache))
    chosen = str(context.options.get("layer") or load().flydsl.layer)
    above = layer(chosen, cache, offline=context.offline)
    return (above, tree.path) if above is not None else (tree.path,)


def _pins() -> str:
    from harness.device.provenance import provenance

    return str(provenance()["pins_sha256"])


def probe(limit_s: float = 120.0) -> Mapping[str, Any]:
    """Which device a process sees, asked in a process that then ends; {"unavailable": why} where there is
    none."""
    code = (
        "import json\nfrom harness.device.machine import describe\n"
        "from harness.device.telemetry import meter_for\n"
        "import torch\n"
        "print(json.dumps(describe('cuda', meter_for('cuda')) if torch.cuda.is_available() else "
        "{'unavailable': 'torch sees no GPU'}))"
    )
    root = str(Path(__file__).resolve().parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
            env=env,
        )
    except subprocess.TimeoutExpired:
        return {"unavailable": f"the GPU did not answer within {limit_s:g} s"}
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"unavailable": f"the GPU could not be opened: {last}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def profiler() -> str | None:
    """rocprofv3 where it is on the path."""
    return shutil.which("rocprofv3")


def dry_run(bundle: Bundle, options: Mapping[str, Any]) -> tuple[list[dict[str, Any]], Mapping[str, str]]:
    """What `gather` would time: a row a shape, and why a workload is left out. Opens no device."""
    try:
        module = get(bundle.id)
    except HarnessError as error:
        return [], {"": error.message}
    planned: Planned = plan_for(bundle, module, options)
    return table(planned, module), planned.left_out


def dry_text(bundle: str, rows: list[dict[str, Any]], left_out: Mapping[str, str]) -> list[str]:
    """The rows of `dry_run` as lines."""
    lines = []
    for row in rows:
        dims = " ".join(f"{k}={v}" for k, v in row["dims"].items())
        low, high = row["processes"]
        lines.append(
            f"{bundle} {row['shape']}: {dims}; {row['bytes']:,} bytes a launch, "
            f"{row['memory'] / 1e9:.2f} GB held; "
            f"against {', '.join(row['baselines']) or 'nothing'}; judged in {', '.join(row['judged'])}; "
            f"{low} to {high} processes, about {row['seconds'][0]} to {row['seconds'][1]} s"
        )
    lines += [f"{bundle} {name or '-'}: not timed, {why}" for name, why in left_out.items()]
    return lines
