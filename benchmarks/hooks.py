"""What the probe's hooks cost a step: on and off in turns within one process, so that nothing else differs.

    python benchmarks/hooks.py [--pairs 150] [--width 160]

The job is `jobs/mlp.py`'s loop under the probe, without windows. In every pair a block of steps runs with the hooks
and one without them, in random order; printed are the medians over the pairs, with 95 % intervals of the median, of
the differences in CPU time (of the process, so the probe's other work counts too) and wall time per step. As a
control the same is done for pairs of blocks that both run without.

Run it with OMP_NUM_THREADS=1 on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

HERE = Path(__file__).resolve().parent
STEPS = 100
"""Steps of a block: 0.1 s, so that the probe's ticks (10 a second) fall into each."""


def switches(model: Any) -> Callable[[bool], None]:
    """A function that takes the probe's stand-ins out of a step, and puts them back."""
    import gc

    import torch
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    kind = type(model)
    places = [
        (torch.autograd, "_engine_run_backward"),
        (dataloader._BaseDataLoaderIter, "__next__"),
    ]
    stand_ins = [(owner, name, vars(owner)[name]) for owner, name in places]
    call = vars(kind)["__call__"]
    tables = [optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks]
    hooks = [dict(table) for table in tables]
    callbacks = list(gc.callbacks)
    if not all(hooks) or not callbacks or not all(hasattr(stand_in, "__wrapped__") for _, _, stand_in in stand_ins):
        raise SystemExit("the probe is not in place: this program is to be started by benchmarks/hooks.py")

    def switch(on: bool) -> None:
        for owner, name, stand_in in stand_ins:
            setattr(owner, name, stand_in if on else stand_in.__wrapped__)
        if on:
            kind.__call__ = call
        else:
            del kind.__call__
        for table, hook in zip(tables, hooks, strict=True):
            table.clear()
            table.update(hook if on else {})
        gc.callbacks[:] = callbacks if on else []

    return switch


def inside(pairs: int, width: int) -> None:
    """The job."""
    from jobs import mlp

    model, optimizer, loader, loss_function = mlp.parts(width)
    batches = iter(loader)

    def block() -> tuple[float, float]:
        nonlocal batches
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(STEPS):
            try:
                features, labels = next(batches)
            except StopIteration:
                batches = iter(loader)
                features, labels = next(batches)
            optimizer.zero_grad()
            loss_function(model(features), labels).backward()
            optimizer.step()
        return (time.process_time() - cpu) / STEPS * 1e6, (time.perf_counter() - wall) / STEPS * 1e6

    for _ in range(10):
        block()
    switch = switches(model)
    steps, differences = [], {True: [], False: []}
    for number in range(2 * pairs):
        with_hooks = number % 2 == 0
        order = [with_hooks, False]
        if random.random() < 0.5:
            order.reverse()
        found = []
        for on in order:
            switch(on)
            found.append(block())
            switch(True)
        if order[0] != with_hooks:
            found.reverse()
        steps.append(found[1][1])
        differences[with_hooks].append([a - b for a, b in zip(*found, strict=True)])
    print(f"a step without hooks: {statistics.median(steps):.0f} us")
    for with_hooks, name in ((True, "hooks"), (False, "nothing (control)")):
        for column, clock in enumerate(("CPU", "wall")):
            values = np.array(differences[with_hooks])[:, column]
            interval = stats.bootstrap((values,), np.median, n_resamples=2000, method="percentile").confidence_interval
            print(f"{name}: {clock} {np.median(values):+.1f} us a step [{interval.low:+.1f}, {interval.high:+.1f}]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=150)
    parser.add_argument("--width", type=int, default=160, help="160, 512 and 1024: steps of about 1, 5 and 20 ms")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside(options.pairs, options.width)
        return
    with tempfile.TemporaryDirectory() as run:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(HERE.parent / "perfdoctor" / "injected"),
            "PERFDOCTOR_RUN": run,
            "PERFDOCTOR_WINDOWS": "",
        }
        raise SystemExit(
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--inside"], env=environment).returncode
        )


if __name__ == "__main__":
    main()
