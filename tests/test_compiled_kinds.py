"""Claims judged from compile evidence: pure, on evidence made up here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.bundle import Bundle, Claim, Implementation, Kernel
from harness.compile.occupancy import occupancy
from harness.kinds import judge
from harness.verdict import TierResult, Verdict

OURS, THEIRS = "4703ba3b" + "0" * 32, "18c5a7ed" + "0" * 32
CAPTURED, OTHER = "a" * 64, "b" * 64


def claim(kind: str, published: Any = None, origin: str = "project", **fields: Any) -> Claim:
    return Claim("it", kind, "", origin, "captured", published, None, None, None, (), fields, 1)


def bundle(name: str, *claims: Claim) -> Bundle:
    nothing = Implementation(None, None, None, None, ())
    kernel = Kernel(("k",), "", "", ())
    return Bundle(name, "", Path("."), kernel, (), nothing, None, claims, (), {})


def an_object(**more: Any) -> dict[str, Any]:
    registers = {"vgpr": 242, "agpr": 0, "sgpr": 40, "highest_v": 241, "highest_a": -1, "highest_s": 34}
    registers |= {"vgpr_allocated": 248, "accum_offset": 244, "sgpr_allocated": 48}
    registers |= {"vgpr_spills": 0, "sgpr_spills": 0}
    fits = occupancy(vgprs=248, sgprs=40, lds_bytes=49152, workgroup_size=256)
    out: dict[str, Any] = {
        "symbol": "k_0",
        "instructions": 10,
        "sha256": CAPTURED,
        "code_sha256": "c" * 64,
        "first_pc": 256,
        "last_pc": 300,
        "size": 48,
        "mnemonics": {"s_nop": 3, "ds_bpermute_b32": 2, "v_mov_b32": 5},
        "registers": registers,
        "lds_bytes": 49152,
        "scratch_bytes": 0,
        "workgroup_size": 256,
        "occupancy": {
            "waves_per_simd": fits.waves_per_simd,
            "workgroups_per_cu": fits.workgroups_per_cu,
            "limiters": list(fits.limiters),
            "limits": dict(fits.limits),
        },
    }
    return out | more


def a_launch(layer: str = OURS, variant: str = "", **more: Any) -> dict[str, Any]:
    out = {"workload": "captured", "also": [], "layer": layer, "variant": variant, "ok": True, "error": None}
    return out | {"ran": True, "objects": [an_object()]} | more


def evidence(*launches: dict[str, Any], **more: Any) -> dict[str, Any]:
    capture = {"first_pc": 256, "last_pc": 300, "size": 48, "code_sha256": "c" * 64}
    out: dict[str, Any] = {"layer": OURS, "launches": list(launches), "unsaid": {}, "differences": {}}
    return out | {"captures": {"somewhere": capture}} | more


def judged(one: Claim, found: dict[str, Any], name: str = "softmax") -> TierResult:
    answer = judge("compile", one, bundle(name, one), found)
    assert answer is not None
    return answer


def identity(layer: str = OURS, origin: str = "project") -> Claim:
    return claim(
        "isa",
        origin=origin,
        check="identity",
        capture="somewhere",
        symbol="k_0",
        instructions=10,
        sha256=CAPTURED,
        layer=layer,
    )


def test_identity_down_to_the_code_object() -> None:
    assert judged(identity(), evidence(a_launch())).verdict is Verdict.REPRODUCED


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("first_pc", 512, "first address 512, captured 256"),
        ("size", 52, "size 52, captured 48"),
        ("code_sha256", "d" * 64, "branch displacements"),
    ],
)
def test_the_same_text_in_another_code_object(field: str, value: Any, words: str) -> None:
    found = judged(identity(), evidence(a_launch(objects=[an_object(**{field: value})])))
    assert found.verdict is Verdict.CONTRADICTED
    assert words in found.reason


def test_another_listing_is_told_apart_instruction_by_instruction() -> None:
    told = {"count": 21, "first": 4, "captured": "s_lshr 5", "compiled": "s_lshr 4", "constants_only": True}
    other = a_launch(THEIRS, objects=[an_object(sha256=OTHER)])
    found = judged(identity(THEIRS), evidence(a_launch(), other, differences={"it": told}))
    assert found.verdict is Verdict.CONTRADICTED
    for words in ("21 differ", "only constants", "first at 4", "`s_lshr 5`", "`s_lshr 4`"):
        assert words in found.reason
    assert "layer 4703ba3b gives the captured one" in found.reason


def test_a_listing_that_two_layers_give_tells_neither() -> None:
    both = evidence(a_launch(), a_launch(THEIRS))
    found = judged(identity(THEIRS, origin="study"), both)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "4703ba3b" in found.reason
    assert judged(identity(THEIRS, origin="study"), evidence(a_launch(THEIRS))).verdict is Verdict.REPRODUCED


def test_what_was_not_compiled_is_not_measured() -> None:
    absent = judged(identity(), evidence())
    assert absent.verdict is Verdict.NOT_MEASURED
    failed = judged(identity(), evidence(a_launch(ok=False, error="MLIRError: x", objects=[])))
    assert failed.verdict is Verdict.NOT_MEASURED and "MLIRError: x" in failed.reason
    unsaid = judged(identity(), evidence(unsaid={"captured": "N must be at least 1"}))
    assert "N must be at least 1" in unsaid.reason


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"mnemonic": "s_nop", "count": 3}, Verdict.REPRODUCED),
        ({"mnemonic": "s_nop", "count": 4}, Verdict.CONTRADICTED),
        ({"mnemonic": "ds_.*", "min": 1}, Verdict.REPRODUCED),
        ({"mnemonic": "ds_.*", "max": 1}, Verdict.CONTRADICTED),
        ({"mnemonic": ".*", "count": 10}, Verdict.REPRODUCED),
        ({"mnemonic": "buffer_load_dwordx4", "absent": True}, Verdict.REPRODUCED),
        ({"mnemonic": "s_no", "absent": True}, Verdict.REPRODUCED),
        ({"mnemonic": "v_mov_b32", "absent": True}, Verdict.CONTRADICTED),
    ],
)
def test_patterns(fields: dict[str, Any], verdict: Verdict) -> None:
    assert judged(claim("isa", check="pattern", **fields), evidence(a_launch())).verdict is verdict


def test_a_pattern_over_shapes_holds_for_each() -> None:
    many = a_launch(variant="by shape", objects=[an_object(mnemonics={"s_nop": 9})])
    found = evidence(a_launch(), a_launch(variant="by shape"), many)
    wanted = claim("isa", check="pattern", mnemonic="s_nop", variant="by shape", min=3, max=8)
    answer = judged(wanted, found)
    assert (answer.verdict, answer.value) == (Verdict.CONTRADICTED, "3..9")


@pytest.mark.parametrize(
    ("metric", "published", "verdict", "words"),
    [
        ("vgpr", 242, Verdict.REPRODUCED, "248 are allocated"),
        ("vgpr", 124, Verdict.CONTRADICTED, "half of the allocation"),
        ("vgpr", 243, Verdict.CONTRADICTED, "within the allocation but not used"),
        ("vgpr", 240, Verdict.CONTRADICTED, "2 low"),
        ("vgpr", [175, 251], Verdict.REPRODUCED, ""),
        ("vgpr", [100, 200], Verdict.CONTRADICTED, ""),
        ("agpr", 0, Verdict.REPRODUCED, ""),
        ("sgpr", 112, Verdict.CONTRADICTED, "for every kernel"),
        ("lds", 49152, Verdict.REPRODUCED, ""),
        ("spills", 0, Verdict.REPRODUCED, ""),
        ("occupancy", 2, Verdict.REPRODUCED, "limit: registers"),
        ("occupancy", 1, Verdict.CONTRADICTED, "256 // 248"),
        ("occupancy_limiter", "registers", Verdict.REPRODUCED, ""),
        ("occupancy_limiter", "lds", Verdict.CONTRADICTED, ""),
        ("workgroup_size", [256, 1, 1], Verdict.REPRODUCED, ""),
        ("workgroup_size", [64, 2, 1], Verdict.NOT_MEASURED, "may have fewer"),
        ("workgroup_size", [512, 1, 1], Verdict.CONTRADICTED, ""),
    ],
)
def test_resources(metric: str, published: Any, verdict: Verdict, words: str) -> None:
    found = judged(claim("resource", published, metric=metric), evidence(a_launch()))
    assert found.verdict is verdict
    assert words in found.reason


def test_the_metadata_counts_both_kinds_of_registers() -> None:
    both = an_object()
    both["registers"] |= {"vgpr": 188, "agpr": 12, "highest_v": 175, "highest_a": 8, "vgpr_allocated": 192}
    found = evidence(a_launch(objects=[both]))
    assert judged(claim("resource", 176, metric="vgpr"), found).verdict is Verdict.REPRODUCED
    assert "1 low" in judged(claim("resource", 175, metric="vgpr"), found).reason
    assert judged(claim("resource", 9, metric="agpr"), found).verdict is Verdict.REPRODUCED


def test_the_grid_is_not_in_a_code_object() -> None:
    one = claim("resource", [1, 1, 1], metric="grid_workgroups")
    assert judge("compile", one, bundle("softmax", one), evidence(a_launch())) is None


@pytest.mark.parametrize(
    ("ok", "error", "expect", "text", "verdict"),
    [
        (True, None, True, None, Verdict.REPRODUCED),
        (False, "E: bad attribute", True, None, Verdict.CONTRADICTED),
        (False, "E: bad attribute", False, "bad attribute", Verdict.REPRODUCED),
        (False, "E: something else", False, "bad attribute", Verdict.CONTRADICTED),
        (True, None, False, None, Verdict.CONTRADICTED),
    ],
)
def test_compiles(ok: bool, error: str | None, expect: bool, text: str | None, verdict: Verdict) -> None:
    launch = a_launch(variant="fast", ok=ok, error=error, objects=[])
    one = claim("compiles", expect=expect, error=text, variant="fast", layer=OURS)
    assert judged(one, evidence(launch)).verdict is verdict


def test_a_compile_that_did_not_finish_decides_nothing() -> None:
    launch = a_launch(ok=False, ran=False, error="did not finish within 600 s", objects=[])
    found = judged(claim("compiles", expect=False), evidence(launch))
    assert found.verdict is Verdict.INCONCLUSIVE


def test_the_host_path_is_told_by_layer() -> None:
    one = claim("compiles", expect=False, error="missing spec", layer=OURS)
    broken = a_launch(variant="dispatch", ok=False, error="RuntimeError: missing spec", objects=[])
    works = a_launch(THEIRS, variant="dispatch", objects=[])
    found = judged(one, evidence(broken, works), "fp8-gemm-4wave")
    assert found.verdict is Verdict.REPRODUCED
    assert "18c5a7ed compiles" in found.reason


def test_an_unavailable_tier_passes_its_remedy_on() -> None:
    answer = judged(identity(), {"unavailable": "no FlyDSL", "remedy": "pip install flydsl"})
    assert (answer.verdict, answer.remedy) == (Verdict.NOT_MEASURED, "pip install flydsl")
