"""The audit of the study's raw captures: what it finds by itself, and what it derives again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.bundle import ROOT, load_all
from harness.cli import main
from harness.record.audit import BundleAudit, audit
from harness.record.study_evidence import Raw, gather

FACTS = {
    "softmax": "softmax", "hgemm-splitk": "hgemm-splitk", "moe-gemm-2stage": "moe-gemm",
    "layernorm": "layernorm",
    "per-token-quant": "quant", "moe-reduce": "moe-reduce", "fused-rope-kv-cache": "rope",
    "topk-gating-softmax": "topk-gating", "paged-attn-decode": "paged-attention",
    "blockscale-preshuffle-gemm": "blockscale-gemm", "preshuffle-gemm": "preshuffle-gemm",
    "moe-blockscale-2stage": "moe-blockscale", "rmsnorm": "rmsnorm", "mla-decode-fp8": "mla-decode",
    "flash-attn-func": "flash-attn", "vec-add": "vec-add", "preshuffle-gemm-v2": "preshuffle-gemm-v2",
    "pa-mqa-logits-fp4": "mqa-logits-fp4",
}  # fmt: skip
"""The study's kernels, as the collected facts call them, and their bundles."""


@pytest.fixture(scope="module")
def raw(study_src: Path) -> Raw:
    """The study's raw files, read once."""
    return gather(study_src)


def audited(raw: Raw) -> dict[str, BundleAudit]:
    """All bundles audited."""
    return {bundle.id: audit(bundle, raw, ROOT) for bundle in load_all(ROOT)}


@pytest.fixture(scope="module")
def from_raw(raw: Raw) -> dict[str, BundleAudit]:
    """Audited against the raw files."""
    return audited(raw)


@pytest.fixture(scope="module", params=["committed evidence", "raw files"])
def audits(request: pytest.FixtureRequest) -> dict[str, BundleAudit]:
    """Audited from the committed evidence alone, and again from the raw files where STUDY_SRC holds them."""
    if request.param == "committed evidence":
        return audited(Raw())
    found: dict[str, BundleAudit] = request.getfixturevalue("from_raw")
    return found


def found(audits: Mapping[str, BundleAudit], rule: str) -> dict[str, list[Any]]:
    """The findings of one rule by bundle."""
    out: dict[str, list[Any]] = {}
    for name, one in audits.items():
        for finding in one.findings:
            if finding.rule == rule:
                out.setdefault(name, []).append(finding)
    return out


def test_committed_evidence_is_what_the_raw_files_give(from_raw: Mapping[str, BundleAudit], raw: Raw) -> None:
    assert [name for name, one in from_raw.items() if one.changed] == []
    assert sum(one.from_captures for one in from_raw.values()) == 13
    assert len(raw.captures) == 17 and all(
        a.allocated == 2 * (a.beside.vgpr or 0) for a in raw.captures.values()
    )


def test_shifted_wave_states(audits: Mapping[str, BundleAudit]) -> None:
    shifted = found(audits, "wave-states-shifted")
    assert {name: len(some) for name, some in shifted.items()} == {"flash-attn": 2, "mqa-logits-fp4": 2}
    big = shifted["mqa-logits-fp4"][0]
    assert big.derived["exec"] == pytest.approx(49.66, abs=0.005)
    assert big.derived["idle"] == pytest.approx(0.06, abs=0.005)


def test_halved_vgpr_count(audits: Mapping[str, BundleAudit]) -> None:
    halved = found(audits, "vgpr-count-halved")
    captured = {name for name, one in audits.items() if one.from_captures}
    assert captured <= set(halved)
    flash = halved["flash-attn"][0]
    assert (flash.published, flash.derived) == (124, 248)


def test_occupancy_by_the_wrong_architecture(audits: Mapping[str, BundleAudit]) -> None:
    wrong = {
        name: (some[0].published, some[0].derived)
        for name, some in found(audits, "occupancy-wrong-architecture").items()
    }
    assert wrong == {
        "softmax": (5, 8), "hgemm-splitk": (2, 1), "moe-gemm": (1, 3), "layernorm": (3, 7), "quant": (5, 8),
        "moe-reduce": (4, 8), "topk-gating": (4, 8), "paged-attention": (1, 2), "rmsnorm": (4, 8),
        "mla-decode": (1, 2), "flash-attn": (1, 2), "preshuffle-gemm-v2": (2, 4),
    }  # fmt: skip
    refuted = {
        n
        for n, some in found(audits, "occupancy-wrong-architecture").items()
        if "seen at once" in some[0].text
    }
    assert refuted == {
        "softmax",
        "moe-gemm",
        "quant",
        "moe-reduce",
        "paged-attention",
        "mla-decode",
        "flash-attn",
    }


def test_capture_without_work(audits: Mapping[str, BundleAudit]) -> None:
    empty = found(audits, "no-work")
    assert list(empty) == ["mla-decode"]
    assert (empty["mla-decode"][0].derived, empty["mla-decode"][0].published) == (17, 4948)
    figures = {figure.claim: figure for figure in audits["mla-decode"].figures}
    share = figures["trace-stall-share"]
    assert (
        share.verdict.value == "INVALID"
        and share.match == "rounding"
        and share.derived == pytest.approx(94.59)
    )


def test_partial_work(audits: Mapping[str, BundleAudit]) -> None:
    partial = found(audits, "partial-work")
    assert set(partial) == {"moe-gemm", "paged-attention"}
    assert (partial["moe-gemm"][0].derived, partial["moe-gemm"][0].published) == (16, 24)


def test_missing_counters(audits: Mapping[str, BundleAudit]) -> None:
    assert {n: len(some) for n, some in found(audits, "no-counters").items()} == {
        "flash-attn": 2, "rope": 1, "layernorm": 1, "moe-reduce": 1, "rmsnorm": 1, "softmax": 1,
    }  # fmt: skip


