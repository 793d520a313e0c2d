"""`harness rehearse`: the whole device tier on whatever torch device is here, on the project's own kernels.

Plan, fresh processes, controls, evidence that validates, a verdict; and at the end, in plain words, how
small a difference this machine can resolve and how long that takes. On a CPU the same path with a host clock.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.command import Outcome, Reporter
from harness.device import record
from harness.device.judging import read_pair, stopping
from harness.device.plan import COLD, EAGER, HOST_ROTATED, HOST_WARM, Plan, Shape
from harness.device.run import Run, measure, open_run, replicates, require_torch
from harness.device.verdicts import summary
from harness.errors import HarnessError
from harness.judge.rule import ALPHA, FLOOR
from harness.verdict import ExitCode, Verdict, worst_exit

__all__ = ["configure", "cpu_plan", "gpu_plan", "resolution", "run"]

BASELINE = "torch-softmax"
GPU_SHAPES = ("64x256", "1024x8192", "32768x8192")
CPU_SHAPES = ("cpu-16x2048",)

_EXITS = {
    Verdict.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    Verdict.INVALID: ExitCode.INVALID,
    Verdict.NOT_COMPARABLE: ExitCode.NOT_COMPARABLE,
    Verdict.NOT_MEASURED: ExitCode.NOT_MEASURED,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--out", type=Path, help="keep the run here (default: a temporary directory)")
    parser.add_argument("--resume", type=Path, metavar="DIR", help="continue the run in DIR")
    parser.add_argument("--start", choices=("fork", "spawn"), help="how a fresh process is started (fork)")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="rehearse on this device")
    parser.add_argument("--shape", action="append", help="only this shape, repeatable")
    parser.add_argument("--processes", type=int, help="stop after this many processes a shape at the latest")
    parser.add_argument("--seed", type=int, default=20, help="seed of inputs and block orders")


def cpu_plan(start: str = "fork", shapes: tuple[str, ...] = CPU_SHAPES, seed: int = 20) -> Plan:
    """Small enough for a CI machine: loops instead of graphs, a rotation smaller than the cache, two
    looks."""
    return Plan(
        "instrument",
        "harness.kernels.instrument",
        "cpu",
        _shapes(shapes, (HOST_ROTATED,)),
        start=start,
        regimes=(HOST_ROTATED, HOST_WARM, EAGER),
        looks=(5, 8),
        blocks_beside=2,
        rotation=0.25,
        least_rotation=0.25,
        limit_s=60.0,
        seed=seed,
    )


def gpu_plan(start: str = "fork", shapes: tuple[str, ...] = GPU_SHAPES, seed: int = 20) -> Plan:
    """The instrument's three shapes as they were captured."""
    return Plan("instrument", "harness.kernels.instrument", "cuda", _shapes(shapes), start=start, seed=seed)


def _shapes(names: tuple[str, ...], judged: tuple[str, ...] | None = None) -> tuple[Shape, ...]:
    from harness.kernels.instrument import WORKLOADS

    unknown = [n for n in names if n not in WORKLOADS]
    if unknown:
        raise HarnessError(f"no shape {unknown[0]!r}", remedy=f"one of: {', '.join(WORKLOADS)}")
    made = []
    for name in names:
        dims: Mapping[str, Any] = WORKLOADS[name]
        made.append(Shape(name, dict(dims), (BASELINE,), judged=judged or (COLD,)))
    return tuple(made)


def _plan(args: argparse.Namespace) -> Plan:
    device = args.device or require_torch()
    if device == "cuda" and require_torch() != "cuda":
        raise HarnessError(
            "torch sees no GPU here",
            remedy="rehearse on the CPU: --device cpu",
            exit_code=ExitCode.NOT_MEASURED,
        )
    make, shapes = (cpu_plan, CPU_SHAPES) if device == "cpu" else (gpu_plan, GPU_SHAPES)
    plan = make(args.start or "fork", tuple(args.shape) if args.shape else shapes, args.seed)
    if args.processes is not None:
        if args.processes < 2:
            raise HarnessError(f"--processes: must be at least 2 (got {args.processes})")
        looks = (*(k for k in plan.looks if k < args.processes), args.processes)
        plan = plan.with_(looks=looks)
    return plan


def run(args: argparse.Namespace, reporter: Reporter) -> Outcome:
    """Rehearse, or continue a rehearsal. HarnessError where there is no torch or the directory is another
    run's."""
    if args.resume is not None:
        return _finish(open_run(args.resume, None), args.resume, reporter)
    plan = _plan(args)
    if args.out is not None:
        return _finish(open_run(args.out, plan), args.out, reporter)
    with tempfile.TemporaryDirectory(prefix="harness-rehearse-") as folder:
        return _finish(open_run(Path(folder), plan), None, reporter)


def _finish(run_: Run, kept: Path | None, reporter: Reporter) -> Outcome:
    measure(run_, reporter, stopping)
    evidence = record.assemble(run_)
    record.write(run_.directory / "evidence.json", evidence)
    return report(evidence, run_, kept)


