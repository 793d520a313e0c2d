"""`harness container build|run|save|load`: the pinned environment, from clone to verdicts.

Joins the parts: the engine, the image, what a run may have, and one run. Each part is a module of its own.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

from harness.command import Outcome, Reporter
from harness.container.policy import BASE_VARIABLE, IMAGE_VARIABLE, OUTPUT, Device, RunRequest
from harness.errors import HarnessError
from harness.verdict import ExitCode

__all__ = ["configure", "inner_command", "run"]

_DOCKERFILE = "Dockerfile.rocm72"
_TAG = "flydsl-repro:rocm72"
_TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    build = actions.add_parser("build", help="build the pinned image and label it with the pins")
    run = actions.add_parser("run", help="run one harness command in the image")
    save = actions.add_parser("save", help="write the image to an OCI archive, its digest beside it")
    load = actions.add_parser("load", help="load a saved image when its digest holds")
    for action in (build, run, save, load):
        action.add_argument("--root", type=Path, default=Path.cwd(), help="the repository (default: here)")
        action.add_argument("--json", action="store_true", help="print the result as JSON on standard output")
    for action in (build, run, save):
        action.add_argument("--image", default=_TAG, help=f"the image's name (default {_TAG})")
    for action in (build, run):
        action.add_argument("--file", default=_DOCKERFILE, help=f"the Dockerfile (default {_DOCKERFILE})")
        action.add_argument(
            "--decoder-sha256", type=_sha256, default=None, metavar="HEX", help="sha256 of the trace decoder"
        )
    build.add_argument("--fresh", action="store_true", help="ignore the engine's layer cache")
    build.add_argument("--dry-run", action="store_true", help="say what would be built")
    _configure_run(run)
    save.add_argument("archive", type=Path, help="the file to write")
    load.add_argument("archive", type=Path, help="the file to load")


def _configure_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--build", action="store_true", help="build the image first (cached layers cost seconds)"
    )
    parser.add_argument(
        "--gpu", default="auto", help="which GPU: its number, none, or auto (the first, if any)"
    )
    parser.add_argument("--network", action="store_true", help="give the container the network")
    parser.add_argument(
        "--trace", action="store_true", help="allow ptrace, which recapture with rocprofv3 needs"
    )
    parser.add_argument("--memory", type=_bytes, default=None, help="memory limit, as 64g (default: none)")
    parser.add_argument("--shm", type=_bytes, default=8 << 30, help="shared memory (default 8g)")
    parser.add_argument(
        "--timeout", type=_seconds, default=4 * 3600.0, help="time limit in seconds (default 4 h)"
    )
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the results go (default: out)")
    parser.add_argument("--dry-run", action="store_true", help="say what would be run")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="reproduce-softmax, …")


def _bytes(text: str) -> int:
    unit = _UNITS.get(text[-1:].lower(), 1)
    digits = text[:-1] if unit > 1 else text
    if not digits.isdigit() or int(digits) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size (as 512m or 64g)")
    return int(digits) * unit


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds")
    return value


def _sha256(text: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no sha256 (64 hex digits)")
    return text.lower()


def inner_command(words: Sequence[str]) -> list[str]:
    """The harness command for what a reviewer types: nox's session names, or a harness command as it is.

    `reproduce-softmax` → `reproduce softmax --out /out`; `validate-bundles` → `validate`. Raises
    HarnessError on none at all.
    """
    words = [word for position, word in enumerate(words) if not (position == 0 and word == "--")]
    if not words:
        raise HarnessError("container run: no command", remedy="harness container run -- reproduce-softmax")
    name, rest = words[0], list(words[1:])
    if name == "validate-bundles":
        return ["validate", *rest]
    if name == "reproduce" or name.startswith("reproduce-"):
        bundle = [name.removeprefix("reproduce-")] if name != "reproduce" else []
        out = [] if "--out" in rest else ["--out", f"{OUTPUT}/results"]
        return ["reproduce", *bundle, *rest, *out]
    return [name, *rest]


def run(args: argparse.Namespace, reporter: Reporter) -> Outcome:
    """Do one action."""
    return {"build": _build, "run": _run, "save": _save, "load": _load}[args.action](args, reporter)


def _build_arguments(args: argparse.Namespace) -> dict[str, str]:
    from harness.container.image import pins_digest
    from harness.pins import load

    pins = load(args.root / "pins.yaml")
    return {
        "BASE_IMAGE": pins.base_image.tag,
        "BASE_DIGEST": pins.base_image.digest,
        "TRACE_DECODER_VERSION": pins.trace_decoder.version,
        "TRACE_DECODER_SHA256": args.decoder_sha256 or pins.trace_decoder.sha256 or "",
        "FLYDSL_COMMIT": pins.flydsl.commit,
        "AITER_COMMIT": pins.aiter.commit,
        "PINS_SHA256": pins_digest(args.root),
    }


def _build(args: argparse.Namespace, reporter: Reporter) -> Outcome:
    from harness.container.engine import connect
    from harness.container.image import BuildRequest, build

    _needs_pins(args.root)
    request = BuildRequest(args.root, args.file, args.image, _build_arguments(args), fresh=args.fresh)
    if args.dry_run:
        lines = [f"would build {request.tag} from {request.context / request.dockerfile}"]
        lines += [f"  {name}={value}" for name, value in request.arguments.items()]
        return Outcome(
            ExitCode.OK, "\n".join(lines), {"tag": request.tag, "arguments": dict(request.arguments)}
        )
    image = build(connect(), request, reporter)
    data = {"image": args.image, "id": image.id, "labels": dict(image.labels)}
    return Outcome(ExitCode.OK, f"{args.image} {image.id}", data)


def _run(args: argparse.Namespace, reporter: Reporter) -> Outcome:
    from harness.container import runner
    from harness.container.engine import connect
    from harness.container.image import pins_digest, require

    _needs_pins(args.root)
    command = inner_command(args.words)
    devices = _devices(args.gpu)
    if not devices:
        reporter.say("no GPU for the container: the device tier stays NOT_MEASURED")
    request = runner.unprivileged(
        RunRequest(
            image=args.image,
            command=command,
            repository=str(args.root.absolute()),
            output=str(args.out.absolute()) if args.dry_run else "",
            user=os.getuid(),
            group=os.getgid(),
            devices=devices,
            network=args.network,
            tracing=args.trace,
            memory=args.memory,
            shared_memory=args.shm,
        )
    )
    if args.dry_run:
        return _described(request)
    runner.refuse_taken(args.out.absolute())  # before a build of many minutes, not after it
    client = connect()
    if args.build:
        _build(args, reporter)
    image = require(client, args.image, pins_digest(args.root))
    with runner.staged(args.out, request.user, request.group) as stage:
        environment = {IMAGE_VARIABLE: image.id, BASE_VARIABLE: _base_digest(args.root)}
        filled = runner.with_output(request, str(stage), environment)
        ended = runner.run(client, filled, args.timeout, reporter)
    data = {"exit_code": ended.status, "image": image.id, "output": ended.output, "out": str(args.out)}
    return Outcome(ended.status, ended.output, data)


def _base_digest(root: Path) -> str:
    from harness.pins import load

    return load(root / "pins.yaml").base_image.digest


def _described(request: RunRequest) -> Outcome:
    from harness.container.policy import engine_arguments

    arguments = engine_arguments(request)
    lines = [f"would run {' '.join(request.command)} in {request.image} with"]
    lines += [
        f"  {name}: {value}" for name, value in sorted(arguments.items()) if value not in (None, [], "")
    ]
    return Outcome(ExitCode.OK, "\n".join(lines), arguments)


def _devices(choice: str) -> tuple[Device, ...]:
    """/dev/kfd and the chosen GPU's render node, with their groups. Raises HarnessError when it is not
    there."""
    from harness.doctor.smi import parse_kfd_properties

    if choice == "none":
        return ()
    if not os.path.exists("/dev/kfd"):
        if choice == "auto":
            return ()
        raise HarnessError("/dev/kfd is not there: no AMD GPU driver on this machine", remedy="--gpu none")
    minors = []
    for node in sorted(Path(_TOPOLOGY).glob("[0-9]*"), key=lambda path: int(path.name)):
        found = parse_kfd_properties(int(node.name), (node / "properties").read_text(encoding="utf-8"))
        if found is not None:
            minors.append(found.render_minor)
    index = 0 if choice == "auto" else int(choice) if choice.isdigit() else -1
    if not 0 <= index < len(minors):
        raise HarnessError(
            f"--gpu {choice}: this machine has GPUs 0 to {len(minors) - 1}", remedy="harness doctor"
        )
    paths = ("/dev/kfd", f"/dev/dri/renderD{minors[index]}")
    absent = next((path for path in paths if not os.path.exists(path)), None)
    if absent:
        raise HarnessError(f"{absent} is not there", remedy="harness doctor says what is missing")
    return tuple(Device(path, os.stat(path).st_gid) for path in paths)


def _needs_pins(root: Path) -> None:
    if not (root / "pins.yaml").is_file():
        raise HarnessError(
            f"{root}: no pins.yaml here", remedy="run it in the repository, or name it with --root"
        )


def _save(args: argparse.Namespace, reporter: Reporter) -> Outcome:
    from harness.container.archive import record_path, save
    from harness.container.engine import connect

    record = save(connect(), args.image, args.archive, reporter)
    text = (
        f"{args.archive} ({record['format']}) sha256 {record['sha256']}\nrecord: {record_path(args.archive)}"
    )
    return Outcome(ExitCode.OK, text, record)


def _load(args: argparse.Namespace, reporter: Reporter) -> Outcome:
    from harness.container.archive import load
    from harness.container.engine import connect

    record = load(connect(), args.archive, reporter)
    return Outcome(ExitCode.OK, f"{record['image']} loaded, sha256 {record['sha256']} holds", record)
