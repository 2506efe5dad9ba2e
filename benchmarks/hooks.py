"""What the probe's hooks cost a step: on and off in turns within one process, so that nothing else differs.

    python -m benchmarks.hooks [--pairs 150] [--width 160]
    python -m benchmarks.hooks --only calls tracked ddp growth cycles upload start    parts, see `hook_parts.py`

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
from typing import Any

from . import hook_parts

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
        raise SystemExit("the probe is not in place: start this program without --inside")

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
    from .jobs import mlp

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
            values = [pair[column] for pair in differences[with_hooks]]
            print(f"{name}: {clock} {hook_parts.middle(values, 'us')} a step")


def under_the_probe(words: list[str]) -> None:
    """This program once more, as a job that is observed without windows. Raises SystemExit where it fails."""
    with tempfile.TemporaryDirectory() as run:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(hook_parts.INJECTED),
            "PERFDOCTOR_RUN": run,
            "PERFDOCTOR_WINDOWS": "",
        }
        command = [sys.executable, "-m", "benchmarks.hooks", *words, "--inside"]
        done = subprocess.run(command, env=environment, cwd=hook_parts.ROOT)
    if done.returncode:
        raise SystemExit(done.returncode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=150)
    parser.add_argument("--width", type=int, default=160, help="160, 512 and 1024: steps of about 1, 5 and 20 ms")
    parts = ["step", *hook_parts.INSIDE, *hook_parts.ALONE]
    parser.add_argument("--only", nargs="+", choices=parts, default=["step"], metavar="PART", help=", ".join(parts))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for part in options.only:
        if part in hook_parts.ALONE:
            hook_parts.ALONE[part]()
        elif not options.inside:
            under_the_probe(["--pairs", str(options.pairs), "--width", str(options.width), "--only", part])
        elif part == "step":
            inside(options.pairs, options.width)
        else:
            hook_parts.INSIDE[part]()


if __name__ == "__main__":
    main()
