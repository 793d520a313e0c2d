"""The project's own specimens, compiled for gfx950 here and executed: right ones, and ones with planted
faults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.compile.cache import Cache
    from harness.compile.toolchain import Toolchain

pytest.importorskip("tinygrad.renderer.amd", reason="the execute extra is not installed")
pytest.importorskip("flydsl", reason="the compile extra is not installed")
from harness.execute.dispatch import dispatch
from harness.execute.outputs import buffers_of
from harness.execute.race import RaceDetector
from harness.execute.recorded import Recorded, record_launch
from harness.execute.schedule import Fair, RandomOrder, RunAhead, Schedule


def _record(name: str, dims: Mapping[str, Any], toolchain: Toolchain, cache: Cache) -> Recorded:
    from harness.compile.request import CompileRequest

    return record_launch(CompileRequest(f"harness.specimens.{name}", dims), toolchain, cache)


def _execute(
    name: str,
    dims: Mapping[str, Any],
    recorded: Recorded,
    schedule: Schedule | None = None,
    watch: bool = False,
) -> tuple[dict[str, Any], dict[str, Any], list[RaceDetector]]:
    import importlib

    module = importlib.import_module(f"harness.specimens.{name}")
    tensors = module.make_inputs(dims, device="cpu", seed=0)
    detectors: list[RaceDetector] = []

    def make(machine: Any, part: Any) -> RaceDetector:
        detectors.append(RaceDetector(machine.st, part))
        return detectors[-1]

    (launch,), (program,) = recorded.launches, recorded.programs
    dispatch(
        program,
        launch,
        buffers_of(tensors, launch),
        schedule=schedule or Fair(),
        watcher=make if watch else None,
    )
    return module.outputs(tensors), module.reference(dims, tensors), detectors


@pytest.mark.parametrize("path", ["scalar", "vector"])
def test_flydsl_softmax_is_right_and_free_of_races(
    path: str, toolchain: Toolchain, compile_cache: Cache
) -> None:
    dims = {"M": 4, "N": 2048, "path": path}
    recorded = _record("row_softmax", dims, toolchain, compile_cache)
    assert recorded.launches[0].grid == (4, 1, 1) and recorded.launches[0].block == (256, 1, 1)
    for schedule in (Fair(), RunAhead(), RunAhead(True), RandomOrder(0)):
        got, want, detectors = _execute("row_softmax", dims, recorded, schedule, watch=True)
        error = (got["y"].double() - want["y"]).abs() / want["y"]
        assert float(error.max()) < 2.0**-8 * 1.05
        assert all(not detector.races for detector in detectors)


def test_the_reversal_and_its_planted_faults(toolchain: Toolchain, compile_cache: Cache) -> None:
    dims: dict[str, Any] = {"blocks": 3, "fault": "none"}
    sound = _record("reversal", dims, toolchain, compile_cache)
    got, want, detectors = _execute("reversal", dims, sound, RunAhead(), watch=True)
    assert bool((got["y"].double() == want["y"]).all()) and not detectors[0].races

    dims["fault"] = "race"
    racy = _record("reversal", dims, toolchain, compile_cache)
    got, want, detectors = _execute("reversal", dims, racy, watch=True)
    races = detectors[0].races
    assert races and all(race.reason == "no barrier between" and race.space == "lds" for race in races)
    assert {races[0].first.kind, races[0].second.kind} == {"r", "w"}
    assert all(":" in site.source for site in (races[0].first, races[0].second))
    got, want, _ = _execute("reversal", dims, racy, RunAhead())
    assert not bool((got["y"].double() == want["y"]).all())

    dims["fault"] = "out of range"
    beyond = _record("reversal", dims, toolchain, compile_cache)
    with pytest.raises(
        HarnessError, match=r"store outside every buffer.*0 bytes beyond the end of y.*lane 0"
    ):
        _execute("reversal", dims, beyond)


@pytest.mark.parametrize("path", ["scalar", "vector"])
def test_triton_softmax_is_right(path: str, toolchain: Toolchain, compile_cache: Cache) -> None:
    """A Triton kernel has no launcher of FlyDSL's: the launch is written here, by Triton's own argument
    order.
    """
    import struct

    import torch

    from harness.compile.compiler import compile_kernel
    from harness.compile.request import CompileRequest
    from harness.execute.abi import Launch, Pointer
    from harness.execute.decode import decode

    columns = 4096
    made = compile_kernel(
        CompileRequest("harness.specimens.triton_row_softmax", {"N": columns, "path": path}),
        toolchain,
        compile_cache,
    )
    assert made.ok, made.error
    entry = made.objects[0]
    program = decode(entry.hsaco.read_bytes(), entry.symbol, "triton")
    explicit = [
        one for one in program.kernel.metadata[".args"] if not one[".value_kind"].startswith("hidden")
    ]
    rows = 3
    torch.manual_seed(0)
    x = torch.randn(rows, columns).to(torch.bfloat16)
    y = torch.full_like(x, float("nan"))
    kernarg = bytearray(int(program.kernel.metadata[".kernarg_segment_size"]))
    pointers, names = [], ["x", "y"]
    for one in explicit:
        if one[".value_kind"] == "global_buffer" and names:
            pointers.append(Pointer(one[".offset"], names.pop(0), 0))
        elif one[".value_kind"] == "by_value" and one[".size"] == 4:
            struct.pack_into("<i", kernarg, one[".offset"], columns)
    threads = int(program.kernel.metadata[".max_flat_workgroup_size"])
    launch = Launch(entry.symbol, (rows, 1, 1), (threads, 1, 1), 1024, bytes(kernarg), tuple(pointers))
    buffers = {name: tensor.view(torch.uint8).numpy().reshape(-1) for name, tensor in (("x", x), ("y", y))}
    dispatch(program, launch, buffers)
    want = torch.softmax(x.double(), dim=1)
    assert float(((y.double() - want).abs() / want).max()) < 2.0**-8 * 1.05


def test_nan_in_the_input_reaches_the_output(toolchain: Toolchain, compile_cache: Cache) -> None:
    import importlib

    dims = {"M": 4, "N": 2048, "path": "vector"}
    recorded = _record("row_softmax", dims, toolchain, compile_cache)
    module = importlib.import_module("harness.specimens.row_softmax")
    tensors = module.make_inputs(dims, device="cpu", seed=0)
    tensors["x"][1, 7] = float("nan")
    (launch,), (program,) = recorded.launches, recorded.programs
    dispatch(program, launch, buffers_of(tensors, launch))
    rows = tensors["y"].isnan().any(dim=1).tolist()
    assert rows == [False, True, False, False]


def test_decoded_names_are_the_assemblers(toolchain: Toolchain, compile_cache: Cache) -> None:
    """docs/adr/0011: the decoder against the assembler's listing of the same code object."""
    from harness.compile.compiler import compile_kernel
    from harness.compile.isa import parse_assembly
    from harness.compile.request import CompileRequest
    from harness.execute.decode import base_name, decode, with_text

    for name, dims in (
        ("row_softmax", {"M": 4, "N": 2048, "path": "scalar"}),
        ("triton_row_softmax", {"N": 4096, "path": "vector"}),
    ):
        made = compile_kernel(CompileRequest(f"harness.specimens.{name}", dims), toolchain, compile_cache)
        entry = made.objects[0]
        program = decode(entry.hsaco.read_bytes(), entry.symbol, name)
        listing = parse_assembly(entry.isa.read_text(), name, entry.symbol).text
        decoded = [one.name for one in program.instructions]
        written = [base_name(line.split()[0]) for line in listing]
        if len(decoded) == len(written):
            assert decoded == written
            assert with_text(program, listing).instructions[0].text == listing[0]
        else:  # the assembler pads with s_nop where the text has only a directive
            assert [one for one in decoded if one != "s_nop"] == [one for one in written if one != "s_nop"]
    assert np.all([one.size in (4, 8, 12, 16) for one in program.instructions])


