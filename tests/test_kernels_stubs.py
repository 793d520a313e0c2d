"""Stand-ins for a GPU and for absent packages, and the softmax A/B, on a small upstream of our own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from harness.errors import HarnessError
from harness.kernels import inputs, softmax, stubs

KERNEL = """
from kernels.common import SCALE
MARK = "{mark}"
def build_softmax_module(rows, columns, dtype):
    def launch(x, y, count, stream=None):
        assert count == rows and stream is not None
        y.copy_(x * SCALE + {add})
    return launch
"""


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A `kernels` package and a patched copy of it, without FlyDSL."""
    before = set(sys.modules)
    for name, add in (("tree", 1), ("patched", 2)):
        folder = tmp_path / name / "kernels"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        (folder / "common.py").write_text("SCALE = 3\n")
        (folder / "softmax_kernel.py").write_text(KERNEL.format(mark=name, add=add))
    monkeypatch.syspath_prepend(str(tmp_path / "tree"))
    monkeypatch.setattr(stubs, "fly_stream", lambda stream: "stream")
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("kernels", "harness_private", "tests"):
            del sys.modules[name]


def test_fast_and_scalar_path_live_in_one_process(upstream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(softmax.PATCHED, str(upstream / "patched"))
    dims = {"M": 2, "N": 8, "dtype": "f32", "variant": "fast"}
    tensors = softmax.make_inputs(dims, device="cpu", seed=1)
    softmax.subject(dims, tensors)()
    scalar = softmax.baselines(dims)[0]
    assert (scalar.id, scalar.role, scalar.requires) == ("scalar-path", "claim", "flydsl")
    scalar.build(dims, tensors)()
    torch.testing.assert_close(tensors["y"], tensors["x"] * 3 + 2)
    torch.testing.assert_close(tensors["y_scalar"], tensors["x"] * 3 + 1)
    assert sys.modules["kernels.softmax_kernel"].MARK == "tree"
    assert [b.role for b in softmax.baselines({"M": 2})] == ["claim", "other"]


def test_the_fast_path_without_a_patched_copy(upstream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dims = {"M": 2, "N": 8, "variant": "fast"}
    tensors = softmax.make_inputs(dims, device="cpu", seed=1)
    monkeypatch.delenv(softmax.PATCHED, raising=False)
    with pytest.raises(HarnessError, match=softmax.PATCHED) as caught:
        softmax.subject(dims, tensors)
    assert caught.value.exit_code == 50
    monkeypatch.setenv(softmax.PATCHED, str(upstream / "nowhere"))
    with pytest.raises(HarnessError, match="no such file"):
        softmax.subject(dims, tensors)


def test_an_upstream_that_is_not_there_names_what_is_missing() -> None:
    with pytest.raises(HarnessError, match=r"kernels\.no_such_kernel: import failed at kernels") as caught:
        stubs.upstream("kernels.no_such_kernel")
    assert "FLYDSL_SRC" in (caught.value.remedy or "")


def test_a_test_file_is_imported_for_its_kernel_alone(upstream: Path) -> None:
    """pytest and the tests' helper are stood in for; afterwards everything is as it was."""
    folder = upstream / "tree" / "tests" / "kernels"
    folder.mkdir(parents=True)
    (folder / "test_quant.py").write_text(
        "import pytest, torch\nfrom tests.test_common import run_perftest\n"
        "pytestmark = [pytest.mark.l2_device]\n"
        "if not torch.cuda.is_available():\n    pytest.skip('no GPU', allow_module_level=True)\n"
        "@pytest.mark.parametrize('n', [1])\ndef test_it(n): raise AssertionError\n"
        "def build(n): return n + 1\n"
    )
    before = (sys.modules["pytest"], torch.cuda.is_available, sys.modules.get("tests"))
    assert stubs.defining_test("tests.kernels.test_quant").build(1) == 2
    assert (sys.modules["pytest"], torch.cuda.is_available, sys.modules.get("tests")) == before


def test_a_process_that_only_compiles_runs_no_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "hip", "7.2")
    assert stubs.gpu_present()
    monkeypatch.setenv("COMPILE_ONLY", "1")
    assert not stubs.gpu_present()
    monkeypatch.delenv("COMPILE_ONLY")
    monkeypatch.setattr(torch.version, "hip", None)
    assert not stubs.gpu_present(), "an NVIDIA GPU runs no FlyDSL kernel"


def test_without_aiter_there_is_a_reduction_that_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stubs.importlib.util, "find_spec", lambda name: None)
    with stubs.without_aiter():
        from aiter.ops.attention import pa_reduce_v1

        assert pa_reduce_v1(1, 2, 3) is None
    assert "aiter" not in sys.modules


def test_poison_is_seen_in_every_dtype() -> None:
    for kind in ("f32", "bf16", "f16"):
        assert inputs.poison((4,), kind, device="cpu").isnan().all()
    for kind in ("int8", "i32", "fp8"):
        assert (inputs.poison((4,), kind, device="cpu").view(torch.uint8) == 0xA5).all()
