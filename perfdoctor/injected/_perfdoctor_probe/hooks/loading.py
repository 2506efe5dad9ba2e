"""Data loaders: settings and call site, the wait for each batch, and what making one takes.

Making a batch is timed where it happens: in a worker, or in the training process with `num_workers=0`.
"""

import functools
import os
import sys
import time
import types
import weakref
from collections.abc import Mapping

import torch
from torch.utils.data import IterableDataset, Subset

from .. import procfs, records, settings
from ..changes import unseen
from ..recorder import columns
from ..sites import callers
from .collector import Pauses

_SIZED_BATCHES = 3
"""Batches of each loader whose size and bytes are looked at; walking them costs time."""
_SIZED_LEAVES = 512
_LEAVES = 8
"""Looked at for a tensor of images or sequences."""
_SHAPES = 1000
"""Distinct shapes remembered."""
_TIMED_FETCHES = 200
"""Batches made in the training process that are all timed."""
_MADE_WITH = (
    "batch_sampler",
    "batch_size",
    "collate_fn",
    "dataset",
    "drop_last",
    "multiprocessing_context",
    "num_workers",
    "pin_memory",
    "prefetch_factor",
    "sampler",
    "timeout",
    "worker_init_fn",
)
"""What another loader like this one needs."""
_ASKED = ("__getitems__", "__getitem__", "__iter__")
"""Of a data set, by those who make batches of it."""
_SETTLED_FETCH = 4
"""The batch of each worker from which on they are looked at: a later one than those that import and warm up."""
_EARLY_ITERATORS = 2
"""Before which workers have calls followed: those of every epoch would hold up the loop again and again."""
_ITERATORS = 1000
"""Iterators remembered, from which on those that have ended are forgotten."""
_CALLERS = 4
"""Lines told that lead to the making of an iterator."""
_FOLLOWED = 32
"""Loaders whose making is followed back."""
_GIVEN = {"batch_size": 1, "num_workers": 5, "persistent_workers": 14}
"""What is followed to the line that decides it, with its place among the arguments of `DataLoader`."""


def describe_batch(batch) -> "tuple[int, int, list[str], list[str]]":
    """Samples (first dimension of the first tensor), tensor bytes, types and devices of a batch of any nesting."""
    samples = total = 0
    dtypes, devices = set(), set()
    for tensor in _tensors(batch, _SIZED_LEAVES):
        total += tensor.numel() * tensor.element_size()
        dtypes.add(str(tensor.dtype)[6:])
        devices.add(str(tensor.device))
        if not samples and tensor.dim():
            samples = tensor.shape[0]
    return samples, total, sorted(dtypes), sorted(devices)


def first_image(batch) -> "tuple | None":
    """Shape of the first tensor of three dimensions or more, a few levels deep: of images, sounds, sequences."""
    return next((tuple(tensor.shape) for tensor in _tensors(batch, _LEAVES) if tensor.dim() > 2), None)


def _tensors(batch, most: int):
    """The tensors among the first `most` items of a batch, containers counted too."""
    stack = [batch]
    for _ in range(most):
        if not stack:
            return
        item = stack.pop()
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, Mapping):
            stack.extend(reversed(list(item.values())[:most]))
        elif isinstance(item, (list, tuple)):
            stack.extend(reversed(item[:most]))


