"""Recordings as small files, in the words of the format, for tests of what is made of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfdoctor.evidence import steady
from perfdoctor.evidence.model import Missing
from perfdoctor.evidence.places import Places
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
NOWHERE = Places({}, "")
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
    return {"k": "process", "version": 1, "pid": pid, "ppid": ppid, "t": START_NS, "python": "3.11.7", **fields}


def torch(**fields: Any) -> Record:
    return {"k": "torch", "version": "2.13.0", "cwd": "/home/ann/job", "environment": {}, **fields}


def settings(**fields: Any) -> Record:
    return {"k": "settings", "intra_op": 1, "environment": {}, "allocator": "glibc", **fields}


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
    return {"k": "loader", "id": identity, "dataset": "Images", "batch_size": 32, **fields}


def iterator(step: int, us: int = 0, loader: int = 1) -> Record:
    return {"k": "iter", "loader": loader, "step": step, "us": us}


def ended_iterator(step: int, us: int, loader: int = 1) -> Record:
    return {"k": "iterend", "loader": loader, "step": step, "us": us}


def batches(step: Sequence[int], wait_us: Any, *, loader: int = 1, **columns: Any) -> Record:
    """One batch in each of the steps."""
    rest = {"depth": -1, "first": 0, "transport_us": 0, "transport_bytes": 0, **columns}
    return {"k": "batches", "n": len(step), "loader": loader, "step": list(step), "wait_us": wait_us, **rest}


def fetches(getitem_us: Sequence[int], **columns: Any) -> Record:
    rest = {"getitem_cpu_us": 0, "collate_us": 0, "collate_cpu_us": 0, **columns}
    return {"k": "fetches", "n": len(getitem_us), "getitem_us": list(getitem_us), **rest}


def worker(number: int = 0, ppid: int = PID) -> Record:
    return {"k": "worker", "worker": number, "workers": 1, "ppid": ppid}


def worker_sample(fetched: int, **fields: Any) -> Record:
    return {"k": "worker_sample", "t": START_NS, "fetched": fetched, **fields}


def site(identity: int, line: int, file: str = "/home/ann/job/train.py", function: str = "main") -> Record:
    return {"k": "site", "id": identity, "file": file, "line": line, "function": function}


def full_collection(step: int, us: int, **fields: Any) -> Record:
    return {"k": "full_gc", "step": step, "us": us, "generation": 2, **fields}


# ---------------------------------------------------------------------------------------------------------


def write(directory: Path, *records: Record, pid: int = PID, t: int = START_NS) -> Path:
    """A probe file; its first record is made up unless it is given."""
    if not records or records[0]["k"] != "process":
        records = (process(pid), *records)
    path = directory / f"process-{pid}-{t}.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def write_run(directory: Path, **fields: Any) -> RunDirectory:
    facts = {"schema": "perfdoctor.run/1", "command": ["python", "train.py"], "cwd": "/home/ann/job", **fields}
    (directory / "run.json").write_text(json.dumps(facts))
    return RunDirectory(directory)


def recorded(directory: Path, *records: Record, pid: int = PID) -> ProcessRecording:
    """What the reader makes of a file with these records."""
    file = ProcessFile(write(directory, *records, pid=pid))
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
