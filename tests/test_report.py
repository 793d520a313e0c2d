"""The generated files: what they hold, that they are written whole, and that a hand edit shows."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from making import bundle, claim

from harness import reproduce, verdicts
from harness.agreement import Row
from harness.bundle import load, load_all
from harness.command import Silent
from harness.report import markdown, scoreboard
from harness.report.generate import stale
from harness.report.seal import digest, fault, sealed, write
from harness.report.sections import sections
from harness.report.terminal import table
from harness.report.words import cell, escape, published, value
from harness.verdict import TierResult, Verdict


def update(root: Path, *bundles: str) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    reproduce.configure(parser)
    arguments = [*bundles, "--root", str(root), "--tier", "record", "--update-verdicts"]
    reproduce.run(parser.parse_args(arguments), Silent())


@pytest.fixture
def root(tmp_path: Path, repo_root: Path) -> Path:
    """Two real bundles, their generated files made here."""
    for name in ("softmax", "mla-decode"):
        shutil.copytree(repo_root / "bundles" / name, tmp_path / "bundles" / name)
    update(tmp_path / "bundles")
    return tmp_path / "bundles"


def faults(root: Path) -> list[tuple[str, str]]:
    return [(one.file, one.message) for one in stale(load_all(root), root)]


def test_fresh_files_are_current_and_made_again_the_same(root: Path) -> None:
    assert faults(root) == []
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    update(root)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["softmax/verdicts.yaml", "softmax/REPORT.md", "SCOREBOARD.md"])
def test_a_hand_edit_is_one_fault_that_names_the_command(root: Path, name: str) -> None:
    path = root / name
    text = path.read_text()
    path.write_text(text.replace("REPRODUCED", "reproduced", 1))
    found = [message for file, message in faults(root) if file == f"bundles/{name}"]
    assert found == ["was edited by hand: run harness reproduce --update-verdicts"]


def test_a_changed_bundle_makes_its_files_old(root: Path) -> None:
    path = root / "softmax" / "bundle.yaml"
    path.write_text(path.read_text().replace("published: 271.8", "published: 271.9"))
    (only,) = faults(root)  # what is made from the verdicts is not looked at
    assert only[0] == "bundles/softmax/verdicts.yaml" and "older than" in only[1]


def test_changed_evidence_makes_its_files_old(root: Path) -> None:
    path = root / "softmax" / "evidence" / "study.json"
    path.write_text(path.read_text() + "\n")
    assert [file for file, _ in faults(root)] == ["bundles/softmax/verdicts.yaml"]


def test_a_missing_file_and_a_lost_header(root: Path) -> None:
    (root / "softmax" / "REPORT.md").unlink()
    (root / "SCOREBOARD.md").write_text("# mine\n")
    messages = dict(faults(root))
    assert messages["bundles/softmax/REPORT.md"].startswith("is missing: run")
    assert messages["bundles/SCOREBOARD.md"].startswith("has lost its header: run")


def test_verdicts_read_back_as_written(root: Path) -> None:
    one = load(root / "softmax")
    read = verdicts.read(one)
    assert verdicts.text(one, read) == (root / "softmax" / "verdicts.yaml").read_text()
    assert read["ratio"]["record"].verdict is Verdict.REPRODUCED


def test_updating_keeps_the_verdicts_of_tiers_that_did_not_run(root: Path) -> None:
    one = load(root / "softmax")
    device = TierResult(Verdict.REPRODUCED, 2.06, "2.06 within 5 % of 2.05")
    held = {name: dict(tiers) for name, tiers in verdicts.read(one).items()}
    held["ratio"]["device"] = device
    verdicts.save(one, held)
    update(root)
    assert verdicts.read(one)["ratio"]["device"] == device
    assert "2.06 within 5 % of 2.05" in (root / "softmax" / "REPORT.md").read_text()


def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.md"
    write(path, "old")

    def fail(*rest: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    texts = {"a" * 200_000, "b" * 100_000}
    write(path, "a" * 200_000)
    seen: set[str] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            seen.add(path.read_text())

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(20):
        for text in texts:
            write(path, text)
    stop.set()
    reader.join()
    assert seen <= texts


@pytest.mark.parametrize("suffix", [".yaml", ".md"])
def test_a_seal_holds_its_own_text_only(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_text(sealed("body\n", "0" * 64, suffix))
    assert fault(path, "0" * 64) is None
    assert "older than" in str(fault(path, "1" * 64))
    path.write_text(sealed("body\n", "0" * 64, suffix) + "more")
    assert "edited by hand" in str(fault(path, "0" * 64))
    path.write_bytes(b"\xff\xfe")
    assert "not text" in str(fault(path, "0" * 64))


def test_a_digest_tells_names_and_bytes_apart(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("12")
    b.write_text("3")
    first = digest([a, b])
    assert digest([b, a]) == first and digest([a, b, tmp_path / "gone"]) == first
    a.write_text("1")
    b.write_text("23")
    assert digest([a, b]) != first


def test_the_report_has_every_claim_and_reason(root: Path) -> None:
    text = (root / "mla-decode" / "REPORT.md").read_text()
    one = load(root / "mla-decode")
    held = verdicts.read(one)
    for found in one.claims:
        assert f"| {found.id} |" in text
    assert "## Record: what the published evidence itself says" in text
    assert all(escape(tiers["record"].reason) in text for tiers in held.values() if "record" in tiers)
    assert str(root) not in text


def test_sections_are_modules_in_order() -> None:
    orders = [section.ORDER for section in sections()]
    assert orders == sorted(orders) and len(orders) >= 3


def test_the_scoreboard_has_a_row_a_bundle(root: Path) -> None:
    text = scoreboard.text([(one, verdicts.read(one)) for one in load_all(root)], root)
    assert "| [softmax](softmax/REPORT.md) | AITER | 2.05 | WIN | ✔ 2.053 |" in text
    assert "| [mla-decode](mla-decode/REPORT.md) | AITER | 0.90 |" in text


def test_committed_reports_are_what_would_be_generated(repo_root: Path) -> None:
    root = repo_root / "bundles"
    pairs = [(one, verdicts.read(one)) for one in load_all(root)]
    for one, held in pairs:
        assert markdown.text(one, held) == (one.path / markdown.FILE).read_text(), one.id
    assert scoreboard.text(pairs, root) == (root / scoreboard.FILE).read_text()


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (None, ""),
        (2.05298, "2.053"),
        (1.0, "1"),
        (3950.49, "3,950"),
        (191.901, "191.9"),
        (12.4, "12.4"),
        (731, "731"),
        ("x" * 30, "x" * 23 + "…"),
    ],
)
def test_values(found: Any, text: str) -> None:
    assert value(found) == text


@pytest.mark.parametrize(
    ("figure", "unit", "text"),
    [
        (271.8, "us", "271.8 µs"),
        ([256, 1, 1], None, "256x1x1"),
        ([4.4, 6.5], "TB/s", "4.4 to 6.5 TB/s"),
        ({"a": 1.5, "b": 2.5, "c": 3.5}, "%", "a 1.5, b 2.5, …"),
        (None, None, "(statement)"),
        (True, None, "yes"),
        ("41.65M", "cycles", "41.65M cycles"),
    ],
)
def test_published_figures(figure: Any, unit: str | None, text: str) -> None:
    assert published(figure, unit) == text


def test_cells() -> None:
    assert cell(None) == "·"
    assert cell(TierResult(Verdict.NOT_MEASURED, 3.0, "r")) == "– not measured"
    assert cell(TierResult(Verdict.CONTRADICTED, 3.0, "r")) == "✘ 3"


def test_colour_is_only_paint() -> None:
    result = TierResult(Verdict.CONTRADICTED, 1.9, "because 2")
    rows = [Row("b", "c", "ratio", 2.05, None, {"record": result}, {"record": Verdict.REPRODUCED})]
    plain = table(rows, ("record",), 10, colour=False)
    painted = table(rows, ("record",), 10, colour=True)
    assert painted != plain and re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain


def test_a_made_bundle_reports_without_evidence(tmp_path: Path) -> None:
    one = bundle(claim("r", "ratio", 2.0), path=tmp_path)
    text = markdown.text(one, {"r": {"record": TierResult(Verdict.REPRODUCED, 2.0, "a | b")}})
    assert "# Made for a test" in text and "a \\| b" in text
    assert json.dumps(text)


def compiled() -> dict[str, Any]:
    registers = {"vgpr": 47, "agpr": 0, "sgpr": 16, "vgpr_allocated": 48}
    code = {
        "symbol": "k_0",
        "instructions": 731,
        "sha256": "a" * 64,
        "histogram": {f"class {n}": n for n in range(1, 13)},
        "registers": registers,
        "lds_bytes": 16,
        "scratch_bytes": 0,
        "occupancy": {"waves_per_simd": 8, "limiters": ["wave slots"]},
    }
    launch = {"workload": "w", "layer": "4703ba3b" * 5, "variant": "", "error": None, "objects": [code]}
    failed = launch | {"variant": "fast", "error": "MLIRError: no\nsuch", "objects": []}
    return {"arch": "gfx950", "toolchain": {"flydsl": "0.2.0"}, "launches": [launch, failed]}


def test_the_compiled_section() -> None:
    from harness.report.sections import compiled as section

    assert section.render(bundle(), {}, {}) is None
    text = str(section.render(bundle(), {"compiled": compiled()}, {}))
    assert "| w | 4703ba3b | `k_0` | 731 | `aaaaaaaaaaaa` | 47, 48 allocated | 16 |" in text
    assert "| w, fast | 4703ba3b | MLIRError: no |" in text
    assert "class 12 12" in text and "others 3" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(widths) == 1


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_a_row_fits_the_terminal_and_keeps_its_signs(width: int) -> None:
    signs = {
        "record": TierResult(Verdict.CONTRADICTED, 32768, "r"),
        "compile": TierResult(Verdict.NOT_MEASURED, None, "r", "do it"),
        "execute": TierResult(Verdict.REPRODUCED, "731 instructions and more", "r"),
        "device": TierResult(Verdict.INVALID, None, "r"),
    }
    row = Row("b", "a-claim-with-a-rather-long-name", "latency", 271.8, "us", signs, {})
    order = ("record", "compile", "execute", "device")
    head, line = table([row], order, 10, colour=False, width=width).splitlines()[:2]
    assert len(head) <= width and len(line) <= width and line.endswith("NO")
    assert re.search(r"^a-cl\S* +271\.8 µs +✘ 32,768 +– ?.*✔ 731.* ! inv\S*", line)
    assert ("not measured" in line) == (width >= 120)
    if width == 200:
        assert "a-claim-with-a-rather-long-name" in line and "…" not in line.split("✔")[0]
