"""Each remedy changes what it says, and leaves the job as it was when it is taken back."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from remedy_job import IN_JOB, NEEDS_WORKERS, UNSUITABLE_HERE, Job, Pictures, illness, made, with_workers
from torch.utils.data import DataLoader, TensorDataset

from perfdoctor.injected._perfdoctor_probe.remedies import catalogue
from perfdoctor.injected._perfdoctor_probe.remedies.base import UnsuitableError


@pytest.fixture
def job() -> Job:
    return Job()


@pytest.fixture
def ill(job: Job) -> Any:
    with illness():
        yield job


# memory.malloc has a process of its own below: glibc's thresholds are for good.
@pytest.mark.parametrize("name", [name for name in IN_JOB if name != "memory.malloc"])
def test_a_job_is_as_it_was_when_a_remedy_is_taken_back(name: str, ill: Job) -> None:
    if name in NEEDS_WORKERS:
        with_workers(ill)
    before, numbers = ill.settings(), ill.numbers()
    remedy = made(name, ill)
    try:
        remedy.apply()
    except UnsuitableError:
        assert name in UNSUITABLE_HERE
    else:
        assert name == "nothing" or ill.settings() != before
    remedy.withdraw()
    assert ill.settings() == before
    assert ill.numbers() == numbers


@pytest.mark.parametrize(
    "name", ["dtype.float32", "dtype.autocast", "optimizer.fused", "etl.replay", "batch.larger=2", "gc.every=1"]
)
def test_a_job_trains_on_with_and_after_a_remedy(name: str, job: Job) -> None:
    remedy = made(name, job)
    remedy.apply()
    job.step()
    job.step()
    assert remedy.lost() == ""
    remedy.withdraw()
    assert not [key for key in job.iterator.__dict__ if key == "_next_data"]
    job.step()
    assert {p.dtype for p in job.model.parameters()} == {torch.float64}


def test_float32_gives_the_very_numbers_back(job: Job) -> None:
    before, numbers = job.settings(), job.numbers()
    remedy = made("dtype.float32", job)
    remedy.apply()
    assert {p.dtype for p in job.model.parameters()} == {torch.float32}
    job.step()
    assert job.model(torch.randn(4, 4, dtype=torch.float64)).dtype == torch.float64, "the loop gets the type it knows"
    remedy.withdraw()
    after = job.settings()
    assert {k: after[k] for k in ("parameters", "buffers", "states")} == {
        k: before[k] for k in ("parameters", "buffers", "states")
    }
    assert job.numbers() == numbers


def test_channels_last_changes_the_layout_and_gives_the_very_numbers_back() -> None:
    job = Job(model=Pictures())
    before, numbers = job.settings(), job.numbers()
    remedy = made("layout.channels-last", job)
    remedy.apply()
    weight = job.model.layers[0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
    job.step()
    remedy.withdraw()
    after = job.settings()
    for name in ("parameters", "buffers", "states", "hooks"):
        assert after[name] == before[name]
    assert job.numbers() == numbers and job.model.layers[0].weight.is_contiguous()


def test_float32_that_fails_inside_the_model_leaves_no_default_type(job: Job) -> None:
    remedy = made("dtype.float32", job)
    remedy.apply()
    with pytest.raises(RuntimeError):
        job.model(torch.randn(4, 5, dtype=torch.float64))
    remedy.withdraw()
    assert torch.get_default_dtype() == torch.float32 and remedy.depth == 0


def test_onednn_stays_on_although_the_job_switches_it_off(job: Job) -> None:
    remedy = made("onednn.on", job)
    remedy.apply()
    with torch.backends.mkldnn.flags(enabled=False):
        assert torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    remedy.withdraw()
    assert not torch._C._get_mkldnn_enabled(), "what the job wanted meanwhile holds afterwards"
    torch._C._set_mkldnn_enabled(True)


def test_anomaly_detection_stays_off_although_the_job_switches_it_on_in_each_step(job: Job) -> None:
    remedy = made("debug.off", job)
    with pytest.raises(UnsuitableError, match="already set"):
        remedy.apply()
    remedy.withdraw()
    job.anomaly.site = 7  # a line of the loop that does
    remedy = made("debug.off", job)
    remedy.apply()
    with pytest.warns(UserWarning), torch.autograd.detect_anomaly():
        assert not torch._C.is_anomaly_enabled() and torch.is_anomaly_enabled(), "the job sees what it wished"
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    remedy.withdraw()
    assert torch._C.is_anomaly_enabled() and not torch._C.is_anomaly_check_nan_enabled()
    torch.autograd.set_detect_anomaly(False)


def test_a_profiler_of_the_jobs_hears_nothing_and_then_hears_again(job: Job) -> None:
    remedy = made("debug.no-profiler", job)
    with torch.autograd.profiler.profile() as profile:
        remedy.apply()
        torch.ones(2).exp()
        remedy.withdraw()
        torch.ones(2).cos()
    heard = {event.name for event in profile.function_events}
    assert "aten::cos" in heard and "aten::exp" not in heard
    with torch.autograd.profiler.profile() as profile:
        made("debug.no-profiler", job).withdraw()
        torch.ones(2).exp()
    assert "aten::exp" in {event.name for event in profile.function_events}


def test_deterministic_algorithms_go_and_come_back_as_they_were(job: Job) -> None:
    with pytest.raises(UnsuitableError, match="already set"):
        made("debug.no-fill", job).apply()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        remedy = made("debug.no-deterministic", job)
        remedy.apply()
        assert not torch.are_deterministic_algorithms_enabled()
        remedy.withdraw()
        assert torch.are_deterministic_algorithms_enabled() and torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_distributions_test_nothing_until_it_is_withdrawn(ill: Job) -> None:
    remedy = made("debug.no-validation", ill)
    remedy.apply()
    nonsense = torch.distributions.Normal(0.0, -1.0)
    with pytest.raises(UnsuitableError, match="already set"):
        made("debug.no-validation", ill).apply()
    remedy.withdraw()
    assert nonsense.scale == -1.0
    with pytest.raises(ValueError, match="parameter scale"):
        torch.distributions.Normal(0.0, -1.0)


def test_gradients_are_let_go_although_the_job_asks_for_zeros(job: Job) -> None:
    remedy = made("optimizer.set-to-none", job)
    remedy.apply()
    job.step()
    job.optimizer.zero_grad()
    assert remedy.lost() == "already set", "the job has let them go by itself"
    job.step()
    job.optimizer.zero_grad(set_to_none=False)
    assert all(p.grad is None for p in job.model.parameters()) and remedy.lost() == ""
    job.step()
    job.model.zero_grad(False)
    assert all(p.grad is None for p in job.model.parameters())
    remedy.withdraw()
    job.step()
    job.optimizer.zero_grad(set_to_none=False)
    assert all(p.grad is not None and not p.grad.any() for p in job.model.parameters())


def test_explicit_collections_are_left_out_even_when_imported_by_name(job: Job) -> None:
    collect = job.collector.explicit(gc.collect)
    remedy = made("gc.no-explicit", job)
    remedy.apply()
    counts = gc.get_stats()[2]["collections"]
    assert collect() == 0 and gc.get_stats()[2]["collections"] == counts
    remedy.withdraw()
    collect()
    assert gc.get_stats()[2]["collections"] == counts + 1


def test_replay_goes_round_a_few_batches_and_leaves_the_position(job: Job) -> None:
    remedy = made("etl.replay", job)
    remedy.apply()
    seen = [next(job.iterator)[0].sum().item() for _ in range(12)]
    assert len(set(seen)) == 4 and seen[0] in seen[4:]
    remedy.withdraw()
    assert job.iterator._num_yielded == 1
    # The four batches that were replayed are used up; the epoch goes on behind them.
    assert sum(1 for _ in job.iterator) == 16 - 1 - 4


def test_a_larger_batch_counts_its_samples(job: Job) -> None:
    remedy = made("batch.larger=4", job)
    remedy.apply()
    assert remedy.work == 4.0 and len(next(job.iterator)[0]) == 16
    remedy.withdraw()
    assert len(next(job.iterator)[0]) == 4


def test_workers_make_batches_and_end_with_the_remedy(job: Job) -> None:
    import multiprocessing

    before = len(multiprocessing.active_children())
    remedy = made("etl.workers=1", job)
    remedy.apply()
    assert len(multiprocessing.active_children()) == before + 1
    assert next(job.iterator)[0].shape == (4, 4)
    remedy.withdraw()
    assert len(multiprocessing.active_children()) == before


def test_a_new_epoch_is_served_too(job: Job) -> None:
    remedy = made("batch.larger=2", job)
    remedy.apply()
    first = sum(1 for _ in job.iterator)
    job.iterator = iter(job.loader)
    job.loading.iterator_made(job.loader, job.iterator, 0)
    assert (first, sum(1 for _ in job.iterator)) == (8, 8)
    remedy.withdraw()


def test_a_small_validation_set_does_not_stand_in_the_way(job: Job) -> None:
    small = DataLoader(TensorDataset(torch.randn(4, 4)), batch_size=4)
    job.loading.loop.timeline.step += 1
    job.loading.sites.here = lambda depth=0: 8
    job.loading.made(small)
    iterator = iter(small)
    job.loading.iterator_made(small, iterator, 0)
    job.loading.rows.append((1, job.loading.loop.timeline.step, 0, -1, 0, 0, 0))
    remedy = made("batch.larger=2", job)
    remedy.apply()
    job.loading.iterator_made(small, iterator, 0)
    assert len(next(job.iterator)[0]) == 8 and len(next(iterator)[0]) == 4
    remedy.withdraw()


@pytest.mark.parametrize(
    ("name", "why"),
    [("etl.prefetch", "no workers"), ("batch.larger=32", "too few batches"), ("etl.workers=0", "already set")],
)
def test_a_remedy_says_why_it_does_not_suit(name: str, why: str, job: Job) -> None:
    remedy = made(name, job)
    with pytest.raises(UnsuitableError, match=why):
        remedy.apply()
    remedy.withdraw()


MALLOC = """
import ctypes, sys
from types import SimpleNamespace
import torch
from perfdoctor.injected._perfdoctor_probe import remedies
from perfdoctor.injected._perfdoctor_probe.procfs import counters
def faults():
    before = counters()["minflt"]
    torch.ones(12 << 20)  # 48 MiB, more than any threshold that moves by itself
    return counters()["minflt"] - before
