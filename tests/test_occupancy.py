"""Occupancy against figures worked out elsewhere: compiler remarks, captures, and the edges of the rule."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.compile.occupancy import LIMITS, allocated_vgprs, occupancy, unified_vgprs


@pytest.mark.parametrize(
    ("vgprs", "sgprs", "lds", "size", "waves", "groups", "limiter"),
    [
        (242, 34, 49152, 256, 2, 2, "registers"),  # flash attention as compiled: 242 -> 248 allocated
        (124, 34, 49152, 256, 3, 3, "lds"),  # the same with the halved register count of the profiler
        (95, 40, 0, 256, 5, 5, "registers"),  # mqa-logits: 96 allocated
        (48, 40, 0, 256, 8, 8, "wave slots"),
        (256, 40, 0, 256, 2, 2, "registers"),  # mla
        (192, 40, 0, 256, 2, 2, "registers"),  # paged attention
        (208, 40, 0, 256, 2, 2, "registers"),  # MoE block scale, stage 1
        (120, 40, 0, 256, 4, 4, "registers"),  # and stage 2
        (80, 40, 0, 256, 6, 6, "registers"),  # six waves need at most 80 ...
        (81, 40, 0, 256, 5, 5, "registers"),  # ... not 85
        (32, 87, 0, 256, 8, 8, "wave slots"),
        (32, 102, 0, 256, 7, 7, "sgpr"),
        (32, 40, 54613, 256, 2, 2, "lds"),  # three such fit without the granule of 1280 bytes
        (32, 40, 163840, 256, 1, 1, "lds"),
        (32, 40, 0, 704, 6, 2, "workgroup slots"),  # 11 waves: two workgroups, 22 of 32 wave slots
        (32, 40, 0, 64, 8, 32, "wave slots"),
        (32, 40, 0, 128, 8, 16, "wave slots"),
        (264, 40, 0, 1024, 0, 0, "registers"),  # 16 waves at one wave a SIMD: does not fit
        (32, 40, 163841, 64, 0, 0, "lds"),
        (0, 0, 0, 1, 8, 32, "wave slots"),
    ],
)
def test_known_kernels(
    vgprs: int, sgprs: int, lds: int, size: int, waves: int, groups: int, limiter: str
) -> None:
    found = occupancy(vgprs=vgprs, sgprs=sgprs, lds_bytes=lds, workgroup_size=size)
    assert (found.waves_per_simd, found.workgroups_per_cu, found.limiter) == (waves, groups, limiter)


def test_more_of_anything_never_raises_occupancy() -> None:
    def of(vgprs: int, lds: int, size: int) -> int:
        return occupancy(vgprs=vgprs, sgprs=40, lds_bytes=lds, workgroup_size=size).waves_per_simd

    for size in (64, 256, 512, 1024):
        by_registers = [of(v, 0, size) for v in range(1, 513)]
        by_lds = [of(32, lds, size) for lds in range(0, 163841, 640)]
        assert by_registers == sorted(by_registers, reverse=True)
        assert by_lds == sorted(by_lds, reverse=True)


def test_limiters_are_those_that_bind() -> None:
    found = occupancy(vgprs=256, sgprs=40, lds_bytes=81920, workgroup_size=256)
    assert found.waves_per_simd == 2
    assert found.limiters == ("registers", "lds")
    assert set(found.limits) == set(LIMITS)


def test_unified_file() -> None:
    assert unified_vgprs(242, 0) == 242
    assert unified_vgprs(126, 128) == 256
    assert allocated_vgprs(0) == 8
    assert allocated_vgprs(241) == 248


@pytest.mark.parametrize(
    "bad",
    [
        {"vgprs": 513, "sgprs": 0, "lds_bytes": 0, "workgroup_size": 64},
        {"vgprs": 8, "sgprs": 0, "lds_bytes": 0, "workgroup_size": 0},
        {"vgprs": 8, "sgprs": 0, "lds_bytes": 0, "workgroup_size": 1025},
        {"vgprs": 8, "sgprs": -1, "lds_bytes": 0, "workgroup_size": 64},
        {"vgprs": 8, "sgprs": 0, "lds_bytes": -1, "workgroup_size": 64},
    ],
)
def test_impossible_values_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="got"):
        occupancy(**bad)


def test_imports_neither_torch_nor_numpy() -> None:
    code = "import sys, harness.compile.occupancy; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
