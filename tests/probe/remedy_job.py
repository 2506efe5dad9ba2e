"""A training loop in the middle of an epoch, with as much of a probe as remedies ask for, and all that they touch."""

from __future__ import annotations

import builtins
import contextlib
import gc
import io
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import scipy.linalg  # noqa: F401  its OpenBLAS asks the environment as it loads, which a test may have changed
import torch
import torch._dynamo
import torch.utils.deterministic as deterministic
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from perfdoctor.injected._perfdoctor_probe import remedies
from perfdoctor.injected._perfdoctor_probe.guard import Guard
from perfdoctor.injected._perfdoctor_probe.hooks import collector
from perfdoctor.injected._perfdoctor_probe.hooks.collector import Pauses
from perfdoctor.injected._perfdoctor_probe.hooks.fetches import Fetches
from perfdoctor.injected._perfdoctor_probe.hooks.loading import Loading
from perfdoctor.injected._perfdoctor_probe.remedies import catalogue

IN_JOB = [entry.name for entry in catalogue.ENTRIES if entry.home]
UNSUITABLE_HERE = {
    *("compile.off", "ddp.no-sync", "etl.pin-memory", "cudnn.on", "layout.channels-last", "reads.deferred"),
    *("debug.no-profiler", "optimizer.freeze-unused", "blas.one-thread"),
}
"""Without CUDA, without ranks, in a model without images that is not compiled, without a profiler, where every
parameter learns, and under OMP_NUM_THREADS=1, which OpenBLAS reads, too."""
NEEDS_WORKERS = {"etl.prefetch", "etl.worker-threads", "etl.persistent-workers"}
SUITS_ONE_ARGUMENT = {"threads": "threads=3", "etl.workers": "etl.workers=1"}
# The first use of Dynamo changes torch.optim for good.
torch.compile(lambda: None, backend="eager")()

ANOMALY = ("is_anomaly_enabled", "is_anomaly_check_nan_enabled")
NAMESPACES = (
    *("torch._C", "torch.amp", "torch.autograd", "torch.backends", "torch.cuda", "torch.fx.traceback", "torch.nn"),
    *("torch.optim", "torch.overrides", "torch.random", "torch.utils"),
)
"""Beside torch itself: what computes, loads and updates."""
WITH_CLASSES = (
    *("torch.nn", "torch.nn.modules.module", "torch.optim", "torch.optim.optimizer", "torch.autograd.anomaly_mode"),
    *("torch.utils.data.dataloader", "torch.utils.data.sampler", "torch.autograd.grad_mode"),
)
"""Modules whose classes are looked into as well."""
SDP_KERNELS = ("flash", "mem_efficient", "math", "cudnn")