class Loading:
    """Everything the probe knows about the loaders of this process."""

    def __init__(self, recorder, loop, sites, guarded, pauses: "Pauses | None" = None) -> None:
        self.recorder = recorder
        self.loop = loop
        self.sites = sites
        self.pauses = pauses or Pauses()
        """Collections, which are no part of what the data set does."""
        self.describe = guarded("batch contents", describe_batch)
        self.look_closer = guarded("lines of workers", self._look_closer)
        self.compare = guarded("slower batches of workers", self._compare)
        self.note_shape = guarded("batch shapes", self._note_shape)
        # By id(): a loader need not be hashable, and one made later at the same address is entered anew.
        self.ids: "dict[int, int]" = {}
        self.sampling = None
        """Told of workers, and to write what it has of them; set by the probe."""
        self.count = self.started = 0
        """Loaders and iterators, so far; in a worker those that were there before it, if it was forked."""
        self.dataset_sites: "dict[int, int]" = {}
        self.loader_sites: "dict[int, int]" = {}
        self.makings: "dict[int, tuple]" = {}
        """By loader: the functions of the user's that led to it, the innermost first, its class, and what it was
        given."""
        self.firsts: "dict[int, int]" = {}
        """By line, the first loader that it has made."""
        self.reset()

    def reset(self) -> None:
        self.rows: "list[tuple]" = []
        """As the columns of `batches`, but in nanoseconds."""
        self.fetches: "list[tuple]" = []
        self.sized: "dict[int, int]" = {}
        self.samples: "dict[int, int]" = {}
        self.watches_shapes = False
        """Only in a job on CUDA, whose libraries tune themselves to shapes; one batch in eight."""
        self.shapes: set = set()
        self.shapes_sampled = self.shapes_written = 0
        self.transport_ns = 0
        self.transport_bytes = 0
        self.iterators: "dict[int, list[int]]" = {}
        """By id(): loader, 1 before the first batch, and the samples of a batch once they are settled, -1 before."""
        self.fetchers: "dict[int, int]" = {}
        """By id(): of what makes batches in this process the loader; empty in a worker, which has one loader."""
        self.running: "weakref.WeakKeyDictionary" = weakref.WeakKeyDictionary()
        """Iterators: the number of the loader, and what it was made with. Nothing of it outlives the iterator."""
        self.ours = False
        """Loaders and iterators made now are a remedy's, not the job's."""
        self.on_iterator = None
        """Told of each iterator that the job starts, while a remedy wants to know."""
        self.untimed = 0
        """Fetches to let pass before the next one is timed."""
        self.worker = False
        self.closer = None
        """How a worker's batch is looked at, while one is."""
        self.slower = None
        """How the batches of this worker compare with its first; from the one on that was made line by line."""
        self.traces_next = False
        self.flushed_ns = 0
        self.fetched = 0

    # -- in the training process --------------------------------------------------------------------------

    def made(self, loader) -> None:
        """A `DataLoader` was constructed.

        A framework that wraps the user's loader constructs a new one over the same data set, from its own
        code: the user's line is the one where that data set was first given to a loader.
        """
        if self.ours:
            return
        dataset = getattr(loader, "dataset", None)
        site = self.sites.here(2)
        first = self.dataset_sites.setdefault(id(dataset), site)
        identity = self.ids[id(loader)] = self.count
        self.loader_sites[identity] = first
        self.count += 1
        making = self._making(loader) if site == first else self.makings.get(self.firsts[first])
        if making is not None and len(self.makings) < _FOLLOWED:
            self.makings[identity] = making
        self.firsts.setdefault(first, identity)
        batch_sampler = getattr(loader, "batch_sampler", None)
        makers = self._makers(loader.collate_fn, dataset)
        try:
            length = len(dataset)
        except Exception:  # no length, or one that the user's code refuses to tell
            length = None
        self.recorder.record(
            "loader",
            id=identity,
            site=first,
            dataset=type(dataset).__name__,
            length=length,
            batch_size=loader.batch_size or getattr(batch_sampler, "batch_size", None),
            num_workers=loader.num_workers,
            prefetch_factor=loader.prefetch_factor,
            pin_memory=bool(loader.pin_memory),
            persistent_workers=bool(loader.persistent_workers),
            start_method=_start_method(loader),
            collate=getattr(loader.collate_fn, "__name__", type(loader.collate_fn).__name__),
            iterable=isinstance(dataset, IterableDataset),
            maker=next((self.sites.at(code, code.co_firstlineno) for code in makers), -1),
            padder=self._padder(makers),
        )

    def _making(self, loader) -> tuple:
        given = {name: getattr(loader, name) for name in _GIVEN}
        return callers(sys._getframe(2), self.sites.is_library), type(loader), given

    def given(self) -> "list[dict]":
        """By loader: the lines that decide what it was given, as sites; -1 where that is not known."""
        from ..windows.origins import Sources, decided_at

        sources, found = Sources(self.sites.is_library), []
        makings, self.makings = self.makings, {}  # told once
        for identity, (led, kind, given) in makings.items():
            names = (kind.__name__, "DataLoader", "__init__")
            at = {
                name: self.sites.number(decided_at(led, names, name, _GIVEN[name], value, sources))
                for name, value in given.items()
            }
            found += [{"loader": identity, **at}] if max(at.values()) >= 0 else []
        return found

    def _padder(self, makers: list) -> int:
        """The line of theirs that says to what length they pad; -1 for none."""
        from ..windows.padding_lines import padding_line

        return next((self.sites.at(code, line) for code in makers if (line := padding_line(code))), -1)

    def _makers(self, collate, dataset) -> list:
        """The user's code that makes a batch: of `collate_fn`, and of the data set."""
        while isinstance(dataset, Subset):
            dataset = dataset.dataset
        collate = collate.func if isinstance(collate, functools.partial) else collate
        asked = (getattr(type(dataset), name, None) for name in _ASKED)
        made = (collate, vars(type(collate)).get("__call__"), *asked)
        codes = [code for one in made if (code := getattr(one, "__code__", None)) is not None]
        return [code for code in codes if not self.sites.is_library(code.co_filename)]

    def iterator_made(self, loader, iterator, took_ns: int) -> None:
        """`iter(loader)` returned."""
        if self.ours:
            return
        identity = self.ids.get(id(loader), -1)
        self.started += 1
        self.running[iterator] = identity, types.SimpleNamespace(**{name: getattr(loader, name) for name in _MADE_WITH})
        if len(self.iterators) > _ITERATORS:
            self._forget_ended()
        self.iterators[id(iterator)] = [identity, 1, -1]
        fetcher = getattr(iterator, "_dataset_fetcher", None)
        if fetcher is not None and not self.worker:
            self.fetchers[id(fetcher)] = identity
        step, site = self.loop.timeline.step, self.sites.here()
        outside = self.sites.stack(sys._getframe(1))[1 : 1 + _CALLERS]
        callers = [self.sites.number((*place, None)) for place in outside]
        # A worker need not know whose it is, however it was started.
        pids = [worker.pid for worker in getattr(iterator, "_workers", ())]
        made = {"us": took_ns // 1000, "workers": pids, "callers": callers}
        self.recorder.record("iter", loader=identity, step=step, site=site, **made)
        if self.on_iterator is not None:
            self.on_iterator(iterator)

    def _forget_ended(self) -> None:
        for known, alive in (
            (self.iterators, {id(one) for one in self.running}),
            (self.fetchers, {id(getattr(one, "_dataset_fetcher", None)) for one in self.running}),
        ):
            for identity in known.keys() - alive:
                del known[identity]

    def iterator_ended(self, iterator, took_ns: int) -> None:
        """The workers of an iterator are gone."""
        identity = self.iterators.get(id(iterator), (-1,))[0]
        if identity >= 0:
            self.recorder.record("iterend", loader=identity, step=self.loop.timeline.step, us=took_ns // 1000)

    def drawn_from(self) -> list:
        """The latest iterator of each loader that gave a batch in the step before last or later."""
        recent = {row[0] for row in self.rows if row[1] >= self.loop.timeline.step - 2}
        latest = {identity: iterator for iterator, (identity, _) in self.running.items()}
        return [iterator for identity, iterator in latest.items() if identity in recent]

    def origin(self, iterator) -> "tuple[int, types.SimpleNamespace]":
        """The line that made the loader of an iterator, as a site, and what the loader was made with."""
        identity, made_with = self.running[iterator]
        return self.loader_sites.get(identity, -1), made_with

    def arrived(self, iterator, batch, began_ns: int, depth: "int | None") -> None:
        """A batch that was wanted at `began_ns` was delivered to the training thread."""
        took_ns = self.loop.batch_arrived() - began_ns
        if self.loop.on_batch is not None:
            self.loop.on_batch(batch)
        state = self.iterators.get(id(iterator))
        if state is None:
            state = self.iterators[id(iterator)] = [-1, 1, -1]
        identity, first, _ = state
        state[1] = 0
        if self.sized.get(identity, 0) < _SIZED_BATCHES:
            self._size(identity, batch)
        else:
            state[2] = self.samples[identity]
        self.loop.samples += self.samples[identity]
        if self.watches_shapes and not self.loop.batches & 7:
            self.note_shape(batch)
        self.rows.append(
            (
                identity,
                self.loop.timeline.step,
                took_ns,
                -1 if depth is None else depth,
                first,
                self.transport_ns,
                self.transport_bytes,
            )
        )
        self.transport_ns = self.transport_bytes = 0

    def _size(self, identity: int, batch) -> None:
        self.sized[identity] = self.sized.get(identity, 0) + 1
        samples, size, dtypes, devices = self.describe(batch) or (0, 0, [], [])
        self.samples[identity] = max(samples, self.samples.get(identity, 0))
        seen = {"samples": samples, "bytes": size, "dtypes": dtypes, "devices": devices}
        self.recorder.record("batch", loader=identity, **seen, onednn=settings.onednn_enabled())

    def _note_shape(self, batch) -> None:
        shape = first_image(batch)
        if shape is not None:
            self.shapes_sampled += 1
            if len(self.shapes) < _SHAPES:
                self.shapes.add(shape)

    def received(self, size: int, took_ns: int) -> None:
        """Something came through a multiprocessing queue and was unpickled."""
        self.transport_ns += took_ns
        self.transport_bytes += size

    # -- where batches are made ---------------------------------------------------------------------------

    def fetch_began(self, fetcher) -> None:
        """The data set is about to be asked for one batch; `collate_fn` gets a clock of its own."""
        collate = fetcher.collate_fn
        if type(collate) is not _TimedCollate:
            collate = fetcher.collate_fn = _TimedCollate(collate, self.pauses)
        self.fetched += 1
        # All are timed in a worker; in the training process, which pays for it, one in eight after a while. Of several
        # loaders by turns it would always be the same one's: there every second time one more is let pass.
        each = 7 + (self.fetched & 1 if self.count > 1 else 0)
        self.untimed = 0 if self.worker or self.fetched < _TIMED_FETCHES else each
        collate.timing = True
        if self.worker and self.fetched >= _SETTLED_FETCH:
            self.look_closer(fetcher)
        collate.fetch_gc_ns = self.pauses.ns
        collate.fetch_ns, collate.fetch_cpu_ns = time.perf_counter_ns(), time.thread_time_ns()

    def fetch_ended(self, fetcher) -> None:
        """The batch is made."""
        collate = fetcher.collate_fn
        if type(collate) is not _TimedCollate or not collate.timing:
            return
        if self.closer is not None:
            collate.stop()
            self._looked()
            return
        wall = time.perf_counter_ns() - collate.fetch_ns
        cpu = time.thread_time_ns() - collate.fetch_cpu_ns
        collected = self.pauses.ns - collate.fetch_gc_ns
        # A collection runs on a CPU for as long as it takes.
        in_data_set = collected - collate.gc_ns
        self.fetches.append(
            (
                max(0, wall - collate.wall_ns - in_data_set) // 1000,
                max(0, cpu - collate.cpu_ns - in_data_set) // 1000,
                max(0, collate.wall_ns - collate.gc_ns) // 1000,
                max(0, collate.cpu_ns - collate.gc_ns) // 1000,
                collected // 1000,
                self.fetchers.get(id(fetcher), -1),
            )
        )
        collate.stop()
        if self.untimed:
            fetcher.collate_fn = collate.original
        if self.worker:
            self.compare(fetcher, wall // 1000)
            self._worker_tick()

    def _compare(self, fetcher, took_us: int) -> None:
        if self.fetched < _SETTLED_FETCH:
            return
        if self.slower is None:
            from ..windows.slower_fetches import SlowerFetches

            self.slower = SlowerFetches(self.recorder, self.sites, fetcher)
        self.traces_next = self.slower.add(self.fetched, took_us)

    def _look_closer(self, fetcher) -> None:
        if self.closer is None:
            from ..windows.making import closer_look

            is_early = self.started < _EARLY_ITERATORS
            is_iterable = hasattr(fetcher, "dataset_iter")
            self.closer = closer_look(self.fetched, self.traces_next, is_early, self.sites, self.loop, is_iterable)
        self.traces_next = False
        if self.closer is not None:
            self.closer.begin()

    def _looked(self) -> None:
        """The batch took longer than others: it counts as no fetch."""
        record = self.closer.end()
        if record is not None:
            self.closer = None
            self.recorder.record(record.pop("kind"), **record)
        self._worker_tick()

    def worker_began(self, worker_id: int, num_workers: int) -> None:
        """This process turned out to be a data-loader worker."""
        self.worker = True
        self.recorder.record("worker", worker=worker_id, ppid=os.getppid())
        if self.sampling is not None:
            self.sampling.begin(True)

    def _worker_tick(self) -> None:
        now = time.perf_counter_ns()
        # Early flushes at 1, 2, 4, 8, ... batches: a worker is ended without notice.
        if self.fetched & (self.fetched - 1) == 0 or now - self.flushed_ns > 500_000_000:
            self.flushed_ns = now
            self.flush()
            if self.sampling is not None:
                self.sampling.flush()
            self.recorder.record("worker_sample", t=now, fetched=self.fetched, **procfs.worker_counters())
            self.recorder.flush()

    # -- out ----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Queue the rows collected since the last call."""
        if self.rows:
            rows = [(*row[:2], row[2] // 1000, *row[3:5], row[5] // 1000, row[6]) for row in self.rows]
            self.recorder.record("batches", **columns(records.BATCH_COLUMNS, rows))
            self.rows = []
        if self.fetches:
            self.recorder.record("fetches", **columns(records.FETCH_COLUMNS, self.fetches))
            self.fetches = []
        if self.shapes_sampled > self.shapes_written:
            self.shapes_written = self.shapes_sampled
            step, distinct = self.loop.timeline.step, len(self.shapes)
            self.recorder.record("shapes", step=step, sampled=self.shapes_sampled, distinct=distinct)


class _TimedCollate:
    """`collate_fn` with a clock that can be switched on. Attribute access goes to the original."""

    def __init__(self, original, pauses: Pauses) -> None:
        self.original = original
        self.pauses = pauses
        self.fetch_ns = self.fetch_cpu_ns = self.fetch_gc_ns = 0
        """When the fetch began: it may go on while a data set that draws from a loader of its own fetches in turn."""
        self.stop()

    def stop(self) -> None:
        """Forget what was timed."""
        self.timing = False
        self.wall_ns = self.cpu_ns = self.gc_ns = 0

    @unseen
    def __call__(self, batch):
        if not self.timing:
            return self.original(batch)
        collected = self.pauses.ns
        began, cpu_began = time.perf_counter_ns(), time.thread_time_ns()
        try:
            return self.original(batch)
        finally:
            self.gc_ns += self.pauses.ns - collected
            self.wall_ns += time.perf_counter_ns() - began
            self.cpu_ns += time.thread_time_ns() - cpu_began

    def __getattr__(self, name):
        return getattr(self.original, name)


def _start_method(loader) -> str:
    """Of its workers; "" without any."""
    if not loader.num_workers:
        return ""
    context = getattr(loader, "multiprocessing_context", None)
    if context:
        return context.get_start_method()
    import multiprocessing

    # `allow_none`: asking must not fix the default for the job.
    return multiprocessing.get_start_method(allow_none=True) or "fork"
