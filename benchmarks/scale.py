"""How fast a recording is judged, how large it is, and how fast the command line answers.

    python benchmarks/scale.py [--ranks 4096]

Targets: `report` on 10,000 steps under 1 s; at most 100 bytes a step; 64 ranks of 10,000 steps in under 15 s and
1 GiB; 4,096 ranks by digests of at most 100 KiB in under 60 s and 2 GiB, their late rank named; `--help` within 1.3
times a bare typer and rich program. With `--ranks` only that many ranks are judged, by digests.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from simulated_ranks import dead, late, simulate

from perfdoctor.monitor.machine import write_machine
from perfdoctor.recording.machine import Machine

TEMPLATE = """
import typer
app = typer.Typer(rich_markup_mode=None)

@app.command()
def one(name: str, count: int = 1) -> None:
    \"\"\"Says something.\"\"\"

@app.command()
def two(name: str, count: int = 1) -> None:
    \"\"\"Says something else.\"\"\"

app()
"""


def synthetic(directory: Path, ranks: int, steps: int) -> None:
    """A run directory as `ranks` processes of `steps` steps of 5 ms would leave it."""
    random.seed(0)
    directory.mkdir(parents=True)
    (directory / "run.json").write_text(
        json.dumps({"schema": "perfdoctor.run/2", "command": ["python", "train.py"], "cwd": "/", "end": "finished"})
    )
    write_machine(Machine("CPU", 2, 2, 2, None, 2**34, "6.18.0", 1500.0), directory / "machine.json")
    (directory / "host.jsonl").touch()
    for rank in range(ranks):
        lines = [json.dumps(record) for record in _rank(rank, ranks, steps)]
        (directory / f"process-{1000 + rank}-{rank}.jsonl").write_text("\n".join(lines) + "\n")


def _settings(environment: dict[str, str]) -> dict[str, object]:
    precision = {"default_dtype": "float32", "parameter_dtypes": [["float32", 9]], "parameter_devices": ["cpu"]}
    backend = {"cuda": "", "hip": "", "arch_list": [], "blas": "mkl", "onednn_built": True, "onednn_enabled": True}
    return {
        "k": "settings",
        "precision": {**precision, "autocast_dtype": "", "grad_scaler": False},
        "threads": {"intra_op": 1, "inter_op": 1},
        "backend": {
            **backend,
            "acl": False,
            "capability": "AVX2",
            "xpu_built": False,
            "mps_available": False,
            "data_parallel": False,
            "parameters_by_device": [["cpu", 9]],
        },
        "environment": environment,
        "allocator": "glibc",
        "gc_enabled": True,
        "hook_ns": 500.0,
    }


def _rank(rank: int, ranks: int, steps: int) -> list[dict[str, object]]:
    environment = {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
    records: list[dict[str, object]] = [
        {"k": "process", "version": 2, "pid": 1000 + rank, "ppid": 1, "t": 0, "python": "3.11.7", "cpus": 2},
        {"k": "torch", "version": "2.13.0", "cpus": 2, "cwd": "/", "environment": environment},
        {
            "k": "loader",
            "id": 0,
            "dataset": "D",
            "batch_size": 64,
            "num_workers": 0,
            "prefetch_factor": None,
            "pin_memory": False,
            "persistent_workers": False,
            "start_method": "",
        },
        {"k": "boundary", "kind": "optimizer", "step": 0, "t": 0},
        _settings(environment),
    ]
    block = 100
    now = 0
    for first in range(0, steps, block):
        wall = [random.randint(4800, 5400) for _ in range(block)]
        now += 1000 * sum(wall)
        records += [
            {
                "k": "steps",
                "first": first,
                "n": block,
                "t": now,
                "wall_us": wall,
                "input_wait_us": [random.randint(300, 420) for _ in range(block)],
                "forward_us": [random.randint(1300, 1500) for _ in range(block)],
                "backward_us": [random.randint(2000, 2300) for _ in range(block)],
                "optimizer_us": [random.randint(700, 800) for _ in range(block)],
                "checkpoint_us": 0,
                "gc_us": 0,
                "cpu_us": wall,
                "micro": 1,
            },
            {
                "k": "batches",
                "t": now,
                "n": block,
                "loader": 0,
                "step": list(range(first, first + block)),
                "wait_us": [random.randint(300, 420) for _ in range(block)],
                "depth": -1,
                "first": 0,
                "transport_us": 0,
                "transport_bytes": 0,
            },
            {
                "k": "fetches",
                "t": now,
                "n": block,
                **{
                    name: [random.randint(100, 200) for _ in range(block)]
                    for name in ("getitem_us", "getitem_cpu_us", "collate_us", "collate_cpu_us")
                },
            },
            {
                "k": "sample",
                "t": now,
                "step": first + block,
                "utime_us": now // 1000,
                "stime_us": now // 9000,
                "minflt": first,
            },
        ]
    return records


def timed(argv: list[str], repeats: int) -> float:
    """Median wall seconds of a command."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run(argv, capture_output=True, check=False)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def judge_many(perfdoctor: str, scratch: Path, ranks: int, steps: int) -> None:
    """Digests of that many ranks, judged once."""
    run, report = scratch / "ranks", scratch / "report.json"
    size = simulate(run, ranks, steps)
    began = time.perf_counter()
    job = subprocess.Popen([perfdoctor, "report", str(run), "--output", f"json:{report}"], stdout=subprocess.DEVNULL)
    _, _, used = os.wait4(job.pid, 0)
    took = time.perf_counter() - began
    seen = json.loads(report.read_text())["ranks"]
    named = [rank["rank"] for rank in seen["longest"]]
    print(f"digest of a rank                 {size / 1024:.0f} KiB for {steps:,} steps")
    cpu_s = used.ru_utime + used.ru_stime
    print(f"report, {ranks:,} ranks x {steps:,} steps, by digests  {took:.1f} s, {cpu_s:.1f} s of CPU")
    print(f"  peak memory                    {used.ru_maxrss / 2**20:.2f} GiB")
    print(f"  latest ranks named             {named}, made late {list(late(ranks))}")
    print(f"  compared                       {seen['compared']:,}; nodes that died {list(dead(ranks))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=0)
    ranks = parser.parse_args().ranks
    perfdoctor = str(Path(sys.executable).with_name("perfdoctor"))
    with tempfile.TemporaryDirectory() as scratch:
        judge_many(perfdoctor, Path(scratch), ranks or 4096, 10_000)
    if ranks:
        return
    with tempfile.TemporaryDirectory() as scratch:
        one, many, bare = Path(scratch, "one"), Path(scratch, "many"), Path(scratch, "bare.py")
        synthetic(one, 1, 10_000)
        synthetic(many, 64, 10_000)
        bare.write_text(TEMPLATE)
        size = sum(file.stat().st_size for file in one.glob("process-*")) / 10_000
        print(f"bytes a step                     {size:.0f}")
        print(f"report, 10,000 steps             {timed([perfdoctor, 'report', str(one)], 5):.2f} s")
        print(f"report, 64 ranks x 10,000 steps  {timed([perfdoctor, 'report', str(many)], 1):.1f} s")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        print(f"  peak memory                    {peak:.2f} GiB")
        ours = timed([perfdoctor, "--help"], 11)
        theirs = timed([sys.executable, str(bare), "--help"], 11)
        print(f"--help                           {ours:.2f} s, {ours / theirs:.2f}x a bare typer program")


if __name__ == "__main__":
    main()
