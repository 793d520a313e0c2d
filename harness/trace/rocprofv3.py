"""rocprofv3 command lines: the three kinds of job, and the options they may use. Pure text, nothing is run.

A thread trace and counters are never asked for in one job, and neither times anything: durations come from
the discovery job alone. The output format is always named, since the default is a database. Sizes are plain
bytes.

Source of the options: the argument parser of rocprofiler-sdk's rocprofv3 (7.0 to 7.2) and the ROCm
documentation, Using rocprofv3 and Using thread trace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["OPTIONS", "Job", "counters", "discovery", "thread_trace", "undocumented"]

OPTIONS: dict[str, str] = {
    "--kernel-trace": "none",
    "--att": "none",
    "--att-library-path": "paths",
    "--att-target-cu": "0..15",
    "--att-shader-engine-mask": "hex mask",
    "--att-simd-select": "hex mask 0..0xF",
    "--att-buffer-size": "bytes",
    "--att-gpu-index": "list",
    "--att-serialize-all": "none",
    "--pmc": "counter names",
    "--kernel-include-regex": "regular expression",
    "--kernel-iteration-range": "[n]",
    "-f": "csv json",
    "-d": "directory",
    "-o": "name",
}
"""Every option that a job may use, and what follows it."""

_VALUES = {
    "none": re.compile(r""),
    "paths": re.compile(r"\S.*"),
    "0..15": re.compile(r"\d|1[0-5]"),
    "hex mask": re.compile(r"0x[0-9a-fA-F]{1,8}"),
    "hex mask 0..0xF": re.compile(r"0x[0-9a-fA-F]"),
    "bytes": re.compile(r"[1-9]\d{5,10}"),
    "list": re.compile(r"\d+"),
    "counter names": re.compile(r"[A-Za-z_]\w*( [A-Za-z_]\w*)*"),
    "regular expression": re.compile(r"\^.*\$"),
    "[n]": re.compile(r"\[[1-9]\d*\]"),
    "csv json": re.compile(r"csv json"),
    "directory": re.compile(r"\S.*"),
    "name": re.compile(r"\w+"),
}


@dataclass(frozen=True)
class Job:
    """One rocprofv3 run: its name, its arguments without the program's path, and where its files go."""

    name: str
    arguments: tuple[str, ...]
    directory: Path


def _job(name: str, out: Path, options: tuple[str, ...], command: tuple[str, ...]) -> Job:
    where = out / name
    rest = ("-f", "csv", "json", "-d", str(where), "-o", "out", "--")
    return Job(name, (*options, *rest, *command), where)


def _only(kernel: str, iteration: int) -> tuple[str, ...]:
    return (
        "--kernel-include-regex", f"^{re.escape(kernel)}$", "--kernel-iteration-range", f"[{iteration}]",
    )  # fmt: skip


def discovery(out: Path, command: tuple[str, ...]) -> Job:
    """Every launch with its begin and end, to choose from and to time by."""
    return _job("discover", out, ("--kernel-trace",), command)


def thread_trace(
    out: Path, command: tuple[str, ...], *, kernel: str, iteration: int, decoder: Path, cu: int, mask: int,
    buffer: int, attempt: int = 1,
) -> Job:  # fmt: skip
    """One launch, instruction by instruction, on one CU of the masked shader engines.

    decoder: the directory of the decoder library, named so that the SDK searches nowhere else. iteration:
    1-based, counted over this kernel's launches from the start of the process.
    """
    options = (
        "--att", "--att-library-path", str(decoder), "--att-target-cu", str(cu), "--att-shader-engine-mask",
        hex(mask), "--att-simd-select", "0xF", "--att-buffer-size", str(buffer), *_only(kernel, iteration),
    )  # fmt: skip
    return _job(f"att-{attempt}", out, options, command)


def counters(
    out: Path, command: tuple[str, ...], *, kernel: str, iteration: int, names: tuple[str, ...], number: int
) -> Job:
    """One set of counters for one launch; the set must fit one pass."""
    return _job(f"pmc-{number}", out, ("--pmc", *names, *_only(kernel, iteration)), command)


def undocumented(job: Job) -> list[str]:
    """What of a job's command line rocprofv3 does not document, in words; empty where all is."""
    arguments = list(job.arguments)
    if "--" not in arguments:
        return ["no -- before the application"]
    options = arguments[: arguments.index("--")]
    wrong: list[str] = []
    at = 0
    while at < len(options):
        name = options[at]
        if name not in OPTIONS:
            wrong.append(f"unknown option {name}")
            at += 1
            continue
        values: list[str] = []
        at += 1
        while at < len(options) and not options[at].startswith("-"):
            values.append(options[at])
            at += 1
        kind = OPTIONS[name]
        if not _VALUES[kind].fullmatch(" ".join(values)):
            wrong.append(f"{name} takes {kind}, not {' '.join(values)!r}")
    if "--att" in options and "--pmc" in options:
        wrong.append("--att and --pmc in one job")
    if "-f" not in options:
        wrong.append("no output format")
    return wrong