def names() -> dict[str, dict[str, int]]:
    """Which function or class every public name of torch, its classes and `gc` stands for: whatever a remedy puts in
    the place of something shows here, whether or not this file knows of it."""
    owners: dict[str, Any] = {"gc": gc}
    for name, module in list(sys.modules.items()):
        root, *parts = name.split(".")
        private = any(part.startswith("_") for part in parts) and name != "torch._C"
        if root == "torch" and not private and name.startswith(NAMESPACES) and isinstance(module, ModuleType):
            owners[name] = module
            if name in WITH_CLASSES:
                owners.update((f"{name}.{k}", v) for k, v in vars(module).items() if isinstance(v, type))
    return {
        owner: {k: id(v) for k, v in vars(thing).items() if callable(v) and not k.startswith("__")}
        for owner, thing in (*owners.items(), ("torch", torch), ("torch.Tensor", torch.Tensor))
    }


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
        recorder = SimpleNamespace(record=lambda kind, /, **fields: None)
        sites = SimpleNamespace(here=lambda depth=0: 7, stack=lambda frame: [], is_library=lambda file: True)
        guarded = Guard(lambda hook, error: None)
        self.loading = Loading(recorder, loop, sites, guarded)
        self.fetches = Fetches(self.loading, guarded, Pauses())
        self.collector = collector.Collector(recorder, loop, sites, guarded)
        self.calls = SimpleNamespace(muted=set(), files_saved=1, file_saved=lambda: None)
        self.discovery = SimpleNamespace(compiled=False, found={type(self.model): SimpleNamespace(has_parameters=True)})
        self.communication = SimpleNamespace(reduced_per_step=dict)
        self.facts = SimpleNamespace(autocast="")
        self.anomaly = SimpleNamespace(site=-1)
        self.loading.made(self.loader)
        self.known = set(names())
        """Modules that are imported when first needed are no change."""
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
            "gc": (gc.get_threshold(), gc.get_freeze_count() > 0, gc.isenabled(), self.collector.muted),
            "muted": set(self.calls.muted),
            "threads": torch.get_num_threads(),
            "onednn": (torch._C._set_mkldnn_enabled, torch._C._get_mkldnn_enabled()),
            "cudnn": (torch._C._set_cudnn_enabled, torch._C._get_cudnn_enabled(), torch._C._get_cudnn_benchmark()),
            "tf32": getattr(torch.backends.cuda.matmul, "fp32_precision", None),
            "anomaly": [(getattr(torch, name), getattr(torch._C, name)()) for name in ANOMALY],
            "deterministic": (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
                deterministic.fill_uninitialized_memory,
            ),
            "anomaly switch": torch.set_anomaly_enabled,
            "distributions": torch.distributions.Distribution._validate_args,
            "einsum": torch._VF.einsum,
            "types": (torch.get_default_dtype(), torch.is_autocast_enabled("cpu")),
            "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in self.model.modules()],
            "groups": [{k: v for k, v in g.items() if k != "params"} for g in self.optimizer.param_groups],
            "parameters": [
                (id(p), p.dtype, p.data_ptr(), p.requires_grad, getattr(p.grad, "dtype", None))
                for p in self.model.parameters()
            ],
            "buffers": [(id(b), b.dtype, b.data_ptr()) for b in self.model.buffers()],
            "states": [[(k, id(v)) for k, v in s.items()] for s in self.optimizer.state.values()],
            "iterator": (type(iterator), iterator._num_yielded, sorted(iterator.__dict__)),
            "loading": (loading.on_iterator, self.fetches.untimed, loading.ours),
            "loader": (self.loader.persistent_workers, getattr(iterator, "_persistent_workers", None)),
            "forward": [sorted(module.__dict__) for module in self.model.modules()],
            "reads": [name for name in ("item", "__float__", "__int__") if name in vars(torch.Tensor)],
            "attention": [getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in SDP_KERNELS],
            "compiler": torch._dynamo.config.suppress_errors,
            "random": (torch.get_rng_state().tolist(), random.getstate()),
            "modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
            "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
            "environment": dict(os.environ),
            "files": (
                builtins.open,
                io.open,
                torch.save,
                torch.serialization.save,
                {**vars(os)},
                subprocess.Popen.__init__,
            ),
            **{f"names of {owner}": found for owner, found in names().items() if owner in self.known},
        }

    def numbers(self) -> list[list[float]]:
        """Those in tensors, to the last bit."""
        states = [v for s in self.optimizer.state.values() for v in s.values()]
        return [t.detach().flatten().tolist() for t in (*self.model.parameters(), *self.model.buffers(), *states)]


def made(name: str, job: Job) -> Any:
    return remedies.make(SUITS_ONE_ARGUMENT.get(name, name), job)


@contextlib.contextmanager
def illness() -> Iterator[None]:
    """Everything wrong that a remedy would put right."""
    torch.autograd.set_detect_anomaly(True)
    torch._C._set_mkldnn_enabled(False)
    torch._C._set_cudnn_enabled(False)
    torch.use_deterministic_algorithms(True, warn_only=True)
    validates = torch.distributions.Distribution._validate_args  # `torch.compile` sees to it that none does
    torch.distributions.Distribution.set_default_validate_args(True)
    try:
        yield
    finally:
        torch.distributions.Distribution.set_default_validate_args(validates)
        torch.autograd.set_detect_anomaly(False)
        torch._C._set_mkldnn_enabled(True)
        torch._C._set_cudnn_enabled(True)
        torch.use_deterministic_algorithms(False)


def with_workers(job: Job) -> None:
    """Have it draw from a loader with one worker."""
    draw_from(job, DataLoader(job.loader.dataset, batch_size=4, num_workers=1))


def draw_from(job: Job, loader: DataLoader[Any]) -> None:
    """Have it draw from another loader from now on; it has taken the first batch."""
    job.loader = loader
    job.loading.made(loader)
    job.start()
    job.loading.rows[-1] = (1, *job.loading.rows[-1][1:])
