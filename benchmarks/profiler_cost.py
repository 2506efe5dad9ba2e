"""What torch.profiler costs a step, switch by switch: on and off in turns within one process.

    OMP_NUM_THREADS=1 python benchmarks/profiler_cost.py [--rounds 9] [--width 160]

The job is the loop of `jobs/mlp.py`'s size. In every round each set of switches gets a block of steps, in random order,
and one block runs without a profiler; printed are medians over the rounds of what a block takes more than that one, per
step and per operator, and the text that it leaves per step. CPU time of the process, so that neighbours count for
little; starting, stopping and writing are printed apart.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

STEPS = 20
"""Of a block; as many as a schedule records at most."""
SWITCHES: Mapping[str, Mapping[str, bool] | None] = {
    "off": None,
    "off again": None,
    "nothing set": {},
    "record_shapes": {"record_shapes": True},
    "profile_memory": {"profile_memory": True},
    "with_stack": {"with_stack": True},
    "all three": {"record_shapes": True, "profile_memory": True, "with_stack": True},
}


def job(width: int) -> Any:
    """One step of a small network: two hidden layers, Adam."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU(),
        torch.nn.Linear(width, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.randn(64, width), torch.randint(10, (64,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def block(step: Any, options: Mapping[str, bool] | None, folder: Path) -> tuple[float, float, int, int]:
    """CPU ms per step, CPU ms of starting, stopping and writing, operators and bytes per step."""
    if options is None:
        began = time.process_time()
        for _ in range(STEPS):
            step()
        return (time.process_time() - began) * 1000 / STEPS, 0.0, 0, 0
    profiler = profile(activities=[ProfilerActivity.CPU], **options)
    around = time.process_time()
    profiler.start()
    began = time.process_time()
    for _ in range(STEPS):
        step()
        profiler.step()
    spent = time.process_time() - began
    profiler.stop()
    file = folder / "trace.json"
    profiler.export_chrome_trace(str(file))
    around = time.process_time() - around - spent
    operators = sum(event.name().startswith("aten::") for event in profiler.profiler.kineto_results.events())
    return spent * 1000 / STEPS, around * 1000, operators // STEPS, file.stat().st_size // STEPS


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--width", type=int, default=160)
    options = parser.parse_args()
    step = job(options.width)
    taken: dict[str, list[tuple[float, float, int, int]]] = {name: [] for name in SWITCHES}
    with tempfile.TemporaryDirectory() as folder:
        for switches in SWITCHES.values():  # what the first time takes
            block(step, switches, Path(folder))
        for _ in range(options.rounds):
            for name in random.sample(list(SWITCHES), len(SWITCHES)):
                taken[name].append(block(step, SWITCHES[name], Path(folder)))
    off = [row[0] for row in taken["off"]]
    print(f"a step without: {statistics.median(off):.2f} ms of CPU, {options.rounds} rounds of {STEPS} steps")
    print(f"{'':15} {'step':>7} {'more':>9} {'an operator':>12} {'around':>8} {'text':>12}")
    for name, rows in taken.items():
        ratio = statistics.median(row[0] / without for row, without in zip(rows, off, strict=True))
        more = statistics.median(row[0] - without for row, without in zip(rows, off, strict=True))
        around, operators, size = (statistics.median(row[at] for row in rows) for at in (1, 2, 3))
        each = f"{1000 * more / operators:9.1f} us" if operators else ""
        print(f"{name:15} {ratio:6.2f}x {more:6.2f} ms {each:>12} {around:5.0f} ms {size / 1000:9.0f} kB")


if __name__ == "__main__":
    main()
