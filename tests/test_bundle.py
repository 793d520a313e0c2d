"""Reading bundles: what a loaded bundle holds, how bundles are found, and where its lines are."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.bundle import ROOT, Bundle, find, ids, load, load_all
from harness.errors import HarnessError
from harness.faults import FaultError
from harness.yamlfile import parse

IDS = [
    "blockscale-gemm",
    "flash-attn",
    "fp8-gemm-4wave",
    "hgemm-splitk",
    "layernorm",
    "mla-decode",
    "moe-blockscale",
    "moe-gemm",
    "moe-reduce",
    "mqa-logits-fp4",
    "paged-attention",
    "preshuffle-gemm",
    "preshuffle-gemm-v2",
    "quant",
    "rmsnorm",
    "rope",
    "softmax",
    "topk-gating",
    "vec-add",
]


@pytest.fixture(scope="module")
def bundles() -> tuple[Bundle, ...]:
    return load_all()


def test_all_kernels_of_the_study_are_here(bundles: tuple[Bundle, ...]) -> None:
    assert set(IDS) <= {bundle.id for bundle in bundles}
    assert ids() == tuple(sorted(bundle.id for bundle in bundles))


def test_softmax_as_loaded(bundles: tuple[Bundle, ...]) -> None:
    softmax = next(bundle for bundle in bundles if bundle.id == "softmax")
    assert softmax.kernel.symbols == ("softmax_kernel_0",)
    assert softmax.baseline is not None and softmax.baseline.entry_point == "aiter.ops.triton.softmax"
    workload = softmax.workload("captured")
    assert workload.dims == {"M": 32768, "N": 8192, "dtype": "bf16"}
    assert workload.dtypes == {"dtype": "bf16"}
    ratio = softmax.claim("ratio")
    assert (ratio.published, ratio.regime, ratio.fields["baseline_latency"]) == (
        2.05,
        "eager-events",
        "baseline-latency",
    )
    assert ratio.cites == ("FINDINGS.md:18", "tools/data/sweep_master.json:446")


def test_a_claim_knows_its_line(bundles: tuple[Bundle, ...]) -> None:
    for bundle in bundles:
        lines = (bundle.path / "bundle.yaml").read_text(encoding="utf-8").splitlines()
        for claim in bundle.claims:
            assert lines[claim.line - 1] == f"  - id: {claim.id}"


def test_what_the_study_leaves_unsaid_is_null_and_listed(bundles: tuple[Bundle, ...]) -> None:
    rope = next(bundle for bundle in bundles if bundle.id == "rope")
    assert rope.workload("stated").unknown == ("num_tokens",)
    assert rope.workload("stated").dims["num_tokens"] is None
    assert any("token count" in text for text in rope.unknown)


@pytest.mark.parametrize("name", ["workload", "claim"])
def test_looking_up_what_is_not_there(bundles: tuple[Bundle, ...], name: str) -> None:
    with pytest.raises(KeyError):
        getattr(bundles[0], name)("nothing-of-that-name")


def test_find_by_id_by_directory_and_all() -> None:
    assert [bundle.id for bundle in find(ROOT, ["vec-add", "softmax", "vec-add"])] == ["vec-add", "softmax"]
    assert [bundle.id for bundle in find(ROOT, [str(ROOT / "rope")])] == ["rope"]
    assert len(find(ROOT, [])) == len(find(ROOT, ["all"])) == len(ids())


def test_find_suggests_the_nearest() -> None:
    with pytest.raises(HarnessError) as caught:
        find(ROOT, ["softmx"])
    assert caught.value.exit_code == 2
    assert caught.value.remedy is not None and "softmax" in caught.value.remedy


def test_no_bundles_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="no bundles here"):
        find(tmp_path, [])
    with pytest.raises(HarnessError, match="no such directory"):
        ids(tmp_path / "nowhere")


def test_loading_a_bad_bundle_names_every_fault(tmp_path: Path) -> None:
    (tmp_path / "bundle.yaml").write_text("schema_version: 1\nid: UPPER\nclaims: []\n")
    with pytest.raises(FaultError) as caught:
        load(tmp_path)
    text = [fault.text() for fault in caught.value.faults]
    assert len(text) == 8  # six fields missing, one bad id, no claims
    assert any(":2: id: must match" in line and line.endswith("(got 'UPPER')") for line in text)
    assert any(": kernel: is missing" in line for line in text)


def test_values_of_yaml_are_plain() -> None:
    data = parse(b"a: 1\nb: -2.5\nc: 'yes'\nd: null\ne: true\nf: 2026-06-01\ng: [1, two]\n", "f").data
    assert data == {"a": 1, "b": -2.5, "c": "yes", "d": None, "e": True, "f": "2026-06-01", "g": [1, "two"]}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a: yes\n", "plain"),
        ("a: 0x10\n", "plain"),
        ("a: 1_000\n", "plain"),
        ("a: 1:30\n", "plain"),
        ("a: 010\n", "plain"),
        ("a: .nan\n", "finite"),
        ("a: -.inf\n", "finite"),
        ("a: !!python/name:os.system x\n", "tag"),
        ("a: !!set {x}\n", "tag"),
        ("a: !!binary aGk=\n", "tag"),
        ("a: &x [1]\nb: *x\n", "alias"),
        ("a: &x 1\nb: *x\n", "alias"),
        ("a: &x [*x]\n", "alias"),
        ("a: 1\na: 2\n", "duplicate-key"),
        ("1: 2\n", "key"),
        ("? [a]\n: 1\n", "key"),
        ("a: {<<: {b: 1}}\n", "key"),
        ("a: 1\n---\nb: 1\n", "syntax"),
        ("a: [1\n", "syntax"),
        ("a: " + "[" * 30 + "]" * 30 + "\n", "depth"),
        ("a: " + "[" * 5000 + "]" * 5000 + "\n", "syntax"),
        ("", "empty"),
        ("# nothing\n", "empty"),
    ],
)
def test_yaml_that_is_not_ours(text: str, rule: str) -> None:
    with pytest.raises(FaultError) as caught:
        parse(text.encode(), "f.yaml")
    assert {fault.rule for fault in caught.value.faults} == {rule}
    assert all(
        fault.text().startswith("f.yaml") and "\n" not in fault.text() for fault in caught.value.faults
    )
