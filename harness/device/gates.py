"""Gates: what must hold before and after the timing, or the process counts for nothing.

Correct against a float64 reference with poisoned outputs, on inputs that change under the launch; no output
that is an input; nothing on another stream; the architecture's own fp8; nobody else on the device. A gate
that fails makes the run INVALID, never CONTRADICTED (measuring: Sampling, 1). Knows torch and the rig;
nothing of statistics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from harness.device.machine import fp8_family
from harness.device.rig import Rig, Slot

__all__ = ["Gate", "GateFailed", "check_correct", "check_fp8", "check_other_stream", "poison", "refill"]


@dataclass(frozen=True)
class Gate:
    """One gate's answer: passed, failed, or None where it cannot be told; `detail` is one line with its
    numbers."""

    name: str
    passed: bool | None
    detail: str

    def to_json(self) -> dict[str, Any]:
        """As evidence records it."""
        return asdict(self)


class GateFailed(Exception):
    """A gate said no."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(f"{gate.name}: {gate.detail}")
        self.gate = gate


def poison(tensor: Any) -> None:
    """Overwrite an output with NaN, or with the bytes 0xA5 where its dtype has no NaN of its own."""
    import torch

    if tensor.dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        tensor.fill_(math.nan)
    else:
        tensor.contiguous().view(torch.uint8).fill_(0xA5)


def refill(rig: Rig, slot: Slot, seed: int) -> None:
    """New input values in the same memory, so that a result cached by pointer or shape is now wrong."""
    fresh = rig.inputs(seed)
    outputs = set(rig.outputs_of("subject").values())
    for name, tensor in fresh.items():
        old = slot.tensors.get(name)
        if name in outputs or old is None or not hasattr(tensor, "copy_"):
            continue
        old.copy_(tensor)


def _aliases(slot: Slot, outputs: Mapping[str, str], inputs: set[str]) -> str | None:
    for target in outputs.values():
        out = slot.tensors[target].untyped_storage().data_ptr()
        for name in inputs:
            tensor: Any = slot.tensors.get(name)
            if hasattr(tensor, "untyped_storage") and tensor.untyped_storage().data_ptr() == out:
                return f"output {target} is the memory of input {name}"
    return None


def compare(got: Any, want: Any, atol: float, rtol: float) -> tuple[bool, str]:
    """Element by element in float64 where the output lives. NaN fails; infinity fails unless the reference
    has it.

    Returns whether it passed and one line with the worst error.
    """
    import torch

    if tuple(got.shape) != tuple(want.shape):
        return False, f"shape {tuple(got.shape)}, reference {tuple(want.shape)}"
    worst, error, bad = 0.0, 0.0, 0
    rows = got.reshape(-1)
    expected = want.reshape(-1)
    step = 1 << 26
    for start in range(0, rows.numel(), step):
        g = rows[start : start + step].to(torch.float64)
        w = expected[start : start + step].to(device=g.device, dtype=torch.float64)
        if not bool(torch.isfinite(g).logical_or(g == w).all()):
            kind = "NaN" if bool(torch.isnan(g).any()) else "infinity"
            count = int((~torch.isfinite(g)).sum())
            return (
                False,
                f"{kind} in {count} of {g.numel()} elements (unwritten outputs are poisoned with NaN)",
            )
        difference = (g - w).abs_().masked_fill_(g == w, 0.0)  # infinity less itself is no number
        error = max(error, float(difference.max()))
        share = difference.div_(w.abs_().mul_(rtol).add_(max(atol, 1e-300)))
        worst = max(worst, float(share.max()))
        bad += int((share > 1).sum())
    line = f"max |error| {error:.3g}, {worst:.3g} of the allowed"
    return worst <= 1, line if worst <= 1 else f"{line}; {bad} of {rows.numel()} elements wrong"


