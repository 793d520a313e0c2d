"""The parts of the device tier, one by one: clocks, sizing, rotation, gates, telemetry, files, plans of
bundles."""

from __future__ import annotations

import json
import math
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.bundle import ROOT, Bundle, load, load_all
from harness.cli import main
from harness.command import Silent
from harness.device import child, tier
from harness.device.child import Record, steady
from harness.device.clock import ClockFault, HostClock
from harness.device.graphs import launch_unit, order, size
from harness.device.machine import cache_bytes, fp8_family
from harness.device.plan import COLD, EAGER, Plan, plan_from_json
from harness.device.rig import MAX_SETS, rotation_sets
from harness.device.run import open_run
from harness.device.samples import log_ratio, read_process
from harness.device.telemetry import UNKNOWN, AmdsmiMeter, NoMeter, NvmlMeter, others_in_kfd
from harness.device.verdicts import STUDY_ARCH
from harness.errors import HarnessError
from harness.kinds import judge
from harness.tiers import Context
from harness.verdict import Verdict
from tests.test_device_subjects import plan

MIB = 1 << 20


def test_a_clock_that_runs_backwards_or_stands_still_is_a_fault() -> None:
    for ticks in ((10, 5), (10, 10)):
        times = iter(ticks)
        with pytest.raises(ClockFault, match="backwards or stood still"):
            HostClock(lambda times=times: next(times)).time(lambda: None)  # type: ignore[misc]
    times = iter((10, 25))
    assert HostClock(lambda: next(times)).time(lambda: None) == 15


def work(tmp_path: Path, wanted: Plan) -> dict[str, Any]:
    """One process's work done in this one."""
    result = tmp_path / "tiny.000.jsonl"
    job = {
        "plan": wanted.to_json(),
        "shape": "tiny",
        "index": 0,
        "seed": 1,
        "result": str(result),
        "caches": str(tmp_path / "caches"),
        "started_ns": 0,
    }
    child.work(job)
    return read_process(result, wanted.sha256)


def test_a_process_whose_clock_runs_backwards_is_invalid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(10**9, 0, -1))
    monkeypatch.setattr("harness.device.clock.clock_for", lambda device: HostClock(lambda: next(ticks)))
    monkeypatch.setattr(child, "isolate", lambda directory: None)
    process = work(tmp_path, plan())
    assert process["fault"] == "clock", process["message"]


class Busy(NoMeter):
    """A device that somebody else uses."""

    def others(self) -> list[int] | None:
        return [4711]


def test_a_busy_device_and_another_architecture_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(child, "isolate", lambda directory: None)
    process = work(tmp_path, plan(requires_arch="gfx950"))
    assert process["fault"] == "arch" and "gfx950" in process["message"]
    cuda = plan()
    cuda = cuda.with_(device="cuda")
    assert work(tmp_path, cuda)["fault"] == "device"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: None)
    monkeypatch.setattr("harness.device.telemetry.meter_for", lambda device: Busy())
    monkeypatch.setattr(
        "harness.device.machine.describe", lambda device, meter: {"arch": "sm_90", "name": "x"}
    )
    process = work(tmp_path, cuda)
    assert process["fault"] == "busy" and "1 other" in process["message"]


@given(st.integers(64, 1 << 32), st.integers(1 * MIB, 512 * MIB), st.sampled_from([10, 47 * 10, 97 * 10]))
def test_a_rotation_covers_the_cache_or_is_as_large_as_may_be(per_set: int, cache: int, unit: int) -> None:
    sets = rotation_sets(per_set, cache, 3.5, unit)
    assert sets >= 2
    assert sets * per_set >= 3.5 * cache or sets > MAX_SETS - unit
    assert sets < 10 or sets % unit == 0 or unit % sets == 0


@given(st.floats(100, 1e8), st.integers(1, 100_000), st.integers(2, 3000), st.sampled_from([10, 470]))
def test_a_sample_is_long_enough_and_whole_rotations(
    launch_ns: float, floor: int, sets: int, unit: int
) -> None:
    m = size(launch_ns, floor, sets, unit, 200.0, 10.0)
    assert m % sets == 0 and m % unit == 0
    assert m * launch_ns >= max(200_000, 10 * floor) * (1 - 1e-9)


def test_surplus_launches_have_sets_of_their_own() -> None:
    indexes = order(20, 10, 2, 2)
    assert indexes == [*range(10), *range(10), 10, 11]
    assert launch_unit(0.10, 0.0) == 10
    unit = launch_unit(0.10, 0.06)
    assert (unit / 0.94) == pytest.approx(round(unit / 0.94))


def test_steady_state() -> None:
    assert steady(lambda: 1.0)[0]
    ramp = iter(float(2**i) for i in range(1000))
    assert steady(lambda: next(ramp), limit=48) == (False, 48)
    settling = iter([10.0 / (i + 1) + 1 if i < 12 else 1.0 for i in range(1000)])
    calm, taken = steady(lambda: next(settling))
    assert calm and taken > 12