def least():  # the heap may have to move a few times until a block that was freed is large enough for the next
    return min(faults() for _ in range(12))
remedy = remedies.make("memory.malloc", SimpleNamespace())
seen = [least()]
remedy.apply()
seen.append(least())
remedy.withdraw()
seen.append(least())
print(*seen, remedy.heap.threshold)
"""


@pytest.mark.e2e
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="glibc only")
def test_malloc_keeps_memory_and_then_gives_it_back_as_before() -> None:
    done = subprocess.run([sys.executable, "-c", MALLOC], capture_output=True, text=True, check=True, timeout=60)
    before, during, after, threshold = map(int, done.stdout.split())
    assert before > 1000 and after > 1000, "every use of such a block faults its pages in anew"
    assert during < before / 10
    assert 128 << 10 <= threshold <= 32 << 20


MALLOC_IN_TRAINING = """
from types import SimpleNamespace
import torch
from torch import nn
from perfdoctor.injected._perfdoctor_probe import remedies
from perfdoctor.injected._perfdoctor_probe.procfs import counters
model = nn.Sequential(nn.Linear(8, 4096), nn.ReLU(), nn.ReLU(), nn.Linear(4096, 2))
optimizer, x, kept = torch.optim.SGD(model.parameters()), torch.randn(2200, 8), []  # activations of 36 MB
def faults(steps, pass_starts=lambda: None):
    before = counters()["minflt"]
    for _ in range(steps):
        optimizer.zero_grad()
        pass_starts()
        loss = model(x).sum()
        pass_starts()
        loss.backward()
        optimizer.step()
        kept.append(torch.ones(300))  # a little that stays, high up in the heap
    return (counters()["minflt"] - before) // steps
