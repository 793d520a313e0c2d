"""Every figure that the study published is in the bundles, as published, and none of theirs is another.

Compared with the collected facts (`../shared/facts`), which are not part of this repository.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.bundle import Bundle, Claim, load_all
from harness.meaning import STUDY_CITE

IDS = {
    "moe-gemm-2stage": "moe-gemm",
    "per-token-quant": "quant",
    "fused-rope-kv-cache": "rope",
    "topk-gating-softmax": "topk-gating",
    "paged-attn-decode": "paged-attention",
    "blockscale-preshuffle-gemm": "blockscale-gemm",
    "moe-blockscale-2stage": "moe-blockscale",
    "mla-decode-fp8": "mla-decode",
    "flash-attn-func": "flash-attn",
    "pa-mqa-logits-fp4": "mqa-logits-fp4",
}
"""The study's names where ours differ."""

OPS = {
    "hgemm-splitk": "gemm",
    "rope": "fused_rope_cache",
    "topk-gating": "topk_gating_softmax",
    "paged-attention": "pa_decode",
    "blockscale-gemm": "blockscale_preshuffle_gemm",
    "fp8-gemm-4wave": "fp8_gemm_rowscale",
}


def read(path: Path) -> Any:
    return yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)


@pytest.fixture(scope="module")
def bundles() -> Mapping[str, Bundle]:
    return {bundle.id: bundle for bundle in load_all()}


@pytest.fixture(scope="module")
def study(facts_dir: Path) -> Mapping[str, Any]:
    return {IDS.get(one["id"], one["id"]): one for one in read(facts_dir / "study.yaml")["kernels"]}


@pytest.fixture(scope="module")
def captures(facts_dir: Path) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = read(facts_dir / "captures.yaml")
    return found


@pytest.fixture(scope="module")
def shapes(facts_dir: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = read(facts_dir / "multishape.yaml")["ops"]
    return found


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, (int, float)):
        yield float(value)
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from numbers(one)
    elif isinstance(value, list):
        for one in value:
            yield from numbers(one)


def published(bundle: Bundle, name: str) -> Any:
    return bundle.claim(name).published


def test_every_kernel_of_the_study_has_its_bundle(
    bundles: Mapping[str, Bundle], study: Mapping[str, Any]
) -> None:
    assert set(study) <= set(bundles)
    assert len(study) == 19


def test_source_and_symbols(bundles: Mapping[str, Bundle], study: Mapping[str, Any]) -> None:
    for name, row in study.items():
        kernel = bundles[name].kernel
        assert kernel.commit == row["flydsl_commit"]
        assert [file.sha256 for file in kernel.files] == [source["sha256"] for source in row["sources"]]
        assert len(kernel.symbols) == len(set(kernel.symbols))
        for symbol in kernel.symbols:
            assert any(one.startswith(symbol) for one in row["jit_symbols"])


HEADLINE = {
    "subject-latency": "flydsl_latency_us",
    "subject-latency-kernel": "flydsl_latency_us",
    "baseline-latency": "baseline_latency_us",
    "baseline-latency-kernel": "baseline_latency_us",
    "ratio": "published_ratio",
    "ratio-kernel": "published_ratio",
    "vgpr": "arch_vgpr",
    "agpr": "accum_vgpr",
    "occupancy": "occupancy_waves_per_simd_published",
    "grid": "grid_workgroups",
    "trace-dominant-stall": "dominant_stall_published",
}
TRACE = {
    "trace-instructions": "instruction_rows_published",
    "trace-mapped": "mapped_rows_published",
    "trace-mapped-share": "mapped_pct_published",
    "trace-total-cycles": "total_cycles_published",
    "trace-stall-cycles": "stall_cycles_published",
    "trace-stall-share": "stall_pct_published",
    "trace-waves": "waves_sampled_published",
    "trace-taxonomy": "taxonomy_pct_published",
}


def test_headline_figures(bundles: Mapping[str, Bundle], study: Mapping[str, Any]) -> None:
    seen = 0
    for name, row in study.items():
        have = {claim.id: claim for claim in bundles[name].claims}
        pairs = [(ours, row.get(theirs)) for ours, theirs in HEADLINE.items()]
        pairs += [(ours, (row["att"] or {}).get(theirs)) for ours, theirs in TRACE.items()]
        for ours, theirs in pairs:
            if theirs is None:
                assert ours not in have, (name, ours)
            else:
                assert have[ours].published == theirs, (name, ours)
                seen += 1
    assert seen > 300


def test_classes(bundles: Mapping[str, Bundle], study: Mapping[str, Any]) -> None:
    for name, row in study.items():
        have = [claim.published for claim in bundles[name].claims if claim.id == "class"]
        assert have == ([] if row["bucket"] == "NONE" else [row["bucket"]])


def rate(claim: Claim) -> float:
    """GB/s or TFLOPS, as the study's summary has them."""
    return float(claim.published) * (1000 if claim.unit == "TB/s" else 1)


def test_rates(bundles: Mapping[str, Bundle], study: Mapping[str, Any]) -> None:
    for name, row in study.items():
        rates = [
            claim
            for claim in bundles[name].claims
            if claim.kind == "throughput" and isinstance(claim.published, (int, float))
        ]
        for key, quantity in (("achieved_gbps", "bytes"), ("achieved_tflops", "flops")):
            if row[key] is not None:
                same = [one for one in rates if one.fields["quantity"] == quantity and rate(one) == row[key]]
                assert len(same) == 1, (name, key)


