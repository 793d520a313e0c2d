"""The project's own FlyDSL kernels: a row softmax on two paths, a reversal with planted faults, a probe.

Written from FlyDSL's documentation of its expression API (kernel authoring guide), to be compiled where
no upstream source is at hand. Importing this needs FlyDSL; it is imported by the modules beside it, in
a worker process.
"""

# FlyDSL traces Python functions by its own types; its decorators and the traced functions have none.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import buffer_ops, const_expr, gpu, range_constexpr
from flydsl.expr.typing import Vector
from flydsl.expr.vector import ReductionOp
from flydsl.runtime.device import get_rocm_arch

__all__ = ["THREADS", "build_probe", "build_reversal", "build_softmax"]

THREADS = 256
WAVE = 64
WAVES = THREADS // WAVE
LOG2_E = 1.4426950408889634
NULL_STREAM = fx.Stream(None)
VECTOR = 8
"""bf16 elements in 128 bits."""


def build_softmax(columns: int, path: str) -> Any:
    """A row softmax of bf16 [rows, columns], a workgroup of 256 a row: `launch(x, y, rows)`.

    path "scalar" moves one element at a time, "vector" eight (128 bits). `columns` must fill whole
    tiles of it.
    """
    width = VECTOR if path == "vector" else 1
    each = columns // (THREADS * width)
    if each * THREADS * width != columns:
        raise ValueError(f"columns must be a multiple of {THREADS * width} (got {columns})")

    def over_the_wave(value, combine):
        for step in range_constexpr(6):
            value = combine(value, value.shuffle_xor(fx.Int32(32 >> step), fx.Int32(WAVE)))
        return value

    def over_the_workgroup(value, combine, parts, thread):
        parts[thread // WAVE] = over_the_wave(value, combine)
        gpu.barrier()
        total = parts[0]
        for wave in range_constexpr(WAVES - 1):
            total = combine(total, parts[wave + 1])
        gpu.barrier()
        return total

    def largest(a, b):
        return a.maximumf(b)

    def both(a, b):
        return a + b

    @flyc.kernel
    def specimen_softmax(x: fx.Tensor, y: fx.Tensor):
        thread = gpu.thread_idx.x
        first = gpu.block_idx.x * columns
        source = buffer_ops.create_buffer_resource(x)
        target = buffer_ops.create_buffer_resource(y)
        parts = fx.SharedAllocator().allocate(fx.Array[fx.Float32, WAVES]).peek().ptr
        values = []
        highest = fx.Float32(float("-inf"))
        for tile in range_constexpr(each):
            at = first + (tile * THREADS + thread) * width
            if const_expr(width == 1):
                loaded = buffer_ops.buffer_load(source, at, vec_width=1, dtype=fx.BFloat16)
                value = fx.BFloat16(loaded).to(fx.Float32)
                highest = largest(highest, value)
            else:
                loaded = buffer_ops.buffer_load(source, at // 2, vec_width=4, dtype=fx.Int32)
                value = Vector(loaded, 4, fx.Int32).bitcast(fx.BFloat16).to(fx.Float32)
                highest = largest(highest, value.reduce(ReductionOp.MAX))
            values.append(value)
        highest = over_the_workgroup(highest, largest, parts, thread)
        total = fx.Float32(0.0)
        for tile in range_constexpr(each):
            power = fx.math.exp2((values[tile] - highest) * LOG2_E)
            values[tile] = power
            total = total + (power if const_expr(width == 1) else power.reduce(ReductionOp.ADD))
        total = over_the_workgroup(total, both, parts, thread)
        scale = fx.Float32(1.0) / total
        for tile in range_constexpr(each):
            at = first + (tile * THREADS + thread) * width
            result = (values[tile] * scale).to(fx.BFloat16)
            if const_expr(width == 1):
                buffer_ops.buffer_store(result, target, at)
            else:
                buffer_ops.buffer_store(result.bitcast(fx.Int32), target, at // 2)

    @flyc.jit
    def launch(x: fx.Tensor, y: fx.Tensor, rows: fx.Int32, stream: fx.Stream = NULL_STREAM):
        specimen_softmax(x, y).launch(grid=(rows, 1, 1), block=(THREADS, 1, 1), stream=stream)

    return launch


def build_reversal(fault: str) -> Any:
    """y[b, i] = x[b, 255 - i] through LDS, f32 [blocks, 256], one workgroup a row: `launch(x, y, blocks)`.

    fault "none"; "race": no barrier between the write to LDS and the read of another wave's part of it;
    "out of range": every workgroup also stores one element beyond the end of y, at index blocks*256.
    """

    @flyc.kernel
    def specimen_reversal(x: fx.Tensor, y: fx.Tensor, blocks: fx.Int32):
        thread = gpu.thread_idx.x
        at = gpu.block_idx.x * THREADS + thread
        source = buffer_ops.create_buffer_resource(x)
        target = buffer_ops.create_buffer_resource(y)
        staged = fx.SharedAllocator().allocate(fx.Array[fx.Float32, THREADS]).peek().ptr
        loaded = buffer_ops.buffer_load(source, at, vec_width=1, dtype=fx.Float32)
        staged[thread] = fx.Float32(loaded)
        if const_expr(fault != "race"):
            gpu.barrier()
        value = staged[THREADS - 1 - thread]
        buffer_ops.buffer_store(value, target, at)
        if const_expr(fault == "out of range"):
            buffer_ops.buffer_store(value, target, blocks * THREADS)

    @flyc.jit
    def launch(x: fx.Tensor, y: fx.Tensor, blocks: fx.Int32, stream: fx.Stream = NULL_STREAM):
        specimen_reversal(x, y, blocks).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1), stream=stream)

    return launch


def build_probe() -> Any:
    """A copy of f32 [1024] that a builder makes 128 bits wide for gfx950 and 32 bits wide for anything else.

    It asks FlyDSL for the architecture as upstream's builders do, so its ISA tells which one they were told.
    """
    width = 4 if get_rocm_arch() == "gfx950" else 1

    @flyc.kernel
    def specimen_probe(x: fx.Tensor, y: fx.Tensor):
        at = (gpu.block_idx.x * THREADS + gpu.thread_idx.x) * width
        source = buffer_ops.create_buffer_resource(x)
        target = buffer_ops.create_buffer_resource(y)
        buffer_ops.buffer_store(
            buffer_ops.buffer_load(source, at, vec_width=width, dtype=fx.Float32), target, at
        )

    @flyc.jit
    def launch(x: fx.Tensor, y: fx.Tensor, stream: fx.Stream = NULL_STREAM):
        specimen_probe(x, y).launch(grid=(4 // width, 1, 1), block=(THREADS, 1, 1), stream=stream)

    return launch