def check_correct(
    rig: Rig, name: str, slot: Slot, run: Callable[[], object], when: str, wait: Callable[[], None]
) -> Gate:
    """Poison what `name` writes in `slot`, `run`, wait, compare with the float64 reference of the slot's
    inputs.

    `run` is one launch, or the very replay that is timed. Raises GateFailed.
    """
    outputs = rig.outputs_of(name)
    gate_name = f"correct {when} ({name})"
    for target in outputs.values():
        if target in slot.tensors:
            poison(slot.tensors[target])
    rig.reset(slot.tensors)
    wait()
    run()
    wait()
    inputs = set(slot.tensors) - set(rig.outputs_of("subject").values()) - set(outputs.values())
    shared = _aliases(slot, outputs, inputs)
    if shared is not None:
        raise GateFailed(Gate(gate_name, False, shared))
    tolerance = rig.tolerance
    lines = []
    for reference_name, want in rig.reference(slot.tensors).items():
        if reference_name not in outputs:
            continue
        target = outputs[reference_name]
        exact = reference_name in getattr(tolerance, "exact", ())
        own = getattr(tolerance, "special", {}).get(reference_name, (tolerance.atol, tolerance.rtol))
        atol, rtol = (0.0, 0.0) if exact else own
        passed, line = compare(slot.tensors[target], want, atol, rtol)
        if not passed:
            raise GateFailed(Gate(gate_name, False, f"{reference_name}: {line}"))
        lines.append(f"{reference_name}: {line}")
    if not lines:
        raise GateFailed(Gate(gate_name, False, "no output has a reference"))
    return Gate(gate_name, True, "; ".join(lines))


def check_fp8(tensors: Mapping[str, Any], arch: str) -> Gate:
    """fp8 tensors must have the encoding of `arch`: the other one times the same and is 2× wrong
    (ROCm/FlyDSL#984)."""
    family = fp8_family(arch)
    seen = 0
    for name, tensor in tensors.items():
        kind = str(getattr(tensor, "dtype", ""))
        if "float8" not in kind or "e8m0" in kind:
            continue
        seen += 1
        if ("fnuz" in kind) != (family == "fnuz"):
            raise GateFailed(Gate("fp8", False, f"{name} is {kind}; {arch} computes with {family} fp8"))
    return Gate("fp8", True, f"{seen} fp8 tensors, all {family}" if seen else "no fp8 tensor")


def check_other_stream(
    slot: Slot, name: str, outputs: Mapping[str, str], sleep_cycles: int = 40_000_000
) -> Gate:
    """Nothing may be written while the current stream is held: work that is, runs on another stream and is
    not timed.

    The current stream (not the legacy default one) sleeps; one launch is queued behind it; a third stream
    copies the outputs meanwhile. They must still be poison. On a host that never queued (the sleep is over)
    it cannot be told. Raises GateFailed.
    """
    import torch as untyped

    torch: Any = untyped
    gate_name = f"stream ({name})"
    before = {}
    for target in outputs.values():
        if target in slot.tensors:
            poison(slot.tensors[target])
            before[target] = slot.tensors[target]
    torch.cuda.synchronize()
    torch.cuda._sleep(sleep_cycles)
    awake = torch.cuda.Event()
    awake.record()
    slot.launches[name]()
    probe = torch.cuda.Stream()
    with torch.cuda.stream(probe):
        copies = {target: tensor.clone() for target, tensor in before.items()}
    probe.synchronize()
    asleep = not awake.query()
    torch.cuda.synchronize()
    if not asleep:
        return Gate(gate_name, None, "the launch waited for the device, so this cannot be told")
    for target, copy in copies.items():
        kept = before[target].clone()
        poison(kept)
        if not torch.equal(copy.contiguous().view(torch.uint8), kept.contiguous().view(torch.uint8)):
            raise GateFailed(Gate(gate_name, False, f"{target} was written while the timed stream was held"))
    return Gate(gate_name, True, "nothing written while the timed stream was held")