def test_all_other_published_figures(bundles: Mapping[str, Bundle], study: Mapping[str, Any]) -> None:
    seen = 0
    for name, row in study.items():
        have = [number for claim in bundles[name].claims for number in numbers(claim.published)]
        for key, value in (row.get("other_published") or {}).items():
            for number in numbers(value):
                assert number in have, (name, key, number)
                seen += 1
    assert seen == 54


def test_workload_dimensions(bundles: Mapping[str, Bundle], study: Mapping[str, Any]) -> None:
    """Each stated shape is a workload; what the study leaves null is null here."""
    skip = {
        "role",
        "note",
        "grid_rule",
        "block_threads",
        "stage",
        "wall_us",
        "tflops",
        "CTAs",
        "block_m",
        "scale",
    }
    skip |= {"grid_blocks", "scale_block"}
    for name, row in study.items():
        ours = [dict(one.dims) for one in bundles[name].workloads]
        for stated in row["workloads"]:
            wanted = {key: value for key, value in stated.items() if key not in skip}
            numeric = {key: value for key, value in wanted.items() if not isinstance(value, str)}
            assert any(
                all(key in dims and dims[key] == value for key, value in numeric.items()) for dims in ours
            ), (name, stated["role"])


def test_baselines(bundles: Mapping[str, Bundle], study: Mapping[str, Any]) -> None:
    for name, row in study.items():
        baseline = bundles[name].baseline
        assert (baseline is None) == (row["baseline"]["library"] is None), name
        if baseline is not None and name not in ("moe-reduce", "moe-blockscale", "preshuffle-gemm-v2"):
            assert baseline.entry_point == row["baseline"]["entry_point"]


def test_cites_are_those_of_the_facts(
    bundles: Mapping[str, Bundle], study: Mapping[str, Any], facts_dir: Path
) -> None:
    """A cite of one line is one that the facts give; a cite of several is of a file that they cite."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(facts_dir.glob("*.yaml")))
    own = {"kernels/softmax_kernel.py:104"}
    for bundle in bundles.values():
        if bundle.id not in study:
            continue
        for claim in bundle.claims:
            for cite in claim.cites:
                found = STUDY_CITE.match(cite)
                if claim.origin != "study" or cite in own or found is None:
                    continue
                if found["last"] is None:
                    assert cite in text, (bundle.id, claim.id, cite)
                else:
                    assert f"{found['file']}:" in text, (bundle.id, claim.id, cite)


def test_captured_listings(bundles: Mapping[str, Bundle], captures: list[Mapping[str, Any]]) -> None:
    claimed = {
        (bundle.id, claim.fields["capture"]): claim
        for bundle in bundles.values()
        for claim in bundle.claims
        if claim.kind == "isa" and claim.origin == "project" and claim.fields["check"] == "identity"
    }
    assert len(captures) == 22
    for row in captures:
        claim = claimed.pop((row["bundle"], row["capture"].removesuffix("/code.json")))
        assert claim.fields["instructions"] == row["instructions"]
        assert claim.fields["sha256"] == row["sha256_normal_form"]
        assert claim.fields["symbol"] == row["symbol"]
        assert any(claim.fields["layer"].startswith(layer) for layer in row["equal_with_layers"])
    assert claimed == {}


def test_geometric_means(bundles: Mapping[str, Bundle], shapes: Mapping[str, Any]) -> None:
    for name, bundle in bundles.items():
        row = shapes.get(OPS.get(name, name.replace("-", "_")))
        means = {
            (claim.fields["baseline_provider"], bool(claim.fields.get("weighted"))): claim
            for claim in bundle.claims
            if claim.kind == "geomean" and claim.fields["op"] != "flash_attn_current"
        }
        stated: dict[tuple[str, bool], tuple[Any, Any]] = {}
        if row and row.get("geomean_vs_best"):
            stated["best", False] = (row["geomean_vs_best"]["stated"], row["geomean_vs_best"]["stated_n"])
            stated["best", True] = (row["weighted_geomean"]["stated"], None)
            for provider, one in row["per_baseline"].items():
                stated[provider, False] = (one["stated"], one["stated_n"])
        stated = {key: value for key, value in stated.items() if value[0] is not None}
        assert set(means) == set(stated), name
        for key, (value, count) in stated.items():
            assert means[key].published == float(value)
            assert means[key].fields.get("shapes") == count


def test_no_published_figure_is_of_our_own(
    bundles: Mapping[str, Bundle], study: Mapping[str, Any], facts_dir: Path
) -> None:
    """Every number published in a bundle stands somewhere in the facts."""
    paths = [*sorted(facts_dir.glob("*.yaml")), *sorted(facts_dir.glob("*.md"))]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    for bundle in bundles.values():
        for claim in bundle.claims:
            if bundle.id not in study or claim.origin != "study":
                continue
            for number in numbers(claim.published):
                forms = {f"{number:g}", f"{number:.2f}", f"{number:.1f}", str(int(number)), f"{number:.2e}"}
                forms |= {f"{number * 1000:g}"}
                assert any(form in text for form in forms), (bundle.id, claim.id, number)
