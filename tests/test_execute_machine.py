"""Control flow, schedules, memory and the errors of the machine, on small programs made here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.errors import HarnessError
from harness.execute.abi import Launch, kernarg_bytes
from harness.execute.memory import Fault, Memory
from harness.execute.opcodes_control import CONTROL
from harness.execute.opcodes_memory import ATOMICS, MOVES, transpose_read
from harness.execute.race import RaceDetector, wait_counts
from harness.execute.schedule import Fair, Leader, RandomOrder, RunAhead, parse_schedule
from tests.programs import program, run

ins = pytest.importorskip("tinygrad.runtime.autogen.amd.cdna.ins")
dsl = pytest.importorskip("tinygrad.renderer.amd.dsl")
v, s = dsl.v, dsl.s
OFF = dsl.src[127]
END = ins.s_endpgm()
LOAD_POINTER = ins.s_load_dwordx2(s[4:5], s[0:1], offset=0, imm=1)
LANE4 = ins.v_lshlrev_b32_e32(v[2], 2, v[0])


def _store(number: int) -> Any:
    return ins.global_store_dword(addr=v[2], data=v[number], saddr=s[4:5])


def test_a_loop_runs_as_often_as_its_counter_says() -> None:
    loop = [
        LOAD_POINTER,
        LANE4,
        ins.s_mov_b32(s[6], 5),
        ins.v_mov_b32_e32(v[1], 0),
        ins.v_add_u32_e32(v[1], 3, v[1]),
        ins.s_add_i32(s[6], s[6], -1),
        ins.s_cmp_lg_u32(s[6], 0),
        ins.s_cbranch_scc1(simm16=(-4) & 0xFFFF),
        _store(1),
        END,
    ]
    out = np.zeros(64, np.uint32)
    counted = run(program(loop), [out])
    assert (out == 15).all()
    assert list(counted.executed[:, 0]) == [1, 1, 1, 1, 5, 5, 5, 5, 1, 1]
    assert counted.lane_instructions == 26 * 64


def test_an_endless_loop_stops_with_its_pc() -> None:
    made = program([ins.s_nop(simm16=0), ins.s_branch(simm16=(-2) & 0xFFFF), END])
    with pytest.raises(
        HarnessError, match=r"endless: workgroup 0, wave 0 executed 1000 .* PC 0x100[04] \(test.py:1\)"
    ):
        run(made, [np.zeros(4, np.uint32)], budget=1000)


def test_an_unknown_opcode_stops_with_name_pc_and_line_only_where_it_is_reached() -> None:
    unknown = ins.s_rfe_b64(s[2:3])
    with pytest.raises(HarnessError, match=r"PC 0x1004 \(test.py:1\).*s_rfe_b64.*table does not have"):
        run(program([ins.s_nop(simm16=0), unknown, END]), [np.zeros(4, np.uint32)])
    run(program([ins.s_branch(simm16=1), unknown, END]), [np.zeros(4, np.uint32)])


def test_a_store_beyond_its_buffer_names_address_pc_and_lane() -> None:
    made = program([LOAD_POINTER, LANE4, _store(0), END])
    with pytest.raises(
        HarnessError,
        match=r"store outside every buffer at 0x[0-9a-f]+ .*0 bytes beyond the end of b0.*"
        r"workgroup 0, wave 0, lane 60",
    ) as caught:
        run(made, [np.zeros(60, np.uint32)])
    assert "PC 0x" in caught.value.message and "test.py:1" in caught.value.message
    with pytest.raises(HarnessError, match="load outside every buffer"):
        run(
            program([LOAD_POINTER, LANE4, ins.global_load_dword(vdst=v[1], addr=v[2], saddr=s[4:5]), END]),
            [np.zeros(60, np.uint32)],
        )


def test_an_lds_store_beyond_the_allocation_is_an_error_and_a_load_gives_zero() -> None:
    with pytest.raises(HarnessError, match="LDS store outside every buffer at 0x40"):
        run(program([LANE4, ins.ds_write_b32(addr=v[2], data0=v[0]), END], lds=64), [np.zeros(4, np.uint32)])
    out = np.ones(64, np.uint32)
    run(program([LOAD_POINTER, LANE4, ins.ds_read_b32(vdst=v[1], addr=v[2]), _store(1), END], lds=64), [out])
    assert (out == 0).all()


def test_a_barrier_that_a_wave_skips_is_named_a_deadlock() -> None:
    first = ins.v_readfirstlane_b32_e32(v[7], v[0])  # the field holds the number of an SGPR
    made = program([first, ins.s_cmp_lg_u32(s[7], 0), ins.s_cbranch_scc1(simm16=1), ins.s_barrier(), END])
    with pytest.raises(
        HarnessError, match=r"deadlock.*wave 0 waits at the barrier, PC 0x[0-9a-f]+.*wave 1 ended, PC"
    ):
        run(made, [np.zeros(4, np.uint32)], threads=128)


def test_kernarg_of_the_wrong_size() -> None:
    made = program([END])
    with pytest.raises(HarnessError, match="kernarg of 4 bytes, the kernel takes 8"):
        kernarg_bytes(made, Launch("test", (1, 1, 1), (64, 1, 1), 0, bytes(4), ()), {})


def test_bytes_that_are_no_instruction() -> None:
    with pytest.raises(HarnessError, match="PC 0x1000: 0xffffffff is no CDNA instruction"):
        program([b"\xff\xff\xff\xff"])


def test_running_past_the_end() -> None:
    with pytest.raises(HarnessError, match="ran past its last instruction"):
        run(program([ins.s_nop(simm16=0)]), [np.zeros(4, np.uint32)])


_EXCHANGE = [
    LOAD_POINTER,
    LANE4,
    ins.ds_write_b32(addr=v[2], data0=v[0]),
    ins.s_waitcnt(simm16=0),
    ins.s_barrier(),
    ins.v_xor_b32_e32(v[3], 64 * 4, v[2]),
    ins.ds_read_b32(vdst=v[1], addr=v[3]),
    ins.s_waitcnt(simm16=0),
    _store(1),
    END,
]


def _watch(instructions: list[Any], lds: int = 512) -> RaceDetector:
    kept: list[RaceDetector] = []

    def make(machine: Any, part: Any) -> RaceDetector:
        kept.append(RaceDetector(machine.st, part))
        return kept[-1]

    run(program(instructions, lds=lds), [np.zeros(128, np.uint32)], threads=128, watcher=make)
    return kept[0]


@pytest.mark.parametrize("schedule", [Fair(), RunAhead(), RunAhead(True), RandomOrder(3), Leader(1, 0)])
def test_a_sound_exchange_is_the_same_under_every_schedule(schedule: Any) -> None:
    out = np.zeros(128, np.uint32)
    run(program(_EXCHANGE, lds=512), [out], threads=128, schedule=schedule)
    assert (out == np.arange(128) ^ 64).all()


def test_a_sound_exchange_has_no_race() -> None:
    assert _watch(_EXCHANGE).races == ()


def test_a_missing_barrier_is_a_race_and_a_schedule_shows_it() -> None:
    racy = [one for one in _EXCHANGE if one is not _EXCHANGE[4]]
    races = _watch(racy).races
    assert [race.reason for race in races] == ["no barrier between"]
    kinds = {races[0].first.kind, races[0].second.kind}
    assert kinds == {"r", "w"} and races[0].first.pc != races[0].second.pc
    assert "read after write in lds" in races[0].describe()
    wrong = np.zeros(128, np.uint32)
    run(program(racy, lds=512), [wrong], threads=128, schedule=RunAhead())
    assert (wrong != np.arange(128) ^ 64).any()


def test_a_missing_wait_before_the_barrier_is_told_apart() -> None:
    unwaited = [one for one in _EXCHANGE if one is not _EXCHANGE[3]]
    assert [race.reason for race in _watch(unwaited).races] == ["no wait before the barrier"]


def test_two_waves_that_write_the_same_value_do_not_race() -> None:
    same = [
        LANE4,
        ins.v_mov_b32_e32(v[1], 7),
        ins.v_mov_b32_e32(v[3], 0),
        ins.ds_write_b32(addr=v[3], data0=v[1]),
        END,
    ]
    assert _watch(same).races == ()
    other = [*same[:1], ins.v_mov_b32_e32(v[1], v[0]), *same[2:]]
    assert [race.first.kind + race.second.kind for race in _watch(other).races] == ["ww"]


def test_results_do_not_depend_on_the_batch_and_seeds_repeat() -> None:
    made = program(
        [
            LOAD_POINTER,
            LANE4,
            ins.v_mul_lo_u32(v[1], v[0], v[0]),
            ins.v_add_u32_e32(v[1], s[2], v[1]),
            ins.v_readfirstlane_b32_e32(v[8], v[0]),
            ins.s_cmp_lg_u32(s[8], 0),
            ins.s_cbranch_scc1(simm16=1),
            ins.v_add_u32_e32(v[1], 1, v[1]),
            ins.s_barrier(),
            ins.s_lshl_b32(s[9], s[2], 9),
            ins.v_add_u32_e32(v[2], s[9], v[2]),
            _store(1),
            END,
        ]
    )
    results, counts = [], []
    for batch in (1, 2, 5, 16):
        for schedule in (Fair(), RandomOrder(1), RandomOrder(1)):
            out = np.zeros(128 * 16, np.uint32)
            counts.append(run(made, [out], threads=128, groups=16, batch=batch, schedule=schedule).executed)
            results.append(out)
    assert all((one == results[0]).all() for one in results)
    assert all((one == counts[0]).all() for one in counts)
    lane = np.arange(128)
    assert (results[0].reshape(16, 128) == lane**2 + (lane < 64) + np.arange(16)[:, None]).all()


def test_schedules_by_name() -> None:
    for name in ("fair", "ahead", "reversed", "random:7", "leader:2@3"):
        assert parse_schedule(name).name == name
    for name in ("", "random:x", "leader:1", "Fair"):
        with pytest.raises(HarnessError, match="no schedule"):
            parse_schedule(name)


def test_every_control_opcode_is_decoded_and_does_nothing_but_its_work() -> None:
    hints = [
        name
        for name, (kind, _) in CONTROL.items()
        if kind == "none" and name.startswith("s_") and hasattr(ins, name)
    ]
    assert {"s_nop", "s_setprio", "s_sleep"} <= set(hints)
    plain = [name for name in hints if "dcache" not in name]
    run(program([*(getattr(ins, name)(simm16=0) for name in plain), END]), [np.zeros(4, np.uint32)])
    for name, skip in (
        ("s_cbranch_scc0", True),
        ("s_cbranch_scc1", False),
        ("s_cbranch_vccz", True),
        ("s_cbranch_vccnz", False),
        ("s_cbranch_execz", False),
        ("s_cbranch_execnz", True),
    ):
        counted = run(
            program([getattr(ins, name)(simm16=1), ins.s_nop(simm16=0), END]), [np.zeros(4, np.uint32)]
        )
        assert counted.executed[1, 0] == (0 if skip else 1), name
    jump = [
        ins.s_getpc_b64(s[8:9]),
        ins.s_add_u32(s[8], s[8], 12),
        ins.s_setpc_b64(ssrc0=s[8:9]),
        b"\x01\x00\x80\xbf",
        END,
    ]
    made = program(jump)
    assert list(run(made, [np.zeros(4, np.uint32)]).executed[:, 0]) == [1, 1, 1, 0, 1]


def test_wait_counts() -> None:
    assert wait_counts(0x0F70) == (0, 15) and wait_counts(0xC07F) == (63, 0)


def test_memory_finds_owners_and_faults() -> None:
    memory = Memory()
    first = memory.add("a", np.arange(32, dtype=np.uint8))
    second = memory.add("b", np.arange(7, dtype=np.uint8), writable=False)
    both = np.array([first.base + 1, second.base + 2])
    assert list(memory.load(both, None, 1, 1)[0]) == [1, 2]
    assert list(memory.load(both[:1], None, 4, 1)[0]) == [0x04030201]  # not aligned
    assert memory.load(both, np.array([False, False]), 4, 2)[0].sum() == 0
    for address in (first.base - 1, first.base + 29, second.base + 4, 5):
        with pytest.raises(Fault):
            memory.load(np.array([address]), None, 4, 1)
    with pytest.raises(Fault, match="read-only"):
        memory.store(np.array([second.base]), None, 1, [np.array([1], np.uint8)])
    memory.store(np.array([first.base + 3]), None, 4, [np.array([0xAABBCCDD], np.uint32)])
    assert first.data[3:7].tobytes() == b"\xdd\xcc\xbb\xaa"
    old = memory.atomic(
        np.array([first.base + 8] * 3), None, 4, np.array([1, 2, 3], np.uint32), ATOMICS["global_atomic_add"]
    )
    assert list(old - old[0]) == [0, 1, 3]


@pytest.mark.parametrize("name", sorted(ATOMICS))
def test_atomics_against_python(name: str) -> None:
    wide = MOVES[name].unit == 8
    kind = np.uint64 if wide else np.uint32
    bits = 64 if wide else 32
    stem = name.split("_", 1)[1].replace("atomic_", "").replace("rtn_", "").removesuffix("_x2")
    a, b = np.array([5, 0, 2**bits - 1, 1 << (bits - 1)], kind), np.array([3, 7, 2**bits - 2, 1], kind)
    signed = [int(x) - (1 << bits) if int(x) >> (bits - 1) else int(x) for x in (*a, *b)]
    sa, sb = signed[:4], signed[4:]
    if "f16" in stem or "bf16" in stem:
        one, two = (0x3F803F80, 0x40004000) if "bf16" in stem else (0x3C003C00, 0x40004000)
        got = ATOMICS[name](np.array([one], kind), np.array([one], kind))
        assert int(got[0]) == two
        return
    if "f32" in stem or "f64" in stem:
        real = np.float64 if wide else np.float32
        x, y = np.array([1.5, -0.0, np.nan], real), np.array([2.25, 0.0, 1.0], real)
        got = ATOMICS[name](x.view(kind), y.view(kind)).view(real)
        assert got[0] == {"add": 3.75, "min": 1.5, "max": 2.25}[stem.split("_")[0]]
        assert np.isnan(got[2]) == stem.startswith("add")
        return
    word = {
        "min_i32": "smin",
        "max_i32": "smax",
        "min_u32": "umin",
        "max_u32": "umax",
        "min_i64": "smin",
        "max_i64": "smax",
        "min_u64": "umin",
        "max_u64": "umax",
        "wrxchg_b32": "swap",
        "wrxchg_b64": "swap",
    }.get(stem, stem.split("_")[0])
    wrap = (1 << bits) - 1
    python = {
        "add": lambda i: a[i].item() + b[i].item(),
        "sub": lambda i: a[i].item() - b[i].item(),
        "swap": lambda i: b[i].item(),
        "and": lambda i: a[i].item() & b[i].item(),
        "or": lambda i: a[i].item() | b[i].item(),
        "xor": lambda i: a[i].item() ^ b[i].item(),
        "umin": lambda i: min(a[i].item(), b[i].item()),
        "umax": lambda i: max(a[i].item(), b[i].item()),
        "smin": lambda i: min(sa[i], sb[i]),
        "smax": lambda i: max(sa[i], sb[i]),
        "inc": lambda i: 0 if a[i] >= b[i] else a[i].item() + 1,
        "dec": lambda i: b[i].item() if a[i] == 0 or a[i] > b[i] else a[i].item() - 1,
    }[word]
    assert [int(x) for x in ATOMICS[name](a, b)] == [python(i) & wrap for i in range(4)]


MOVING = sorted(
    name
    for name, move in MOVES.items()
    if move.kind in ("load", "store")
    and not move.lds
    and name.startswith(("global_", "buffer_", "ds_", "scratch_"))
    and hasattr(ins, name)
)


@pytest.mark.parametrize("name", MOVING)
def test_loads_and_stores_move_the_right_bytes(name: str) -> None:
    """Each lane's bytes through one opcode, against numpy on the same bytes."""
    move = MOVES[name]
    pattern = np.random.default_rng(5).integers(0, 256, 64 * 64, dtype=np.uint8)
    size, count = move.unit * move.count, move.count
    width = count * move.pairs
    space = name.split("_")[0]
    lanes = np.arange(64)
    at = lanes * 32
    rsrc = [
        ins.s_mov_b32(s[8], s[4]),
        ins.s_mov_b32(s[9], s[5]),
        ins.s_mov_b32(s[10], -1),
        ins.s_mov_b32(s[11], 0),
    ]
    to_lds = [
        step
        for k in range(8)
        for step in (
            ins.v_add_u32_e32(v[20], 4 * k, v[2]),
            ins.global_load_dword(vdst=v[21], addr=v[20], saddr=s[4:5]),
            ins.ds_write_b32(addr=v[20], data0=v[21]),
            ins.scratch_store_dword(addr=v[0], data=v[21], saddr=OFF, offset=4 * k),
        )
    ]
    from_lds = [
        step
        for k in range(8)
        for step in (
            ins.v_add_u32_e32(v[20], 4 * k, v[2]),
            ins.ds_read_b32(vdst=v[21], addr=v[20])
            if space == "ds"
            else ins.scratch_load_dword(vdst=v[21], addr=v[0], saddr=OFF, offset=4 * k),
            ins.global_store_dword(addr=v[20], data=v[21], saddr=s[6:7]),
        )
    ]
    data = v[4 : 4 + width - 1] if width > 1 else v[4]
    half = v[4 : 4 + count - 1] if count > 1 else v[4]
    second = v[4 + count : 4 + width - 1] if count > 1 else v[4 + count]
    emit = getattr(ins, name)
    if space == "global":
        access = (
            emit(vdst=data, addr=v[2], saddr=s[4:5])
            if move.kind == "load"
            else emit(addr=v[2], data=data, saddr=s[6:7])
        )
    elif space == "buffer":
        access = emit(vdata=data, vaddr=v[2], srsrc=s[8:11], soffset=dsl.src[128], offen=1)
    elif space == "scratch":
        access = (
            emit(vdst=data, addr=v[0], saddr=OFF)
            if move.kind == "load"
            else emit(addr=v[0], data=data, saddr=OFF)
        )
    elif move.kind == "load":
        access = emit(
            vdst=data, addr=v[2], offset0=0, offset1=1 if move.pairs == 2 and move.stride == 1 else 0
        )
    elif move.pairs == 2:
        access = emit(addr=v[2], data0=half, data1=second, offset0=0, offset1=1 if move.stride == 1 else 0)
    else:
        access = emit(addr=v[2], data0=data)
    head = [ins.s_load_dwordx4(s[4:7], s[0:1], offset=0, imm=1), ins.v_lshlrev_b32_e32(v[2], 5, v[0])]
    if move.kind == "load":
        body = [*rsrc, *to_lds, access]
        body += [
            step
            for k in range(width)
            for step in (
                ins.v_add_u32_e32(v[20], 4 * k, v[2]),
                ins.global_store_dword(addr=v[20], data=v[4 + k], saddr=s[6:7]),
            )
        ]
    else:
        fill = [
            step
            for k in range(width)
            for step in (
                ins.v_add_u32_e32(v[20], 4 * k, v[2]),
                ins.global_load_dword(vdst=v[4 + k], addr=v[20], saddr=s[4:5]),
            )
        ]
        body = [*fill, *rsrc[:0], ins.s_mov_b32(s[8], s[6]), ins.s_mov_b32(s[9], s[7]), *rsrc[2:], access]
        body += from_lds if space in ("ds", "scratch") else []
    out = np.zeros(64 * 32, np.uint8)
    source = pattern[: 64 * 32].copy()
    run(program([*head, *body, END], lds=64 * 32 + 64, scratch=64, pointers=2), [source, out])
    got = out.reshape(64, 32)
    rows = source.reshape(64, 32)
    if move.kind == "load":
        if move.unit == 4:
            same = 2 if move.pairs == 2 and move.stride == 64 else 1
            want = np.tile(rows[:, :size], (1, same)) if same == 2 else rows[:, : size * move.pairs]
            assert (got[:, : 4 * width] == want).all()
        else:
            kind = {(1, False): np.uint8, (1, True): np.int8, (2, False): np.uint16, (2, True): np.int16}[
                move.unit, move.signed
            ]
            value = rows[:, : move.unit].copy().view(kind)[:, 0].astype(np.int64)
            if move.half is None:
                assert (got[:, :4].copy().view(np.uint32)[:, 0] == value & 0xFFFFFFFF).all()
            else:
                words = got[:, :4].copy().view(np.uint16)
                assert (words[:, move.half] == value & 0xFFFF).all() and (words[:, 1 - move.half] == 0).all()
    else:
        shift = 2 if move.half else 0
        want = rows[:, shift : shift + size]
        if move.pairs == 2 and move.stride == 64:
            want = rows[:, size : 2 * size]  # both offsets are 0: the second data stays
        elif move.pairs == 2:
            want = rows[:, : 2 * size]
        assert (got[:, : want.shape[1]] == want).all()
    del at


