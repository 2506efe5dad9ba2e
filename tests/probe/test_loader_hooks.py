"""What timing a fetch leaves behind."""

from __future__ import annotations

import linecache
import sys
from types import SimpleNamespace

import pytest

from perfdoctor.injected._perfdoctor_probe.guard import Guard
from perfdoctor.injected._perfdoctor_probe.hooks.collector import Pauses
from perfdoctor.injected._perfdoctor_probe.hooks.fetches import Fetches
from perfdoctor.injected._perfdoctor_probe.hooks.loading import _MADE_WITH, Loading
from perfdoctor.injected._perfdoctor_probe.timeline import Timeline
from perfdoctor.injected._perfdoctor_probe.windows.slower_fetches import SlowerFetches


def of_a_loop(loop=None, sites=None) -> Fetches:
    """In a training process, whose records nobody reads."""
    guarded = Guard(lambda hook, error: None)
    loading = Loading(SimpleNamespace(record=lambda kind, **fields: None), loop, sites, guarded)
    return Fetches(loading, guarded, Pauses())


def fetched(batches: int) -> tuple[Fetches, list[bool]]:
    """`batches` fetches in the training process; for each, whether the collate function was the job's own in it."""
    fetches = of_a_loop()
    fetcher = SimpleNamespace(collate_fn=len)
    bare = []
    for _ in range(batches):
        timed = fetches.untimed == 0
        if timed:
            fetches.began(fetcher)
        else:
            fetches.untimed -= 1
        bare.append(fetcher.collate_fn is len)
        assert fetcher.collate_fn([1, 2]) == 2
        if timed:
            fetches.ended(fetcher)
    return fetches, bare


@pytest.mark.parametrize(("batches", "timed"), [(199, 199), (200, 200), (207, 200), (208, 201), (360, 220)])
def test_after_two_hundred_fetches_one_in_eight_is_timed(batches, timed):
    fetches, _ = fetched(batches)
    assert len(fetches.rows) == timed


def test_an_untimed_fetch_runs_the_job_s_own_collate_function(batches=240):
    _, bare = fetched(batches)
    assert bare == [number > 200 and number % 8 != 0 for number in range(1, batches + 1)]


def test_of_several_loaders_one_in_eight_or_nine_is_timed_by_turns() -> None:
    """One in eight would always be a batch of the same one of two."""
    fetches = of_a_loop()
    fetches.loading.count = 2
    fetchers = [SimpleNamespace(collate_fn=len) for _ in range(2)]
    fetches.loading.fetchers = {id(fetcher): number for number, fetcher in enumerate(fetchers)}
    for batch in range(1000):
        if fetches.untimed:
            fetches.untimed -= 1
            continue
        fetcher = fetchers[batch % 2]
        fetches.began(fetcher)
        fetches.ended(fetcher)
    later = [row[-1] for row in fetches.rows[200:]]
    assert len(later) == 94 and later.count(0) == later.count(1)


def test_iterators_that_still_run_are_not_forgotten() -> None:
    """Of a job that starts an iterator of one loader for each step, and draws from one of another all the time."""
    sites = SimpleNamespace(here=lambda depth=1: 1, stack=lambda frame: [], is_library=lambda file: True)
    loop = SimpleNamespace(timeline=Timeline())
    loading = of_a_loop(loop, sites).loading
    made_with = dict.fromkeys(_MADE_WITH)
    stays, anew = SimpleNamespace(**made_with), SimpleNamespace(**made_with)
    loading.ids = {id(stays): 0, id(anew): 1}
    running = Iterator()
    loading.iterator_made(stays, running, 0)
    for _ in range(1200):
        last = Iterator()
        loading.iterator_made(anew, last, 0)
    assert len(loading.iterators) < 1200 and len(loading.fetchers) < 1200
    assert [loading.iterators[id(one)][0] for one in (running, last)] == [0, 1]
    assert [loading.fetchers[id(one._dataset_fetcher)] for one in (running, last)] == [0, 1]


def test_of_loaders_whose_iterators_are_gone_the_last_of_each_line_is_in_use() -> None:
    """A loader for each epoch, and one for evaluation that goes on giving batches."""
    sites = SimpleNamespace(here=lambda depth=1: 1, stack=lambda frame: [], is_library=lambda file: True)
    loading = of_a_loop(SimpleNamespace(timeline=Timeline()), sites).loading
    epochs = [SimpleNamespace(**{**dict.fromkeys(_MADE_WITH), "batch_size": size}) for size in (1, 2, 3)]
    held_out, running = SimpleNamespace(**dict.fromkeys(_MADE_WITH)), Iterator()
    loading.ids = {id(loader): number for number, loader in enumerate([*epochs, held_out])}
    loading.loader_sites = {0: 5, 1: 5, 2: 5, 3: 9}
    for loader in epochs:
        loading.iterator_made(loader, Iterator(), 0)
    loading.iterator_made(held_out, running, 0)
    assert {number: made_with.batch_size for number, made_with in loading.in_use().items()} == {2: 3, 3: None}


class Iterator:
    """As torch's without workers."""

    def __init__(self) -> None:
        self._dataset_fetcher = SimpleNamespace()


