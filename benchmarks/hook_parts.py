"""What single hooks cost, and what runs now and then: each a part of `python -m benchmarks.hooks --only`.

A part is a function that prints its numbers. Those in `INSIDE` run in a job under the probe; a stand-in is compared
with the original that it wraps, in random order, so that nothing else differs.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import json
import os
import pickle
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

ROOT = Path(__file__).resolve().parents[1]
INJECTED = ROOT / "perfdoctor" / "injected"
_CALLS = 50
"""Of a block: a call is timed with its neighbours, and the clock is read once."""
_PAIRS = 300


def middle(values: list[float], unit: str) -> str:
    """The median, with its 95 % interval."""
    found = stats.bootstrap((np.array(values),), np.median, n_resamples=2000, method="percentile").confidence_interval
    return f"{statistics.median(values):+.2f} {unit} [{found.low:+.2f}, {found.high:+.2f}]"


def differences(one: Callable[[], object], other: Callable[[], object], pairs: int, calls: int) -> list[float]:
    """Microseconds of CPU time of this thread by which a call of `one` takes longer, pair by pair."""
    found = []
    for _ in range(pairs):
        took = {}
        for name, function in random.sample([("one", one), ("other", other)], 2):
            began = time.thread_time_ns()
            for _ in range(calls):
                function()
            took[name] = (time.thread_time_ns() - began) / calls / 1000
        found.append(took["one"] - took["other"])
    return found


def compared(name: str, stand_in: Any, call: Callable[[Any], object]) -> None:
    """`call` is given the stand-in, or what it stands in for."""
    if not hasattr(stand_in, "__wrapped__"):
        raise SystemExit(f"{name}: the probe is not in place")
    original = stand_in.__wrapped__
    for function in (stand_in, original):
        for _ in range(10 * _CALLS):
            call(function)
    found = differences(lambda: call(stand_in), lambda: call(original), _PAIRS, _CALLS)
    control = differences(lambda: call(original), lambda: call(original), _PAIRS, _CALLS)
    print(f"{name}: {middle(found, 'us')} a call; nothing against nothing {middle(control, 'us')}", flush=True)


# ---------------------------------------------------------------------------------------------------------
# In a job under the probe


def train(steps: int = 1000) -> None:
    """Until the probe knows the thread that trains, and what is imported."""
    from .jobs import mlp

    model, optimizer, loader, loss_function = mlp.parts(160)
    features, labels = next(iter(loader))
    for _ in range(steps):
        optimizer.zero_grad()
        loss_function(model(features), labels).backward()
        optimizer.step()


def calls() -> None:
    """What the loop calls to say and to store something."""
    train()
    loss, nowhere = {"step": 1000, "loss": 0.25}, io.StringIO()
    compared("json.dump", json.dump, lambda dump: dump(loss, io.StringIO()))
    compared("pickle.dump", pickle.dump, lambda dump: dump(loss, io.BytesIO()))
    with tempfile.TemporaryFile() as file:
        compared("pickle.dump to a file", pickle.dump, lambda dump: (file.seek(0), dump(loss, file)))
    with os.fdopen(os.memfd_create("synced"), "wb") as file:
        compared("os.fsync, of memory", os.fsync, lambda fsync: fsync(file.fileno()))
    compared("print", builtins.print, lambda say: (nowhere.seek(0), say("loss", 0.25, file=nowhere)))


def tracked() -> None:
    """A tracker's cheapest call."""
    from torch.utils.tensorboard.writer import SummaryWriter

    train()
    with tempfile.TemporaryDirectory() as board, SummaryWriter(board) as writer:
        compared("SummaryWriter.add_scalar", SummaryWriter.add_scalar, lambda add: add(writer, "loss", 0.25, 1))


