"""Reading a thread trace: sums, states, registers, occupancy, validity; the same from directory and
archive."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from harness.cli import main
from harness.errors import HarnessError
from harness.trace import csvs, rocpd, shard
from harness.trace.analysis import Analysis
from harness.trace.command import text
from harness.trace.faults import ReadFault
from harness.trace.files import Entry, _Opener
from harness.trace.isa import Registers, classes, registers, study_class
from harness.trace.resources import Beside, vgprs
from harness.trace.session import one
from tests.captures import AGENT, KERNEL, Made, counter_csv, encode, make, tables
from tests.captures import rocpd as make_rocpd


def read(made: Made, root: Path) -> Analysis:
    """The one capture that `made` is."""
    return one(made.write(root))[0]


def rules(analysis: Analysis) -> set[str]:
    """The rules of all faults."""
    return {fault.rule for fault in analysis.faults}


def test_sums_of_a_good_capture(tmp_path: Path) -> None:
    made = make()
    got = read(made, tmp_path)
    assert (got.total, got.stall, got.idle) == tuple(made.expect[k] for k in ("total", "stall", "idle"))
    assert (got.instructions, got.executed, got.mapped, got.waves) == (11, 11, 11, 8)
    assert got.symbol == KERNEL and got.arch == "gfx950"
    assert got.valid and rules(got) == {"no-counters", "vgpr-field-halved"}
    lived = sum(made.expect["states"])
    expected = {
        n: 100 * made.expect["states"][i] / lived for i, n in enumerate(("idle", "exec", "wait", "stall"), 1)
    }
    assert got.wave_states == pytest.approx(expected)
    assert got.states_confirmed
    assert got.clock_ghz == pytest.approx(2.1)
    assert got.device is not None and got.device.median_us == pytest.approx(7.38)
    assert sum((got.taxonomy or {}).values()) == pytest.approx(100)


def test_registers_double_where_the_field_is_half(tmp_path: Path) -> None:
    got = read(make(), tmp_path)
    # v15 is named, so 16 at least; the field says 12, no multiple of 8, hence 24 are allocated
    assert got.registers == Registers(16, 0, 8)
    assert (got.beside.vgpr, got.allocated) == (12, 24)
    # one wave a workgroup of 1024 B: LDS rounds up to 1280, 128 workgroups, 32 wave slots a CU
    assert (got.occupancy_limit, got.limited_by) == (8, "wave slots")


@pytest.mark.parametrize(
    ("field", "accum", "named", "gfx", "allocated", "halved"),
    [
        (124, 0, Registers(242, 0, 34), "gfx950", 248, True),
        (
            132,
            0,
            Registers(120, 0, 29),
            "gfx950",
            264,
            True,
        ),  # the descriptor reserves more than the code names
        (96, 0, Registers(176, 12, 40), "gfx950", 192, True),
        (8, 0, Registers(12, 0, 17), "gfx950", 16, True),
        (248, 0, Registers(242, 0, 34), "gfx950", 248, False),  # a profiler with the fix
        (176, 16, Registers(176, 12, 40), "gfx950", 192, False),
        (124, 0, Registers(124, 0, 34), "gfx942", 124, False),
    ],
)
def test_vgpr_rule(field: int, accum: int, named: Registers, gfx: str, allocated: int, halved: bool) -> None:
    got = vgprs(Beside(gfx=gfx, vgpr=field, accum=accum), named)
    assert got.allocated == allocated
    assert (got.fault is not None) == halved


def test_both_ends_of_a_range_count() -> None:
    assert registers(["v_mfma_f32_16x16x16_f16 a[0:3], v[8:9], v[250:251], a[0:3]"]) == Registers(252, 4, 0)
    assert registers(["s_mov_b32 s15, 0x27000", "v_add_u32 v3, v1, v2", "s_nop 7"]) == Registers(4, 0, 16)


def test_combined_waits_are_split_and_the_study_rule_is_kept() -> None:
    assert dict(classes("s_waitcnt vmcnt(0) lgkmcnt(0)")) == {"VMEM-wait": 0.5, "LDS/SMEM-wait": 0.5}
    assert study_class("s_waitcnt vmcnt(0) lgkmcnt(0)") == "VMEM-wait"
    assert dict(classes("v_pk_fma_f32 v[2:3], v[2:3], v[4:5], v[6:7]")) == {"VALU": 1.0}
    assert study_class("v_fmac_f32_e32 v1, v2, v3") == "MFMA/FMA"
    assert study_class("ds_bpermute_b32 v1, v2, v3") == "other"
    assert dict(classes("ds_bpermute_b32 v1, v2, v3")) == {"LDS": 1.0}


def test_archive_equals_directory_in_any_order(tmp_path: Path) -> None:
    made = make(waves=40, seed=3, body=30)
    plain = one(made.write(tmp_path / "plain").parent)[0].to_json()
    forward = one(made.archive(tmp_path / "forward.tar.gz"))[0].to_json()
    backward = one(made.archive(tmp_path / "backward.tar.gz", reverse=True))[0].to_json()
    assert plain == forward == backward


def broken(name: str, change: Callable[[Any], Any]) -> Callable[[Made], None]:
    """A fault made by changing one JSON file."""

    def apply(made: Made) -> None:
        made.files[name] = encode(change(json.loads(made.files[name])))

    return apply


def drop(name: str) -> Callable[[Made], None]:
    """A fault made by a missing file."""
    return lambda made: made.files.pop(name) and None


def first_wave(made: Made) -> str:
    """The name of one wave file."""
    return min(name for name in made.files if name.startswith("se0"))


def set_wave(change: Callable[[Any], Any]) -> Callable[[Made], None]:
    """A fault made in one wave file."""
    return lambda made: broken(first_wave(made), change)(made)


def no_stores(data: Any) -> Any:
    for row in data["code"]:
        if "store" in row[0]:
            row[6:] = [0, 0, 0, 0]
    return data


def put(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    at = data
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return data


INVALID: list[tuple[str, Callable[[Made], None], str]] = [
    ("no-code", broken("code.json", lambda d: {**d, "code": None}), "total_cycles"),
    ("no-code", broken("code.json", lambda d: {**d, "code": []}), "stall_share"),
    ("no-code", drop("code.json"), "taxonomy"),
    ("unknown-version", broken("code.json", lambda d: {**d, "version": "4.0.0"}), "instructions"),
    ("unreadable-file", lambda m: m.files.update({"code.json": m.files["code.json"][:-40]}), "total_cycles"),
    ("unreadable-file", lambda m: m.files.update({"code.json": b""}), "total_cycles"),
    ("unreadable-file", lambda m: m.files.update({"code.json": b"[" * 100_000}), "total_cycles"),
    ("negative-count", broken("code.json", lambda d: put(d, ("code", 2, 7), -4)), "total_cycles"),
    ("impossible-count", broken("code.json", lambda d: put(d, ("code", 2, 8), 10**6)), "stall_share"),
    ("sums-differ", broken("code.json", lambda d: put(d, ("code", 5, 7), 10**7)), "total_cycles"),
    ("no-work", broken("code.json", no_stores), "taxonomy"),
    ("states-differ", broken("wstates3.json", lambda d: put(d, ("state", 0), 99)), "wave_states"),
    ("packets-lost", broken("occupancy.json", lambda d: {**d, "0": d["0"][:-1]}), "occupancy"),
    ("waves-missing", lambda m: m.files.pop(first_wave(m)) and None, "waves"),
    ("waves-missing", set_wave(lambda d: put(d, ("wave", "instructions", 0, 4), "x")), "waves"),
    ("wrapped-time", set_wave(lambda d: put(d, ("wave", "instructions", 1, 0), -(2**40))), "waves"),
    ("wrapped-time", set_wave(lambda d: put(d, ("wave", "end"), 3)), "waves"),
    ("wrapped-time", set_wave(lambda d: put(d, ("wave", "instructions", 1, 3), 2**45)), "waves"),
    ("wrapped-time", set_wave(lambda d: put(d, ("wave", "timeline", 1, 1), 2**50)), "waves"),
    ("unknown-state", set_wave(lambda d: put(d, ("wave", "timeline", 0, 0), 9)), "waves"),
    ("waves-unlisted", lambda m: m.files.update({"se3_sm0_sl0_wv7.json": m.files[first_wave(m)]}), "waves"),
    ("waves-foreign", set_wave(lambda d: put(d, ("wave", "begin"), d["wave"]["begin"] - 8)), "waves"),
    ("waves-foreign", set_wave(lambda d: put(d, ("wave", "instructions", 3, 4), 500)), "taxonomy"),
    ("kernel-foreign", broken("occupancy.json", lambda d: {**d, "dispatches": {"1": "o_0"}}), "occupancy"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "spoil", "metric"), INVALID, ids=[str(i) for i in range(len(INVALID))])
def test_a_capture_that_fails_is_invalid_with_a_remedy(
    rule: str, spoil: Callable[[Made], None], metric: str, tmp_path: Path
) -> None:
    made = make()
    spoil(made)
    got = read(made, tmp_path)
    assert rule in rules(got)
    assert not got.valid
    assert any(metric in fault.spoils for fault in got.faults)
    assert all(fault.remedy for fault in got.faults)
    assert all("\n" not in fault.message and len(fault.message) <= 400 for fault in got.faults)


def test_an_unreadable_step_function_leaves_the_timelines(tmp_path: Path) -> None:
    made = make()
    broken("wstates2.json", lambda d: put(d, ("time", -1), 2**50))(made)
    got = read(made, tmp_path)
    assert "wrapped-time" in rules(got) and got.valid and got.wave_states is not None


@pytest.mark.parametrize("refused", ["too-large", "unreadable-file"])
def test_code_that_cannot_be_opened_spoils_as_code_that_is_not_there(
    refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = make().write(tmp_path)
    size = (trace / "code.json").stat().st_size
    if refused == "too-large":
        monkeypatch.setattr("harness.trace.files.FILE_LIMIT", size - 1)
    else:

        def opened(self: _Opener) -> IO[bytes]:
            if self.path.endswith("code.json"):
                raise PermissionError(13, "Permission denied")
            return original(self)

        original = _Opener.__call__
        monkeypatch.setattr(_Opener, "__call__", opened)
    (got,) = one(tmp_path)
    assert not got.valid and {refused, "no-code"} <= set(rules(got))
    shown = text(got)
    assert "INVALID" in shown and "None" not in shown


def test_no_wave_sampled(tmp_path: Path) -> None:
    made = make()
    made.files = {n: d for n, d in made.files.items() if not n.startswith("se")}
    assert "no-waves" in rules(read(made, tmp_path))


def test_no_row_executed(tmp_path: Path) -> None:
    made = make()

    def zero(data: Any) -> Any:
        for row in data["code"]:
            row[6:] = [0, 0, 0, 0]
        return data

    broken("code.json", zero)(made)
    got = read(made, tmp_path)
    assert {"no-hits", "sums-differ"} <= rules(got) and not got.valid


def test_partial_work_spoils_what_the_idle_waves_hold(tmp_path: Path) -> None:
    got = read(make(waves=16, body=6), tmp_path)
    found = next(fault for fault in got.faults if fault.rule == "partial-work")
    assert found.message.startswith("6 of 16 sampled waves ran the kernel's body")
    assert {"taxonomy", "wave_states"} <= set(found.spoils)
    assert got.body_waves == 6


def test_a_few_early_exits_are_a_note(tmp_path: Path) -> None:
    got = read(make(waves=100, body=95), tmp_path)
    assert "early-exits" in rules(got) and got.valid


def test_missing_source_is_a_note(tmp_path: Path) -> None:
    got = read(make(source=False), tmp_path)
    assert got.mapped == 0 and "no-source" in rules(got) and got.valid


def test_counters(tmp_path: Path) -> None:
    made = make()
    made.tables = tables(counters=True)
    assert not {"no-counters", "zero-counters"} & rules(read(made, tmp_path / "some"))
    made.tables = tables()
    made.tables["out_counter_collection.csv"] = counter_csv({"SQ_WAVES": 0.0, "SQ_INSTS_VALU": 0.0})
    assert "zero-counters" in rules(read(made, tmp_path / "zero"))


def test_the_launch_beside_it_must_be_the_traced_one(tmp_path: Path) -> None:
    made = make()
    made.tables = tables(grid=9000)
    got = read(made, tmp_path)
    assert "launch-differs" in rules(got) and got.beside.grid is None and got.device is None


def test_another_agent_handle_is_not_its_process(tmp_path: Path) -> None:
    made = make()
    made.write(tmp_path, agent=AGENT)
    (tmp_path / "more_results.json").write_bytes(made.tables["out_results.json"].replace(b"4242", b"17"))
    assert one(tmp_path)[0].arch == "gfx950"


def test_command_exits_30_on_an_invalid_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = make()
    good = made.write(tmp_path / "good")
    drop("code.json")(made)
    bad = made.write(tmp_path / "bad")
    assert main(["trace", str(good)]) == 0
    assert "EXEC" in capsys.readouterr().out
    assert main(["trace", str(bad), "--json"]) == 30
    data = json.loads(capsys.readouterr().out)
    wanted = {
        "arch", "symbol", "instructions", "executed", "mapped", "cycles", "taxonomy", "waves", "wave_states",
        "vgpr", "lds", "sgpr", "occupancy", "valid", "faults",
    }  # fmt: skip
    assert wanted <= set(data)
    assert set(data["cycles"]) == {"total", "stall", "idle"}
    assert set(data["wave_states"]) == {"idle", "exec", "wait", "stall"}
    assert {"field", "allocated", "max_index"} <= set(data["vgpr"])
    assert {"limit", "limited_by", "observed"} <= set(data["occupancy"])
    assert main(["trace", str(tmp_path / "none")]) == 2
    (tmp_path / "empty").mkdir()
    assert main(["trace", str(tmp_path / "empty")]) == 2


def test_csv_with_commas_crlf_bom_and_cut_rows() -> None:
    import io

    data = tables(launches=3)["out_kernel_trace.csv"]
    plain = csvs.kernel_trace(io.BytesIO(data), "t.csv")
    windows = csvs.kernel_trace(io.BytesIO(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")), "t.csv")
    assert plain == windows and len(plain.kernels) == 2 and plain.rows == 4
    assert plain.kernels[0].symbol == KERNEL and plain.kernels[0].grid == (256, 1, 1)
    assert plain.kernels[0].median_us == pytest.approx(7.04)
    cut = csvs.kernel_trace(io.BytesIO(data[:-20]), "t.csv")
    assert cut.kernels[0] == plain.kernels[0]
    assert [f.rule for f in cut.faults] == ["bad-rows"]
    wrapped = data.replace(b"1050000,1057040", b"1050000,40")
    got = csvs.kernel_trace(io.BytesIO(wrapped), "t.csv")
    assert [f.rule for f in got.faults] == ["wrapped-time"] and len(got.kernels[0].durations) == 2
    head = data.split(b"\n")[0] + b"\n"
    assert [f.rule for f in csvs.kernel_trace(io.BytesIO(head), "t.csv").faults] == ["no-rows"]
    for nothing in (b"", b"\n\n", b"a,b\n1,2\n"):
        with pytest.raises(ReadFault):
            csvs.kernel_trace(io.BytesIO(nothing), "t.csv")


def test_rocpd_reads_version_3_and_refuses_another_by_name(tmp_path: Path) -> None:
    trace, counters = rocpd.read(make_rocpd(tmp_path / "a.db"))
    assert trace.kernels[0].symbol == KERNEL and trace.kernels[0].grid == (100, 1, 1)
    assert trace.kernels[0].median_us == pytest.approx(0.5)
    assert counters.values == {(1, KERNEL, "SQ_WAVES"): 100.0}
    with pytest.raises(ReadFault, match="version 4"):
        rocpd.read(make_rocpd(tmp_path / "b.db", version="4"))
    (tmp_path / "c.db").write_bytes(b"SQLite format 3\0" + b"\0" * 4000)
    with pytest.raises(ReadFault, match="SQLite"):
        rocpd.read(tmp_path / "c.db")
    (tmp_path / "d.db").write_bytes(b"")
    with pytest.raises(ReadFault):
        rocpd.read(tmp_path / "d.db")


def test_rocpd_without_dispatches_says_why(tmp_path: Path) -> None:
    trace, _ = rocpd.read(make_rocpd(tmp_path / "a.db", launches=0))
    assert [f.rule for f in trace.faults] == ["no-dispatches"]


def test_a_locked_database_is_one_line(tmp_path: Path) -> None:
    path = make_rocpd(tmp_path / "a.db")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(ReadFault, match="locked"):
            rocpd.read(path, timeout=0.05)
    finally:
        holder.execute("ROLLBACK")
        holder.close()


def test_archives_are_read_safely(tmp_path: Path) -> None:
    import io
    import tarfile

    made = make()
    path = tmp_path / "evil.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        inside = {f"ui_output_agent_1_dispatch_2/{n}": d for n, d in made.files.items()}
        for name, data in {**made.tables, **inside}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for name in ("../outside/code.json", "/abs/code.json"):
            info = tarfile.TarInfo(name)
            info.size = 2
            tar.addfile(info, io.BytesIO(b"{}"))
        link = tarfile.TarInfo("ui_output_agent_1_dispatch_2/se9_sm0_sl0_wv0.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(link)
    before = sorted(p.name for p in tmp_path.iterdir())
    got = one(path)
    assert len(got) == 1 and got[0].waves == 8
    assert sum(f.rule == "unsafe-member" for f in got[0].faults) == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_cut_archive_gives_what_came_before(tmp_path: Path) -> None:
    path = make(waves=64).archive(tmp_path / "a.tar.gz")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    try:
        got = one(path)
    except HarnessError as error:
        assert "archive" in error.message
    else:
        assert any(f.rule == "unreadable-archive" for f in got[0].faults)


def test_a_second_process_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(waves=60, seed=8, body=50)
    made.files[first_wave(made)] = b"not a wave"
    trace = made.write(tmp_path)
    alone = one(trace)[0].to_json()
    monkeypatch.setattr("harness.trace.shard.HEAD_START", 0)
    monkeypatch.setattr("harness.trace.shard.LEAST_GAIN", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    started: list[int] = []
    plain = shard.Shard.__init__

    def counted(self: shard.Shard, files: list[Entry]) -> None:
        started.append(len(files))
        plain(self, files)

    monkeypatch.setattr(shard.Shard, "__init__", counted)
    assert one(trace)[0].to_json() == alone
    assert started and 0 < started[0] < 60


def test_a_second_process_that_fails_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = make(waves=20).write(tmp_path)
    alone = one(trace)[0].to_json()
    monkeypatch.setattr("harness.trace.shard.HEAD_START", 0)
    monkeypatch.setattr("harness.trace.shard.LEAST_GAIN", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr("sys.executable", "/bin/false")
    assert one(trace)[0].to_json() == alone
