"""What goes wrong in a published study, found by rules that name no kernel.

Each rule looks at one bundle and its record evidence and yields `Finding`s: what is published, what the raw
files give, and why they differ. Pure. A new rule is a function in `RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.bundle import Bundle, Claim
from harness.compile.occupancy import allocated_vgprs
from harness.kinds import judge
from harness.kinds.trace import SHIFTED
from harness.record.printed import printed
from harness.record.regime import kernel_times
from harness.record.study import capture, kernel_time
from harness.tiers import Evidence
from harness.verdict import TierResult, Verdict

__all__ = ["HOST_BOUND", "RULES", "Finding", "findings"]

HOST_BOUND = 1.25
"""A published latency this many times its kernel's own time holds host time; below, clocks and caches
differ too."""

APART = 0.05
"""Two published values of one thing that differ by more than this contradict each other."""


@dataclass(frozen=True)
class Finding:
    """One thing found: the rule, one line in words, what was published and what was derived."""

    rule: str
    bundle: str
    text: str
    published: Any = None
    derived: Any = None
    claims: tuple[str, ...] = ()
    differs: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        out: dict[str, Any] = {"rule": self.rule, "text": self.text}
        out |= {"published": self.published, "derived": self.derived, "claims": list(self.claims)}
        if self.differs:
            out["differs"] = dict(self.differs)
        return out


Rule = Callable[[Bundle, Evidence], Iterator[Finding]]


def findings(bundle: Bundle, evidence: Evidence) -> Iterator[Finding]:
    """All findings of all rules, in the order of `RULES`."""
    for rule in RULES:
        yield from rule(bundle, evidence)


def _claims(bundle: Bundle, kind: str, metric: str | None = None) -> Iterator[Claim]:
    for claim in bundle.claims:
        wanted = metric is None or claim.fields.get("metric") == metric
        if wanted and claim.kind == kind and claim.origin == "study" and claim.published is not None:
            yield claim


def _captures(evidence: Evidence) -> list[Mapping[str, Any]]:
    return list((evidence.get("study") or {}).get("captures", ()))


def shifted_states(bundle: Bundle, evidence: Evidence) -> Iterator[Finding]:
    """Published wave states that fit the decoder's states only under the next state's name."""
    for claim in _claims(bundle, "trace", "wave_states"):
        one = capture(evidence.get("study"), claim.fields.get("capture"))
        if one is None or one["wave_states"] is None or not isinstance(claim.published, Mapping):
            continue
        states = one["wave_states"]
        figures = {str(name).lower(): printed(value, decimals=1) for name, value in claim.published.items()}
        straight = all(name in states and f.holds(states[name]) for name, f in figures.items())
        moved = all(name in SHIFTED and f.holds(states[SHIFTED[name]]) for name, f in figures.items())
        if moved and not straight:
            names = ", ".join(f"{name.upper()} is {SHIFTED[name].upper()}" for name in figures)
            yield Finding(
                "wave-states-shifted", bundle.id,
                f"the values are right, the names are shifted by one state: what is printed as {names}",
                dict(claim.published), dict(states), (claim.id,),
            )  # fmt: skip


def halved_registers(bundle: Bundle, evidence: Evidence) -> Iterator[Finding]:
    """The profiler's VGPR_Count is half of the allocation."""
    for one in _captures(evidence):
        vgpr = one["vgpr"]
        if vgpr["field"] and vgpr["allocated"] == 2 * vgpr["field"]:
            users = tuple(
                claim.id
                for claim in _claims(bundle, "resource", "vgpr")
                if claim.published == vgpr["field"] != vgpr["max_index"]
            )
            yield Finding(
                "vgpr-count-halved", bundle.id,
                f"VGPR_Count {vgpr['field']} is half of the {vgpr['allocated']} registers allocated (the "
                f"code names {vgpr['max_index']}): {one['directory'].rpartition('/')[2]}",
                vgpr["field"], vgpr["allocated"], users,
            )  # fmt: skip


