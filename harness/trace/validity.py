"""Whether a capture may be believed, before any figure is taken from it.

Each check is a function of a `Capture` that yields faults; `faults` runs them all, so one bad part hides no
other. Must not know published figures. The identities hold exactly on every good capture: the counts of
code.json are sums over the wave files, the area under wstates<N> is the time that the timelines spend in N,
every file that filenames.json lists is there.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.trace.capture import Capture
from harness.trace.faults import METRICS, WORK_METRICS, Fault, fault, ordered
from harness.trace.isa import writes_memory
from harness.trace.waves import STATES

__all__ = ["BODY_SHARE", "faults", "ran_body"]

BODY_SHARE = 0.5
"""A wave ran the kernel's body if it executed at least this share of the rows that the busiest wave
executed."""

IDLE_SHARE = 0.05
"""Waves that skipped the body may hold this share of a figure's cycles before the figure is spoiled."""

MOST = 0.8
"""Where fewer of the sampled waves ran the body, the work was partial; a few early exits belong to a grid's
edge."""

LOW_EXECUTED = 0.1
"""Below this share of executed rows a capture is called one that did no work, stores or not."""

_OTHER_CU = (
    "capture another dispatch, --att-target-cu or --att-shader-engine-mask, or launch a grid with work for "
    "every workgroup"
)
_AGAIN = "capture again with a fresh output directory and keep all its files together"
_CYCLES = ("total_cycles", "stall_cycles", "stall_share", "taxonomy", "dominant_stall")


def faults(capture: Capture) -> tuple[Fault, ...]:
    """Everything wrong with `capture`, what its files could not be read for included."""
    found = list(capture.faults)
    for check in (_waves, _work, _partial, _sums, _states, _files, _occupancy, _foreign, _source):
        found += check(capture)
    return ordered(found)


def ran_body(capture: Capture) -> tuple[int, int]:
    """How many of the sampled waves ran the kernel's body, and how many were sampled."""
    records = capture.waves.records
    most = max((r.lines for r in records), default=0)
    return sum(r.lines >= BODY_SHARE * most for r in records if most), len(records)


def _waves(capture: Capture) -> Iterator[Fault]:
    if not capture.waves.records:
        yield fault(
            "no-waves", "no wave was sampled: the traced CU ran none of this dispatch", _OTHER_CU,
            (*WORK_METRICS, "waves", "executed", "total_cycles", "stall_cycles"),
        )  # fmt: skip
    elif capture.code is not None and not any(row.hits for row in capture.code.rows):
        yield fault("no-hits", "no instruction row was ever executed", _OTHER_CU, METRICS)
    named = [f for f in capture.faults if "code.json" in f.message]
    if capture.code is None and not any(f.spoils for f in named):
        what = "code.json could not be read" if named else "there is no code.json"
        yield fault("no-code", what, _AGAIN, METRICS)


def _work(capture: Capture) -> Iterator[Fault]:
    if capture.code is None:
        return
    rows = capture.code.instructions
    executed = sum(row.hits > 0 for row in rows)
    if not executed:
        return
    stores = [row for row in rows if writes_memory(row.isa)]
    silent = bool(stores) and not any(row.hits for row in stores)
    few = executed < LOW_EXECUTED * len(rows)
    if silent or few:
        why = [f"{executed:,} of {len(rows):,} instruction rows were executed"]
        if silent:
            why.append(f"none of its {len(stores):,} stores among them, so no result was written")
        yield fault("no-work", ", ".join(why), _OTHER_CU, WORK_METRICS)


def _partial(capture: Capture) -> Iterator[Fault]:
    records = capture.waves.records
    body, sampled = ran_body(capture)
    if body == sampled:
        return
    most = max(r.lines for r in records)
    idle = [r for r in records if r.lines < BODY_SHARE * most]
    stalls, lived = sum(r.stall for r in records), sum(r.end - r.begin for r in records)
    share = sum(r.stall for r in idle) / stalls if stalls else 0.0
    time = sum(r.end - r.begin for r in idle) / lived if lived else 0.0
    spoils = set(WORK_METRICS) if 2 * body < sampled else set()
    if share > IDLE_SHARE:
        spoils |= {"stall_share", "taxonomy", "dominant_stall"}
    if time > IDLE_SHARE:
        spoils.add("wave_states")
    yield fault(
        "partial-work" if body < MOST * sampled else "early-exits",
        f"{body:,} of {sampled:,} sampled waves ran the kernel's body; the others executed at most "
        f"{max(r.lines for r in idle):,} of {most:,} rows and hold {100 * share:.1f} % of the stall cycles, "
        f"{100 * time:.1f} % of the wave time",
        _OTHER_CU,
        tuple(sorted(spoils)),
    )