def test_caches_and_fp8_by_architecture() -> None:
    assert cache_bytes("gfx950", 4 * MIB) == 260 * MIB
    assert cache_bytes("sm_90", 60 * MIB) == 60 * MIB
    assert fp8_family("gfx942") == "fnuz"
    assert fp8_family("gfx950") == fp8_family("sm_90") == "ocp"


def test_unreadable_telemetry_is_unknown_and_never_an_error(tmp_path: Path) -> None:
    assert set(NoMeter().read().values()) == {UNKNOWN} and NoMeter().others() is None

    class Nvml:
        """A library that initialises and can read nothing but the clock."""

        NVML_CLOCK_SM = 1

        def nvmlInit(self) -> None: ...
        def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
            return index

        def nvmlDeviceGetClockInfo(self, device: int, kind: int) -> int:
            return 1980

    meter = NvmlMeter(Nvml(), 0)
    assert meter.read() == {
        "sm_mhz": 1980,
        "memory_mhz": UNKNOWN,
        "power_w": UNKNOWN,
        "temperature_c": UNKNOWN,
        "throttle": UNKNOWN,
    }
    assert meter.identity()["driver"] == UNKNOWN and meter.others() is None


def test_amd_smi_and_the_kernel_driver_are_both_asked_for_other_jobs(tmp_path: Path) -> None:
    for pid in ("100", "4242", "notapid"):
        (tmp_path / pid).mkdir()
    smi = types.SimpleNamespace(
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handles=lambda: ["gpu"],
        amdsmi_get_gpu_process_list=lambda device: [],
        amdsmi_get_power_info=lambda device: {"current_socket_power": 700},
    )
    meter = AmdsmiMeter(smi, 0, kfd=tmp_path)
    assert meter.others() == [100, 4242]
    assert meter.read()["power_w"] == 700 and meter.read()["sm_mhz"] == UNKNOWN
    assert others_in_kfd(tmp_path / "none") is None
    hidden = AmdsmiMeter(
        types.SimpleNamespace(**{**vars(smi), "amdsmi_get_gpu_process_list": None}), 0, tmp_path / "none"
    )
    assert hidden.others() is None  # cannot tell is not exclusive


@pytest.fixture
def process_file(tmp_path: Path) -> tuple[Path, Plan]:
    """A whole process file of a few lines, and its plan."""
    wanted = plan()
    path = tmp_path / "tiny.000.jsonl"
    record = Record(path)
    record.line("start", plan_sha256=wanted.sha256, shape="tiny", index=0, seed=1)
    for block in range(-1, 3):
        ns = [1000, 2000, 2000, 1000]
        record.line("block", regime=COLD, block=block, pairs={"a/a": {"order": "ABBA", "ns": ns}}, meter=[])
    record.close(fault=None)
    return path, wanted


def test_a_process_file_cut_anywhere_is_marked_and_not_a_replicate(process_file: tuple[Path, Plan]) -> None:
    path, wanted = process_file
    raw = path.read_bytes()
    whole = read_process(path, wanted.sha256)
    assert whole["complete"] and log_ratio(whole, COLD, "a/a") == pytest.approx(math.log(2))
    for cut in range(len(raw) - 1):
        path.write_bytes(raw[:cut])
        found = read_process(path, wanted.sha256)
        assert not found["complete"] and found["fault"] == "interrupted"


def test_an_edited_or_foreign_process_file_is_refused(process_file: tuple[Path, Plan]) -> None:
    path, wanted = process_file
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"2000", b"1999", 1))
    with pytest.raises(HarnessError, match="do not match their hash"):
        read_process(path, wanted.sha256)
    path.write_bytes(raw)
    with pytest.raises(HarnessError, match="another plan"):
        read_process(path, "0" * 64)
    path.write_bytes(b"nonsense\n" + raw)
    with pytest.raises(HarnessError, match=":1:"):
        read_process(path, wanted.sha256)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_mutated_process_files_never_give_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    wanted = plan()
    path = tmp_path_factory.mktemp("fuzz") / "tiny.000.jsonl"
    record = Record(path)
    record.line("start", plan_sha256=wanted.sha256, shape="tiny", index=0, seed=1)
    record.line("gate", name="x", passed=True, detail="")
    record.close(fault=None)
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(raw))
    try:
        read_process(path, wanted.sha256)
    except HarnessError:
        return


def test_a_run_of_another_plan_is_not_continued(tmp_path: Path) -> None:
    open_run(tmp_path, plan())
    with pytest.raises(HarnessError, match="another plan"):
        open_run(tmp_path, plan(seed=99))
    with pytest.raises(HarnessError, match="no run to resume"):
        open_run(tmp_path / "none", None)
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(HarnessError, match="not JSON"):
        open_run(tmp_path, None)


def context(**options: Any) -> Context:
    """A context that keeps nothing."""
    return Context(None, True, Silent(), ROOT, options)


