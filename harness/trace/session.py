"""Reads everything below one directory or archive: captures, and the tables beside them, each read once.

Knows which file belongs to which capture. Must not know what a figure means. The files come as a stream, and
nothing here depends on their order.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.errors import HarnessError
from harness.trace import csvs, rocpd
from harness.trace.analysis import Analysis, analyse
from harness.trace.att import WAVE_FILE
from harness.trace.capture import Capture, Collector, belongs
from harness.trace.csvs import AgentInfo, Counters, Dispatches, KernelTrace, Readable
from harness.trace.faults import Fault, ReadFault, fault, ordered
from harness.trace.files import Entry, entries
from harness.trace.resources import Beside
from harness.trace.results import Results, Symbol, results
from harness.trace.shard import Shard, read_waves, split

__all__ = ["Session", "analyses", "one", "read", "surroundings"]

_UI = re.compile(r"ui_output_agent_(\d+)_dispatch_(\d+)")


@dataclass
class Session:
    """What was found, by path below the source (POSIX, "" for the source itself).

    hashes: sha256 of each kernel trace.
    """

    captures: dict[str, Capture] = field(default_factory=dict)
    traces: dict[str, KernelTrace] = field(default_factory=dict)
    agents: dict[str, AgentInfo] = field(default_factory=dict)
    counters: dict[str, Counters] = field(default_factory=dict)
    results: dict[str, Results] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    bytes: int = 0


def read(
    source: Path,
    *,
    wanted: Callable[[str], bool] = lambda path: True,
    inside: bool = False,
    other: Callable[[Entry], bool] = lambda entry: False,
) -> Session:
    """All captures and tables below `source` whose path passes `wanted`. HarnessError where it is not there.

    `inside`: archives in the directory count as their members. `other` is offered each file that is neither
    of a capture nor a table, and says whether it took it.
    """
    session = Session()
    collectors: dict[str, Collector] = {}
    waves: list[Entry] = []
    later: list[Entry] = []

    def of(directory: str) -> Collector:
        if directory not in collectors:
            collectors[directory] = Collector(directory)
        return collectors[directory]

    def take(entry: Entry) -> None:
        if belongs(entry.name):
            of(entry.directory).feed(entry)
            session.bytes += entry.size
        elif _table(session, entry) or other(entry):
            session.bytes += entry.size

    for entry in entries(source, session.faults, inside=inside):
        if not wanted(entry.path):
            continue
        if entry.disk is None:
            take(entry)  # a member of an archive can be read only now
        elif WAVE_FILE.fullmatch(entry.name) is not None:
            waves.append(entry)
        else:
            later.append(entry)
    mine, others = split(waves, sum(entry.size for entry in later))
    shard = Shard(others) if others else None
    for entry in later:
        take(entry)
    for part in (read_waves(mine), shard.finish() if shard is not None else {}):
        for directory, summed in part.items():
            of(directory).take(summed)
            session.bytes += summed.bytes
    for directory, collector in sorted(collectors.items()):
        session.captures[directory] = collector.finish()
    return session


class _Hashing:
    """Passes a stream on and hashes what went through."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._sha = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._sha.update(data)
        return data

    def hexdigest(self) -> str:
        """Of the whole stream; reads what is left."""
        while self.read(1 << 20):
            pass
        return self._sha.hexdigest()


def _table(session: Session, entry: Entry) -> bool:
    kind = csvs.kind_of(entry.name)
    try:
        if kind is not None:
            with entry.open() as stream:
                if kind == "kernel_trace":
                    hashing = _Hashing(stream)
                    session.traces[entry.path] = csvs.kernel_trace(hashing, entry.name)
                    session.hashes[entry.path] = hashing.hexdigest()
                    session.faults += session.traces[entry.path].faults
                elif kind == "agent_info":
                    session.agents[entry.path] = csvs.agent_info(stream, entry.name)
                elif kind == "counter_collection":
                    session.counters[entry.path] = csvs.counter_collection(stream, entry.name)
                    session.faults += session.counters[entry.path].faults
                else:
                    session.faults += csvs.kernel_stats(stream, entry.name).faults
        elif entry.name.endswith("results.json"):
            session.results[entry.path] = results(entry.read(), entry.name)
        elif entry.name.endswith(".db") and entry.disk is not None:
            trace, counters = rocpd.read(Path(entry.disk))
            session.traces[entry.path], session.counters[entry.path] = trace, counters
            session.faults += [*trace.faults, *counters.faults]
        elif entry.name.endswith(".db"):
            session.faults.append(
                fault(
                    "unread-database", f"{entry.path}: a database inside an archive is not read", "unpack it"
                )
            )
        else:
            return False
    except ReadFault as error:
        session.faults.append(error.fault)
    except OSError as error:
        session.faults.append(fault("unreadable-file", f"{entry.path}: {error}", "copy the capture again"))
    return True


