"""Pinned sources: extracted from whatever is given, verified, and never written to."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from harness.bundle import SourceFile
from harness.compile.cache import Cache
from harness.compile.layers import KNOWN, layer
from harness.compile.variants import Patch, Variant, patched
from harness.errors import HarnessError
from harness.sources import FLYDSL, SourceTree, SourceUnavailable, Upstream, obtain, verify

TEXT = "a = False and True\n"


def git(*arguments: str, at: Path) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t.invalid", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *arguments], cwd=at, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small git repository with a kernel and a Python layer, named by FLYDSL_SRC."""
    root = tmp_path / "checkout"
    (root / "kernels").mkdir(parents=True)
    (root / "kernels" / "k.py").write_text(TEXT)
    (root / "python" / "flydsl").mkdir(parents=True)
    (root / "python" / "flydsl" / "__init__.py").write_text("")
    git("init", "-q", ".", at=root)
    git("add", ".", at=root)
    git("commit", "-q", "-m", "one", at=root)
    monkeypatch.setenv(FLYDSL.variable, str(root))
    return root


def pinned(text: str = TEXT) -> list[SourceFile]:
    return [SourceFile("kernels/k.py", hashlib.sha256(text.encode()).hexdigest())]


def content(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_from_a_checkout_at_the_commit_whatever_its_files_are_now(checkout: Path, tmp_path: Path) -> None:
    commit = git("rev-parse", "HEAD", at=checkout)
    (checkout / "kernels" / "k.py").write_text("changed since\n")
    before = content(checkout)
    tree = obtain(FLYDSL, commit, Cache(tmp_path / "cache"), offline=True)
    assert dict(verify(tree, pinned())) == {"kernels/k.py": pinned()[0].sha256}
    assert (tree.path / "kernels" / "k.py").read_text() == TEXT
    assert content(checkout) == before
    assert not tree.path.is_relative_to(checkout)


def test_from_a_bare_mirror_and_a_linked_work_tree(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = git("rev-parse", "HEAD", at=checkout)
    git("clone", "-q", "--bare", str(checkout), str(tmp_path / "mirror"), at=tmp_path)
    git("worktree", "add", "-q", str(tmp_path / "linked"), at=checkout)
    for name in ("mirror", "linked"):
        monkeypatch.setenv(FLYDSL.variable, str(tmp_path / name))
        tree = obtain(FLYDSL, commit, Cache(tmp_path / f"cache-{name}"), offline=True)
        assert (tree.path / "kernels" / "k.py").read_text() == TEXT


def test_the_wrong_commit_is_named_with_what_to_do(checkout: Path, tmp_path: Path) -> None:
    head = git("rev-parse", "HEAD", at=checkout)
    with pytest.raises(SourceUnavailable, match=f"is at {head[:12]}, and lacks 1111") as raised:
        obtain(FLYDSL, "1" * 40, Cache(tmp_path / "cache"))
    assert f"git fetch --depth 1 {FLYDSL.url} {'1' * 40}" in str(raised.value.remedy)


def test_one_changed_byte_and_a_missing_file(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tmp_path / "plain"
    (plain / "kernels").mkdir(parents=True)
    (plain / "kernels" / "k.py").write_text(TEXT.replace("True", "Tru3"))
    monkeypatch.setenv(FLYDSL.variable, str(plain))
    tree = obtain(FLYDSL, "2" * 40, Cache(tmp_path / "cache"), offline=True)
    assert tree.path == plain
    wanted = [*pinned(), SourceFile("kernels/gone.py", "0" * 64)]
    with pytest.raises(HarnessError) as raised:
        verify(tree, wanted)
    assert "kernels/k.py has sha256" in raised.value.message
    assert "kernels/gone.py is missing" in raised.value.message
    assert raised.value.remedy is not None


def test_a_layer_cannot_be_told_in_a_directory_without_git(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("flydsl", reason="the compile extra is not installed")
    (checkout / ".git").rename(tmp_path / "gone")
    with pytest.raises(HarnessError, match="cannot be told from another"):
        layer("3" * 40, Cache(tmp_path / "cache"), offline=True)


def test_a_layer_stands_over_the_wheel(checkout: Path, tmp_path: Path) -> None:
    pytest.importorskip("flydsl", reason="the compile extra is not installed")
    commit = git("rev-parse", "HEAD", at=checkout)
    made = layer(commit, Cache(tmp_path / "cache"), offline=True)
    assert made is not None
    assert (made / "flydsl" / "__init__.py").read_text() == ""
    assert (made / "flydsl" / "_mlir" / "ir.py").is_file()
    assert layer("wheel", Cache(tmp_path / "cache"), offline=True) is None


def test_offline_with_nothing_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FLYDSL.variable, raising=False)
    with pytest.raises(SourceUnavailable, match="offline") as raised:
        obtain(FLYDSL, KNOWN[0], Cache(tmp_path), offline=True)
    assert FLYDSL.variable in str(raised.value.remedy)


def test_no_network_is_unavailable_not_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = Upstream("nobody/nothing", f"file://{tmp_path}/none", "NOTHING_SRC")
    monkeypatch.delenv("NOTHING_SRC", raising=False)
    with pytest.raises(SourceUnavailable, match="nobody/nothing at 4444"):
        obtain(nowhere, "4" * 40, Cache(tmp_path))
    assert not list((tmp_path / "sources").iterdir())


def test_bad_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HarnessError, match="no commit id"):
        obtain(FLYDSL, "main", Cache(tmp_path))
    monkeypatch.setenv(FLYDSL.variable, str(tmp_path / "none"))
    with pytest.raises(HarnessError, match="names no directory"):
        obtain(FLYDSL, KNOWN[0], Cache(tmp_path))


def test_a_patch_is_made_on_a_private_copy_and_must_match_once(checkout: Path, tmp_path: Path) -> None:
    tree = SourceTree(checkout, FLYDSL, "5" * 40, "here")
    before = content(checkout)
    cache = Cache(tmp_path / "cache")
    fast = Variant("fast", patches=(Patch("kernels/k.py", r"\bFalse and ", ""),))
    made = patched(tree, fast, cache)
    assert (made / "kernels" / "k.py").read_text() == "a = True\n"
    assert content(checkout) == before
    absent = Variant("absent", patches=(Patch("kernels/k.py", "no such text", ""),))
    with pytest.raises(HarnessError, match=r"expects 'no such text' once \(found 0\)"):
        patched(tree, absent, cache)