faults(3)
print(faults(3))
for _ in range(3):
    remedy = remedies.make("memory.malloc", SimpleNamespace())
    remedy.apply()
    faults(4)
    print(faults(3))
    remedy.withdraw()
    faults(4, remedy.drain)
    print(faults(3))
"""


@pytest.mark.e2e
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="glibc only")
@pytest.mark.slow
def test_a_heap_that_malloc_let_grow_serves_the_job_no_more_once_it_is_withdrawn() -> None:
    state = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", MALLOC_IN_TRAINING], capture_output=True, text=True, check=True, timeout=120, env=state
    )
    before, *seen = map(int, done.stdout.split())
    assert before > 10_000
    assert all(during < before / 2 for during in seen[0::2])
    assert all(0.9 * before < after < 1.1 * before for after in seen[1::2])


def test_every_name_can_be_parsed_and_says_how_to_keep_it() -> None:
    for entry in catalogue.ENTRIES:
        assert catalogue.parse(entry.name) == (entry, entry.argument)
        assert entry.text and (
            entry.keep or entry.name in ("nothing", "etl.replay", "reads.deferred", "checkpoint.skipped")
        )
        assert entry.launches != bool(entry.home), "it is made in the job or at a launch"
        assert "{value}" not in catalogue.described(entry.name) + catalogue.kept(entry.name)


@pytest.mark.parametrize("name", ["", "threads=", "threads=two", "threads=-1", "gc.freeze=2", "gc.frieze"])
def test_an_unknown_remedy_is_refused(name: str) -> None:
    with pytest.raises(catalogue.UnknownRemedyError):
        catalogue.parse(name)