def surroundings(source: Path) -> list[Path]:
    """Directories that may hold the tables of the capture in `source`: its parent, and a `compute_viewer`
    above.

    The first is where rocprofv3 writes them; the second is how the study lays them out.
    """
    found = [source.parent]
    found += [above / "compute_viewer" for above in list(source.parents)[:3]]
    return [path for path in found if path.is_dir()]


def _near(directory: str, paths: Iterable[str]) -> list[str]:
    """`paths` in the order of their nearness to `directory`: by how many leading parts they share."""
    mine = directory.split("/")

    def shared(path: str) -> int:
        count = 0
        for a, b in zip(mine, path.split("/"), strict=False):
            if a != b:
                break
            count += 1
        return count

    ranked = sorted(paths, key=lambda path: (-shared(path), path))
    best = shared(ranked[0]) if ranked else 0
    return [path for path in ranked if shared(path) == best]


def analyses(session: Session, beside: Session | None = None, arch: str | None = None) -> list[Analysis]:
    """Each capture with the tables that belong to it; `beside` holds tables from elsewhere, `arch`
    overrides."""
    out: list[Analysis] = []
    for directory, capture in session.captures.items():
        tables = session if _has_tables(session) or beside is None else beside
        found, device, more = _beside(capture, directory, tables, arch)
        out.append(analyse(capture, found, device, more))
    return out


def _has_tables(session: Session) -> bool:
    return bool(session.traces or session.results or session.agents)


def _beside(
    capture: Capture, directory: str, tables: Session, arch: str | None
) -> tuple[Beside, Dispatches | None, tuple[Fault, ...]]:
    symbol = capture.code.symbol if capture.code is not None else None
    named = _UI.search(directory)
    handle, dispatch = (int(named[1]), int(named[2])) if named else (None, None)
    more: list[Fault] = []
    result = _result(directory, tables.results, handle)
    group = _group(directory, tables.traces, symbol, dispatch)
    other = group is not None and not _same_launch(capture, group)
    gfx = arch or _gfx(directory, tables, result, handle)
    if gfx is None:
        more.append(
            fault(
                "no-agent",
                "nothing beside the trace names the GPU",
                "pass --arch, or keep *_agent_info.csv with it",
            )
        )
    entry = _entry(result, symbol, group)
    if result is not None:
        more += _counter_faults(result, [tables.counters[p] for p in _near(directory, tables.counters)])
    if group is not None and other:
        more.append(
            fault(
                "launch-differs",
                f"the wave log scales to about {_waves_seen(capture):,.0f} waves, the kernel trace's launch "
                f"of "
                f"{'x'.join(map(str, group.grid))} workgroups has {group.waves:,}: another shape was traced",
                "take the kernel trace with the command of the thread trace, and check the dispatch id",
            )
        )
    if group is None and entry is None:
        return Beside(gfx=gfx), None, tuple(more)
    return (
        Beside(
            gfx=gfx,
            vgpr=entry.arch_vgpr_count if entry is not None else group.vgpr if group is not None else None,
            accum=entry.accum_vgpr_count if entry is not None else group.accum if group is not None else None,
            sgpr=entry.sgpr_count if entry is not None else group.sgpr if group is not None else None,
            lds=entry.group_segment_size if entry is not None else group.lds if group is not None else None,
            lds_exact=entry is not None,
            scratch=entry.private_segment_size if entry is not None else group.scratch if group else None,
            workgroup=group.workgroup if group is not None else None,
            grid=group.grid if group is not None and not other else None,
        ),
        None if other else group,
        tuple(more),
    )


