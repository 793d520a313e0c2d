"""The trace section of REPORT.md: captures of the study, captures without raw files, recaptures."""

from __future__ import annotations

from pathlib import Path

from harness.bundle import ROOT, load
from harness.report.sections.trace import render
from harness.trace.session import one
from tests import making
from tests.captures import make


def test_a_bundle_without_captures_has_no_section() -> None:
    assert render(making.bundle(), {"study": {"captures": []}}, {}) is None
    assert render(making.bundle(), {}, {}) is None


def test_each_number_names_its_source() -> None:
    text = render(making.bundle(), {"study": {"captures": [making.capture()]}}, {}) or ""
    assert text.startswith("## Thread traces")
    assert "| cycles | 41,645,144 total, 31,799,432 stalled (76.36 %), 1,188,660 idle | code.json" in text
    assert "IDLE 0.03 %, EXEC 42.31 %, WAIT 36.70 %, STALL 20.96 %" in text
    rows = [line for line in text.splitlines() if line.startswith("| ") and line.count("|") == 4]
    assert rows and all(cell.strip() for line in rows for cell in line.strip("|").split("|"))


def test_a_recapture_is_shown_beside_it(tmp_path: Path) -> None:
    trace = one(make().write(tmp_path))[0].to_json()
    run = {
        "trace": trace, "valid": True, "faults": trace["faults"], "counters": {"SQ_WAVES": 256.0},
        "launch": {"dispatch": 11, "median_us": 7.38, "launches": 20},
    }  # fmt: skip
    text = render(making.bundle(), {"device-1": {"trace": {"captured": run}}}, {}) or ""
    assert "### Recaptured: device-1, captured" in text and "recaptured with rocprofv3" in text
    assert "| SQ_WAVES | 256 |" in text and "median 7.380 µs of 20 launches" in text


def test_committed_reports_carry_the_section() -> None:
    text = (load(ROOT / "mla-decode").path / "REPORT.md").read_text(encoding="utf-8")
    assert "17 of 4,948 instruction rows were executed" in text and "Cannot carry: stall_share" in text
