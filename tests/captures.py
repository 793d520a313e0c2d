"""Synthetic rocprofv3 output in the real formats: a thread trace whose files agree, and the tables beside it.

Made from a seed, so a test can say exactly what is in it and break one thing at a time. Nothing here comes
from a real capture.
"""

from __future__ import annotations

import io
import json
import random
import sqlite3
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KERNEL = "made_kernel_0"
DISPATCH = 12
AGENT = 4242
SOURCE = "/src/made/kernels/made.py"

PROGRAM: tuple[tuple[str, int], ...] = (
    ("s_load_dwordx2 s[4:5], s[0:1], 0x0", 1),
    ("s_waitcnt lgkmcnt(0)", 9),
    ("v_lshlrev_b32_e32 v1, 4, v0", 6),
    ("buffer_load_dwordx4 v[8:11], v1, s[4:7], 0 offen", 3),
    ("s_waitcnt vmcnt(0) lgkmcnt(0)", 9),
    ("v_mfma_f32_16x16x16_f16 v[12:15], v[8:9], v[10:11], v[12:15]", 6),
    ("ds_write_b128 v1, v[12:15]", 5),
    ("s_barrier", 9),
    ("v_pk_fma_f32 v[2:3], v[2:3], v[4:5], v[6:7]", 6),
    ("buffer_store_dwordx4 v[12:15], v1, s[4:7], 0 offen", 3),
    ("s_endpgm", 11),
)
"""(instruction, the decoder's category)."""


@dataclass
class Made:
    """What was made: files by name, to write or to break; `expect` holds the sums that a reader must find."""

    files: dict[str, bytes]
    tables: dict[str, bytes]
    expect: dict[str, Any] = field(default_factory=dict)

    def write(self, root: Path, agent: int = AGENT, dispatch: int = DISPATCH) -> Path:
        """Write as rocprofv3 does: the tables in `root`, the trace in a directory below; returns the
        latter."""
        trace = root / f"ui_output_agent_{agent}_dispatch_{dispatch}"
        trace.mkdir(parents=True)
        for name, data in self.files.items():
            (trace / name).write_bytes(data)
        for name, data in self.tables.items():
            (root / name).write_bytes(data)
        return trace

    def archive(
        self, path: Path, agent: int = AGENT, dispatch: int = DISPATCH, reverse: bool = False
    ) -> Path:
        """The same as one `.tar.gz`; `reverse` writes the members in the other order."""
        members = {f"ui_output_agent_{agent}_dispatch_{dispatch}/{n}": d for n, d in self.files.items()}
        members |= self.tables
        order = sorted(members, reverse=reverse)
        with tarfile.open(path, "w:gz") as tar:
            for name in order:
                info = tarfile.TarInfo(name)
                info.size = len(members[name])
                tar.addfile(info, io.BytesIO(members[name]))
        return path


def encode(value: Any) -> bytes:
    """Compact JSON, as the profiler writes it."""
    return json.dumps(value, separators=(",", ":")).encode()