def test_no_gpu_is_not_measured_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier, "DEVICE_FILES", ())
    instrument = load(ROOT / "instrument")
    found = tier.gather(instrument, context())
    for claim in instrument.claims:
        result = judge("device", claim, instrument, found)
        assert result is not None and result.verdict is Verdict.NOT_MEASURED and result.remedy


def test_another_gpu_is_not_comparable_and_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier, "DEVICE_FILES", (Path("/dev/null"),))
    described = {
        "type": "cuda",
        "name": "AMD Instinct MI300X",
        "arch": "gfx942",
        "units": 304,
        "memory_bytes": 1,
        "l2_bytes": 4 * MIB,
        "last_level_cache_bytes": 260 * MIB,
        "telemetry": "none",
        "driver": UNKNOWN,
        "power_cap_w": UNKNOWN,
        "partition": UNKNOWN,
    }
    monkeypatch.setattr(tier, "probe", lambda: described)
    softmax = load(ROOT / "softmax")
    found = tier.gather(softmax, context())
    result = judge("device", softmax.claim("ratio"), softmax, found)
    assert result is not None and result.verdict is Verdict.NOT_COMPARABLE and "MI300X" in result.reason


@pytest.fixture(scope="module")
def bundles() -> tuple[Bundle, ...]:
    """All committed bundles."""
    return load_all(ROOT)


def test_every_bundle_has_a_dry_run(bundles: tuple[Bundle, ...]) -> None:
    for bundle in bundles:
        rows, left_out = tier.dry_run(bundle, {})
        timed = {c.workload for c in bundle.claims if c.kind in ("ratio", "latency") and c.workload}
        # A stage or a variant is a launch of its own, named after its workload and a dot.
        seen = {name.split(".")[0] for name in (*(row["shape"] for row in rows), *left_out)}
        assert seen <= {w.id for w in bundle.workloads}
        assert timed <= seen
        for row in rows:
            assert row["bytes"] > 0 and row["seconds"][1] >= row["seconds"][0] > 0
        assert tier.dry_text(bundle.id, rows, left_out) or not timed


def test_a_dimension_left_unsaid_is_not_guessed(bundles: tuple[Bundle, ...]) -> None:
    rope = next(bundle for bundle in bundles if bundle.id == "rope")
    rows, left_out = tier.dry_run(rope, {})
    unsaid = {w.id for w in rope.workloads if w.unknown}
    assert unsaid & set(left_out) and not unsaid & {row["shape"] for row in rows}


def test_the_studys_plans_require_its_architecture(bundles: tuple[Bundle, ...]) -> None:
    from harness.device.planning import plan_for
    from harness.kernels import get

    softmax = next(bundle for bundle in bundles if bundle.id == "softmax")
    planned = plan_for(softmax, get("softmax"), {"processes": 8, "workload": "captured"})
    assert planned.plan is not None
    assert planned.plan.requires_arch == STUDY_ARCH and planned.plan.looks == (5, 8)
    assert planned.plan.shapes[0].judged == (EAGER,)
    assert plan_from_json(planned.plan.to_json()) == planned.plan


def test_rehearse_on_this_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real processes, controls, evidence that validates, a verdict; the words at the end; and nothing to
    resume."""
    out = tmp_path / "run"
    command = ["rehearse", "--device", "cpu", "--out", str(out), "--processes", "2", "--start", "fork"]
    code = main([*command, "--json"])
    assert code in (0, 20, 30)
    found = json.loads(capsys.readouterr().out)
    assert found["exit_code"] == code and found["shapes"][0]["processes"] == 2
    assert {row["pair"] for row in found["regimes"]} == {"ratio:torch-softmax", "a/a", "positive"}
    assert 0 < found["shapes"][0]["start_up_share"] < 1
    from harness.device.record import read

    assert read(out / "evidence.json")["sha256"] == found["evidence_sha256"]
    assert main(["rehearse", "--resume", str(out)]) == code
    text = capsys.readouterr().out
    assert "this machine tells a ratio" in text or "cannot say what it could resolve" in text
    assert len(list((out / "processes").glob("*.jsonl"))) == 2


@pytest.mark.gpu
def test_work_on_another_stream_is_seen() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    from harness.device.gates import GateFailed, check_other_stream
    from harness.device.rig import Slot

    x, y = torch.rand(1 << 16, device="cuda"), torch.empty(1 << 16, device="cuda")
    aside = torch.cuda.Stream()

    def elsewhere() -> None:
        with torch.cuda.stream(aside):
            torch.add(x, 1, out=y)

    def here() -> None:
        torch.add(x, 1, out=y)

    with torch.cuda.stream(torch.cuda.Stream()):
        slot = Slot({"x": x, "y": y}, {"good": here, "bad": elsewhere})
        assert check_other_stream(slot, "good", {"y": "y"}).passed
        with pytest.raises(GateFailed, match="while the timed stream was held"):
            check_other_stream(slot, "bad", {"y": "y"})


assert sys.version_info >= (3, 10)
