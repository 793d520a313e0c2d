"""The doctor's rules on recorded machines: the right line and the right remedy each."""

from __future__ import annotations

import copy
import json

import machines
import pytest

from harness.doctor import Expected, able, examine
from harness.doctor.check import Check, State
from harness.doctor.host import LiveHost, RecordedHost
from harness.doctor.smi import (
    parse_kfd_properties,
    parse_partition,
    parse_processes,
    parse_rocminfo,
    parse_smi_metric,
    parse_smi_static,
)

EXPECTED = Expected({"flydsl": "0.2.0", "triton": "3.6.0"}, "7.2", "0.1.6", None)


def report(machine: machines.Recording) -> dict[str, Check]:
    return {check.name: check for check in examine(RecordedHost(machine), EXPECTED, "/cache")}


def test_an_idle_mi350x_in_the_container_can_do_everything() -> None:
    checks = report(machines.mi350x())
    assert {name: c.found for name, c in checks.items() if c.state is not State.OK} == {}
    assert all(able(checks.values()).values())
    assert checks["rocprofv3"].found == "1.1.0"
    assert "no hash is pinned" in checks["trace decoder"].found


def test_another_sku_is_a_caveat_not_a_block() -> None:
    checks = report(machines.mi355x())
    sku = checks["GPU 0 SKU"]
    assert sku.state is State.WARNING
    assert "MI355X" in sku.found and "0x75a3" in sku.found
    assert sku.remedy is not None and "NOT_COMPARABLE" in sku.remedy
    assert able(checks.values())["device"]


def test_a_partition_is_refused_by_its_compute_units_and_its_mode() -> None:
    checks = report(machines.partitioned())
    assert checks["GPU 0 CUs"].state is State.MISSING
    assert checks["GPU 0 CUs"].found.startswith("32 CUs in 1 XCCs")
    assert checks["GPU 0 partition"].found == "CPX / NPS4"
    assert not able(checks.values())["device"]


def test_a_busy_gpu_shows_on_three_signs_apart() -> None:
    checks = report(machines.busy())
    assert "4242" in checks["users (KFD)"].found
    assert "python3 (4242)" in checks["users (amd-smi)"].found
    assert checks["users (GPU 0 memory and load)"].found == "120.0 GiB in use, busy 97 %"
    assert not able(checks.values())["device"]


@pytest.mark.parametrize("hidden", ["amd-smi process --json", "/sys/class/kfd/kfd/proc"])
def test_a_sign_that_cannot_be_read_is_unknown_and_the_others_still_tell(hidden: str) -> None:
    machine = machines.busy()
    machine["programs"].pop(hidden, None)
    machine["directories"].pop(hidden, None)
    checks = report(machine)
    states = [check.state for name, check in checks.items() if name.startswith("users")]
    assert sorted(states) == sorted([State.MISSING, State.MISSING, State.UNKNOWN])


def test_missing_permission_names_the_numeric_group() -> None:
    checks = report(machines.denied())
    assert "group 44" in checks["/dev/kfd"].found
    assert "--group-add 44" in str(checks["/dev/kfd"].remedy)
    assert "--group-add 109" in str(checks["/dev/dri/renderD128"].remedy)
    assert checks["engine"].state is State.MISSING and "no permission" in checks["engine"].found
    tiers = able(checks.values())
    assert tiers == {"record": True, "compile": True, "execute": True, "device": False, "container": False}


def test_a_laptop_keeps_the_tiers_that_need_no_gpu() -> None:
    checks = report(machines.laptop())
    tiers = able(checks.values())
    assert tiers["record"] and tiers["compile"] and tiers["execute"]
    assert not tiers["device"] and not tiers["container"]
    assert "FLYDSL_SRC" in str(checks["network"].remedy)
    assert "no engine listens" in checks["engine"].found


def test_missing_flydsl_blocks_compile_and_execute_only() -> None:
    machine = machines.laptop()
    del machine["packages"]["flydsl"]
    tiers = able(report(machine).values())
    assert tiers["record"] and not tiers["compile"] and not tiers["execute"]


