"""What a recapture says of trace and resource claims: pure judging of made evidence."""

from __future__ import annotations

from typing import Any

import pytest

from harness.device import verdicts
from harness.device.plan import Shape
from harness.kinds import judge
from harness.verdict import Verdict
from tests import device_samples, making


def evidence(*faults: dict[str, Any], workload: str = "w", **changes: Any) -> dict[str, Any]:
    """Device evidence with one recaptured workload."""
    return {"trace": {workload: {"faults": list(faults), "trace": making.capture(**changes)}}}


def verdict(claim: Any, found: dict[str, Any]) -> Verdict | None:
    """The device tier's verdict."""
    answer = judge("device", claim, making.bundle(claim), found)
    return None if answer is None else answer.verdict


@pytest.mark.parametrize(
    ("metric", "published", "expected"),
    [
        ("stall_share", 76.4, Verdict.REPRODUCED),
        ("stall_share", 72.0, Verdict.REPRODUCED),
        ("stall_share", 60.0, Verdict.CONTRADICTED),
        ("stall_share", [58, 83], Verdict.REPRODUCED),
        ("stall_share", [20, 60], Verdict.CONTRADICTED),
        ("taxonomy", {"VMEM-load": 45.9, "barrier": 12.0}, Verdict.REPRODUCED),
        ("taxonomy", {"VMEM-load": 30.0}, Verdict.CONTRADICTED),
        ("wave_states", {"IDLE": 0.0, "EXEC": 42.3, "WAIT": 36.7, "STALL": 21.0}, Verdict.REPRODUCED),
        ("wave_states", {"EXEC": 0.0, "WAIT": 42.3, "STALL": 36.7}, Verdict.CONTRADICTED),
        ("dominant_stall", "VMEM-load", Verdict.REPRODUCED),
        ("dominant_stall", "barrier", Verdict.CONTRADICTED),
        ("instructions", 731, Verdict.REPRODUCED),
        ("instructions", 700, Verdict.CONTRADICTED),
        ("total_cycles", "41.65M", Verdict.NOT_COMPARABLE),
        ("waves", 2056, Verdict.NOT_COMPARABLE),
    ],
)
def test_trace_claims(metric: str, published: Any, expected: Verdict) -> None:
    assert verdict(making.claim("c", "trace", published, metric=metric), evidence()) is expected


@pytest.mark.parametrize(
    ("metric", "published", "expected"),
    [
        ("occupancy", 8, Verdict.REPRODUCED),
        ("occupancy", 5, Verdict.CONTRADICTED),
        ("vgpr", 47, Verdict.REPRODUCED),
        ("vgpr", 24, Verdict.CONTRADICTED),
        ("workgroup_size", [256, 1, 1], Verdict.REPRODUCED),
        ("grid_workgroups", [1024, 1, 1], Verdict.CONTRADICTED),
        ("lds", 512, Verdict.REPRODUCED),
    ],
)
def test_resource_claims(metric: str, published: Any, expected: Verdict) -> None:
    assert verdict(making.claim("c", "resource", published, metric=metric), evidence()) is expected


def test_what_the_recapture_cannot_carry() -> None:
    claim = making.claim("c", "trace", 76.4, metric="stall_share")
    spoiled = {
        "rule": "no-work",
        "message": "17 of 4,948 rows",
        "remedy": "another CU",
        "spoils": ["stall_share"],
    }
    other = {
        "rule": "wrong-shape",
        "message": "another grid",
        "remedy": "launch it",
        "spoils": ["stall_share"],
    }
    assert verdict(claim, evidence(spoiled)) is Verdict.INVALID
    assert verdict(claim, evidence(other)) is Verdict.NOT_COMPARABLE
    assert verdict(claim, evidence(workload="another")) is Verdict.NOT_MEASURED
    assert verdict(claim, {}) is Verdict.NOT_MEASURED
    assert verdict(claim, {"trace": {"w": {"faults": [], "trace": None}}}) is Verdict.NOT_MEASURED


def traced(published: Any, *times: float, name: str = "AMD Instinct MI350X", **rest: Any) -> Any:
    """The device tier's answer to a kernel time, from a recapture's dispatch times in us."""
    claim = making.claim("c", "latency", published, unit="us", regime="kernel-trace", **rest)
    shape = Shape("w", {}, ())
    device = device_samples.evidence(
        device_samples.plan(bundle="made", shapes=(shape,)), [], name=name, arch="gfx950"
    )
    launch = {"median_us": sorted(times)[len(times) // 2], "durations_us": list(times)} if times else None
    found = {**device, "trace": {"w": {"launch": launch, "faults": [], "trace": None}}}
    return verdicts.latency(claim, making.bundle(claim), found)


def test_a_kernel_time_is_judged_by_the_profilers_own_clock() -> None:
    assert traced(10.2, 9.8, 10.0, 10.4).verdict is Verdict.REPRODUCED
    off = traced(219.6, 9.8, 10.0, 10.4)
    assert off.verdict is Verdict.CONTRADICTED and "median 10 µs (9.8-10.4 µs, 3 launches)" in off.reason
    assert traced(14.0, 9.8, 10.0, 15.0).verdict is Verdict.INCONCLUSIVE
    assert traced(10.0, 9.8, 10.0, 10.4, name="AMD Instinct MI355X").verdict is Verdict.NOT_COMPARABLE
    assert traced(10.0).verdict is Verdict.NOT_MEASURED
    assert traced(10.0, 9.8, 10.0, 10.4, side="baseline").verdict is Verdict.NOT_MEASURED