def test_buffer_ranges_give_zero_and_drop_stores() -> None:
    head = [
        LOAD_POINTER,
        LANE4,
        ins.s_mov_b32(s[8], s[4]),
        ins.s_mov_b32(s[9], s[5]),
        ins.s_mov_b32(s[10], 128),
        ins.s_mov_b32(s[11], 0),
    ]
    data = np.arange(1, 65, dtype=np.uint32)
    load = ins.buffer_load_dword(vdata=v[1], vaddr=v[2], srsrc=s[8:11], soffset=dsl.src[128], offen=1)
    run(program([*head, ins.v_mov_b32_e32(v[1], 9), load, _store(1), END]), [data])
    assert list(data) == [*range(1, 33), *[0] * 32]
    data = np.zeros(64, np.uint32)
    store = ins.buffer_store_dword(vdata=v[0], vaddr=v[2], srsrc=s[8:11], soffset=dsl.src[128], offen=1)
    run(program([*head, store, END]), [data])
    assert list(data) == [*range(32), *[0] * 32]
    wrap = [
        ins.v_add_u32_e32(v[2], -64, v[2]),
        ins.buffer_load_dword(
            vdata=v[1], vaddr=v[2], srsrc=s[8:11], soffset=dsl.src[128], offen=1, offset=64
        ),
    ]
    data = np.arange(1, 65, dtype=np.uint32)
    run(program([*head, *wrap, ins.v_add_u32_e32(v[2], 64, v[2]), _store(1), END]), [data])
    assert list(data[:32]) == [*range(1, 33)]  # -64 + 64 wraps to 0