def _sums(capture: Capture) -> Iterator[Fault]:
    if capture.code is None or not capture.waves.records:
        return
    sums = capture.waves
    summed = zip(
        sums.hits.tolist(), sums.latency.tolist(), sums.stall.tolist(), sums.idle.tolist(), strict=True
    )
    by_line = dict(enumerate(summed))
    wrong: dict[str, int] = {}
    for row in capture.code.rows:
        stated = (row.hits, row.latency, row.stall, row.idle)
        found = by_line.get(row.index, (0, 0, 0, 0))
        if stated != found:
            for name, one, other in zip(("hits", "latency", "stall", "idle"), stated, found, strict=True):
                wrong[name] = wrong.get(name, 0) + (one != other)
    if wrong:
        text = ", ".join(f"{name} in {count:,} rows" for name, count in wrong.items() if count)
        yield fault(
            "sums-differ",
            f"code.json is not the sum of the wave files: {text}",
            _AGAIN,
            (*_CYCLES, "executed"),
        )


def _states(capture: Capture) -> Iterator[Fault]:
    if not capture.waves.records:
        return
    for number, name in enumerate(STATES):
        if number in capture.states and capture.states[number].area != capture.waves.states[number]:
            yield fault(
                "states-differ",
                f"wstates{number}.json holds {capture.states[number].area:,} cycles of {name.upper()}, the "
                f"wave files {capture.waves.states[number]:,}",
                _AGAIN,
                ("wave_states",),
            )


def _files(capture: Capture) -> Iterator[Fault]:
    have = {r.file for r in capture.waves.records}
    if capture.filenames is None:
        if have and not any("filenames.json" in f.message for f in capture.faults):
            yield fault("no-filenames", "there is no filenames.json to check the wave files against", _AGAIN)
        return
    listed = set(capture.filenames.waves)
    spoils = (*WORK_METRICS, "waves", "executed", "total_cycles", "stall_cycles")
    missing, extra = sorted(listed - have), sorted(have - listed)
    if missing:
        yield fault(
            "waves-missing",
            f"{len(missing):,} of {len(listed):,} listed wave files are not here or unreadable, "
            f"the first {missing[0]}",
            _AGAIN,
            spoils,
        )
    if extra:
        yield fault(
            "waves-unlisted", f"{len(extra):,} wave files are not in filenames.json, the first {extra[0]}: "
            "another capture's files are mixed in", _AGAIN, spoils,
        )  # fmt: skip
    moved = [
        r.file
        for r in capture.waves.records
        if r.file in listed and capture.filenames.waves[r.file] != (r.begin, r.end)
    ]
    if moved:
        yield fault(
            "waves-foreign",
            f"{len(moved):,} wave files begin or end at other times than filenames.json says, "
            f"the first {moved[0]}: another capture's files are mixed in",
            _AGAIN,
            spoils,
        )


def _occupancy(capture: Capture) -> Iterator[Fault]:
    if capture.occupancy is None:
        return
    starts = sum(int(events[:, 4].sum()) for events in capture.occupancy.events.values())
    ends = sum(len(events) for events in capture.occupancy.events.values()) - starts
    if starts != ends:
        yield fault(
            "packets-lost",
            f"occupancy.json has {starts:,} wave starts but {ends:,} ends: packets were lost",
            "raise --att-buffer-size (plain bytes) or trace fewer shader engines",
            ("occupancy", "waves"),
        )


def _foreign(capture: Capture) -> Iterator[Fault]:
    """Files of another kernel: waves whose lines this code does not have, or a dispatch log without its
    name."""
    if capture.code is None:
        return
    beyond = len(capture.waves.hits) - 1 - max(row.index for row in capture.code.rows)
    if beyond > 0:
        yield fault(
            "waves-foreign", f"wave files name rows up to {len(capture.waves.hits) - 1:,}, code.json ends at "
            f"{max(row.index for row in capture.code.rows):,}: another kernel's files are mixed in", _AGAIN,
            (*WORK_METRICS, "waves", "executed", "total_cycles", "stall_cycles"),
        )  # fmt: skip
    labels = [row.isa.lstrip("; ").strip() for row in capture.code.rows if row.is_label and row.isa.strip()]
    names = list(capture.occupancy.dispatches.values()) if capture.occupancy is not None else []
    known = [name for name in names if " / 0x" not in name]
    if labels and known and not any(label in known or label.split("(")[0] in known for label in labels):
        yield fault(
            "kernel-foreign",
            f"code.json is of {labels[0]}, occupancy.json of {known[0]}",
            _AGAIN,
            ("occupancy",),
        )


def _source(capture: Capture) -> Iterator[Fault]:
    if capture.code is None:
        return
    rows = capture.code.instructions
    if rows and not any(row.source for row in rows):
        yield fault(
            "no-source",
            f"none of {len(rows):,} instruction rows carries a source line",
            "compile with debug information (FLYDSL_DEBUG_ENABLE_DEBUG_INFO=1) and an empty debug cache",
        )