def _result(directory: str, found: Mapping[str, Results], handle: int | None) -> Results | None:
    """The results file of the traced process: the one that knows the agent handle in the directory's name."""
    near = [found[path] for path in _near(directory, found)]
    for result in near:
        if any(handle == gpu[0] for gpu in result.gpus):
            return result
    return near[0] if len(near) == 1 else None


def _entry(result: Results | None, symbol: str | None, group: Dispatches | None) -> Symbol | None:
    """The symbol record of the captured kernel. One name may stand for several code objects: the registers
    of the launch tell them apart."""
    named = [s for s in result.symbols if s.name == symbol] if result is not None else []
    if group is not None:
        named = [s for s in named if s.arch_vgpr_count == group.vgpr]
    alike = {(s.arch_vgpr_count, s.accum_vgpr_count, s.group_segment_size) for s in named}
    return named[0] if len(alike) == 1 else None


def _group(
    directory: str, traces: Mapping[str, KernelTrace], symbol: str | None, dispatch: int | None
) -> Dispatches | None:
    """The launches of the captured kernel: those of the captured dispatch's form, else the most frequent
    form."""
    groups = [
        group for path in _near(directory, traces) for group in traces[path].kernels if group.symbol == symbol
    ]
    for group in groups:
        if dispatch is not None and dispatch in group.ids:
            return group
    return max(groups, key=lambda group: len(group.ids), default=None)


SHADER_ENGINES = 32
"""Shader engines of an MI350X (8 XCDs of 4), over which workgroups are spread evenly."""

SAME_LAUNCH = 0.25
"""A traced share of the engines holds its share of the waves; a small grid is uneven by up to this much."""


def _waves_seen(capture: Capture) -> float | None:
    """Waves of the whole launch, estimated from the traced shader engines; None without a log."""
    log = capture.occupancy
    starts = sum(int(e[:, 4].sum()) for e in log.events.values()) if log is not None else 0
    return starts * SHADER_ENGINES / len(log.events) if log is not None and starts else None


def _same_launch(capture: Capture, group: Dispatches) -> bool:
    seen = _waves_seen(capture)
    return seen is None or abs(seen - group.waves) <= SAME_LAUNCH * group.waves


def _gfx(directory: str, tables: Session, result: Results | None, handle: int | None) -> str | None:
    if result is not None:
        mine = [gpu for gpu in result.gpus if gpu[0] == handle] or list(result.gpus)
        if mine:
            return mine[0][1]
    names = {gpu[0] for path in _near(directory, tables.agents) for gpu in tables.agents[path].gpus}
    return names.pop() if len(names) == 1 else None


def _counter_faults(result: Results, tables: list[Counters]) -> list[Fault]:
    remedy = (
        "collect counters in a job of their own (rocprofv3 --pmc NAMES -f csv json; in a file, under jobs:)"
    )
    names = {name for table in tables for name in table.names}
    values = [*result.counters.values(), *(v for table in tables for v in table.values.values())]
    if not values:
        return [fault("no-counters", "no counter value in any file beside the trace", remedy)]
    if not any(values):
        text = f"all {len(values):,} counter values are zero" + (
            f" ({', '.join(sorted(names)[:3])})" if names else ""
        )
        return [
            fault(
                "zero-counters",
                f"{text}: that is a failed collection, not an idle GPU",
                "on a machine with several GPUs unset HIP_VISIBLE_DEVICES, or use one ROCR_VISIBLE_DEVICES; "
                + remedy,
            )
        ]
    return []


def one(source: Path, arch: str | None = None) -> list[Analysis]:
    """The captures below `source`, with the tables around it where it holds none itself."""
    session = read(source)
    if not session.captures:
        first = session.faults[0].message if session.faults else "no file of a thread trace in it"
        raise HarnessError(
            f"{source}: {first}",
            remedy="name a ui_output_* directory, one that holds some, or an archive of it",
        )
    around: Session | None = None
    if not _has_tables(session) and source.is_dir():
        around = Session()
        for directory in surroundings(source.resolve()):
            near = read(directory, wanted=lambda path: "/" not in path)
            for name in ("traces", "agents", "counters", "results"):
                getattr(around, name).update({f"{directory}/{k}": v for k, v in getattr(near, name).items()})
            if _has_tables(around):
                break
    out = analyses(session, around, arch)
    extra = ordered(session.faults)
    if extra and out:
        out[0] = replace(out[0], faults=ordered([*out[0].faults, *extra]))
    return out
