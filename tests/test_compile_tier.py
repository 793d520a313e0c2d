"""The compile tier: what it compiles for which claim, its committed evidence, and (with sources) the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import evidence
from harness.bundle import ROOT, Bundle, find
from harness.command import Silent
from harness.compile import tier
from harness.compile.cache import Cache
from harness.compile.captures import facts
from harness.compile.layers import full_commit
from harness.compile.toolchain import Toolchain
from harness.errors import HarnessError
from harness.kernels import get
from harness.kinds import judge
from harness.pins import load as pins
from harness.tiers import Context
from harness.verdict import Verdict

LOADED = {bundle.id: bundle for bundle in find(ROOT, ()) if tier.compilable(bundle)}
BUNDLES = tuple(LOADED)


def identities(bundle: Bundle) -> list[Any]:
    return [c for c in bundle.claims if c.kind == "isa" and c.fields.get("check") == "identity"]


def context(tmp_path: Path, **options: Any) -> Context:
    return Context(None, True, Silent(), ROOT, options)


def test_captures_are_what_the_bundles_claim() -> None:
    claimed = {}
    for name in BUNDLES:
        for claim in identities(LOADED[name]):
            claimed[claim.fields["capture"]] = (claim.fields["instructions"], claim.fields["sha256"])
    assert claimed == {name: (fact["instructions"], fact["sha256"]) for name, fact in facts().items()}
    assert len(claimed) == 22


@pytest.mark.parametrize("name", BUNDLES)
def test_each_claim_of_a_binary_is_compiled(name: str) -> None:
    bundle = LOADED[name]
    wanted, unsaid = tier.launches(bundle, get(name), pins().flydsl.layer)
    assert wanted and not unsaid
    asked = {
        (workload, one.layer, one.variant.name) for one in wanted for workload in (one.workload, *one.also)
    }
    for claim in identities(bundle):
        assert (claim.workload, claim.fields["layer"], "") in asked
    keys = [(one.workload, one.layer, one.variant.name, str(dict(one.shape))) for one in wanted]
    assert len(set(keys)) == len(keys)


def test_one_workload_alone() -> None:
    bundle = LOADED["flash-attn"]
    wanted, _ = tier.launches(bundle, get("flash-attn"), pins().flydsl.layer, "captured-small")
    assert {one.workload for one in wanted} == {"captured-small"}


@pytest.mark.parametrize("name", BUNDLES)
def test_committed_evidence_reproduces_the_captured_listings(name: str) -> None:
    """Judged again from the committed file: each identity under the pinned layer, text and code object."""
    bundle = LOADED[name]
    found = evidence.read(bundle.path, "compiled")
    assert found is not None, f"harness compile {name} --evidence"
    assert found["bundle"] == name and found["layer"] == pins().flydsl.layer
    assert found["source"]["commit"] == bundle.kernel.commit
    assert found["source"]["files"] == {file.path: file.sha256 for file in bundle.kernel.files}
    wanted, _ = tier.launches(bundle, get(name), pins().flydsl.layer)
    assert [launch["dims"] for launch in found["launches"]] == [dict(one.dims) for one in wanted]
    for claim in identities(bundle):
        if claim.fields["layer"] == pins().flydsl.layer:
            answer = judge("compile", claim, bundle, found)
            assert answer is not None and answer.verdict is Verdict.REPRODUCED, answer


@pytest.mark.source("FLYDSL_SRC")
@pytest.mark.parametrize("name", BUNDLES)
def test_compiling_again_gives_the_committed_evidence(
    name: str, flydsl_src: Path, toolchain: Toolchain, compile_cache: Cache, tmp_path: Path
) -> None:
    """Minutes for all bundles on two cores; versions of torch and Python apart, the bytes are the same."""
    bundle = LOADED[name]
    committed = evidence.read(bundle.path, "compiled")
    assert committed is not None
    fresh = dict(tier.gather(bundle, context(tmp_path)))
    assert "unavailable" not in fresh, fresh
    assert {**fresh, "toolchain": None} == {**committed, "toolchain": None}


def test_without_a_source_the_specimens_are_compiled_and_the_remedy_told(
    toolchain: Toolchain, compile_cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLYDSL_SRC", raising=False)
    said: list[str] = []

    class Listening(Silent):
        def say(self, line: str) -> None:
            said.append(line)

    tier._said.clear()
    bundle = LOADED["softmax"]
    found = tier.gather(bundle, Context(None, True, Listening(), ROOT))
    assert "FLYDSL_SRC" in found["remedy"]
    assert any("compiled 4 of 4 own specimens" in line for line in said)
    for claim in identities(bundle):
        answer = judge("compile", claim, bundle, found)
        assert answer is not None
        assert answer.verdict is Verdict.NOT_MEASURED and answer.remedy == found["remedy"]


def test_a_changed_source_file_is_one_line_and_no_compile(
    toolchain: Toolchain, compile_cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "softmax_kernel.py").write_text("changed\n")
    monkeypatch.setenv("FLYDSL_SRC", str(tmp_path))
    found = tier.gather(LOADED["softmax"], context(tmp_path))
    assert "kernels/softmax_kernel.py has sha256" in found["unavailable"]


def test_layers_by_name() -> None:
    assert full_commit("4703ba3b") == "4703ba3b7150bb142b43c34c71ab49960ec93a15"
    assert full_commit("wheel") == "wheel"
    assert full_commit("f" * 40) == "f" * 40
    for bad in ("4703", "main", "00000000"):
        with pytest.raises(HarnessError, match="no commit id"):
            full_commit(bad)
