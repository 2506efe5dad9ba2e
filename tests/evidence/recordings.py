"""Recordings as small files, in the words of the format, for tests of what is made of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfdoctor.evidence import steady
from perfdoctor.evidence.model import Missing
from perfdoctor.evidence.steady import Selection
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.machine import Machine
from perfdoctor.recording.model import ProcessRecording
from perfdoctor.recording.reader import ProcessFile

Record = dict[str, Any]

START_NS = 1_000_000_000
"""When processes start."""
PID = 100
WALL_US = 10_000
CWD = "/home/ann/job"
MACHINE = Machine(
    cpu_model="CPU",
    logical_cpus=4,
    physical_cores=4,
    affinity_cpus=4,
    quota_cpus=None,
    memory_bytes=1 << 33,
    kernel="6.18.0",
    page_fault_ns=500.0,
)


def process(pid: int = PID, ppid: int = 1, **fields: Any) -> Record:
    return {"k": "process", "version": 2, "pid": pid, "ppid": ppid, "t": START_NS, "python": "3.11.7", **fields}


def torch(**fields: Any) -> Record:
    return {"k": "torch", "version": "2.13.0", "cwd": "/home/ann/job", "environment": {}, **fields}


def settings(
    precision: Record | None = None, threads: Record | None = None, backend: Record | None = None, **fields: Any
) -> Record:
    """Of a plain job on the CPU; changes to its three large parts, and fields beside them."""
    return {
        "k": "settings",
        "precision": {
            "default_dtype": "float32",
            "parameter_dtypes": [],
            "parameter_devices": [],
            "autocast_dtype": "",
            "grad_scaler": False,
            **(precision or {}),
        },
        "threads": {"intra_op": 1, "inter_op": 1, **(threads or {})},
        "backend": {
            "cuda": "",
            "hip": "",
            "arch_list": [],
            "blas": "mkl",
            "onednn_built": True,
            "onednn_enabled": True,
            "acl": False,
            "capability": "AVX2",
            "xpu_built": False,
            "mps_available": False,
            "data_parallel": False,
            "parameters_by_device": [],
            **(backend or {}),
        },
        "environment": {},
        "allocator": "glibc",
        "gc_enabled": True,
        **fields,
    }


def window(name: str, **fields: Any) -> Record:
    return {"k": "window", "name": name, "first_step": 10, **fields}


def no_window(name: str, why: str) -> Record:
    return {"k": "window", "name": name, "missing": why}


def ops_window(
    *, layers: Record | None = None, library_use: Record | None = None, replays: Sequence[Record] = (), **profile: Any
) -> Record:
    """An operator window: fields of its profile, and its other parts."""
    return window(
        "ops",
        profile={"steps": 2, "ops": [], "ops_per_step": 10.0, "self_ms_per_step": 4.0, **profile},
        layers=layers or {"layers": [], "count": 0, "total_ms": 0.0, "flops_per_step": 0.0},
        library_use={"convolutions": [], "recurrent": [], "attention": [], **(library_use or {})},
        replays=list(replays),
    )


def sites_window(**fields: Any) -> Record:
    return window("sites", **{"steps": 2, "ops": 100, "calls": [], "lines": [], **fields})


def boundary(kind: str, step: int = 0) -> Record:
    return {"k": "boundary", "kind": kind, "step": step}


def steps(wall_us: Sequence[int] | int, n: int = 0, *, first: int = 0, marked: Sequence[int] = (), **us: Any) -> Record:
    """Steps of these lengths; other columns by name, one number or a list."""
    walls = [wall_us] * n if isinstance(wall_us, int) else [int(us) for us in wall_us]
    columns = {"micro": 1, **us}
    return {
        "k": "steps",
        "first": first,
        "n": len(walls),
        "t": START_NS + 1000 * sum(walls),
        "wall_us": walls,
        "marked": list(marked),
        **{name: value if isinstance(value, int) else [int(v) for v in value] for name, value in columns.items()},
    }


def sample(step: int, **fields: Any) -> Record:
    return {"k": "sample", "t": START_NS, "step": step, "delay_us": 0, **fields}


def loader(identity: int = 1, **fields: Any) -> Record:
    """Without workers, and made where no line of the job was on the stack."""
    made = {"batch_size": 32, "num_workers": 0, "prefetch_factor": None, "pin_memory": False}
    rest = {"persistent_workers": False, "start_method": "fork" if fields.get("num_workers") else "", "site": -1}
    return {"k": "loader", "id": identity, "dataset": "Images", **made, **rest, **fields}


def iterator(step: int, us: int = 0, loader: int = 1, site: int = -1, callers: Sequence[int] = ()) -> Record:
    return {"k": "iter", "loader": loader, "step": step, "us": us, "site": site, "callers": list(callers)}


def ended_iterator(step: int, us: int, loader: int = 1) -> Record:
    return {"k": "iterend", "loader": loader, "step": step, "us": us}


def batches(step: Sequence[int], wait_us: Any, *, loader: int | list[int] = 1, **columns: Any) -> Record:
    """One batch in each of the steps."""
    rest = {"depth": -1, "first": 0, "transport_us": 0, "transport_bytes": 0, **columns}
    return {"k": "batches", "n": len(step), "loader": loader, "step": list(step), "wait_us": wait_us, **rest}


def fetches(getitem_us: Sequence[int], **columns: Any) -> Record:
    rest = {"getitem_cpu_us": 0, "collate_us": 0, "collate_cpu_us": 0, **columns}
    return {"k": "fetches", "n": len(getitem_us), "getitem_us": list(getitem_us), **rest}


def worker(number: int = 0, ppid: int = PID) -> Record:
    return {"k": "worker", "worker": number, "ppid": ppid}


def worker_sample(fetched: int, **fields: Any) -> Record:
    return {"k": "worker_sample", "t": START_NS, "fetched": fetched, **fields}


def site(identity: int, line: int, file: str = "/home/ann/job/train.py", function: str = "main") -> Record:
    return {"k": "site", "id": identity, "file": file, "line": line, "function": function}


def full_collection(step: int, us: int, **fields: Any) -> Record:
    return {"k": "full_gc", "step": step, "us": us, "generation": 2, "site": -1, **fields}


# ---------------------------------------------------------------------------------------------------------


def write(directory: Path, *records: Record, pid: int = PID, t: int = START_NS) -> Path:
    """A probe file; its first record is made up unless it is given."""
    if not records or records[0]["k"] != "process":
        records = (process(pid), *records)
    path = directory / f"process-{pid}-{t}.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def write_run(directory: Path, **fields: Any) -> RunDirectory:
    facts = {"schema": "perfdoctor.run/2", "command": ["python", "train.py"], "cwd": "/home/ann/job", **fields}
    (directory / "run.json").write_text(json.dumps(facts))
    return RunDirectory(directory)


def recorded(directory: Path, *records: Record, pid: int = PID) -> ProcessRecording:
    """What the reader makes of a file with these records."""
    file = ProcessFile(write(directory, *records, pid=pid), CWD)
    file.refresh()
    recording = file.recording()
    assert recording is not None
    return recording


def selected(recording: ProcessRecording) -> Selection:
    selection = steady.select(recording)
    assert not isinstance(selection, Missing), selection
    return selection


def autocorrelated(rng: np.random.Generator, n: int, rho: float = 0.5) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Noise of unit variance in which neighbours resemble each other, as steps beside a busy process do."""
    noise = np.empty(n)
    noise[0] = rng.normal()
    for i in range(1, n):
        noise[i] = rho * noise[i - 1] + np.sqrt(1 - rho**2) * rng.normal()
    return noise
