"""Each remedy changes what it says, and leaves the job as it was when it is taken back."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from perfdoctor.injected._perfdoctor_probe import collector, remedies
from perfdoctor.injected._perfdoctor_probe.guard import Guard
from perfdoctor.injected._perfdoctor_probe.loading import Loading
from perfdoctor.injected._perfdoctor_probe.remedies import catalogue
from perfdoctor.injected._perfdoctor_probe.remedies.base import UnsuitableError

IN_JOB = [entry.name for entry in catalogue.ENTRIES if entry.home]
UNSUITABLE_HERE = {"etl.pin-memory", "cudnn.on", "layout.channels-last", "reads.deferred"}
"""Without CUDA, and in a model without images."""
NEEDS_WORKERS = {"etl.prefetch", "etl.worker-threads", "etl.persistent-workers"}
SUITS_ONE_ARGUMENT = {"threads": "threads=3", "etl.workers": "etl.workers=1"}


SDP_KERNELS = ("flash", "mem_efficient", "math", "cudnn")


class Model(nn.Module):
    """In float64, with a buffer, so that there is something to convert."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(x))


class Pictures(nn.Module):
    """Has what lies in memory one way or the other."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x[:, :, None, None].expand(-1, -1, 6, 6)[:, :3].contiguous())


class Job:
    """A training loop in the middle of an epoch, and as much of a probe as remedies ask for."""

    def __init__(self, model: nn.Module | None = None) -> None:
        torch.manual_seed(0)
        self.model = (model or Model()).double()
        self.model(torch.randn(4, 4, dtype=torch.float64))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        data = TensorDataset(torch.randn(64, 4, dtype=torch.float64), torch.randn(64, 3, dtype=torch.float64))
        self.loader = DataLoader(data, batch_size=4)
        loop = SimpleNamespace(timeline=SimpleNamespace(step=3))
        recorder = SimpleNamespace(line=lambda text: None)
        sites = SimpleNamespace(here=lambda depth=0: 7)
        guarded = Guard(lambda hook, error: None)
        self.loading = Loading(recorder, str, loop, sites, guarded)
        self.collector = collector.Collector(recorder, str, loop, sites, guarded)
        self.calls = SimpleNamespace(muted=set())
        self.discovery = SimpleNamespace(compiled=False, found={type(self.model): SimpleNamespace(has_parameters=True)})
        self.autocast = ""
        self.loading.made(self.loader)
        self.start()

    def start(self) -> None:
        self.iterator = iter(self.loader)
        self.loading.iterator_made(self.loader, self.iterator, 0)
        self.step()

    def step(self) -> None:
        inputs, targets = next(self.iterator)
        self.loading.rows.append((0, self.loading.loop.timeline.step, 0, -1, 0, 0, 0))
        self.optimizer.zero_grad()
        nn.functional.mse_loss(self.model(inputs), targets).backward()
        self.optimizer.step()

    def settings(self) -> dict[str, Any]:
        """All that remedies may touch, but for the numbers in tensors."""
        loading, iterator = self.loading, self.iterator
        return {
            "gc": (gc.get_threshold(), gc.get_freeze_count(), gc.isenabled(), self.collector.muted),
            "muted": set(self.calls.muted),
            "threads": torch.get_num_threads(),
            "onednn": (torch._C._set_mkldnn_enabled, torch._C._get_mkldnn_enabled()),
            "cudnn": (torch._C._set_cudnn_enabled, torch._C._get_cudnn_enabled(), torch._C._get_cudnn_benchmark()),
            "tf32": torch.backends.cuda.matmul.fp32_precision,
            "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
            "types": (torch.get_default_dtype(), torch.is_autocast_enabled("cpu")),
            "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in self.model.modules()],
            "groups": [{k: v for k, v in g.items() if k != "params"} for g in self.optimizer.param_groups],
            "parameters": [(id(p), p.dtype, p.data_ptr(), p.grad.dtype) for p in self.model.parameters()],
            "buffers": [(id(b), b.dtype, b.data_ptr()) for b in self.model.buffers()],
            "states": [[(k, id(v)) for k, v in s.items()] for s in self.optimizer.state.values()],
            "iterator": (type(iterator), iterator._num_yielded, sorted(iterator.__dict__)),
            "loading": (loading.on_iterator, loading.untimed, loading.ours),
            "loader": (self.loader.persistent_workers, getattr(iterator, "_persistent_workers", None)),
            "forward": [sorted(module.__dict__) for module in self.model.modules()],
            "reads": [name for name in ("item", "__float__", "__int__") if name in vars(torch.Tensor)],
            "attention": [getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in SDP_KERNELS],
            "compiler": torch._dynamo.config.suppress_errors,
            "random": torch.get_rng_state().tolist(),
        }

    def numbers(self) -> list[list[float]]:
        """Those in tensors, to the last bit."""
        states = [v for s in self.optimizer.state.values() for v in s.values()]
        return [t.detach().flatten().tolist() for t in (*self.model.parameters(), *self.model.buffers(), *states)]


def made(name: str, job: Job) -> Any:
    return remedies.make(SUITS_ONE_ARGUMENT.get(name, name), job)


@pytest.fixture
def job() -> Job:
    return Job()


@pytest.fixture
def ill(job: Job) -> Any:
    """With everything wrong that a remedy would put right."""
    torch.autograd.set_detect_anomaly(True)
    torch._C._set_mkldnn_enabled(False)
    torch._C._set_cudnn_enabled(False)
    yield job
    torch.autograd.set_detect_anomaly(False)
    torch._C._set_mkldnn_enabled(True)
    torch._C._set_cudnn_enabled(True)


# memory.malloc has a process of its own below: glibc's thresholds are for good.
@pytest.mark.parametrize("name", [name for name in IN_JOB if name != "memory.malloc"])
def test_a_job_is_as_it_was_when_a_remedy_is_taken_back(name: str, ill: Job) -> None:
    if name in NEEDS_WORKERS:
        ill.loader = DataLoader(ill.loader.dataset, batch_size=4, num_workers=1)
        ill.loading.made(ill.loader)
        ill.start()
        ill.loading.rows[-1] = (1, *ill.loading.rows[-1][1:])
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
    [("etl.prefetch", "no workers"), ("batch.larger=32", "too few batches"), ("etl.workers=0", "so already")],
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
print(*seen, remedy.threshold)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="glibc only")
def test_malloc_keeps_memory_and_then_gives_it_back_as_before() -> None:
    done = subprocess.run([sys.executable, "-c", MALLOC], capture_output=True, text=True, check=True, timeout=60)
    before, during, after, threshold = map(int, done.stdout.split())
    assert before > 1000 and after > 1000, "every use of such a block faults its pages in anew"
    assert during < before / 10
    assert 128 << 10 <= threshold <= 32 << 20


def test_every_name_can_be_parsed_and_says_how_to_keep_it() -> None:
    for entry in catalogue.ENTRIES:
        assert catalogue.parse(entry.name) == (entry, entry.argument)
        assert entry.text and (entry.keep or entry.name in ("nothing", "etl.replay", "reads.deferred"))
        assert entry.launches != bool(entry.home), "it is made in the job or at a launch"
        assert "{value}" not in catalogue.described(entry.name) + catalogue.kept(entry.name)


@pytest.mark.parametrize("name", ["", "threads=", "threads=two", "threads=-1", "gc.freeze=2", "gc.frieze"])
def test_what_is_no_remedy_is_refused(name: str) -> None:
    with pytest.raises(catalogue.UnknownRemedyError):
        catalogue.parse(name)
