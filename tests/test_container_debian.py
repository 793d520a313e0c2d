"""The harness inside a container made from a local Debian base, through `harness container` itself.

The base comes from debootstrap (kept in the cache between runs), the Python packages from this environment:
the base's Python is Debian's 3.11, so this test needs 3.11 here too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import engine
import pytest

from harness.cli import main
from harness.compile.cache import open_cache

pytestmark = pytest.mark.engine
BASE = "flydsl-repro-test:debian"
TAG = "flydsl-repro-test:harness"
UNUSED = re.compile(r"/__pycache__/|/tests?/|^/torch/include/|^/triton/backends/nvidia/bin/|\\.a$")
"""What neither tier loads: it would only make the image larger."""
DOCKERFILE = f"""FROM {BASE}
COPY site /usr/lib/python3/dist-packages
ARG PINS_SHA256=
LABEL flydsl-repro.pins="${{PINS_SHA256}}"
ENTRYPOINT ["python3", "-m", "harness"]
"""


@pytest.fixture(scope="module", autouse=True)
def docker_host() -> Iterator[str]:
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the base's Python is 3.11, this one is another")
    if shutil.which("debootstrap") is None:
        pytest.skip("no debootstrap (tools/ci_engine.sh installs it)")
    before = os.environ.get("DOCKER_HOST")
    for address in engine.start():
        os.environ["DOCKER_HOST"] = address
        yield address
    if before is None:
        os.environ.pop("DOCKER_HOST", None)
    else:
        os.environ["DOCKER_HOST"] = before


def bootstrap(work: Path) -> Path:
    """A Debian root as a tar file: from the cache, or made by debootstrap."""
    kept = open_cache().root / "engine-tests" / "debian-bookworm-python3.tar"
    if not kept.exists():
        root = work / "root"
        command = ["debootstrap", "--variant=minbase", "--include=python3", "bookworm", str(root)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"debootstrap fails here: {done.stdout.strip().splitlines()[-1:]}")
        kept.parent.mkdir(parents=True, exist_ok=True)
        made = work / "root.tar"
        subprocess.run(
            ["tar", "-C", str(root), "--exclude=./var/cache/apt", "-cf", str(made), "."], check=True
        )
        shutil.move(made, kept)
        shutil.rmtree(root)
    return kept


def needed(name: str, found: set[str]) -> None:
    """Names of the installed distributions that `name` needs, itself included."""
    from packaging.requirements import Requirement

    try:
        wanted = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return
    found.add(name)
    for text in wanted:
        requirement = Requirement(text)
        marker = requirement.marker
        applies = marker is None or marker.evaluate({"extra": ""})
        if applies and requirement.name.lower() not in found:
            needed(requirement.name.lower(), found)


def copy_packages(target: Path, root: Path) -> None:
    """The packages of the record and compile tiers, linked from this environment."""
    project = (root / "pyproject.toml").read_text(encoding="utf-8")
    names = re.findall(
        r'^    "([A-Za-z0-9_-]+)[>=]', project.split("[project.optional-dependencies]")[0], flags=re.M
    )
    found: set[str] = set()
    for name in (*names, "flydsl", "triton", "pyelftools", "msgpack", "torch", "tinygrad"):
        needed(name, found)
    for name in sorted(found):
        for file in metadata.files(name) or ():
            source = Path(str(file.locate()))
            unused = UNUSED.search(f"/{file}") is not None
            if unused or ".." in file.parts or not source.is_file():
                continue
            copy = target / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(source, copy)
            except OSError:
                shutil.copy2(source, copy)


@pytest.fixture(scope="module")
def harness_image(docker_host: str, tmp_path_factory: pytest.TempPathFactory, repo_root: Path) -> Path:
    """The image; returns the repository it runs (a copy that a stranger may read)."""
    import docker

    work = tmp_path_factory.mktemp("debian")
    client = docker.from_env()
    try:
        client.api.import_image_from_file(str(bootstrap(work)), repository=BASE.split(":")[0], tag="debian")
    finally:
        client.close()
    context = work / "context"
    copy_packages(context / "site", repo_root)
    shutil.copy(repo_root / "pins.yaml", context)
    (context / "Dockerfile").write_text(DOCKERFILE)
    assert main(["container", "build", "--root", str(context), "--file", "Dockerfile", "--image", TAG]) == 0
    copy = work / "repository"
    with tarfile.open(work / "head.tar", "w") as tar:
        for name in ("harness", "bundles", "schema", "docs", "pins.yaml", "pyproject.toml", "README.md"):
            if (repo_root / name).exists():
                tar.add(
                    repo_root / name, arcname=name, filter=lambda i: None if "__pycache__" in i.name else i
                )
    with tarfile.open(work / "head.tar") as tar:
        tar.extractall(copy, filter="data")
    work.chmod(0o755)
    for part in (work, *work.parents):
        if part.owner() == "root" and part != Path("/") and not part.stat().st_mode & 0o005:
            part.chmod(part.stat().st_mode | 0o055)
    return copy


def inside(repository: Path, out: Path, *words: str) -> int:
    command = [
        "container",
        "run",
        "--root",
        str(repository),
        "--image",
        TAG,
        "--gpu",
        "none",
        "--out",
        str(out),
    ]
    return main([*command, "--timeout", "300", "--", *words])


def test_validate_says_the_same_inside(
    harness_image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert inside(harness_image, tmp_path / "out", "validate-bundles") == 0
    there = capsys.readouterr().out
    monkeypatch.chdir(harness_image)
    assert main(["validate"]) == 0
    assert capsys.readouterr().out == there


def test_reproduce_says_the_same_inside(
    harness_image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert inside(harness_image, tmp_path / "there", "reproduce-softmax", "--tier", "record") == 0
    there = capsys.readouterr().out
    assert "CONTRADICTED" in there and "throughput" in there
    monkeypatch.chdir(harness_image)
    assert main(["reproduce", "softmax", "--tier", "record", "--out", str(tmp_path / "here")]) == 0
    here = capsys.readouterr().out
    assert re.sub(r"\S*/(out/results|here)\S*", "OUT", there) == re.sub(
        r"\S*/(out/results|here)\S*", "OUT", here
    )
    written = sorted(path.name for path in (tmp_path / "there" / "results").rglob("*"))
    assert written == sorted(path.name for path in (tmp_path / "here").rglob("*"))


def test_the_compile_tier_works_inside(
    harness_image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = inside(
        harness_image, tmp_path / "out", "reproduce-softmax", "--tier", "compile", "--offline", "--json"
    )
    report = json.loads(capsys.readouterr().out)
    assert code == 0
    (bundle,) = report["bundles"]
    results = [claim["tiers"]["compile"] for claim in bundle["claims"] if "compile" in claim["tiers"]]
    assert results, "the compile tier spoke"
