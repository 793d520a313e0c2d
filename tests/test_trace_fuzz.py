"""Every reader of profiler files against mutated files: one line and a fault, never a traceback; bounded
memory."""

from __future__ import annotations

import io
import json
import os
import random
import tarfile
import tempfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.trace import att, csvs, rocpd
from harness.trace.analysis import analyse
from harness.trace.capture import Collector
from harness.trace.command import text
from harness.trace.faults import Fault, ReadFault
from harness.trace.files import FILE_LIMIT, Entry, entries
from harness.trace.resources import Beside
from harness.trace.results import results
from harness.trace.session import one
from harness.trace.waves import WaveCollector
from tests.captures import KERNEL, counter_csv, make, tables
from tests.captures import rocpd as make_rocpd

CASES = 10_000

TOKENS = (
    b"[", b"]", b"{", b"}", b",", b":", b'"', b"null", b"true", b"-1", b"0", b"1e400", b"9223372036854775808",
    b"-9223372036854775809", b"4503599627370497", b"9007199254740993", b"NaN", b"\\u0000", b"\x00", b"\xff",
    b"\xef\xbb\xbf", b"\r\n", b"\n", b" ", b"[" * 3000, b'{"a":' * 2000, b"1.5", b"[[]]", b"''", b'""', b"\\",
)  # fmt: skip


def mutate(data: bytes, draw: random.Random) -> bytes:
    """`data` with one to four small or large injuries."""
    out = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(out) + 1)
        kind = draw.randrange(7)
        if kind == 0 and out:
            out[min(at, len(out) - 1)] = draw.randrange(256)
        elif kind == 1:
            del out[at : at + draw.choice((1, 2, 8, 64))]
        elif kind == 2:
            out[at:at] = draw.choice(TOKENS)
        elif kind == 3:
            del out[at:]
        elif kind == 4:
            low = draw.randrange(len(out) + 1)
            out[at:at] = out[low : low + draw.choice((4, 32, 200))]
        elif kind == 5:
            digits = [i for i in range(at, min(at + 200, len(out))) if 48 <= out[i] <= 57]
            if digits:
                out[digits[0] : digits[0] + 1] = draw.choice(
                    (b"-7", b"99999999999", b"1e9", b"0", b"2.5", b'"x"')
                )
        else:
            token = draw.choice(TOKENS)
            out[at : at + len(token)] = token
    return bytes(out)


def wave(data: bytes) -> None:
    """A wave file, decoded and summed."""
    collector = WaveCollector()
    collector.add(att.wave(data, "se0_sm0_sl0_wv0.json"))
    for fault in collector.finish()[1]:
        check(fault)


def table(read: Callable[[csvs.Readable, str], Any]) -> Callable[[bytes], None]:
    """A CSV reader on bytes."""

    def run(data: bytes) -> None:
        for fault in read(io.BytesIO(data), "t.csv").faults:
            check(fault)

    return run


def check(fault: Fault) -> None:
    """A fault is one printable line of bounded length."""
    assert fault.message and "\n" not in fault.message and len(fault.message) <= 400
    assert fault.message.isprintable() and fault.rule


def samples() -> Iterator[tuple[str, Callable[[bytes], Any], bytes]]:
    """(name, reader, a good file)."""
    made = make(waves=3, seed=5)
    beside = tables(launches=3, counters=True)
    first = min(name for name in made.files if name.startswith("se0"))
    yield "code", att.code, made.files["code.json"]
    yield "wave", wave, made.files[first]
    yield "wstates", lambda data: att.states(data, "wstates2.json").area, made.files["wstates2.json"]
    yield "occupancy", att.occupancy, made.files["occupancy.json"]
    yield "realtime", att.realtime, made.files["realtime.json"]
    yield "filenames", att.filenames, made.files["filenames.json"]
    yield "snapshots", att.snapshots, made.files["snapshots.json"]
    yield "results", lambda data: results(data, "r.json"), beside["out_results.json"]
    yield "kernel_trace", table(csvs.kernel_trace), beside["out_kernel_trace.csv"]
    yield "kernel_stats", table(csvs.kernel_stats), beside["out_kernel_stats.csv"]
    yield "agent_info", table(csvs.agent_info), beside["out_agent_info.csv"]
    yield "counter_collection", table(csvs.counter_collection), counter_csv({"A": 1.0, "B": 2.5})