def ddp(tensors: int = 200) -> None:
    """DistributedDataParallel of one process: CPU time of the thread that trains, with its hooks and without."""
    import torch
    import torch.distributed as distributed
    from torch import nn

    with tempfile.TemporaryDirectory() as folder:
        distributed.init_process_group("gloo", store=distributed.FileStore(f"{folder}/store", 1), rank=0, world_size=1)
        torch.manual_seed(0)
        model = nn.parallel.DistributedDataParallel(nn.Sequential(*(nn.Linear(16, 16) for _ in range(tensors // 2))))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        batch = torch.randn(8, 16)

        def step() -> None:
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()

        places = [(nn.parallel.DistributedDataParallel, name) for name in ("_post_forward", "_sync_buffers")]
        places.append((distributed.Work, "wait"))
        for _ in range(100):
            step()
        stand_ins = [(owner, name, vars(owner)[name]) for owner, name in places]
        if not all(hasattr(stand_in, "__wrapped__") for _, _, stand_in in stand_ins):
            raise SystemExit("ddp: the probe is not in place")

        def put(on: bool) -> None:
            for owner, name, stand_in in stand_ins:
                setattr(owner, name, stand_in if on else stand_in.__wrapped__)

        def block(on: bool) -> float:
            put(on)
            step()
            began = time.thread_time_ns()
            for _ in range(20):
                step()
            took = (time.thread_time_ns() - began) / 20 / 1000
            put(True)
            return took

        found: dict[bool, list[float]] = {True: [], False: []}
        for number in range(2 * 45):
            on = number % 2 == 0
            took = {name: block(on and name == "on") for name in random.sample(["on", "off"], 2)}
            found[on].append(took["on"] - took["off"])
        print(
            f"DistributedDataParallel with {tensors} parameter tensors: {middle(found[True], 'us')} a backward pass; "
            f"nothing against nothing {middle(found[False], 'us')}"
        )
        distributed.destroy_process_group()


# ---------------------------------------------------------------------------------------------------------
# By themselves


@contextlib.contextmanager
def probes_modules() -> Iterator[None]:
    """The probe's package can be imported, and observes nothing."""
    sys.path.insert(0, str(INJECTED))
    try:
        yield
    finally:
        sys.path.remove(str(INJECTED))


class _Nobody:
    """Takes the place of the probe's recorder, and of its places."""

    def record(self, kind: str, /, **fields: Any) -> None:
        """Nothing is written."""

    def is_library(self, filename: str) -> bool:
        return filename != __file__

    def number(self, place: Any) -> int:
        return 0


def growth(steps: int = 4096) -> None:
    """Censuses of a job of which much grows: each lasts as long as the probe stands still between two steps."""
    with probes_modules():
        import torch
        from _perfdoctor_probe.windows.growth import Growth

    banks = [torch.zeros(0) for _ in range(200)]
    lists: dict[str, list[float]] = {f"list {number}": [] for number in range(200)}
    data = [{"id": number, "tags": ["a", "b"]} for number in range(20_000)]
    census, took = Growth(_Nobody(), _Nobody()), []
    for step in range(steps):
        for number in range(len(banks)):
            if step % 16 == 0:
                banks[number] = torch.cat([banks[number], torch.rand(16)])
        for losses in lists.values():
            losses.append(float(step))
        if step >= census.due:
            began = time.thread_time_ns()
            census.take(step)
            took.append((time.thread_time_ns() - began) / 1e6)
    print(
        f"{len(took)} censuses in {steps} steps, with {len(banks)} tensors and {len(lists)} lists that grow beside "
        f"{len(data):,} records: {statistics.median(took):.1f} ms each, {max(took):.1f} at most, "
        f"{1000 * sum(took) / steps:.1f} us a step"
    )


def cycles() -> None:
    """Looking for cycles, each time that rows are written: twice a second."""
    with probes_modules():
        from _perfdoctor_probe.windows.cycles import Cycles

    for rows in (5, 50, 500):
        one, took, first = Cycles(), [], 0
        for _ in range(300):
            seen = [(1000 + random.randrange(200), 1, False) for _ in range(rows)]
            began = time.thread_time_ns()
            one.look(first, seen)
            took.append((time.thread_time_ns() - began) / 1000)
            first += rows
        print(f"cycles, {rows} rows at once: {statistics.median(took[10:]):.0f} us, twice a second")


def upload() -> None:
    """The thread of `--runs URL`, which belongs to the launcher: a round of a recording of so many megabytes."""
    from perfdoctor.storage import uploading
    from perfdoctor.storage.remote import opened

    with tempfile.TemporaryDirectory() as folder:
        for megabytes in (1, 10, 50):
            here = Path(folder, f"runs-{megabytes}", "20260101-000000-train")
            here.mkdir(parents=True)
            (here / "run.json").write_text("{}")
            records, took, waited = here / "process-1-1.jsonl", [], []
            records.write_bytes(os.urandom(1_000_000) * megabytes)
            remote = opened(f"file://{folder}/there-{megabytes}")
            uploader = uploading.Uploader(remote, here.parent, "", None)
            for _ in range(10):
                with records.open("ab") as file:
                    file.write(b"\n")
                began, wall = time.thread_time_ns(), time.monotonic_ns()
                uploader.upload()
                took.append((time.thread_time_ns() - began) / 1e6)
                waited.append((time.monotonic_ns() - wall) / 1e6)
            if uploader.failure:
                raise SystemExit(f"upload: {uploader.failure}")
            print(
                f"upload of {megabytes} MB to a directory: {statistics.median(took):.1f} ms of CPU in "
                f"{statistics.median(waited):.1f} ms"
            )


def start(pairs: int = 9) -> None:
    """The probe's modules, in fresh interpreters by turns: without torch, and with it."""
    for name, code, rounds in (("python", "pass", 4 * pairs), ("python with torch", "import torch", pairs)):
        found: dict[str, list[float]] = {"CPU": [], "wall": []}
        for _ in range(rounds):
            took = {kind: _launched(code, kind == "on") for kind in random.sample(["on", "off"], 2)}
            for clock, on, off in zip(("CPU", "wall"), took["on"], took["off"], strict=True):
                found[clock].append(on - off)
        told = ", ".join(f"{clock} {middle(values, 'ms')}" for clock, values in found.items())
        print(f"start of {name} under the probe: {told}", flush=True)


def _launched(code: str, on: bool) -> tuple[float, float]:
    """Milliseconds of CPU and of wall time."""
    with tempfile.TemporaryDirectory() as run:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if on:
            environment |= {"PYTHONPATH": str(INJECTED), "PERFDOCTOR_RUN": run, "PERFDOCTOR_WINDOWS": ""}
        before, began = _cpu_of_children(), time.monotonic_ns()
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        wall = time.monotonic_ns() - began
        return 1000 * (_cpu_of_children() - before), wall / 1e6


def _cpu_of_children() -> float:
    """Seconds; `os.times` counts in hundredths."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


INSIDE = {"calls": calls, "tracked": tracked, "ddp": ddp}
ALONE = {"growth": growth, "cycles": cycles, "upload": upload, "start": start}
