"""Rules that find what is wrong in a study: each fires where it should and is silent on sound evidence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from harness.bundle import Claim
from harness.record import multishape
from harness.record.findings import findings
from tests import making


def evidence(*captures: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Record evidence of a made bundle."""
    study = {"captures": list(captures), "kernel_traces": [], "multishape": [], **more}
    return {"study": study, "captured": None, "workloads": {}}


def rules(found: Mapping[str, Any], *claims: Claim) -> list[str]:
    """The rules that fire."""
    return [finding.rule for finding in findings(making.bundle(*claims), found)]


SOUND = {"vgpr": {"field": 48, "allocated": 48, "max_index": 47, "agpr_max_index": 0}}


def fault(rule: str) -> dict[str, Any]:
    """A capture's fault."""
    return {"rule": rule, "message": rule, "remedy": "do it again", "spoils": []}


def test_sound_evidence_gives_nothing() -> None:
    claims = (
        making.claim("o", "resource", 8, metric="occupancy"),
        making.claim("v", "resource", 47, metric="vgpr"),
        making.claim("g", "resource", [32768, 1, 1], metric="grid_workgroups"),
        making.claim("s", "trace", {"EXEC": 42.3, "WAIT": 36.7, "STALL": 21.0}, metric="wave_states"),
    )
    assert rules(evidence(making.capture(**SOUND)), *claims) == []


@pytest.mark.parametrize(
    ("claim", "changes", "expected"),
    [
        (
            making.claim("s", "trace", {"EXEC": 0.0, "WAIT": 42.3, "STALL": 36.7, "SLEEP": 21.0},
                         metric="wave_states"),
            {}, ["wave-states-shifted"],
        ),
        (making.claim("s", "trace", {"EXEC": 10.0, "WAIT": 20.0}, metric="wave_states"), {}, []),
        (making.claim("o", "resource", 5, metric="occupancy"), {}, ["occupancy-wrong-architecture"]),
        (making.claim("o", "resource", 3, metric="occupancy"), {}, []),
        (making.claim("v", "resource", 24, metric="vgpr"),
         {"vgpr": {"field": 24, "allocated": 48, "max_index": 47, "agpr_max_index": 0}},
         ["vgpr-count-halved"]),
        (making.claim("g", "resource", [1024, 1, 1], metric="grid_workgroups"), {}, ["captured-shape"]),
        (making.claim("t", "trace", 731, metric="instructions"), {"faults": [fault("no-work")]}, ["no-work"]),
        (making.claim("t", "trace", 731, metric="instructions"), {"faults": [fault("no-counters")]},
         ["no-counters"]),
        (making.claim("t", "trace", 731, metric="instructions"), {"faults": [fault("no-source")]}, []),
    ],
)  # fmt: skip
def test_each_capture_rule(claim: Claim, changes: dict[str, Any], expected: list[str]) -> None:
    assert rules(evidence(making.capture(**{**SOUND, **changes})), claim) == expected


@pytest.mark.parametrize(("published", "expected"), [(30.9, ["host-bound-latency"]), (7.2, []), (6.0, [])])
def test_host_bound(published: float, expected: list[str]) -> None:
    trace = {"file": "t.csv", "kernels": [making.traced("k_0", "subject", 7.0, 6.9, 7.9)]}
    claim = making.claim("l", "latency", published, unit="us", regime="kernel-trace", side="subject")
    found = evidence(making.capture(**SOUND), kernel_traces=[trace])
    assert rules(found, claim) == expected


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"geomean": 5.19, "shapes": 9}, []),
        ({"geomean": 157.59, "shapes": 3}, ["stale-summary"]),
        ({"geomean": 5.19, "shapes": 8}, ["stale-summary"]),
        ({"geomean": None, "shapes": 0}, ["stale-summary"]),
    ],
)
def test_stale_summary(stated: dict[str, Any], expected: list[str]) -> None:
    row = {"op": "o", "baseline_provider": "best", "shapes": 9, "geomean": 5.1921, "origin": "captures"}
    assert rules(evidence(multishape=[{**row, "stated": {**stated, "cite": "s.md:1"}}])) == expected


def test_statements_of_different_identity_stand_side_by_side() -> None:
    ratio = making.claim("ratio", "ratio", 0.22, regime="eager-events")
    mean = making.claim(
        "geomean", "geomean", 1.61, regime="graph-kernel", op="o", baseline_provider="best", shapes=13
    )
    (found,) = findings(making.bundle(ratio, mean), evidence())
    assert found.rule == "contradiction" and found.differs["regime"] == ["eager-events", "graph-kernel"]


def test_only_what_differs_is_shown_of_two_latencies_of_one_launch() -> None:
    two = (
        making.claim("a", "latency", 30.86, side="subject"),
        making.claim("b", "latency", 24.5, side="subject", variant="sweep"),
    )
    (found,) = findings(making.bundle(*two), evidence())
    assert found.rule == "contradiction" and found.differs["variant"] == [None, "sweep"]
    assert set(found.differs) == {"variant", "cites"}


def row(shape: str, provider: str, us: float | None, status: str = "ok", **more: Any) -> bytes:
    """One benchmark row."""
    data = {
        "shape_id": shape, "provider": provider, "benchmark_status": status, "correct": status == "ok",
        "median_us": us, "timing_method": "cudagraph", **more,
    }  # fmt: skip
    return json.dumps(data).encode() + b"\n"


def test_means_follow_the_rows() -> None:
    lines = [
        row("a", "flydsl", 10.0, candidate_commit="c1"), row("a", "x", 20.0), row("a", "y", 40.0),
        row("b", "flydsl", 20.0, effective_gbps=9000.0), row("b", "x", 10.0),
        row("c", "flydsl", 10.0, "incorrect"), row("c", "x", 99.0),
        row("d", "flydsl", 30.0), row("d", "x", 5.0), row("d", "x", None, "failed"),
    ]  # fmt: skip
    found = multishape.rows(lines, "o")
    best, *others = multishape.summaries(found, {"a": 3.0, "b": 1.0})
    assert (best.provider, best.shapes) == ("best", 2)
    assert best.geomean == pytest.approx(1.0)  # 2 and a half
    assert best.weighted == pytest.approx(2**0.5) and best.weighted_shapes == 2
    assert (best.wins, best.losses, best.floor, best.mixed) == (1, 1, 2, 0)
    assert {one.provider: one.geomean for one in others} == pytest.approx({"x": 1.0, "y": 4.0})
    assert found.status == {"incorrect": 1, "ok": 3} and found.commits == ("c1",) and found.impossible == 1


def test_rows_that_cannot_be_read_are_named_once() -> None:
    lines = [b"{", b"null\n", b'{"shape_id": 3}\n', b"\xff\xfe\n", b"[" * 5000, row("a", "flydsl", 1.0)]
    found = multishape.rows(lines, "o")
    assert [f.rule for f in found.faults] == ["bad-rows"] and "5 of 6" in found.faults[0].message
