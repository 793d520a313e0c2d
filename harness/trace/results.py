"""rocprofv3's results.json, typed: agents, kernel symbols, code objects, counters and dispatch records.

Only what is used is decoded; the lists of HIP calls and the caches of every agent are skipped unread. Must
not know what a figure means. Format: rocprofiler-sdk-tool, the JSON writer.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from harness.trace.faults import ReadFault, fault

__all__ = ["Results", "Symbol", "results"]


class _Handle(msgspec.Struct, gc=False):
    handle: int = 0


class _Visibility(msgspec.Struct, gc=False):
    hsa: int = 0
    hip: int = 0


class _Agent(msgspec.Struct, gc=False):
    id: _Handle = msgspec.field(default_factory=_Handle)
    name: str = ""
    product_name: str = ""
    gfx_target_version: int = 0
    cu_count: int = 0
    simd_count: int = 0
    runtime_visibility: _Visibility = msgspec.field(default_factory=_Visibility)


class Symbol(msgspec.Struct, frozen=True, gc=False):
    """One kernel symbol: LDS (static) and scratch in bytes; register counts are the profiler's fields."""

    kernel_name: str
    kernel_id: int = 0
    code_object_id: int = 0
    kernarg_segment_size: int = 0
    group_segment_size: int = 0
    private_segment_size: int = 0
    sgpr_count: int = 0
    arch_vgpr_count: int = 0
    accum_vgpr_count: int = 0
    formatted_kernel_name: str = ""

    @property
    def name(self) -> str:
        """The kernel's name without the descriptor's suffix."""
        return self.kernel_name.removesuffix(".kd")


class _Strings(msgspec.Struct, gc=False):
    att_filenames: list[msgspec.Raw] = []


class _Value(msgspec.Struct, gc=False):
    counter_id: _Handle
    value: float = 0.0


class _Info(msgspec.Struct, gc=False):
    kernel_id: int = 0
    dispatch_id: int = 0


class _DispatchData(msgspec.Struct, gc=False):
    dispatch_info: _Info = msgspec.field(default_factory=_Info)


class _Counted(msgspec.Struct, gc=False):
    dispatch_data: _DispatchData = msgspec.field(default_factory=_DispatchData)
    records: list[_Value] = []


class _Callback(msgspec.Struct, gc=False):
    counter_collection: list[_Counted] = []


class _Buffer(msgspec.Struct, gc=False):
    kernel_dispatch: list[msgspec.Raw] = []


class _Metadata(msgspec.Struct, gc=False):
    pid: int = 0
    command: list[str] = []


class _CounterName(msgspec.Struct, gc=False):
    id: _Handle = msgspec.field(default_factory=_Handle)
    name: str = ""


class _Tool(msgspec.Struct, gc=False):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    agents: list[_Agent] = []
    counters: list[_CounterName] = []
    strings: _Strings = msgspec.field(default_factory=_Strings)
    kernel_symbols: list[Symbol] = []
    callback_records: _Callback = msgspec.field(default_factory=_Callback)
    buffer_records: _Buffer = msgspec.field(default_factory=_Buffer)


class _File(msgspec.Struct, gc=False):
    tools: list[_Tool] = msgspec.field(name="rocprofiler-sdk-tool")


@dataclass(frozen=True)
class Results:
    """What results.json holds.

    gpus: (handle, Name, product, target version, CU count) of the GPUs that the traced process saw; the
    handle is the number in `ui_output_agent_<handle>_...`. counters: (dispatch id, kernel id, counter id)
    -> value, summed.
    """

    command: tuple[str, ...]
    gpus: tuple[tuple[int, str, str, int, int], ...]
    symbols: tuple[Symbol, ...]
    counter_names: dict[int, str]
    counters: dict[tuple[int, int, int], float]
    dispatches: int
    traces: int

    @property
    def has_counters(self) -> bool:
        """Whether any counter value was recorded."""
        return bool(self.counters)


_DECODER = msgspec.json.Decoder(_File)


def results(data: bytes, name: str) -> Results:
    """Decode results.json. Raises ReadFault."""
    again = "run rocprofv3 again with -f csv json and a fresh output directory"
    try:
        file = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        text = "is empty" if not data.strip() else f"{type(error).__name__}: {error}"
        raise ReadFault(fault("unreadable-file", f"{name}: {text}", again)) from None
    if not file.tools:
        raise ReadFault(fault("unreadable-file", f"{name}: holds no tool record", again))
    tool = file.tools[0]
    values: dict[tuple[int, int, int], float] = {}
    for record in tool.callback_records.counter_collection:
        info = record.dispatch_data.dispatch_info
        for value in record.records:
            key = (info.dispatch_id, info.kernel_id, value.counter_id.handle)
            values[key] = values.get(key, 0.0) + value.value
    gpus = [a for a in tool.agents if a.simd_count > 0]
    seen = [a for a in gpus if a.runtime_visibility.hsa] or gpus
    return Results(
        tuple(tool.metadata.command),
        tuple((a.id.handle, a.name, a.product_name, a.gfx_target_version, a.cu_count) for a in seen),
        tuple(tool.kernel_symbols),
        {c.id.handle: c.name for c in tool.counters},
        values,
        len(tool.buffer_records.kernel_dispatch),
        len(tool.strings.att_filenames),
    )
