"""Listings: normal form, classes, differences, and the readers' bad input. No compiler needed."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.compile.isa import (
    classify,
    difference,
    digest,
    full_digest,
    highest_registers,
    histogram,
    normal_form,
    parse_assembly,
    parse_capture,
)
from harness.errors import HarnessError

SOURCE = """
\t.text
\t.globl\tk
k:
\ts_load_dwordx2 s[0:1], s[2:3],   0x0 ; a comment
.LBB0_1:
\tbuffer_load_dword v1, v0, s[4:7], 0 offen offset:0
\ts_cbranch_scc1 .LBB0_1
\t.p2align\t4
\ts_endpgm
\t.section\t.rodata,"a",@progbits
\t.amdhsa_kernel k
\t.end_amdhsa_kernel
\t.text
.Lfunc_end0:
\tv_mov_b32 v0, v1
"""


def test_assembly_keeps_instructions_only() -> None:
    listing = parse_assembly(SOURCE, "k.s")
    assert listing.symbol == "k"
    assert listing.normal == (
        "s_load_dwordx2 s[0:1], s[2:3], 0x0",
        "buffer_load_dword v1, v0, s[4:7], 0 offen",
        "s_cbranch_scc1 L",
        "s_endpgm",
    )


def test_digest_is_sha256_of_lines() -> None:
    # printf 's_nop 0\ns_endpgm' | sha256sum
    assert digest(("s_nop 0", "s_endpgm")) == (
        "f8639fe80c02d168e9291eca126b47f0cf2492c0a0b572d38f0ebd11a00ddcc9"
    )


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("s_branch 65520", "s_branch L"),
        ("s_cbranch_execz .LBB0_2", "s_cbranch_execz L"),
        ("ds_read_b32 v0, v1 offset:0", "ds_read_b32 v0, v1"),
        ("ds_read_b32 v0, v1 offset:04", "ds_read_b32 v0, v1 offset:04"),
        (
            "buffer_load_dword v1, v0, s[4:7], 0 offen offset:0 lds",
            "buffer_load_dword v1, v0, s[4:7], 0 offen lds",
        ),
        ("s_barrier", "s_barrier"),
    ],
)
def test_normal_form(text: str, normal: str) -> None:
    assert normal_form(text) == normal


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("v_mfma_f32_32x32x16_bf16 a[0:15], v[0:3], v[4:7], a[0:15]", "mfma 32x32x16 bf16_f32"),
        (
            "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[0:7], v[8:15], v[0:3], v1, v2",
            "mfma 16x16x128 f8f6f4_f32",
        ),
        ("buffer_load_dwordx4 v[0:3], v4, s[0:3], 0 offen", "vmem load 128"),
        ("buffer_load_dwordx4 v4, s[0:3], 0 offen lds", "lds-dma 128"),
        ("global_load_lds_dwordx4 v[0:1], off", "lds-dma 128"),
        ("buffer_store_short v0, v1, s[0:3], 0 offen", "vmem store 16"),
        ("global_load_ushort v0, v[2:3], off", "vmem load 16"),
        ("global_atomic_pk_add_bf16 v[0:1], v2, off offset:12", "vmem atomic"),
        ("ds_read_b64_tr_b16 v[0:1], v2", "lds read 64 transpose"),
        ("ds_read2_b64 v[0:3], v4 offset1:1", "lds read 128"),
        ("ds_write_b128 v0, v[1:4]", "lds write 128"),
        ("ds_bpermute_b32 v0, v1, v2", "cross-lane ds_bpermute"),
        ("ds_swizzle_b32 v0, v1 offset:swizzle(SWAP,16)", "cross-lane ds_swizzle"),
        ("v_permlane32_swap_b32_e32 v0, v1", "cross-lane permlane"),
        ("v_add_f32_dpp v0, v1, v1 row_shr:1 row_mask:0xf bank_mask:0xf", "cross-lane dpp"),
        ("v_mov_b32 v0, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf", "cross-lane dpp"),
        ("v_exp_f32_e32 v0, v1", "transcendental"),
        ("s_waitcnt vmcnt(0)", "wait"),
        ("s_barrier", "barrier"),
        ("s_nop 1", "nop"),
        ("s_cbranch_scc0 12", "branch"),
        ("s_load_dwordx4 s[0:3], s[4:5], 0x0", "smem"),
        ("s_add_u32 s0, s0, s1", "salu"),
        ("v_fma_f32 v0, v1, v2, v3", "valu"),
    ],
)
def test_classes(text: str, name: str) -> None:
    assert histogram([text]) == {name: 1}


def test_a_class_for_every_mnemonic() -> None:
    assert classify("v_some_new_thing") == "valu"
    assert classify("unheard_of") == "other"


def test_no_difference() -> None:
    assert difference(("a", "b"), ("a", "b")) is None


def test_constants_only() -> None:
    a = ("s_mov_b32 s0, 0x10", "v_add_u32 v1, 4, v2", "s_endpgm")
    b = ("s_mov_b32 s0, 0x20", "v_add_u32 v1, 4, v2", "s_endpgm")
    found = difference(a, b)
    assert found is not None
    assert (found.count, found.first, found.constants_only) == (1, 0, True)
    assert found.pairs == ((0, a[0], b[0]),)


def test_registers_are_no_constants() -> None:
    for b in ("v_mov_b32 v2, v0", "v_mov_b32 v[2:3], v0", "s_mov_b32 v1, v0"):
        found = difference(("v_mov_b32 v1, v0",), (b,))
        assert found is not None and not found.constants_only


def test_insertion_counts_once_with_neighbours() -> None:
    a = tuple(f"v_mov_b32 v{index}, 0" for index in range(20))
    b = (*a[:7], "s_nop 0", *a[7:])
    found = difference(a, b)
    assert found is not None
    assert (found.count, found.first, found.left, found.right) == (1, 7, a[7], "s_nop 0")
    assert found.before == a[5:7] and found.after == a[8:10]
    assert not found.constants_only


def test_prefix_differs_at_the_end() -> None:
    found = difference(("a", "b"), ("a",))
    assert found is not None and (found.first, found.left, found.right) == (1, "b", None)


@given(st.lists(st.sampled_from("abcde"), max_size=30), st.lists(st.sampled_from("abcde"), max_size=30))
def test_difference_is_none_exactly_for_equal_listings(a: list[str], b: list[str]) -> None:
    found = difference(a, b)
    assert (found is None) == (a == b)
    if found is not None:
        assert 1 <= found.count <= len(a) + len(b)
        assert a[: found.first] == b[: found.first]


def _capture(rows: list[list[object]]) -> bytes:
    return json.dumps({"code": rows, "version": "3.0.0"}).encode()


def test_capture() -> None:
    rows: list[list[object]] = [
        ["; k", 0, 0, "", 4, 256, 0, 0, 0, 0],
        ["s_branch  12", 0, 1, "", 4, 256, 1, 4, 0, 0],
    ]
    listing = parse_capture(_capture(rows), "code.json")
    assert (listing.symbol, listing.text, listing.addresses) == ("k", ("s_branch 12",), (256,))
    moved = [[*row[:5], 260, *row[6:]] for row in rows]
    jumped = [rows[0], ["s_branch 13", *rows[1][1:]]]
    assert digest(parse_capture(_capture(moved), "x").normal) == digest(listing.normal)
    assert full_digest(parse_capture(_capture(moved), "x")) != full_digest(listing)
    assert full_digest(parse_capture(_capture(jumped), "x")) != full_digest(listing)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"code": null}',
        b'{"code": []}',
        b'{"code": [["s_nop 0"]]}',
        b'{"code": [[1,2]]}',
        b'"x"',
    ],
)
def test_bad_captures_say_so(data: bytes) -> None:
    with pytest.raises(HarnessError, match=r"code\.json"):
        parse_capture(data, "code.json")


def test_bad_assembly_says_so() -> None:
    with pytest.raises(HarnessError, match=r"no \.amdhsa_kernel"):
        parse_assembly("hello", "x.s")
    with pytest.raises(HarnessError, match="no label z"):
        parse_assembly(SOURCE, "x.s", "z")
    with pytest.raises(HarnessError, match="2 kernels"):
        parse_assembly(SOURCE + "\t.amdhsa_kernel other\n", "x.s")


def test_highest_registers() -> None:
    assert highest_registers(["v_mov_b32 v[10:13], a2", "s_mov_b32 s7, s[0:1]"]) == (13, 2, 7)
    assert highest_registers(["s_endpgm"]) == (-1, -1, -1)


def test_normal_form_and_histogram_are_fast() -> None:
    """At least 200 000 instructions a second, in this process's own time."""
    some = [
        "v_mfma_f32_32x32x16_bf16 v[0:15], v[16:19], v[20:23], v[0:15]",
        "buffer_load_dwordx4 v[0:3], v4, s[0:3], 0 offen offset:0",
        "ds_read_b128 v[0:3], v4 offset:1024",
        "v_pk_mul_f32 v[0:1], v[2:3], v[4:5] op_sel_hi:[0,1]",
        "s_cbranch_scc1 .LBB0_12",
        "s_waitcnt vmcnt(0) lgkmcnt(0)",
    ]
    chosen = random.Random(0).choices(some, k=100_000)
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        digest(map(normal_form, chosen))
        histogram(chosen)
        best = min(best, time.process_time() - start)
    assert len(chosen) / best >= 200_000


def test_captured_listings_hash_as_recorded(study_src: Path, facts_dir: Path) -> None:
    import yaml

    checked = 0
    for fact in yaml.safe_load((facts_dir / "captures.yaml").read_text()):
        path = study_src / fact["capture"]
        if not path.is_file():
            continue
        listing = parse_capture(path.read_bytes(), fact["capture"])
        assert listing.addresses is not None
        assert len(listing.text) == fact["instructions"]
        assert digest(listing.normal) == fact["sha256_normal_form"]
        assert (listing.addresses[0], listing.addresses[-1]) == (fact["first_pc"], fact["last_pc"])
        checked += 1
    assert checked == 17