SAMPLES = {name: (read, data) for name, read, data in samples()}


@pytest.mark.parametrize("name", SAMPLES)
def test_mutated_files_give_a_value_or_one_line(name: str) -> None:
    read, data = SAMPLES[name]
    read(data)
    draw = random.Random(f"{name}-1")
    refused = 0
    for _ in range(CASES):
        try:
            read(mutate(data, draw))
        except ReadFault as error:
            refused += 1
            check(error.fault)
    assert 0 < refused < CASES  # some injuries are caught, some leave a good file


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """A directory for ten thousand small files one after another: in memory where the system has a place
    for it."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)


def test_mutated_databases(quick: Path) -> None:
    good = make_rocpd(quick / "good.db").read_bytes()
    path = quick / "bad.db"
    draw = random.Random("rocpd-1")
    refused = 0
    for _ in range(CASES):
        path.write_bytes(mutate(good, draw))
        try:
            for part in rocpd.read(path, timeout=0.0):
                for fault in part.faults:
                    check(fault)
        except ReadFault as error:
            refused += 1
            check(error.fault)
    assert 0 < refused < CASES


def test_mutated_archives(quick: Path) -> None:
    """Half of the cases injure the tar inside the compression, half the compressed bytes."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, data in (("a/code.json", b"{}"), ("a/wstates1.json", b"[1,2]"), ("b.csv", b"x,y\n")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    inner = plain.getvalue()[:4096]
    path = quick / "a.tar.gz"
    draw = random.Random("archive-1")
    for number in range(CASES):
        squeeze = zlib.compressobj(1, zlib.DEFLATED, 31)
        if number % 2:
            data = squeeze.compress(mutate(inner, draw)) + squeeze.flush()
        else:
            data = mutate(squeeze.compress(inner) + squeeze.flush(), draw)
        path.write_bytes(data)
        faults: list[Fault] = []
        for entry in entries(path, faults):
            assert ".." not in entry.path.split("/") and not entry.path.startswith("/")
            try:
                entry.read()
            except ReadFault as error:
                check(error.fault)
        for fault in faults:
            check(fault)


def feed(files: dict[str, bytes]) -> Collector:
    """A collector that has seen these files."""
    collector = Collector("made")
    for name, data in files.items():
        collector.feed(Entry(f"made/{name}", len(data), lambda data=data: io.BytesIO(data), None))  # type: ignore[misc]
    return collector


def test_captures_with_several_mutated_files_are_analysed() -> None:
    made = make(waves=4, seed=9)
    draw = random.Random("capture-1")
    beside = Beside("gfx950", vgpr=12, accum=0, sgpr=32, lds=1024, workgroup=(64, 1, 1), grid=(8, 1, 1))
    for _ in range(1500):
        files = dict(made.files)
        for name in draw.sample(sorted(files), draw.randint(1, 3)):
            files[name] = mutate(files[name], draw)
        got = analyse(feed(files).finish(), beside)
        json.dumps(got.to_json(), allow_nan=False)
        for fault in got.faults:
            check(fault)


def test_hostile_names_and_numbers_stay_one_line(tmp_path: Path) -> None:
    made = make()
    code = json.loads(made.files["code.json"])
    code["code"][0][0] = "; " + "x\n\x1b[31m" * 500
    made.files["code.json"] = json.dumps(code).encode()
    got = one(made.write(tmp_path))[0]
    for fault in got.faults:
        check(fault)
    assert all(line.isprintable() for line in text(got).split("\n"))


def big_trace(rows: int) -> Iterator[bytes]:
    """kernel_trace.csv of `rows` launches of a kernel with a long name, line by line."""
    lines = tables(launches=1)["out_kernel_trace.csv"].splitlines(keepends=True)
    name = KERNEL.encode()
    yield lines[0]
    line = lines[1].replace(name, name + b"<" + b"float, " * 400 + b">")
    for _ in range(rows):
        yield line