def test_a_load_into_lds_lands_at_m0_plus_the_offset() -> None:
    m0 = dsl.src[124]
    head = [
        LOAD_POINTER,
        LANE4,
        ins.s_mov_b32(s[8], s[4]),
        ins.s_mov_b32(s[9], s[5]),
        ins.s_mov_b32(s[10], -1),
        ins.s_mov_b32(s[11], 0),
    ]
    body = [
        ins.s_mov_b32(m0, 16),
        ins.buffer_load_dword(vdata=v[0], vaddr=v[2], srsrc=s[8:11], soffset=dsl.src[128], offen=1, lds=1),
        ins.ds_read_b32(vdst=v[1], addr=v[2], offset0=16),
        _store(1),
        END,
    ]
    data = np.arange(100, 164, dtype=np.uint32)
    run(program([*head, *body], lds=512), [data])
    assert list(data) == list(range(100, 164))


@pytest.mark.parametrize("bits", [16, 8, 4])
def test_transposed_reads_turn_rows_into_columns(bits: int) -> None:
    n = 64 // bits
    tile = np.arange(n * 16).reshape(n, 16) & ((1 << bits) - 1)
    lanes = tile.reshape(16, n)
    words = []
    for lane in range(16):
        whole = sum(int(value) << (bits * j) for j, value in enumerate(lanes[lane]))
        words.append((whole & 0xFFFFFFFF, whole >> 32))
    table = np.array(words * 4, np.uint32).reshape(1, 64, 2)
    low, high = transpose_read([table[..., 0], table[..., 1]], bits)
    for lane in range(64):
        whole = int(low[0, lane]) | int(high[0, lane]) << 32
        assert [whole >> (bits * j) & ((1 << bits) - 1) for j in range(n)] == list(tile[:, lane % 16])


def test_words_before_a_plain_mfma_are_not_taken_for_a_scaled_one() -> None:
    """The decoder's pattern for the 16-byte form looks at its second half alone (docs/adr/0011)."""
    mfma = bytes.fromhex("ec80add30a710202")  # v_mfma_f32_16x16x128_f8f6f4
    made = program([ins.s_mov_b32(dsl.src[124], s[4]), ins.s_waitcnt(simm16=0), mfma, END])
    names = [one.name for one in made.instructions]
    assert names == ["s_mov_b32", "s_waitcnt", "v_mfma_f32_16x16x128_f8f6f4", "s_endpgm"]
