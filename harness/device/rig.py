"""The rotation: many distinct input sets of one kernel, each with a built launch per implementation.

Knows the kernel interface (`harness.kernels.base`) and memory; knows nothing of clocks, blocks or verdicts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["OutOfMemory", "Rig", "Slot", "bytes_of", "rotation_sets"]

MAX_SETS = 16384
"""More sets than this are not built: a graph of so many launches takes seconds to capture."""


class OutOfMemory(Exception):
    """The rotation does not fit; the message says how many bytes were wanted."""


@dataclass
class Slot:
    """One input set: its tensors, and the launch of each implementation on them by name."""

    tensors: dict[str, Any]
    launches: Mapping[str, Callable[[], None]]


def bytes_of(tensors: Mapping[str, Any]) -> int:
    """Bytes that the storages behind `tensors` hold, each storage once."""
    storages = {}
    for tensor in tensors.values():
        if hasattr(tensor, "untyped_storage"):
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def rotation_sets(per_set: int, cache_bytes: int, rotation: float, unit: int) -> int:
    """How many sets of `per_set` bytes cover `rotation` times the last-level cache; at least 2.

    Ten or more are rounded up to a multiple of `unit`, so that the positive control's surplus is a whole
    number of launches; fewer, where the unit is large, to one of its divisors, so that a sample stays short.
    """
    sets = max(2, math.ceil(rotation * cache_bytes / max(1, per_set)))
    if sets >= 10:
        sets = math.ceil(sets / unit) * unit
    elif unit > 10:
        sets = next(d for d in range(sets, unit + 1) if unit % d == 0)
    return min(sets, MAX_SETS // unit * unit)


class Rig:
    """Input sets in groups. A group is a separate allocation of the whole rotation: group 1 is the A/A
    control's.

    `names` are the implementations: `subject` and the ids of baselines. Seeds differ between sets and groups.
    """

    def __init__(
        self, module: Any, dims: Mapping[str, Any], names: tuple[str, ...], device: str, seed: int
    ) -> None:
        self._module = module
        self.dims = module.resolve(dims)
        self.device = device
        self.seed = seed
        self.names = names
        known = {b.id: b for b in module.baselines(self.dims)}
        missing = [n for n in names if n != "subject" and n not in known]
        if missing:
            raise KeyError(f"kernel file has no baseline {missing[0]!r} (it has {sorted(known)})")
        self._baselines = {n: known[n] for n in names if n != "subject"}
        self.groups: list[list[Slot]] = [[], []]
        self._random = random.Random(seed)
        self._pads: list[Any] = []

    def inputs(self, seed: int) -> dict[str, Any]:
        """A fresh set of tensors of this shape, outputs poisoned."""
        made: dict[str, Any] = self._module.make_inputs(self.dims, device=self.device, seed=seed)
        return made

    def _pad(self) -> None:
        """Leave a gap of random size, so that where a set lies in memory differs from process to process.

        Without it every process has the same layout and an A/A ratio the same bias (0.2 % on an H200).
        """
        import torch

        step = max(512, bytes_of(self.groups[0][0].tensors) // 16) if self.groups[0] else 512
        self._pads.append(
            torch.empty(self._random.randrange(8) * step, dtype=torch.uint8, device=self.device)
        )

    def slot(self, seed: int, names: tuple[str, ...] | None = None) -> Slot:
        """One input set with its launches built."""
        tensors = self.inputs(seed)
        launches = {}
        for name in self.names if names is None else names:
            if name == "subject":
                launches[name] = self._module.subject(self.dims, tensors, stream=self._stream())
            else:
                launches[name] = self._baselines[name].build(self.dims, tensors)
        return Slot(tensors, launches)

    def grow(self, group: int, count: int, names: tuple[str, ...] | None = None) -> None:
        """Allocate sets until `group` has `count`. Raises OutOfMemory with no set kept."""
        slots = self.groups[group]
        try:
            while len(slots) < count:
                self._pad()
                slots.append(self.slot(self.seed + 7919 * group + len(slots), names))
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and "out of memory" not in str(error).lower():
                raise
            self.clear()
            raise OutOfMemory(f"{count} sets of {self.dims}: {str(error).splitlines()[0]}") from error

    def clear(self) -> None:
        """Give all sets back to the device."""
        for slots in self.groups:
            slots.clear()
        self._pads.clear()
        if self.device != "cpu":
            import torch

            torch.cuda.empty_cache()

    def outputs_of(self, name: str) -> Mapping[str, str]:
        """Reference name -> the tensor of a slot in which implementation `name` leaves that result."""
        chosen: Any = self._baselines[name].outputs if name != "subject" else ()
        if isinstance(chosen, Mapping) and chosen:
            return chosen
        return {n: n for n in tuple(chosen) or self._module.outputs(self.groups[0][0].tensors)}

    def reset(self, tensors: dict[str, Any]) -> None:
        """Outputs that the kernel adds into, or that it must leave alone in part, as they are before a
        launch."""
        reset: Callable[[dict[str, Any]], None] | None = getattr(self._module, "reset", None)
        if reset is not None:
            reset(tensors)

    def expects(self, name: str) -> str | None:
        """The regular expression that a baseline's kernel symbol must match to be the claimed one, if any."""
        pattern: str | None = getattr(self._baselines.get(name), "expects", None)
        return pattern

    def reference(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """The float64 reference of one set."""
        made: dict[str, Any] = self._module.reference(self.dims, tensors)
        return made

    @property
    def traffic(self) -> Any:
        """Compulsory bytes and operations of one launch."""
        return self._module.traffic(self.dims)

    @property
    def tolerance(self) -> Any:
        """What counts as correct."""
        return self._module.tolerance(self.dims)

    def _stream(self) -> Any:
        if self.device == "cpu":
            return None
        import torch

        return torch.cuda.current_stream()
