"""The making of batches, timed where it happens: in a worker, or in the training process with `num_workers=0`."""

import os
import time

from .. import procfs, records
from ..changes import unseen
from ..recorder import columns
from .collector import Pauses

_TIMED_FETCHES = 200
"""Batches made in the training process that are all timed."""
_SETTLED_FETCH = 4
"""The batch of each worker from which on they are looked at: a later one than those that import and warm up."""
_EARLY_ITERATORS = 2
"""Before which workers have calls followed: those of every epoch would hold up the loop again and again."""


class Fetches:
    """The batches that this process makes, whoever takes them."""

    def __init__(self, loading, guarded, pauses: Pauses) -> None:
        self.loading = loading
        self.recorder = loading.recorder
        self.sites = loading.sites
        self.pauses = pauses
        """Collections, which are no part of what the data set does."""
        self.look_closer = guarded("lines of workers", self._look_closer)
        self.compare = guarded("slower batches of workers", self._compare)
        self.sampling = None
        """Told of workers, and to write what it has of them; set by the probe."""
        self.reset()

    def reset(self) -> None:
        self.rows: "list[tuple]" = []
        """As the columns of `fetches`."""
        self.untimed = 0
        """Fetches to let pass before the next one is timed."""
        self.count = 0
        self.closer = None
        """How a worker's batch is looked at, while one is."""
        self.slower = None
        """How the batches of this worker compare with its first; from the one on that was made line by line."""
        self.traces_next = False
        self.flushed_ns = 0

    def began(self, fetcher) -> None:
        """The data set is about to be asked for one batch; `collate_fn` gets a clock of its own."""
        collate = fetcher.collate_fn
        if type(collate) is not _TimedCollate:
            collate = fetcher.collate_fn = _TimedCollate(collate, self.pauses)
        self.count += 1
        # All are timed in a worker; in the training process, which pays for it, one in eight after a while. Of several
        # loaders by turns it would always be the same one's: there every second time one more is let pass.
        each = 7 + (self.count & 1 if self.loading.count > 1 else 0)
        self.untimed = 0 if self.loading.worker or self.count < _TIMED_FETCHES else each
        collate.timing = True
        if self.loading.worker and self.count >= _SETTLED_FETCH:
            self.look_closer(fetcher)
        collate.fetch_gc_ns = self.pauses.ns
        collate.fetch_ns, collate.fetch_cpu_ns = time.perf_counter_ns(), time.thread_time_ns()

    def ended(self, fetcher) -> None:
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
        self.rows.append(
            (
                max(0, wall - collate.wall_ns - in_data_set) // 1000,
                max(0, cpu - collate.cpu_ns - in_data_set) // 1000,
                max(0, collate.wall_ns - collate.gc_ns) // 1000,
                max(0, collate.cpu_ns - collate.gc_ns) // 1000,
                collected // 1000,
                self.loading.fetchers.get(id(fetcher), -1),
            )
        )
        collate.stop()
        if self.untimed:
            fetcher.collate_fn = collate.original
        if self.loading.worker:
            self.compare(fetcher, wall // 1000)
            self._worker_tick()

    def _compare(self, fetcher, took_us: int) -> None:
        if self.count < _SETTLED_FETCH:
            return
        if self.slower is None:
            from ..windows.slower_fetches import SlowerFetches

            self.slower = SlowerFetches(self.recorder, self.sites, fetcher)
        self.traces_next = self.slower.add(self.count, took_us)

    def _look_closer(self, fetcher) -> None:
        if self.closer is None:
            from ..windows.making import closer_look

            is_early = self.loading.started < _EARLY_ITERATORS
            is_iterable = hasattr(fetcher, "dataset_iter")
            self.closer = closer_look(
                self.count, self.traces_next, is_early, self.sites, self.loading.loop, is_iterable
            )
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
        self.loading.worker = True
        self.recorder.record("worker", worker=worker_id, ppid=os.getppid())
        if self.sampling is not None:
            self.sampling.begin(True)

    def _worker_tick(self) -> None:
        now = time.perf_counter_ns()
        # Early flushes at 1, 2, 4, 8, ... batches: a worker is ended without notice.
        if self.count & (self.count - 1) == 0 or now - self.flushed_ns > 500_000_000:
            self.flushed_ns = now
            self.loading.flush()
            self.flush()
            if self.sampling is not None:
                self.sampling.flush()
            self.recorder.record("worker_sample", t=now, fetched=self.count, **procfs.worker_counters())
            self.recorder.flush()

    def flush(self) -> None:
        """Queue the rows collected since the last call."""
        if self.rows:
            self.recorder.record("fetches", **columns(records.FETCH_COLUMNS, self.rows))
            self.rows = []


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