def report(evidence: Mapping[str, Any], run_: Run, kept: Path | None) -> Outcome:
    """The verdict of each shape, all regimes side by side, and what this machine can resolve."""
    plan, rows, lines = run_.plan, [], []
    codes = []
    device = evidence["environment"]["device"] or {"name": "no device", "arch": ""}
    lines.append(f"{device['name']} ({device['arch']}), {plan.start}ed processes, plan {plan.sha256[:12]}")
    for shape in plan.shapes:
        processes = run_.processes[shape.id]
        for regime in shape.judged:
            # Nothing was published here: what is judged is whether the ratio is known well enough to judge
            # by.
            judged = read_pair(plan, processes, regime, f"ratio:{BASELINE}")
            verdict = judged.verdict
            known = judged.theta is not None and verdict is not Verdict.INVALID
            seconds = sum(p.get("wall_s") or 0.0 for p in processes)
            fine = resolution(plan, processes, regime) if known else None
            rows.append(
                {
                    "shape": shape.id,
                    "regime": regime,
                    "verdict": verdict.value,
                    "reason": judged.reason,
                    "processes": len(replicates(processes)),
                    "seconds": round(seconds, 2),
                    "start_up_share": start_up_share(processes),
                    "resolution": fine,
                    "numbers": dict(judged.numbers or {}),
                }
            )
            codes.append(_EXITS.get(verdict, ExitCode.OK))
            lines.append(f"{shape.id} {regime}: {_said(judged.theta, judged.reason, verdict, plan)}")
    lines += ["", *_side_by_side(evidence), "", *_words(rows, plan)]
    if run_.interrupted and kept is not None:
        lines.append(f"interrupted; nothing measured is lost: harness rehearse --resume {kept}")
        codes.append(ExitCode.INCONCLUSIVE)
    elif kept is not None:
        lines.append(f"evidence: {kept / 'evidence.json'}")
    code = worst_exit(codes)
    data = {
        "device": device,
        "plan_sha256": plan.sha256,
        "start": plan.start,
        "shapes": rows,
        "regimes": summary(evidence),
        "evidence_sha256": evidence["sha256"],
        "interrupted": run_.interrupted,
        "exit_code": code,
    }
    return Outcome(code, "\n".join(lines), data)


def _said(theta: Any, reason: str, verdict: Verdict, plan: Plan) -> str:
    if theta is None or verdict is Verdict.INVALID:
        return f"{verdict.value}: {reason}"
    mean, half = math.exp(theta.mean), 100 * theta.half
    if verdict is Verdict.REPRODUCED:
        return f"usable: ratio {mean:.4f} ± {half:.2f} % from {theta.count} processes, controls true"
    return f"too noisy to judge by: ratio {mean:.4f} ± {half:.2f} %, wanted ± {50 * plan.tau:.2f} %"


def _side_by_side(evidence: Mapping[str, Any]) -> list[str]:
    lines = ["all regimes of the run (95 % intervals of the mean; a claim is judged in its own regime only)"]
    for row in summary(evidence):
        lines.append(
            f"  {row['shape']:<12} {row['regime']:<20} {row['pair']:<20} {row['ratio']:8.4f} ± "
            f"{100 * row['half_width']:5.2f} %  sd between processes {100 * row['sd']:5.2f} %"
        )
    return lines


def start_up_share(processes: list[dict[str, Any]]) -> float | None:
    """Seconds before a kernel was built (start, imports, context) over all seconds of the whole processes."""
    whole = [p for p in replicates(processes) if p.get("seconds") and p.get("wall_s")]
    if not whole:
        return None
    started = sum(p["seconds"]["start"] + p["seconds"]["import"] + p["seconds"]["context"] for p in whole)
    return round(float(started) / sum(float(p["wall_s"]) for p in whole), 4)


def resolution(plan: Plan, processes: list[dict[str, Any]], regime: str) -> dict[str, float]:
    """The smallest difference (log scale) that is told from none here, now and after the last look, in
    seconds.

    Half the interval's width from the spread between processes so far: two ratios that differ by more than
    both their half-widths have disjoint intervals. The instrument floor is in it.
    """
    from scipy import stats

    judged = read_pair(plan, processes, regime, f"ratio:{BASELINE}")
    whole = replicates(processes)
    seconds = sum(p.get("wall_s") or 0.0 for p in whole) / max(1, len(whole))
    assert judged.theta is not None
    floor = float(stats.norm.ppf(1 - ALPHA)) * FLOOR
    own = max(judged.theta.half**2 - floor**2, 0.0)
    last = plan.looks[-1]
    at_last = math.sqrt(floor**2 + own * judged.theta.count / last)
    return {
        "half_width": judged.theta.half,
        "seconds": round(seconds * judged.theta.count, 1),
        "half_width_at_last_look": at_last,
        "seconds_at_last_look": round(seconds * last, 1),
    }


def _words(rows: list[dict[str, Any]], plan: Plan) -> list[str]:
    lines = []
    for row in rows:
        fine = row["resolution"]
        if fine is None:
            lines.append(f"{row['shape']}: this run cannot say what it could resolve ({row['verdict']}).")
            continue
        lines.append(
            f"{row['shape']}: this machine tells a ratio from another that differs by "
            f"{100 * math.expm1(fine['half_width']):.1f} % or more, in {fine['seconds']:.0f} s "
            f"({row['processes']} processes); with {plan.looks[-1]} processes "
            f"{100 * math.expm1(fine['half_width_at_last_look']):.1f} % in "
            f"{fine['seconds_at_last_look']:.0f} s. "
            f"{100 * (row['start_up_share'] or 0):.0f} % of the time was start-up of processes."
        )
    return lines