def make(
    waves: int = 8, seed: int = 1, *, body: int | None = None, source: bool = True, simds: int = 4
) -> Made:
    """A capture of `waves` sampled waves, of which the first `body` (default all) run past the first wait."""
    draw = random.Random(seed)
    rows = [[0, 0, 0, 0] for _ in PROGRAM]
    files: dict[str, bytes] = {}
    names: dict[str, Any] = {}
    steps: dict[int, dict[int, int]] = {n: {} for n in range(1, 5)}
    events: list[list[int]] = []
    states = [0, 0, 0, 0, 0]
    for number in range(waves):
        simd, slot, ident = number % simds, (number // simds) % 4, number // (4 * simds)
        begin = 10_000 + 40_000 * ident + 4 * draw.randrange(50)
        short = body is not None and number >= body
        executed = [0, 1, len(PROGRAM) - 1] if short else list(range(len(PROGRAM)))
        time = begin + 4 * draw.randrange(1, 8)
        instructions: list[list[int]] = []
        timeline: list[list[int]] = [[1, time - begin]]
        previous = begin
        for at in executed:
            category = PROGRAM[at][1]
            stall = 4 * draw.randrange(0, 200 if category in (3, 9) else 4)
            duration = stall if category == 9 else stall + 4
            instructions.append([time, category, stall, duration, at + 1])
            rows[at][0] += 1
            rows[at][1] += duration
            rows[at][2] += stall
            rows[at][3] += time - previous
            previous = time + duration
            if category in (9, 11):
                timeline.append([3, duration])
            else:
                timeline += [[4, stall], [2, duration - stall]]
            gap = 4 * draw.randrange(0, 3)
            if at != executed[-1] and gap:
                timeline.append([2, gap])
                time = previous + gap
            else:
                time = previous
        end = previous
        clock = begin
        for state, cycles in timeline:
            states[state] += cycles
            if cycles:
                steps[state][clock] = steps[state].get(clock, 0) + 1
                steps[state][clock + cycles] = steps[state].get(clock + cycles, 0) - 1
            clock += cycles
        name = f"se0_sm{simd}_sl{slot}_wv{ident}.json"
        files[name] = encode(
            {
                "duration": end - begin, "name": "SE0", "num_insts": len(instructions),
                "num_stitched": len(instructions),
                "wave": {
                    "begin": begin, "cu": 1, "end": end, "id": ident, "instructions": instructions,
                    "simd": simd,
                    "slot": slot, "timeline": timeline, "waitcnt": [[2, [[1, 0]]]],
                },
            }
        )  # fmt: skip
        by_slot = names.setdefault("0", {}).setdefault(str(simd), {}).setdefault(str(slot), {})
        by_slot[str(ident)] = [name, begin, end]
        events += [[begin, 1, simd, slot, 1, 1], [end, 1, simd, slot, 0, 1]]
    events.sort()
    code = [[f"; {KERNEL}", 0, 0, "", 4, 0x1700, 0, 0, 0, 0]]
    code += [
        [isa, 0, at + 1, f"{SOURCE}:{20 + at // 2}" if source else "", 4, 0x1700 + 8 * at, *rows[at]]
        for at, (isa, _) in enumerate(PROGRAM)
    ]
    columns = "ISA, _, LineNumber, Source, Codeobj, Vaddr, Hit, Latency, Stall, Idle"
    files["code.json"] = encode({"code": code, "header": columns, "version": "3.0.0"})
    files["filenames.json"] = encode(
        {
            "counter_names": [], "gfxip": 9, "gfxv": "vega", "global_begin_time": 0, "version": "3.0.0",
            "wave_filenames": names,
        }
    )  # fmt: skip
    files["occupancy.json"] = encode(
        {"0": events, "dispatches": {"0": "0 / 0x0", "1": KERNEL}, "version": "3.0.0"}
    )
    files["realtime.json"] = encode(
        {"SE0": [[1000, 50_000], [2_101_000, 150_000]], "metadata": {"frequency": 100_000_000}}
    )
    files["snapshots.json"] = encode({"/": {"src": {"made": {"kernels": {"made.py": "source_0_made.py"}}}}})
    for number, changes in steps.items():
        times, counts, level = [], [], 0
        for moment in sorted(changes):
            level += changes[moment]
            times.append(moment)
            counts.append(level)
        files[f"wstates{number}.json"] = encode(
            {"name": f"wstates{number}.json", "state": counts, "time": times}
        )
    expect = {
        "total": sum(r[1] for r in rows), "stall": sum(r[2] for r in rows), "idle": sum(r[3] for r in rows),
        "waves": waves, "states": tuple(states), "executed": sum(r[0] > 0 for r in rows),
    }  # fmt: skip
    grid = 8 * waves  # one wave a workgroup of 64 on 1 of 32 engines: 32 × waves waves
    return Made(files, tables(grid=4 * grid), expect)


def tables(
    *, grid: int = 256, vgpr: int = 12, launches: int = 20, kernel: str = KERNEL, counters: bool = False
) -> dict[str, bytes]:
    """The tables of a run: kernel_trace, kernel_stats, agent_info, results.json; workgroups of 64 threads."""
    head = (
        '"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name",'
        '"Correlation_Id","Start_Timestamp","End_Timestamp","LDS_Block_Size","Scratch_Size","VGPR_Count",'
        '"Accum_VGPR_Count","SGPR_Count","Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X",'
        '"Grid_Size_Y","Grid_Size_Z"'
    )
    lines = [head]
    for number in range(launches):
        start = 1_000_000 + 50_000 * number
        lines.append(
            f'"KERNEL_DISPATCH","Agent 2",1,0,77,{number + 1},9,"{kernel}",{number + 1},{start},'
            f"{start + 7000 + 40 * number},1024,0,{vgpr},0,32,64,1,1,{64 * grid},1,1"
        )
    lines.append(
        '"KERNEL_DISPATCH","Agent 2",1,0,77,99,8,"void at::f<float, 4>(int, long)::{lambda(int)#1}",99,5,9,0,'
        "0,32,0,48,256,1,1,512,1,1"
    )
    agents = (
        '"Node_Id","Agent_Type","Cu_Count","Gfx_Target_Version","Name","Product_Name"\n'
        '0,"CPU",64,0,"a CPU","a CPU"\n2,"GPU",256,90500,"gfx950","AMD Instinct MI350X"\n'
    )
    record = {
        "dispatch_data": {"dispatch_info": {"dispatch_id": DISPATCH, "kernel_id": 9}},
        "records": [{"counter_id": {"handle": 5}, "value": 64.0}],
    }
    tool = {
        "metadata": {"pid": 1, "command": ["python", "made.py"]},
        "agents": [
            {
                "id": {"handle": AGENT}, "name": "gfx950", "product_name": "AMD Instinct MI350X",
                "gfx_target_version": 90500, "cu_count": 256, "simd_count": 1024,
                "runtime_visibility": {"hsa": 1, "hip": 1},
            }
        ],
        "counters": [{"id": {"handle": 5}, "name": "SQ_WAVES"}] if counters else [],
        "strings": {"att_filenames": []},
        "kernel_symbols": [
            {
                "kernel_id": 9, "code_object_id": 4, "kernel_name": f"{kernel}.kd",
                "group_segment_size": 1024,
                "private_segment_size": 0, "sgpr_count": 32, "arch_vgpr_count": vgpr, "accum_vgpr_count": 0,
            }
        ],
        "callback_records": {"counter_collection": [record] if counters else []},
        "buffer_records": {"kernel_dispatch": []},
    }  # fmt: skip
    out = {
        "out_kernel_trace.csv": ("\n".join(lines) + "\n").encode(),
        "out_kernel_stats.csv": (
            '"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"\n'
            f'"{kernel}",{launches},148000,7400.0,100.00,7000,7760,1.0\n'
        ).encode(),
        "out_agent_info.csv": agents.encode(),
        "out_results.json": encode({"rocprofiler-sdk-tool": [tool]}),
    }
    if counters:
        out["out_counter_collection.csv"] = counter_csv({"SQ_WAVES": 64.0, "SQ_INSTS_VALU": 640.0}, kernel)
    return out


def counter_csv(values: dict[str, float], kernel: str = KERNEL, dispatch: int = DISPATCH) -> bytes:
    """counter_collection.csv of one dispatch."""
    head = (
        '"Correlation_Id","Dispatch_Id","Agent_Id","Kernel_Id","Kernel_Name","Counter_Name","Counter_Value"'
    )
    lines = [head] + [f'1,{dispatch},"Agent 2",9,"{kernel}","{name}",{v}' for name, v in values.items()]
    return ("\n".join(lines) + "\n").encode()


def rocpd(path: Path, *, version: str = "3", launches: int = 4) -> Path:
    """A rocpd database: the metadata table and the views that a reader uses, as tables."""
    database = sqlite3.connect(path)
    with database:
        database.execute("CREATE TABLE rocpd_metadata (id INTEGER, tag TEXT, value TEXT)")
        database.execute("INSERT INTO rocpd_metadata VALUES (1, 'schema_version', ?)", (version,))
        columns = (
            "name TEXT, dispatch_id INTEGER, start INTEGER, end INTEGER, vgpr_count INTEGER, "
            "accum_vgpr_count INTEGER, sgpr_count INTEGER, lds_size INTEGER, scratch_size INTEGER, "
            "workgroup_x INTEGER, workgroup_y INTEGER, workgroup_z INTEGER, grid_x INTEGER, grid_y INTEGER, "
            "grid_z INTEGER"
        )
        database.execute(f"CREATE TABLE kernels ({columns})")
        rows = [
            (KERNEL, n + 1, 1000 * n + 1, 1000 * n + 501, 12, 0, 32, 1024, 0, 64, 1, 1, 6400, 1, 1)
            for n in range(launches)
        ]
        database.executemany("INSERT INTO kernels VALUES (" + ",".join("?" * 15) + ")", rows)
        database.execute(
            "CREATE TABLE counters_collection (dispatch_id INTEGER, kernel_name TEXT, counter_name TEXT, "
            "value REAL)"
        )
        database.execute("INSERT INTO counters_collection VALUES (1, ?, 'SQ_WAVES', 100.0)", (KERNEL,))
    database.close()
    return path