def wrong_architecture(bundle: Bundle, evidence: Evidence) -> Iterator[Finding]:
    """An occupancy that comes out of 256 registers a lane, gfx942's split file, and not of gfx950's 512."""
    stated = [c.published for c in _claims(bundle, "resource", "vgpr") if isinstance(c.published, int)]
    for claim in _claims(bundle, "resource", "occupancy"):
        one = capture(evidence.get("study"), claim.fields.get("capture"))
        answer = judge("record", claim, bundle, evidence)
        if one is None or answer is None or answer.verdict is not Verdict.CONTRADICTED:
            continue
        if not isinstance(claim.published, int):
            continue
        counts = {allocated_vgprs(count) for count in stated} | {one["vgpr"]["allocated"]} - {None}
        source = next((n for n in sorted(counts) if n and min(8, 256 // n) == claim.published), None)
        if source is None:
            continue
        observed = one["occupancy"]["observed"]
        text = (
            f"{claim.published} waves/SIMD is 256 // {source}, gfx942's rule; gfx950's 512 registers, "
            f"LDS and slots allow {answer.value}"
        )
        if observed is not None and observed > claim.published:
            text += f", and {observed} were seen at once, which the published limit excludes"
        yield Finding(
            "occupancy-wrong-architecture", bundle.id, text, claim.published, answer.value, (claim.id,)
        )  # fmt: skip


def capture_faults(bundle: Bundle, evidence: Evidence) -> Iterator[Finding]:
    """Captures without work or with partial work, and files said to hold counters that hold none."""
    for one in _captures(evidence):
        for fault in one["faults"]:
            if fault["rule"] in ("no-work", "partial-work", "no-counters", "zero-counters", "no-waves"):
                where = one["directory"].rpartition("/")[2]
                derived = one["executed"] if fault["rule"] == "no-work" else one.get("waves_with_work")
                total = one["instructions"] if fault["rule"] == "no-work" else one["waves"]
                yield Finding(
                    fault["rule"], bundle.id, f"{where}: {fault['message']}",
                    total, derived if "counters" not in fault["rule"] else 0,
                )  # fmt: skip


def captured_shape(bundle: Bundle, evidence: Evidence) -> Iterator[Finding]:
    """The captured launch is not of the shape that it is said to be of."""
    for claim in _claims(bundle, "resource", "grid_workgroups"):
        answer = judge("record", claim, bundle, evidence)
        if answer is not None and answer.verdict is Verdict.CONTRADICTED:
            yield Finding(
                "captured-shape", bundle.id, answer.reason, claim.published, answer.value, (claim.id,)
            )  # fmt: skip
    captures = _captures(evidence)
    grid = captures[0]["grid_workgroups"] if captures else None
    for workload in bundle.workloads:
        said = [n for n, v in workload.dims.items() if v is not None and n not in workload.dtypes]
        if grid and workload.unknown and not said:
            yield Finding(
                "captured-shape", bundle.id,
                "the study says that another shape was traced and gives no dimensions (workload "
                f"{workload.id}); the captured {'x'.join(map(str, grid))} workgroups are the timed shape's",
                None, list(grid),
            )  # fmt: skip


def host_bound(bundle: Bundle, evidence: Evidence) -> Iterator[Finding]:
    """A published latency far above the kernel's own time.

    At the same shape; or where the stated shape is impossible in that time, at the only other one, the
    traced.
    """
    for claim in _claims(bundle, "latency"):
        if claim.regime != "kernel-trace" or claim.fields.get("side", "subject") != "subject":
            continue
        if not isinstance(claim.published, (int, float)):
            continue
        answer = judge("record", claim, bundle, evidence)
        impossible = answer is not None and "floor_us" in answer.numbers
        time = kernel_times(claim, bundle, evidence, "subject")
        if isinstance(time, TierResult) and impossible:
            named = claim.fields.get("kernel_symbols") or bundle.kernel.symbols
            found = kernel_time(evidence.get("study"), "subject", named)
            time = found if found is not None else time
        if isinstance(time, TierResult):
            continue
        factor = claim.published / time.median
        high = time.high if time.high is not None else time.median
        if factor > HOST_BOUND and claim.published > high:
            yield Finding(
                "host-bound-latency", bundle.id,
                f"{claim.published:g} µs published beside a kernel trace with {time.text()}: {factor:.1f} "
                "times the kernel's own time, so the launch path was timed"
                + ("; at the stated shape no memory could move the bytes in that time" if impossible else ""),
                claim.published, time.median, (claim.id,),
            )  # fmt: skip


def stale_summary(bundle: Bundle, evidence: Evidence) -> Iterator[Finding]:
    """A multi-shape summary that its own rows do not give."""
    for row in (evidence.get("study") or {}).get("multishape", ()):
        stated = row.get("stated")
        if stated is None:
            continue
        mean, shapes = stated["geomean"], stated["shapes"]
        holds = (
            mean is not None
            and row["geomean"] is not None
            and printed(mean, decimals=2).holds(row["geomean"])
        )
        if holds and shapes == row["shapes"]:
            continue
        said = f"{mean:.2f} over {shapes} shapes" if mean is not None else f"no mean, {shapes} shapes"
        text = (
            f"the summary of {row['op']} says {said}; its rows give {row['geomean']:.2f} over {row['shapes']}"
        )
        if row.get("commits"):
            text += f" (rows of FlyDSL {', '.join(row['commits'])})"
        if row.get("impossible_rows"):
            text += f"; {row['impossible_rows']} FlyDSL rows exceed 8 TB/s by the study's own byte model"
        yield Finding(
            "stale-summary", bundle.id, text, stated, {"geomean": row["geomean"], "shapes": row["shapes"]}
        )


def mixed_timing(bundle: Bundle, evidence: Evidence) -> Iterator[Finding]:
    """A mean over pairs that were not timed by one method, or that are two timing floors."""
    for row in (evidence.get("study") or {}).get("multishape", ()):
        if row["baseline_provider"] == "best" and row.get("mixed_timing_rows"):
            yield Finding(
                "mixed-timing", bundle.id,
                f"{row['mixed_timing_rows']} of {row['shapes']} pairs of {row['op']} compare an eager time "
                "with a graph time",
                row["shapes"], row["mixed_timing_rows"],
            )  # fmt: skip


def impossible_rate(bundle: Bundle, evidence: Evidence) -> Iterator[Finding]:
    """A published rate that the workload's bytes and the published time do not give."""
    for claim in _claims(bundle, "throughput"):
        answer = judge("record", claim, bundle, evidence)
        if answer is not None and answer.verdict is Verdict.CONTRADICTED:
            yield Finding(
                "rate-mismatch", bundle.id, answer.reason, claim.published, answer.value, (claim.id,)
            )


def _class(ratio: float) -> str:
    return "WIN" if ratio >= 1.05 else "HEADROOM" if ratio <= 0.95 else "PARITY"


def side_by_side(bundle: Bundle, evidence: Evidence) -> Iterator[Finding]:
    """Statements of different identity that point to different conclusions, with what differs between
    them."""
    headline = next((c for c in _claims(bundle, "ratio") if c.regime == "eager-events"), None)
    for claim in _claims(bundle, "geomean"):
        if headline is None or claim.fields.get("baseline_provider") != "best":
            continue
        if not isinstance(headline.published, (int, float)) or not isinstance(claim.published, (int, float)):
            continue
        if _class(headline.published) != _class(claim.published):
            yield Finding(
                "contradiction", bundle.id,
                f"one shape: {headline.published:g} ({_class(headline.published)}); "
                f"{claim.fields.get('shapes')} shapes: {claim.published:g} ({_class(claim.published)})",
                headline.published, claim.published, (headline.id, claim.id),
                {
                    "workload": [headline.workload, f"the shapes of {claim.fields.get('op')}"],
                    "regime": [headline.regime, claim.regime],
                    "baseline": [bundle.baseline.entry_point if bundle.baseline else None, "best of several"],
                    "cites": [list(headline.cites), list(claim.cites)],
                },
            )  # fmt: skip
    latencies = [c for c in _claims(bundle, "latency") if isinstance(c.published, (int, float))]
    for at, one in enumerate(latencies):
        for two in latencies[at + 1 :]:
            same = ("side", "stage", "implementation", "kernels", "kernel_symbols")
            if one.regime != two.regime or any(one.fields.get(k) != two.fields.get(k) for k in same):
                continue
            if abs(one.published / two.published - 1) > APART and one.workload == two.workload:
                yield Finding(
                    "contradiction", bundle.id,
                    f"{one.published:g} µs and {two.published:g} µs for the same launch",
                    one.published, two.published, (one.id, two.id),
                    {
                        name: [one.fields.get(name), two.fields.get(name)]
                        for name in ("run", "variant")
                        if one.fields.get(name) != two.fields.get(name)
                    }
                    | {"cites": [list(one.cites), list(two.cites)]},
                )  # fmt: skip


RULES: tuple[Rule, ...] = (
    shifted_states, halved_registers, wrong_architecture, capture_faults, captured_shape, host_bound,
    impossible_rate, stale_summary, mixed_timing, side_by_side,
)  # fmt: skip
