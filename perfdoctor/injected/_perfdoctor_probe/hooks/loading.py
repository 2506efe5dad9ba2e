"""Data loaders: settings and call site, and the wait for each batch."""

import functools
import sys
import types
import weakref

from torch.utils.data import IterableDataset, Subset

from .. import records, settings
from ..recorder import columns
from ..sites import callers
from .batch_contents import describe_batch, first_image
from .last_loaders import LastLoaders

_SIZED_BATCHES = 3
"""Batches of each loader whose size and bytes are looked at; walking them costs time."""
_SHAPES = 1000
"""Distinct shapes remembered."""
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
_ITERATORS = 1000
"""Iterators remembered, from which on those that have ended are forgotten."""
_CALLERS = 4
"""Lines told that lead to the making of an iterator."""
_FOLLOWED = 32
"""Loaders whose making is followed back."""
_GIVEN = {"batch_size": 1, "num_workers": 5, "persistent_workers": 14}
"""What is followed to the line that decides it, with its place among the arguments of `DataLoader`."""


class Loading:
    """Everything the probe knows about the loaders of this process."""

    def __init__(self, recorder, loop, sites, guarded) -> None:
        self.recorder = recorder
        self.loop = loop
        self.sites = sites
        self.describe = guarded("batch contents", describe_batch)
        self.note_shape = guarded("batch shapes", self._note_shape)
        # By id(): a loader need not be hashable, and one made later at the same address is entered anew.
        self.ids: "dict[int, int]" = {}
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
        self.last = LastLoaders(_made_with)
        self.ours = False
        """Loaders and iterators made now are a remedy's, not the job's."""
        self.on_iterator = None
        """Told of each iterator that the job starts, while a remedy wants to know."""
        self.worker = False
        """Whether this process is one of a loader's workers."""

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
        from ..windows.origins import Sources, decided_at, passed_at

        makings, self.makings = self.makings, {}  # told once
        files = [code.co_filename for led, *_ in makings.values() for code, _ in led]
        sources, found = Sources(self.sites.is_library, files), []
        for identity, (led, kind, given) in makings.items():
            names = (kind.__name__, "DataLoader", "__init__")
            at = {
                name: self.sites.number(decided_at(led, names, name, _GIVEN[name], value, sources))
                for name, value in given.items()
            }
            at["workers_passed"] = self.sites.number(
                passed_at(led, names, "num_workers", _GIVEN["num_workers"], sources)
            )
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
        self.running[iterator] = identity, _made_with(loader)
        self.last.note(identity, loader)
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

    def in_use(self) -> "dict[int, types.SimpleNamespace]":
        """By number, what loaders that run were made with; of those whose iterators are gone, the last of each line."""
        alive = self.last.alive()
        latest = {self.loader_sites.get(identity): identity for identity in alive}
        ended = {identity: alive[identity] for identity in latest.values()}
        return {**ended, **dict(self.running.values())}

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

    def flush(self) -> None:
        """Queue the rows collected since the last call."""
        if self.rows:
            rows = [(*row[:2], row[2] // 1000, *row[3:5], row[5] // 1000, row[6]) for row in self.rows]
            self.recorder.record("batches", **columns(records.BATCH_COLUMNS, rows))
            self.rows = []
        if self.shapes_sampled > self.shapes_written:
            self.shapes_written = self.shapes_sampled
            step, distinct = self.loop.timeline.step, len(self.shapes)
            self.recorder.record("shapes", step=step, sampled=self.shapes_sampled, distinct=distinct)


def _made_with(loader) -> types.SimpleNamespace:
    return types.SimpleNamespace(**{name: getattr(loader, name) for name in _MADE_WITH})


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
