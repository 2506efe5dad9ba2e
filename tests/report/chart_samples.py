"""Runs with something to draw: long ones, with everything that is marked, of many ranks, with calls within calls."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import recordings as r
from diagnosis_samples import tried

from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.evidence.model import Communication, Parts, RankTimes
from perfdoctor.injected._perfdoctor_probe.records import LAYER_RANGE
from perfdoctor.recording.directory import RunDirectory

EVIL = "</script><b>.py"
"""A name that HTML takes for markup, if it is let."""
LATE = 37
_THREAD = 100


def long_run(directory: Path, count: int = 10_000) -> RunDirectory:
    """So many steps of about 24 ms after some slow ones; epochs, collections, checkpoints, evaluations, windows and
    trials, and the trace of one step."""
    directory.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    wall = [rng.randint(23_000, 26_000) + (90_000 if i % 487 == 400 else 0) for i in range(count)]
    wall[0] = 2_400_000
    epochs = range(0, count, max(10, count // 12))
    saved = [8_000 if i % 1000 == 999 else 0 for i in range(count)]
    parts = {"input_wait_us": 14_000, "forward_us": 3_000, "backward_us": 5_000, "optimizer_us": 600}
    evaluated = [step for step in epochs if step]
    evaluation = {"us": 9, "forwards": 1, "forward_us": 5, "loader": 1}
    r.write(
        directory,
        r.process(),
        r.torch(),
        r.settings(),
        r.loader(dataset=EVIL),
        *(r.iterator(step) for step in epochs),
        *(r.full_collection(step, 3_000) for step in range(50, count, 50)),
        r.steps(wall, marked=range(20, min(28, count)), checkpoint_us=saved, **parts),
        {"k": "evaluations", "n": len(evaluated), "step": evaluated, **evaluation},
        {"k": "block", "trial": 0, "block": 1, "remedy": "gc.freeze", "step": count - 60, "n": 20, "wall_us": [1] * 20},
        {**r.ops_window(), "trace": _kept()},
    )  # fmt: skip
    (directory / "trace-100-1.json").write_text(json.dumps({"traceEvents": _events()}))
    return r.write_run(directory)


def _kept() -> dict[str, Any]:
    parts = [("input_wait", 0, 14), ("forward", 14, 17), ("backward", 17, 22), ("optimizer", 22, 24)]
    return {
        "file": "trace-100-1.json",
        "clock_ns": 0,
        "thread": _THREAD,
        "steps": [{"step": 12, "start_ns": 0, "end_ns": 24_000_000}],
        "parts": [{"part": name, "start_ns": a * 10**6, "end_ns": b * 10**6} for name, a, b in parts],
        "layers": [{"name": f"encoder.{EVIL}", "kind": "Linear", "called_at": -1, "made_at": -1}],
    }


def _events() -> list[dict[str, Any]]:
    """Operators within operators, a layer around some, and kernels behind them."""
    made = [_event(f"{LAYER_RANGE}0", 14_000, 1_000)]
    for i in range(200):
        start = 14_000 + 40 * i
        made += [_event("aten::linear", start, 36), _event("aten::addmm", start + 4, 28)]
        kernel = _event(f"void gemm<{i % 3}>", start + 20, 30, "kernel", 7)
        made.append({**kernel, "args": {"device": 0, "stream": 7}})
    return made


def _event(name: str, ts: float, dur: float, cat: str = "cpu_op", tid: int = _THREAD) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur}


def together(count: int = 4096) -> Communication:
    """So many ranks, of which one is late by 9 ms."""
    rng = random.Random(1)
    late = min(LATE, count - 1)

    def times(rank: int) -> RankTimes:
        slow = 9.0 if rank == late else 0.0
        forward, backward = 6 + slow + rng.random(), 10 + rng.random()
        waits = max(0.0, 29.0 - forward - backward - 1.5)
        parts = Parts(input_wait=0.5, forward=forward, backward=backward, optimizer=1.0, communication=waits)
        return RankTimes(rank, parts, 20.0, 0.1, 0.97 if rank == late else 0.0, 32.0, 1e6)

    ranks = tuple(times(rank) for rank in range(count))
    return Communication(200, ranks, late, 8.5, 8.1, 8.9, 0.4, (), None)


def many_ranks(count: int = 4096) -> Diagnosis:
    """A diagnosis with findings, trials and so many ranks."""
    diagnosis = tried()
    job = replace(diagnosis.evidence.job, command=("python", EVIL))
    return replace(diagnosis, evidence=replace(diagnosis.evidence, job=job, communication=together(count)))


@dataclass(frozen=True)
class Called:
    """A frame of a flame graph."""

    name: str
    ms: float
    children: tuple[Called, ...] = ()
    users: bool = True


def flame(depth: int = 12) -> Called:
    """Calls within calls, 24 ms per step in all, in functions of a file that has markup for a name and of a library."""

    def called(level: int, ms: float) -> Called:
        if level >= depth or ms < 0.02:
            return Called(f"leaf (library.py:{level})", ms, users=False)
        children = tuple(called(level + 1 + 2 * i, ms * share) for i, share in enumerate((0.6, 0.25, 0.1)))
        return Called(f"level {level} ({EVIL}:{level})", ms, children)

    return Called("all steps", 24.0, (called(0, 23.0),), users=False)