def test_a_data_set_that_fetches_from_a_loader_of_its_own_is_timed_beside_it() -> None:
    fetches = of_a_loop()
    outer, inner = (SimpleNamespace(collate_fn=len) for _ in range(2))
    fetches.loading.fetchers = {id(outer): 0, id(inner): 1}
    fetches.began(outer)
    made(fetches, inner)
    outer.collate_fn([1, 2])
    fetches.ended(outer)
    assert [row[-1] for row in fetches.rows] == [1, 0]


class Sites:
    """The functions of this file are the user's."""

    def is_library(self, filename: str) -> bool:
        return filename != __file__

    def at(self, code, line: int) -> str:
        return code.co_name

    def number(self, place: tuple) -> str:
        return linecache.getline(*place[:2]).strip()


def of_a_worker() -> tuple[Fetches, list[dict]]:
    written: list[dict] = []
    recorder = SimpleNamespace(record=lambda kind, **fields: written.append({"k": kind, **fields}), flush=lambda: None)
    loop = SimpleNamespace(timeline=Timeline())
    guarded = Guard(lambda hook, error: None)
    fetches = Fetches(Loading(recorder, loop, Sites(), guarded), guarded, Pauses())
    fetches.loading.worker = True
    return fetches, written


def made(fetches: Fetches, fetcher: SimpleNamespace, fails: bool = False) -> None:
    """What the stand-in of a fetcher's `fetch` does."""
    fetches.began(fetcher)
    if fails:
        return
    fetcher.collate_fn([1, 2])
    fetches.ended(fetcher)


def test_one_batch_of_a_worker_is_made_line_by_line_and_not_timed():
    def padded(samples):
        return sorted(samples)

    fetches, written = of_a_worker()
    before, profiled = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    try:
        for _ in range(7):
            made(fetches, SimpleNamespace(collate_fn=padded, dataset=None))
        assert sys.gettrace() is None
    finally:
        sys.settrace(before)
    (record,) = [record for record in written if record["k"] == "making"]
    assert {(row["site"], row["part"]) for row in record["lines"] if row["called"]} >= {("padded", "other")}
    # Three more have had the calls of functions followed.
    (same,) = [record for record in written if record["k"] == "same_making"]
    assert same["rows"] == []
    assert sys.getprofile() is profiled
    rows = [record for record in written if record["k"] == "fetches"]
    assert sum(record["n"] for record in rows) + len(fetches.rows) == 3


def test_a_batch_that_could_not_be_made_leaves_no_tracer_behind_for_long():
    fetches, written = of_a_worker()
    before = sys.gettrace()
    sys.settrace(None)
    try:
        for number in range(6):
            made(fetches, SimpleNamespace(collate_fn=sorted, dataset=None), fails=number == 3)
        assert sys.gettrace() is None
    finally:
        sys.settrace(before)
    assert [record["k"] for record in written].count("making") == 1


def test_later_workers_have_no_calls_followed():
    fetches, written = of_a_worker()
    fetches.loading.started = 2
    fetches.loading.worker = True
    for _ in range(8):
        made(fetches, SimpleNamespace(collate_fn=len, dataset=None))
    assert not [record for record in written if record["k"] == "same_making"]


class Keeping:
    """A data set that keeps what it has seen."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def take(self) -> None:
        self.seen.append(len(self.seen))


@pytest.mark.parametrize(("slower", "censuses"), [(0.0, 0), (0.05, 5)])
def test_only_batches_of_a_worker_that_get_slower_have_the_data_set_looked_at(slower: float, censuses: int):
    written: list[dict] = []
    recorder = SimpleNamespace(record=lambda kind, **fields: written.append({"k": kind, **fields}))
    kept = Keeping()
    fetcher = SimpleNamespace(dataset=kept, collate_fn=SimpleNamespace(original=len))
    fetches = SlowerFetches(recorder, Sites(), fetcher)
    asked = []
    for number in range(5, 60):
        kept.take()
        if fetches.add(number, round(10_000 * (1 + slower * number))):
            asked.append(number)
    assert fetches.taken == censuses
    assert len(asked) == max(0, censuses - 2)  # a batch is made line by line once three could tell growth
    grown = [record for record in written if record["k"] == "growth"]
    assert len(grown) == len(asked)
    for record in grown:
        container = record["containers"][0]  # before this test's own lists, which grow more slowly
        assert (container["name"], container["per_step"]) == ("dataset.seen", 1.0)
        assert container["site"].startswith("self.")


def test_a_worker_whose_batches_get_slower_has_a_later_one_made_line_by_line():
    def padded(samples):
        return sorted(samples)

    fetches, written = of_a_worker()
    fetcher = SimpleNamespace(collate_fn=padded, dataset=Keeping())
    before = sys.gettrace()
    sys.settrace(None)
    try:
        for number in range(1, 10):
            fetches.traces_next = number == 8
            made(fetches, fetcher)
        assert sys.gettrace() is None
    finally:
        sys.settrace(before)
    assert [record["k"] for record in written if "making" in record["k"]] == ["making", "same_making", "later_making"]
