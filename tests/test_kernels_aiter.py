"""AITER's adapters: signatures and branches against its source at the pin, and what a user sees when it
fails."""

from __future__ import annotations

import ast
import logging
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.kernels import IDS, aiter, get

PACKAGE = "aiter"


def source(tree: Path, file: str) -> ast.Module:
    """AITER's `file` at the pinned commit, parsed; AITER_SRC may be a checkout or a bare mirror."""
    command = ["git", "-C", str(tree), "show", f"{aiter.COMMIT}:{file}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{file}: {done.stderr.strip()}"
    return ast.parse(done.stdout)


@pytest.mark.source("AITER_SRC")
@pytest.mark.parametrize("name", aiter.ENTRIES)
def test_every_call_binds_to_the_signature_at_the_pin(aiter_src: Path, name: str) -> None:
    entry = aiter.ENTRIES[name]
    found = [
        node
        for node in source(aiter_src, entry.file).body
        if isinstance(node, ast.FunctionDef) and node.name == entry.function
    ]
    assert len(found) == 1, f"{entry.module} has {len(found)} functions {entry.function}"
    arguments = found[0].args
    names = [a.arg for a in arguments.posonlyargs + arguments.args]
    assert tuple(names[: len(entry.positional)]) == entry.positional
    keywords = names + [a.arg for a in arguments.kwonlyargs]
    assert set(entry.keywords) <= set(keywords)
    required = names[: len(names) - len(arguments.defaults)]
    assert set(required) <= set(entry.positional) | set(entry.keywords)


@pytest.mark.source("AITER_SRC")
@pytest.mark.parametrize("name", [n for n, e in aiter.ENTRIES.items() if e.backend.startswith("triton")])
def test_the_expected_triton_kernel_is_one_that_the_module_launches(aiter_src: Path, name: str) -> None:
    entry = aiter.ENTRIES[name]
    names = []
    for node in ast.walk(source(aiter_src, entry.file)):
        if isinstance(node, ast.ImportFrom):
            names += [alias.name for alias in node.names]
        if isinstance(node, ast.FunctionDef):
            names.append(node.name)
    assert entry.expects is not None and [n for n in names if re.search(entry.expects, n)]


@pytest.mark.source("AITER_SRC")
def test_aiter_lives_without_flydsl_at_the_pin(aiter_src: Path) -> None:
    """Outside its own FlyDSL half, AITER imports FlyDSL only where a failure is caught."""
    command = ["git", "-C", str(aiter_src), "grep", "-l", "flydsl", aiter.COMMIT, "--", "aiter"]
    listed = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    files = [line.partition(":")[2] for line in listed if line.endswith(".py")]
    mine = [f for f in files if not f.startswith(("aiter/ops/flydsl/", "aiter/aot/"))]
    assert "aiter/ops/triton/gluon/pa_decode_gluon.py" in mine
    allowed = {"aiter.ops.flydsl.utils", "aiter.ops.flydsl.moe_common", "ops.flydsl.utils"}
    for file in mine:
        for node in source(aiter_src, file).body:
            if isinstance(node, ast.ImportFrom):
                module = node.module or ""
                assert "flydsl" not in module or module in allowed, f"{file}:{node.lineno}"
            if isinstance(node, ast.Import):
                assert not any(a.name.startswith("flydsl") for a in node.names), f"{file}:{node.lineno}"


def test_every_aiter_baseline_names_an_entry_and_every_entry_is_used() -> None:
    used = set()
    for bundle in IDS:
        module = get(bundle)
        for dims in module.WORKLOADS.values():
            for baseline in module.baselines(dims):
                assert (
                    baseline.role in ("claim", "other") and baseline.region.inside and baseline.region.outside
                )
                if baseline.requires == "aiter":
                    entry = aiter.ENTRIES[baseline.id]
                    assert baseline.entry_point == f"{entry.module}:{entry.function}"
                    used.add(baseline.id)
    helpers = {"gluon-splits", "paged-reduce", "ck-moe-stage2"}
    assert used | helpers == set(aiter.ENTRIES)


def test_each_ratio_claim_has_one_baseline_of_the_claim() -> None:
    without = {"vec-add", "mqa-logits-fp4", "fp8-gemm-4wave"}
    for bundle in IDS:
        module = get(bundle)
        for dims in module.WORKLOADS.values():
            roles = [baseline.role for baseline in module.baselines(dims)]
            assert roles.count("claim") == (0 if bundle in without else 1), bundle


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An `aiter` of our own on the path; modules as they were afterwards."""
    before = {name for name in sys.modules if name.split(".")[0] in (PACKAGE, "flydsl")}
    monkeypatch.syspath_prepend(str(tmp_path))
    root = tmp_path / PACKAGE / "ops" / "triton"
    root.mkdir(parents=True)
    for folder in (tmp_path / PACKAGE, tmp_path / PACKAGE / "ops", root):
        (folder / "__init__.py").write_text("")
    yield tmp_path / PACKAGE
    for name in list(sys.modules):
        if name.split(".")[0] in (PACKAGE, "flydsl") and name not in before:
            del sys.modules[name]


def test_no_aiter_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiter", None)
    with pytest.raises(HarnessError, match=r"aiter\.ops\.triton\.softmax: import failed at aiter") as caught:
        aiter.load("triton-softmax")
    assert caught.value.exit_code == 50 and aiter.COMMIT[:12] in (caught.value.remedy or "")


def test_an_import_that_fails_halfway_names_the_submodule(fake: Path) -> None:
    (fake / "__init__.py").write_text("import einops_is_not_here")
    with pytest.raises(HarnessError, match="import failed at einops_is_not_here") as caught:
        aiter.load("triton-softmax")
    assert "install einops_is_not_here" in (caught.value.remedy or "")


def test_an_import_that_raises_is_one_line(fake: Path) -> None:
    (fake / "__init__.py").write_text("raise RuntimeError('no hipcc')")
    with pytest.raises(HarnessError, match="RuntimeError: no hipcc"):
        aiter.load("triton-softmax")


def test_another_aiter_has_no_such_function(fake: Path) -> None:
    (fake / "ops" / "triton" / "softmax.py").write_text("def other(): pass")
    with pytest.raises(HarnessError, match="has no softmax") as caught:
        aiter.load("triton-softmax")
    assert caught.value.exit_code == 40


def test_aiter_does_not_see_the_flydsl_that_the_subject_uses(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, during and after: the subject's FlyDSL stays, AITER is told that there is none."""
    flydsl = types.ModuleType("flydsl")
    compiler = types.ModuleType("flydsl.compiler")
    flydsl.compiler = compiler  # type: ignore[attr-defined]
    for name, module in (("flydsl", flydsl), ("flydsl.compiler", compiler)):
        monkeypatch.setitem(sys.modules, name, module)
    (fake / "ops" / "triton" / "softmax.py").write_text(
        "import importlib.util\n"
        "def is_flydsl_available(): return importlib.util.find_spec('flydsl') is not None\n"
        "at_import = is_flydsl_available()\n"
        "try:\n    import flydsl.compiler\n    half = True\nexcept Exception:\n    half = False\n"
        "def softmax(x): return at_import, half, is_flydsl_available()\n"
    )
    assert aiter.load("triton-softmax")(1) == (False, False, False)
    assert sys.modules["flydsl"] is flydsl and sys.modules["flydsl.compiler"] is compiler


def test_another_branch_is_not_comparable() -> None:
    seen = aiter.Observation(("_fused_qk_rope_reshape_and_cache_kernel.kd",), ())
    assert aiter.agreed(aiter.ENTRIES["triton-rope"].expects, seen) is None
    assert aiter.agreed(None, aiter.Observation((), ())) is None
    other = aiter.Observation(("void at::native::index_put",), ())
    assert "saw void at::native::index_put" in (aiter.agreed("rope", other) or "")
    assert "saw no kernel" in (aiter.agreed("rope", aiter.Observation((), ())) or "")


def test_observe_keeps_what_aiter_logs_of_its_tuned_configuration() -> None:
    def launch(text: str) -> None:
        logging.getLogger("aiter").warning(text)

    hit = aiter.observe(lambda: launch("shape is M:16 is tuned on cu_num = 256 in a8w8.csv"))
    miss = aiter.observe(
        lambda: launch("shape is M:16, not found tuned config in a8w8.csv, will use default")
    )
    none = aiter.observe(lambda: None)
    assert (hit.tuned, miss.tuned, none.tuned) == (True, False, None)