def test_decoder_faults() -> None:
    path = "/opt/rocm/lib/librocprof-trace-decoder.so"
    absent = machines.mi350x()
    del absent["nodes"][path]
    assert "nowhere" in report(absent)["trace decoder"].found
    broken = machines.mi350x()
    broken["load_faults"] = {path: "undefined symbol: foo"}
    assert "does not load: undefined symbol" in report(broken)["trace decoder"].found
    pinned = Expected(EXPECTED.packages, "7.2", "0.1.6", "e" * 64)
    found = {c.name: c for c in examine(RecordedHost(machines.mi350x()), pinned, "/c")}["trace decoder"]
    assert found.state is State.WARNING


def test_cpu_torch_on_a_gpu_machine_points_to_the_container() -> None:
    machine = machines.mi350x()
    machine["packages"]["torch"] = "2.13.0+cpu"
    check = report(machine)["torch"]
    assert not able(report(machine).values())["device"]
    assert check.name == "torch"


def test_a_rootless_engine_and_podmans_socket_are_named() -> None:
    machine = machines.mi350x()
    info = {"ServerVersion": "28", "Driver": "overlay2", "SecurityOptions": ["name=rootless"]}
    machine["programs"]["docker info --format {{json .}}"]["out"] = json.dumps(info)
    assert "keep-groups" in str(report(machine)["rootless"].remedy)
    podman = copy.deepcopy(machine)
    podman["nodes"]["/run/user/1000/podman/podman.sock"] = podman["nodes"].pop("/var/run/docker.sock")
    found = [c for c in examine(RecordedHost(podman), EXPECTED, "/c") if c.name == "engine"]
    assert any("DOCKER_HOST=unix:///run/user/1000/podman/podman.sock" in str(c.remedy) for c in found)


def test_shapes_of_amd_smi_that_differ_between_versions() -> None:
    upper = json.dumps(
        [{"gpu": 1, "PERF_LEVEL": "auto", "CLOCK": {"GFX_0": {"CLK": "N/A", "MAX_CLK": 2400}}, "ECC": "N/A"}]
    )
    (state,) = parse_smi_metric(upper)
    assert (state.index, state.perf_level, state.clock_mhz, state.max_clock_mhz) == (1, "auto", None, 2400.0)
    assert state.ecc_uncorrectable is None
    keyed = json.dumps({"gpu_0": {"asic": {"market_name": "N/A", "device_id": "30112"}}})
    (gpu,) = parse_smi_static(keyed)
    assert gpu.market_name is None and gpu.device_id == 30112
    assert parse_partition(json.dumps({"gpu_3": {"memory": "NPS1", "accelerator_type": "SPX*"}})) == {
        3: ("SPX", "NPS1")
    }
    assert parse_partition(json.dumps([{"gpu": 0, "accelerator_type": "N/A", "memory": "N/A"}])) == {
        0: (None, None)
    }
    assert parse_processes("no json") is None
    assert parse_processes(json.dumps([{"gpu": 0, "process_list": []}])) == {0: ()}
    throttled = {
        "gpu_data": [{"throttle": {"ppt_violation_status": "ACTIVE", "vr_violation_status": "NOT ACTIVE"}}]
    }
    assert parse_smi_metric(json.dumps(throttled))[0].throttle == "ppt_violation_status"


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "[1]", '{"gpu_data": 3}', "\x00", '[{"clock": 3}]'])
def test_no_parser_fails_on_what_it_does_not_know(text: str) -> None:
    for parser in (parse_smi_static, parse_smi_metric, parse_processes, parse_partition, parse_rocminfo):
        parser(text)


def test_kfd_properties() -> None:
    assert parse_kfd_properties(0, "cpu_cores_count 8\nsimd_count 0\n") is None
    mi300 = parse_kfd_properties(
        2, "simd_count 1216\ngfx_target_version 90402\nnum_xcc 8\ndrm_render_minor 129\n"
    )
    assert mi300 is not None and (mi300.gfx, mi300.cu_count, mi300.render_minor) == ("gfx942", 304, 129)


def test_this_machine_is_examined_without_a_fault() -> None:
    checks = examine(LiveHost(network=False), EXPECTED, "/")
    assert {check.tier for check in checks} >= {"record", "compile", "device", "container"}
    assert all(check.remedy for check in checks if check.state is State.MISSING)