def test_captured_shapes(audits: Mapping[str, BundleAudit]) -> None:
    wrong = found(audits, "captured-shape")
    assert set(wrong) == {"moe-reduce", "preshuffle-gemm", "rmsnorm", "preshuffle-gemm-v2"}
    assert wrong["rmsnorm"][0].derived == "1024x1x1" and wrong["rmsnorm"][0].published == [32768, 1, 1]
    assert wrong["preshuffle-gemm"][0].derived == "32x32x1"


def test_host_bound_latencies(audits: Mapping[str, BundleAudit]) -> None:
    bound = {name: some[0] for name, some in found(audits, "host-bound-latency").items()}
    assert set(bound) == {"rope", "topk-gating", "layernorm", "rmsnorm", "paged-attention"}
    factors = {name: one.published / one.derived for name, one in bound.items()}
    assert factors["rope"] == pytest.approx(54.9, abs=0.1)
    assert factors["topk-gating"] == pytest.approx(4.41, abs=0.01)
    assert factors["layernorm"] == pytest.approx(5.08, abs=0.05)
    assert factors["rmsnorm"] == pytest.approx(3.22, abs=0.01)


def test_stale_summaries(audits: Mapping[str, BundleAudit]) -> None:
    stale = found(audits, "stale-summary")
    assert set(stale) == {"moe-gemm", "moe-blockscale"}
    assert stale["moe-gemm"][0].derived == {"geomean": 5.1921, "shapes": 9}
    assert stale["moe-blockscale"][0].derived == {"geomean": 7.0894, "shapes": 4}
    summed = [m for one in audits.values() for m in one.evidence.get("multishape", ()) if "stated" in m]
    assert len(summed) == 17


def test_contradictions_show_what_differs(audits: Mapping[str, BundleAudit]) -> None:
    rope = found(audits, "contradiction")["rope"][0]
    assert (rope.published, rope.derived) == (0.17, 1.72)
    assert rope.differs["regime"] == ["eager-events", "graph-kernel"]


def test_every_figure_that_the_facts_derived_is_derived_again(
    raw: Raw, from_raw: Mapping[str, BundleAudit], facts_dir: Path
) -> None:
    """Totals, stall shares, taxonomies, mapped rows, waves, registers, occupancy: as marked exact or
    rounding."""
    facts = yaml.load((facts_dir / "study.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    checked = 0
    for kernel in facts["kernels"]:
        if kernel["id"] not in FACTS or not from_raw[FACTS[kernel["id"]]].from_captures:
            continue
        trace = kernel["att"]
        name = kernel["att_dispatch_dir"].rpartition("/")[2]
        (one,) = (a for path, a in raw.captures.items() if path.endswith(f"/{name}"))
        assert one.instructions == trace["instruction_rows_raw"]
        assert f"{one.mapped}/{one.instructions}" == trace["mapped_rows_raw"]
        assert (one.total, one.stall) == (trace["total_cycles_raw"], trace["stall_cycles_raw"])
        assert one.waves == trace["waves_sampled_raw"] and one.executed == trace["executed_rows_raw"]
        assert 100 * (one.stall or 0) / (one.total or 1) == pytest.approx(trace["stall_pct_raw"], abs=0.005)
        shares = {n: round(s, 2) for n, s in (one.study_taxonomy or {}).items() if round(s, 2) > 0}
        stated = {n: s for n, s in trace["taxonomy_pct_raw"].items() if s > 0}
        assert shares == pytest.approx(stated, abs=0.0101), kernel["id"]
        known = kernel["raw_occupancy"]
        assert (one.registers.vgpr, one.allocated) == (known["max_index_vgpr"], known["unified_vgpr_alloc"])
        assert one.occupancy_limit == known["occ_limit_unified_512"]
        assert one.observed == known["observed_max_concurrent_waves_per_simd"]
        assert one.states_confirmed
        checked += 1
    assert checked == 13


METRICS = ("instructions", "mapped", "total_cycles", "stall_cycles", "stall_share", "taxonomy", "waves")


def test_published_trace_figures_match(audits: Mapping[str, BundleAudit]) -> None:
    """Of the published trace figures of the 13 kernels, each is derived again; those that differ are
    named."""
    off: set[str] = set()
    counted = 0
    for bundle in load_all(ROOT):
        if not audits[bundle.id].from_captures:
            continue
        figures = {figure.claim: figure for figure in audits[bundle.id].figures}
        for claim in bundle.claims:
            plain = claim.kind == "trace" and claim.origin == "study" and not claim.fields.get("variant")
            if plain and claim.fields.get("metric") in METRICS:
                counted += 1
                if figures[claim.id].match not in ("exact", "rounding"):
                    off.add(f"{bundle.id}/{claim.id}")
    assert counted >= 13 * 6
    assert off == {"flash-attn/trace-stall-share-manifest"}  # of a capture that was not published


def test_the_command(study_src: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--study", str(study_src), "--json", "mla-decode", "moe-gemm"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in data["bundles"]] == ["mla-decode", "moe-gemm"]
    figure = data["bundles"][0]["figures"][0]
    assert {"claim", "published", "derived", "match", "verdict", "reason"} <= set(figure)
    assert "no-work" in {finding["rule"] for finding in data["bundles"][0]["findings"]}


def test_a_directory_without_a_study_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--study", str(tmp_path / "none")]) == 2
    assert main(["audit", "--study", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said and said.count("remedy:") == 2


def test_a_study_without_a_figure_keeps_what_was_known() -> None:
    """Raw files of other kernels change nothing."""
    assert not any(one.changed for one in audited(Raw()).values())
