"""docs/kernels.md is what its tool writes now, and its roofline times are the arithmetic that it says."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from harness.kernels import IDS, get


@pytest.fixture(scope="module")
def tool(repo_root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("kernels_doc", repo_root / "tools" / "kernels_doc.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_document_is_current(repo_root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "tools/kernels_doc.py", "--check"], cwd=repo_root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_check_fails_on_a_changed_document(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "kernels.md"
    monkeypatch.setattr(tool, "TARGET", target)
    monkeypatch.setattr(sys, "argv", ["kernels_doc.py", "--check"])
    assert tool.main() == 1
    target.write_text(tool.document().replace("softmax", "softmin", 1), encoding="utf-8")
    assert tool.main() == 1
    monkeypatch.setattr(sys, "argv", ["kernels_doc.py"])
    assert tool.main() == 0
    monkeypatch.setattr(sys, "argv", ["kernels_doc.py", "--check"])
    assert tool.main() == 0


def test_roofline(tool: ModuleType) -> None:
    softmax, product = get("softmax"), get("preshuffle-gemm")
    # 1,073,741,824 bytes at 8 TB/s; 137.4 Gop at 4.6 Pop/s is longer than 67 MB at 8 TB/s
    assert tool.roofline_us(softmax, {}, "bf16") == pytest.approx(134.217728)
    assert tool.roofline_us(product, {}, "fp8") == pytest.approx(29.789, rel=1e-3)


def test_every_kernel_has_a_section_with_each_workload(tool: ModuleType) -> None:
    text = tool.document()
    for bundle in IDS:
        part = text.split(f"## {bundle}\n")[1].split("\n## ")[0]
        for name in get(bundle).WORKLOADS:
            assert f"| {name} |" in part
        for unknown in get(bundle).UNKNOWN:
            assert unknown in part