def test_the_published_softmax_races_and_a_barrier_more_ends_it(
    toolchain: Toolchain, compile_cache: Cache, flydsl_src: Any
) -> None:
    """The study's softmax: the hazard with both source lines, and a private copy with one barrier, clean."""
    from harness.compile.layers import layer
    from harness.compile.request import CompileRequest
    from harness.compile.variants import Patch, Variant, patched
    from harness.execute.session import Session
    from harness.kernels import softmax
    from harness.pins import load
    from harness.sources import FLYDSL, obtain

    tree = obtain(FLYDSL, "18c5a7ed79cc5bece508896a95270f1dadb7859b", compile_cache, offline=True)
    pinned = layer(load().flydsl.layer, compile_cache, offline=True)
    dims = softmax.resolve({"M": 2})
    add = Patch("kernels/softmax_kernel.py", r"(def block_reduce\(.*\n)", r"\1            gpu.barrier()\n")
    found = []
    for variant in (Variant(""), Variant("barrier", patches=(add,))):
        root = patched(tree, variant, compile_cache)
        request = CompileRequest("harness.kernels.softmax", dims, (root,), pinned, digest=variant.name)
        session = Session(softmax, dims, record_launch(request, toolchain, compile_cache), 0)
        result = session.run([[0, 1]], RunAhead())
        found.append((session.races([[0, 1]])[0], result.numerics["y"]["passed"]))
    (hazard, right), (clean, mended) = found
    assert not right and mended
    assert len(hazard.races) == 1 and clean.races == ()
    race = hazard.races[0]
    assert (race.first.kind, race.second.kind, race.reason) == ("r", "w", "no barrier between")
    assert (race.first.source, race.second.source) == ("softmax_kernel.py:99", "softmax_kernel.py:84")
    assert hazard.witness is not None and not hazard.witness["passed"] and hazard.witness["max_rel_error"] > 1
