"""Digests of thousands of ranks, made from a real recording of two.

Every rank does what rank 0 of the recording did in its steady steps, in the order of blocks drawn anew, with noise of
its own on each part. All leave each step together: when the last one has come, and the gradients are sent. Some ranks
are late, some nodes died, of one nothing is there.

    python benchmarks/simulated_ranks.py RUN --ranks 4096 --steps 10000

writes a run directory that `perfdoctor report RUN` judges.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perfdoctor.evidence.steady import select
from perfdoctor.recording.digesting import DigestWriter, records_of
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.model import Columns, ProcessRecording
from perfdoctor.recording.reader import read

RECORDED = Path(__file__).resolve().parent.parent / "tests" / "recordings" / "two_ranks"
PER_NODE = 8
NOISE = 0.03
"""Standard deviation of a part of a step beside that of the recording, on a rank of its own."""
BLOCK = 50
SENT_US = 400
COMPUTED = ("forward_us", "backward_us", "optimizer_us")
Ints = npt.NDArray[np.int64]


def late(ranks: int) -> dict[int, tuple[str, float]]:
    """Ranks that are late, the latest first: by which part, times its usual length."""
    return {ranks // 3: ("backward_us", 5.0), ranks // 7: ("forward_us", 2.0), ranks - 5: ("input_wait_us", 1.1)}


def dead(ranks: int) -> dict[int, float]:
    """Nodes that died: after which part of the steps. Of the one at 0 nothing is there."""
    nodes = ranks // PER_NODE
    return {nodes // 2: 0.3, nodes // 2 + 1: 0.3, nodes - 2: 0.0} if nodes >= 8 else {}


class Job:
    """What the ranks of a simulated job have in common."""

    def __init__(self, ranks: int, steps: int) -> None:
        self.ranks = ranks
        self.steps = steps
        recording = read(RunDirectory(RECORDED))
        self.template = recording.ranks[0]
        name = f"process-{self.template.header.pid}-*.jsonl"
        (path,) = RECORDED.glob(name)
        self.records = [one for one in records_of(path) if one["k"] not in ("sample", "call", "window", "iter", "gc")]
        self.windows = [one for one in records_of(path) if one["k"] == "window"]
        selection = select(self.template)
        rows = selection.rows.where(selection.mask)  # type: ignore[union-attr]
        rng = np.random.default_rng(0)
        starts = rng.integers(0, len(rows) - BLOCK, steps // BLOCK + 1)
        drawn = (starts[:, None] + np.arange(BLOCK)).ravel()[:steps]
        self.rows = {name: rows[name][drawn] for name in rows.arrays}
        self.latest = np.zeros(steps, np.int64)

    def own(self, rank: int) -> dict[str, Ints]:
        """What a rank does by itself in each step, by part, `other_us` for the rest."""
        rng = np.random.default_rng(rank + 1)
        parts = {name: self.rows[name] * rng.normal(1, NOISE, self.steps).clip(0.5) for name in COMPUTED}
        parts["input_wait_us"] = self.rows["input_wait_us"].astype(np.float64)
        spent = sum(self.rows[name] for name in (*COMPUTED, "input_wait_us", "communication_us"))
        parts["other_us"] = (self.rows["wall_us"] - spent).clip(0).astype(np.float64)
        name, times = late(self.ranks).get(rank, ("forward_us", 1.0))
        parts[name] = parts[name] * times
        return {name: part.astype(np.int64) for name, part in parts.items()}

    def process(self, rank: int) -> tuple[ProcessRecording, list[dict[str, Any]]]:
        """A rank as it would have been recorded."""
        own = self.own(rank)
        work = np.sum(list(own.values()), axis=0)
        wall = self.latest + SENT_US
        last = int(self.steps * dead(self.ranks).get(rank // PER_NODE, 1.0))
        numbers = np.arange(self.steps)
        zero = np.zeros(self.steps, np.int64)
        columns = {
            **dict.fromkeys(self.rows, zero),
            **{name: own[name] for name in (*COMPUTED, "input_wait_us")},
            "wall_us": wall,
            "communication_us": wall - work,
            "cpu_us": work - own["input_wait_us"],
            "micro": zero + 1,
            "step": numbers,
            "end_ns": self.template.header.t + 1000 * np.cumsum(wall),
        }
        batches = dict.fromkeys(self.template.batches.arrays, zero)
        batches |= {"step": numbers, "wait_us": own["input_wait_us"]}
        recording = replace(
            self.template,
            header=replace(self.template.header, pid=1000 + rank),
            settings=replace(self.template.settings, rank=rank, world_size=self.ranks),  # type: ignore[type-var]
            steps=Columns(columns).where(slice(last)),
            batches=Columns(batches).where(slice(last)),
            size_bytes=74 * last,
        )
        return recording, list(self._records(rank, Columns(columns).where(slice(last))))

    def _records(self, rank: int, rows: Columns) -> Iterator[dict[str, Any]]:
        for record in (*self.records, *self.windows):
            node, place = divmod(rank, PER_NODE)
            if record["k"] == "process":
                there = {"host": f"node-{node:05}", "boot": f"{node:036}"}
                yield record | {"pid": 1000 + rank, "ppid": 500 + node, **there}
            elif record["k"] in ("torch", "settings"):
                numbers = {"RANK": rank, "LOCAL_RANK": place, "GROUP_RANK": node, "WORLD_SIZE": self.ranks}
                environment = record["environment"] | {name: str(number) for name, number in numbers.items()}
                of_rank = {"rank": rank, "world_size": self.ranks} if record["k"] == "settings" else {}
                yield record | of_rank | {"environment": environment}
            else:
                yield record
        cpu_us = np.cumsum(rows["cpu_us"])
        for step in range(99, len(rows), 100):
            t, us = int(rows["end_ns"][step]), int(cpu_us[step])
            yield {"k": "sample", "t": t, "step": step + 1, "utime_us": us, "stime_us": us // 9, "delay_us": us // 50}
            waited = int(rows["communication_us"][step - 99 : step + 1].sum())
            yield {"k": "call", "kind": "dist.gradients", "count": 100, "us": waited, "step": step + 1, "site": -1}


def _latest(job: Job, ranks: range) -> Ints:
    """In each step the longest own work of these ranks."""
    most = np.zeros(job.steps, np.int64)
    for rank in ranks:
        np.maximum(most, np.sum(list(job.own(rank).values()), axis=0), out=most)
    return most


def _write_node(job: Job, directory: RunDirectory, node: int) -> int:
    """The size of its digest in bytes."""
    writer = DigestWriter()
    for rank in range(node * PER_NODE, min(job.ranks, (node + 1) * PER_NODE)):
        recording, records = job.process(rank)
        writer.add(f"process-{1000 + rank}-{rank}.jsonl", recording, records)
    path = writer.write(directory, f"node-{node:05}")
    return path.stat().st_size if path else 0


def simulate(path: Path, ranks: int, steps: int) -> float:
    """Writes a run directory; returns the mean size of a rank's digest, bytes."""
    path.mkdir(parents=True)
    for name in ("run.json", "machine.json", "host.jsonl"):
        shutil.copy(RECORDED / name, path / name)
    job = Job(ranks, steps)
    nodes = [node for node in range(-(-ranks // PER_NODE)) if dead(ranks).get(node) != 0.0]
    with ProcessPoolExecutor(2) as pool:
        spans = [range(start, min(start + 64, ranks)) for start in range(0, ranks, 64)]
        job.latest = np.max(list(pool.map(partial(_latest, job), spans)), axis=0)
        sizes = list(pool.map(partial(_write_node, job, RunDirectory(path)), nodes, chunksize=4))
    return sum(sizes) / (PER_NODE * len(nodes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=10_000)
    asked = parser.parse_args()
    began = time.perf_counter()
    size = simulate(asked.run, asked.ranks, asked.steps)
    said = {"bytes a rank": round(size), "seconds": round(time.perf_counter() - began, 1)}
    print(json.dumps(said), "late:", late(asked.ranks), "dead nodes:", dead(asked.ranks))


if __name__ == "__main__":
    main()
