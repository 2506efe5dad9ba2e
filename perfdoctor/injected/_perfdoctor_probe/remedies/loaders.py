"""Data loaders: the running iterator draws its batches from elsewhere for a while.

The loop keeps its iterator object; only where that finds its next batch changes. So position, epoch and workers of
the job's own iterator are as before when the change is taken back.
"""

import torch
from torch.utils.data import DataLoader

from . import samplers
from .base import Remedy, UnsuitableError
from .worker_threads import InWorker

_KEPT_BATCHES = 4
"""Batches that `Replay` goes round: different ones, so that the model does not see one and the same."""
_DEFAULT_PREFETCH = 2


class _Elsewhere(Remedy):
    """Batches for all iterators that the loop draws from, and for those that it starts meanwhile."""

    needs = ("loaders",)

    def apply(self) -> None:
        loading = self.probe.loading
        self.attached: "dict[int, tuple]" = {}
        """By the line that makes the loader: its iterator, how many batches that had given, and what ends the source
        of the others."""
        self.given = 0
        running = loading.drawn_from()
        if not running:
            raise UnsuitableError("the loop draws no batches from a torch DataLoader")
        fetches = self.probe.fetches
        self.untimed, fetches.untimed = fetches.untimed, 1 << 60
        self.sites = {loading.origin(iterator)[0] for iterator in running}
        self.refused = ""
        for iterator in running:
            self.started(iterator)
        if not self.attached:
            raise UnsuitableError(self.refused)
        loading.on_iterator = self.started

    def started(self, iterator) -> None:
        """The loop draws from this iterator. One that does not suit (of a small validation set) is left as it is."""
        if self.probe.loading.origin(iterator)[0] in self.sites:
            try:
                self.attach(iterator)
            except UnsuitableError as error:
                self.refused = str(error)

    def attach(self, iterator) -> None:
        site, loader = self.probe.loading.origin(iterator)
        self.detach(site)
        draw, end = self.source(loader, iterator)
        # The job's own workers fill their queue while nobody takes from it.
        self.settle = max(self.settle, 2 * loader.num_workers * (loader.prefetch_factor or 1) + 2)

        def next_data():
            self.given += 1
            return draw()

        self.attached[site] = iterator, iterator._num_yielded, end
        iterator._next_data = next_data

    def detach(self, site: int) -> None:
        if site in self.attached:
            iterator, yielded, end = self.attached.pop(site)
            iterator.__dict__.pop("_next_data", None)
            iterator._num_yielded = yielded
            end()

    def source(self, loader, iterator) -> tuple:
        """A function that gives the next batch, or raises StopIteration at the end of the epoch; and one that lets
        go of what that needs."""
        raise NotImplementedError

    def withdraw(self) -> None:
        loading = self.probe.loading
        loading.on_iterator = None
        if hasattr(self, "untimed"):
            self.probe.fetches.untimed = self.untimed
        for site in list(self.attached):
            self.detach(site)

    def lost(self) -> str:
        return "" if self.given else self.refused or "the loop took its batches from another iterator"


class Replay(_Elsewhere):
    """The first few batches of each block again and again."""

    settle = _KEPT_BATCHES + 2

    def source(self, loader, iterator) -> tuple:
        real = type(iterator)._next_data
        kept = []
        count = 0

        def draw():
            nonlocal count
            count += 1
            if len(kept) < _KEPT_BATCHES:
                kept.append(real(iterator))
                return _outside(kept[-1])
            return _outside(kept[count % _KEPT_BATCHES])

        return draw, kept.clear


class _Clone(_Elsewhere):
    """A loader like the job's but for some settings."""

    settle = 4

    def settings(self, loader) -> dict:
        """The arguments that differ."""
        raise NotImplementedError

    def source(self, loader, iterator) -> tuple:
        arguments = {**like(loader), **self.settings(loader)}
        workers = arguments["num_workers"]
        if not workers:
            arguments.update(prefetch_factor=None, timeout=0, multiprocessing_context=None)
        elif arguments["prefetch_factor"] is None:
            arguments["prefetch_factor"] = _DEFAULT_PREFETCH
        # A fresh queue is filled while nothing is waited for; until it is used up, the steps say too little.
        self.settle = 2 * workers * (arguments["prefetch_factor"] or 1) + 2
        loading = self.probe.loading
        state = torch.get_rng_state()
        loading.ours = True
        try:
            other = iter(_made(arguments))
        finally:
            loading.ours = False
            torch.set_rng_state(state)
        # The workers are to end now, not when the collector comes by.
        return other._next_data, getattr(other, "_shutdown_workers", _nothing)


class Workers(_Clone):
    """Another number of worker processes."""

    def settings(self, loader) -> dict:
        if loader.num_workers == self.value:
            raise UnsuitableError("already set")
        return {"num_workers": self.value}


class WorkerThreads(_Clone):
    """Threads that each worker computes with."""

    def settings(self, loader) -> dict:
        if not loader.num_workers:
            raise UnsuitableError("there are no workers")
        return {"worker_init_fn": InWorker(max(1, self.value), loader.worker_init_fn)}


class Prefetch(_Clone):
    """Batches that each worker makes ahead."""

    def settings(self, loader) -> dict:
        if not loader.num_workers:
            raise UnsuitableError("there are no workers to work ahead")
        return {"prefetch_factor": self.value}


class PinMemory(_Clone):
    """Page-locked batches, which the device can fetch by itself."""

    def settings(self, loader) -> dict:
        # torch.accelerator is there since 2.6.
        if not getattr(torch, "accelerator", torch.cuda).is_available():
            raise UnsuitableError("there is no device to copy to")
        if loader.pin_memory:
            raise UnsuitableError("already set")
        return {"pin_memory": True}


class Larger(_Clone):
    """Batches of several times the samples."""

    def settings(self, loader) -> dict:
        factor = self.work = float(self.value)
        size = loader.batch_size
        if size is None:
            raise UnsuitableError("the loader's batches are made by its own sampler, which knows no batch size")
        count = loader.batch_sampler
        length = len(count) if hasattr(count, "__len__") else None
        if length is not None and length < 2 * factor:
            raise UnsuitableError("an epoch has too few batches")
        # The last batch of an epoch would have fewer samples than are counted.
        return {"batch_size": int(size * factor), "drop_last": True}


def like(loader) -> dict:
    """The arguments that would make such a loader again, from what it was made with. Random order is drawn anew."""
    arguments = {**vars(loader), "persistent_workers": False}
    if loader.batch_size is None and loader.batch_sampler is not None:
        drawn, others = "batch_sampler", ("batch_size", "drop_last", "sampler")
    else:
        drawn, others = "sampler", ("batch_sampler",)
    for name in others:
        del arguments[name]
    sampler = arguments.pop(drawn)
    if not isinstance(loader.dataset, torch.utils.data.IterableDataset):
        arguments[drawn] = samplers.copied(sampler)
    return arguments


def _made(arguments: dict) -> DataLoader:
    try:
        return DataLoader(**arguments)
    except (TypeError, ValueError) as error:
        raise UnsuitableError(f"torch refuses such a loader: {error}") from error


def _nothing() -> None:
    """Without workers there is nothing to end."""


def _outside(batch):
    """A container of its own around the same tensors: a loop may take a batch apart."""
    return type(batch)(batch) if type(batch) in (list, dict) else batch