class Lines(io.RawIOBase):
    """An endless-looking stream made of generated lines."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._left = b""
        self.bytes = 0

    def read(self, size: int = -1) -> bytes:
        while len(self._left) < size:
            more = next(self._lines, None)
            if more is None:
                break
            self._left += more
        out, self._left = self._left[:size], self._left[size:]
        self.bytes += len(out)
        return out


def peak(rows: int) -> tuple[int, int]:
    """(bytes read, peak bytes allocated) for a table of `rows` rows."""
    stream = Lines(big_trace(rows))
    tracemalloc.start()
    try:
        got = csvs.kernel_trace(stream, "t.csv")
        assert got.rows == rows
        return stream.bytes, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_size_of_a_table() -> None:
    """Of a 500 MB table at this rate: 16 bytes a row of 3 kB, so 3 MB beside the constant part."""
    small_read, small = peak(1_000)
    large_read, large = peak(9_000)
    assert large_read > 25_000_000
    growth = (large - small) / (large_read - small_read)
    assert growth * 500e6 < 16e6
    assert large < 30_000_000


def test_a_line_that_never_ends_is_not_held() -> None:
    """A line of 75 MB takes no more memory than one of 30 MB."""
    head = next(big_trace(0))

    def endless(megabytes: int) -> Iterator[bytes]:
        yield head
        for _ in range(megabytes):
            yield b'"' + b"x," * 500_000

    def used(megabytes: int) -> int:
        tracemalloc.start()
        try:
            got = csvs.kernel_trace(Lines(endless(megabytes)), "t.csv")
            assert [fault.rule for fault in got.faults] == ["bad-rows"] and not got.kernels
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert used(75) < 1.1 * used(30) < 120_000_000


def test_a_huge_json_file_is_refused_unread(tmp_path: Path) -> None:
    """500 MB that take no disk: a hole in the file."""
    made = make()
    trace = made.write(tmp_path)
    with (trace / "wstates1.json").open("r+b") as sparse:
        sparse.truncate(500_000_000)
    assert FILE_LIMIT < 500_000_000
    tracemalloc.start()
    try:
        got = one(trace)[0]
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "too-large" in {fault.rule for fault in got.faults} and got.total == made.expect["total"]
    assert used < 30_000_000


def test_many_large_waves_stay_bounded() -> None:
    """Waves are summed and dropped: four times the waves take no more memory."""

    def used(count: int) -> int:
        files = make(waves=1).files
        body = json.loads(files[min(n for n in files if n.startswith("se0"))])
        begin = body["wave"]["begin"]
        rows = [[begin + 4 * i, 6, 0, 4, 3] for i in range(40_000)]
        body["wave"] |= {"instructions": rows, "timeline": [[2, 160_000]], "end": begin + 160_000}
        data = json.dumps(body, separators=(",", ":")).encode()
        tracemalloc.start()
        try:
            collector = Collector("made")
            for number in range(count):
                name = f"made/se0_sm0_sl0_wv{number}.json"
                collector.feed(Entry(name, len(data), lambda: io.BytesIO(data), None))
            assert collector.finish().waves.records[-1].executed == 40_000
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = used(15), used(60)
    assert many < 1.2 * few + 2_000_000


def test_an_archive_bomb_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.trace.files.ARCHIVE_LIMIT", 3_000_000)
    path = tmp_path / "bomb.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for number in range(8):
            info = tarfile.TarInfo(f"t/se0_sm0_sl0_wv{number}.json")
            info.size = 1_000_000
            tar.addfile(info, io.BytesIO(b"\0" * info.size))
    assert path.stat().st_size < 20_000
    faults: list[Fault] = []
    assert sum(1 for _ in entries(path, faults)) == 3
    assert [fault.rule for fault in faults] == ["too-large"]
    with pytest.raises(HarnessError):
        one(tmp_path / "none.tar.gz")
