from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import (
    PID,
    WALL_US,
    Record,
    batches,
    ended_iterator,
    fetches,
    iterator,
    loader,
    process,
    recorded,
    sample,
    selected,
    site,
    steps,
    worker,
    worker_sample,
)

from perfdoctor.evidence import loading
from perfdoctor.evidence.model import Fetch, Loader, Missing, Site, WorkerThreads
from perfdoctor.recording.model import ProcessRecording

N = 40


def _loaders(rank: ProcessRecording, *workers: ProcessRecording) -> tuple[Loader, ...]:
    return loading.build(rank, workers, selected(rank))


def _loader(rank: ProcessRecording, *workers: ProcessRecording) -> Loader:
    (only,) = _loaders(rank, *workers)
    return only


def _fetch(loader: Loader) -> Fetch:
    assert not isinstance(loader.fetch, Missing), loader.fetch
    return loader.fetch


def _worker(directory: Path, *records: dict[str, Any], number: int = 0) -> ProcessRecording:
    pid = PID + 1 + number
    return recorded(directory, process(pid, ppid=PID, forked=True), worker(number), *records, pid=pid)


# ---------------------------------------------------------------------------------------------------------
# The wait


def test_the_first_batch_of_an_iterator_is_told_apart(tmp_path: Path) -> None:
    first = [1 if i % 20 == 0 else 0 for i in range(N)]
    waits = [100_000 if f else 2_000 for f in first]
    rank = recorded(
        tmp_path,
        loader(num_workers=2),
        iterator(0, us=90_000),
        iterator(20, us=10_000),
        ended_iterator(19, us=30_000),
        ended_iterator(39, us=40_000),
        ended_iterator(39, us=900_000, loader=7),
        steps(WALL_US, N),
        batches(range(N), waits, first=first, depth=1),
    )
    found = _loader(rank)
    assert found.wait_ms == pytest.approx(2.0)
    assert found.wait_p95_ms == pytest.approx(2.0)
    assert found.iterators == 2
    assert found.iterator_start_ms == pytest.approx(110.0)  # the very first also pays for imports
    assert found.iterator_ms == pytest.approx(110.0 + 35.0)
    assert found.batches_per_iterator == 20


def test_an_iterator_for_each_step_is_nothing_but_first_batches(tmp_path: Path) -> None:
    rank = recorded(
        tmp_path,
        loader(),
        *(iterator(i, us=1_000) for i in range(N)),
        steps(WALL_US, N),
        batches(range(N), 5_000, first=1),
    )
    found = _loader(rank)
    assert found.wait_ms == pytest.approx(5.0)
    assert found.batches_per_iterator == 1
    assert found.iterator_start_ms == pytest.approx(6.0)


def test_batches_of_steps_that_do_not_count_do_not_count(tmp_path: Path) -> None:
    waits = [1_000] * N
    waits[0] = waits[20] = 70_000
    rank = recorded(tmp_path, loader(), steps(WALL_US, N, marked=[20]), batches(range(N), waits))
    found = _loader(rank)
    assert found.wait_ms == pytest.approx(1.0)
    assert found.batches == N - 2


def test_the_share_of_empty_arrivals_is_known_with_workers_only(tmp_path: Path) -> None:
    depth = [0 if i % 4 == 0 else 2 for i in range(N)]
    with_workers = recorded(tmp_path, loader(num_workers=2), steps(WALL_US, N), batches(range(N), 0, depth=depth))
    assert _loader(with_workers).empty_share == pytest.approx(9 / 39)
    without = recorded(tmp_path, loader(), steps(WALL_US, N), batches(range(N), 0))
    assert isinstance(_loader(without).empty_share, Missing)


def test_handing_over_is_counted_per_batch(tmp_path: Path) -> None:
    rank = recorded(
        tmp_path,
        loader(num_workers=1),
        steps(WALL_US, N),
        batches(range(N), 0, transport_us=900, transport_bytes=437),
    )
    assert (_loader(rank).transport_ms, _loader(rank).transport_bytes) == (pytest.approx(0.9), 437)


def test_gradient_accumulation_draws_several_batches_a_step(tmp_path: Path) -> None:
    rank = recorded(
        tmp_path, loader(), steps(WALL_US, N, micro=4), batches([i for i in range(N) for _ in range(4)], 500)
    )
    assert _loader(rank).steady_batches_per_step == pytest.approx(4.0)


def test_a_loader_that_no_steady_step_drew_from_is_left_out(tmp_path: Path) -> None:
    rank = recorded(
        tmp_path,
        loader(1),
        loader(2, dataset="Validation"),
        steps(WALL_US, N),
        batches(range(N), 0),
        batches([0], 0, loader=2),
    )
    assert _loader(rank).dataset == "Images"


def test_the_loader_waited_for_longest_comes_first(tmp_path: Path) -> None:
    rank = recorded(
        tmp_path,
        loader(1, dataset="fast"),
        loader(2, dataset="slow"),
        steps(WALL_US, N),
        batches(range(N), 100),
        batches(range(N), 900, loader=2),
    )
    assert [found.dataset for found in _loaders(rank)] == ["slow", "fast"]


def test_a_loop_without_a_loader_has_none(tmp_path: Path) -> None:
    assert _loaders(recorded(tmp_path, steps(WALL_US, N))) == ()


def test_the_line_and_the_settings_of_the_loader_are_kept(tmp_path: Path) -> None:
    made = loader(site=3, num_workers=2, prefetch_factor=4, persistent_workers=True, start_method="spawn")
    rank = recorded(tmp_path, site(3, 12), made, steps(WALL_US, N), batches(range(N), 0))
    (found,) = _loaders(rank)
    assert found.site == Site("train.py", 12, "main")
    assert (found.num_workers, found.prefetch_factor, found.start_method) == (2, 4, "spawn")
    assert found.persistent_workers


# ---------------------------------------------------------------------------------------------------------
# Making a batch


def test_batches_are_timed_where_the_workers_make_them(tmp_path: Path) -> None:
    rank = recorded(
        tmp_path,
        loader(num_workers=2),
        {"k": "batch", "loader": 1, "samples": 32, "bytes": 4096},
        steps(WALL_US, N),
        batches(range(N), 0, depth=0),
    )
    makers = [
        _worker(
            tmp_path,
            # The first two pay for imports and cold caches.
            fetches([500_000, 90_000] + [20_000] * 18, getitem_cpu_us=5_000, collate_us=1_000, collate_cpu_us=900),
            worker_sample(2, delay_us=1_000, rchar=1_000),
            worker_sample(20, delay_us=37_000, rchar=181_000),
            number=number,
        )
        for number in (0, 1)
    ]
    fetch = _fetch(_loader(rank, *makers))
    assert fetch.batches == 36
    assert fetch.getitem_ms == pytest.approx(20.0)
    assert fetch.getitem_cpu_ms == pytest.approx(5.0)
    assert (fetch.collate_ms, fetch.collate_cpu_ms) == (pytest.approx(1.0), pytest.approx(0.9))
    assert fetch.run_delay_ms == pytest.approx(2.0)
    assert fetch.read_bytes == pytest.approx(10_000)
    assert fetch.batch_bytes == 4096
    # Of 15 ms off the CPU, the run delay is taken off by share.
    assert fetch.getitem_blocked_ms == pytest.approx(15.0 - 2.0 * 15.0 / 15.1)


ASKED = {"k": "full_gc", "step": 0, "us": 30_000, "generation": 2, "collected": 0, "site": 4}
COLLATE_LINE = {"k": "site", "id": 4, "file": "/job/train.py", "line": 9, "function": "collate"}


@pytest.mark.parametrize(("asked", "line"), [([ASKED] * 18, 9), ([ASKED] * 8, None), ([], None)])
def test_collections_in_workers_are_told_apart_with_the_line_that_asks_for_them(
    tmp_path: Path, asked: list[Record], line: int | None
) -> None:
    """One in three batches is interrupted for long: their mean counts, not a trimmed one."""
    rank = recorded(tmp_path, loader(num_workers=1), steps(WALL_US, N), batches(range(N), 0, depth=0))
    made = fetches([5_000] * 20, collate_us=1_000, gc_us=[0, 0] + [0, 0, 90_000] * 6)
    maker = _worker(tmp_path, made, worker_sample(20), COLLATE_LINE, *asked)
    fetch = _fetch(_loader(rank, maker))
    assert (fetch.gc_ms, fetch.total_ms) == (pytest.approx(30.0), pytest.approx(36.0))
    assert (fetch.gc_line.line if fetch.gc_line else None) == line


def test_without_workers_the_training_process_makes_the_batches(tmp_path: Path) -> None:
    rank = recorded(
        tmp_path,
        loader(),
        steps(WALL_US, 100),
        batches(range(100), 4_000),
        fetches([3_000] * 100, getitem_cpu_us=2_000, collate_us=1_000, collate_cpu_us=1_000),
        sample(10, delay_us=0, rchar=0, read_bytes=0),
        sample(90, delay_us=80_000, rchar=8_000, read_bytes=800),
    )
    fetch = _fetch(_loader(rank))
    assert fetch.total_ms == pytest.approx(4.0)
    assert fetch.run_delay_ms == pytest.approx(1.0 * 0.4)  # of 1 ms a step, by the share that loading takes
    assert fetch.read_bytes == pytest.approx(100)
    assert isinstance(fetch.batch_bytes, Missing)


def test_workers_that_were_not_seen_leave_the_making_open(tmp_path: Path) -> None:
    rank = recorded(tmp_path, loader(num_workers=3), steps(WALL_US, N), batches(range(N), 0, depth=0))
    found = _loader(rank)
    assert isinstance(found.fetch, Missing)
    assert "workers seen: 0 of 3" in found.fetch.reason
    assert isinstance(found.worker_threads, Missing)


def test_workers_are_not_taken_for_those_of_a_loader_without_any(tmp_path: Path) -> None:
    rank = recorded(tmp_path, loader(), steps(WALL_US, N), batches(range(N), 0), fetches([1_000] * N))
    stray = _worker(tmp_path, fetches([90_000] * 20))
    assert _fetch(_loader(rank, stray)).getitem_ms == pytest.approx(1.0)


def test_a_worker_with_one_sample_has_times_but_no_counters(tmp_path: Path) -> None:
    rank = recorded(tmp_path, loader(num_workers=1), steps(WALL_US, N), batches(range(N), 0, depth=0))
    fetch = _fetch(_loader(rank, _worker(tmp_path, fetches([20_000] * 20), worker_sample(20, delay_us=9))))
    assert fetch.getitem_ms == pytest.approx(20.0)
    assert (fetch.run_delay_ms, fetch.read_bytes) == (0.0, 0.0)


def test_a_worker_that_made_nothing_between_its_samples_has_no_counters(tmp_path: Path) -> None:
    rank = recorded(tmp_path, loader(num_workers=1), steps(WALL_US, N), batches(range(N), 0, depth=0))
    idle = (worker_sample(20, rchar=1_000), worker_sample(20, rchar=9_000))
    assert _fetch(_loader(rank, _worker(tmp_path, fetches([20_000] * 20), *idle))).read_bytes == 0.0


def test_a_worker_without_scheduler_statistics_has_no_delay(tmp_path: Path) -> None:
    rank = recorded(tmp_path, loader(num_workers=1), steps(WALL_US, N), batches(range(N), 0, depth=0))
    samples = (worker_sample(0, delay_us=None), worker_sample(20, delay_us=None))
    assert _fetch(_loader(rank, _worker(tmp_path, fetches([20_000] * 20), *samples))).run_delay_ms == 0.0


@pytest.mark.parametrize(("second", "distinct"), [([0], 1), ([1], 2)])
def test_workers_that_share_a_cpu_are_told_from_those_with_one_each(
    tmp_path: Path, second: list[int], distinct: int
) -> None:
    rank = recorded(tmp_path, loader(num_workers=2), steps(WALL_US, N), batches(range(N), 0, depth=0))
    makers = [
        _worker(tmp_path, worker_sample(9, intra_op=1, affinity=cpus), number=i) for i, cpus in enumerate(([0], second))
    ]
    assert _loader(rank, *makers).worker_threads == WorkerThreads(1, 1, distinct)


def test_batches_of_workers_side_by_side_are_in_the_order_of_their_turns(tmp_path: Path) -> None:
    rank = recorded(tmp_path, loader(num_workers=2), steps(WALL_US, N), batches(range(N), 0, depth=0))
    first = [_worker(tmp_path, fetches([1_000 * n] * 2), worker_sample(2), number=n) for n in (1, 2)]
    second = [_worker(tmp_path, fetches([1_000 * n] * n), worker_sample(n), number=n) for n in (3, 4)]
    fetch = _fetch(_loader(rank, *first, *second))
    assert fetch.each_ms == (1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0, 3.0, 4.0, 4.0)


def test_single_batches_of_the_training_process_are_kept_too(tmp_path: Path) -> None:
    rank = recorded(tmp_path, loader(), steps(WALL_US, N), batches(range(N), 0), fetches([1_000] * (N - 1) + [9_000]))
    assert _fetch(_loader(rank)).each_ms == (*[1.0] * (N - 3), 9.0)


# ---------------------------------------------------------------------------------------------------------
# Loaders of one line


def _of_epochs(tmp_path: Path, *loaders: Record) -> tuple[Loader, ...]:
    """Two epochs of 20 batches, each of a loader of its own; a batch is waited for 2 ms, made in 1.9."""
    rank = recorded(
        tmp_path,
        *(site(number, 20 + number) for number in (5, 6)),
        *loaders,
        iterator(0, loader=1),
        iterator(20, loader=2),
        steps(WALL_US, N),
        batches(range(20), 2_000, loader=1),
        batches(range(20, N), 2_000, loader=2),
        fetches([1_900] * N),
    )
    return _loaders(rank)


def test_a_loader_that_each_epoch_makes_anew_is_one_loader(tmp_path: Path) -> None:
    (found,) = _of_epochs(tmp_path, loader(1, site=5, length=640), loader(2, site=5, length=640))
    assert found.steady_batches_per_step == pytest.approx(1.0)
    assert (found.made, found.iterators, found.batches_per_iterator) == (2, 2, 20)
    assert found.wait_ms == pytest.approx(2.0)


@pytest.mark.parametrize(
    "other",
    [{"site": 6}, {"site": 5, "dataset": "Masks"}, {"site": 5, "batch_size": 64}, {"site": -1}],
    ids=["another line", "other data", "another batch size", "no line"],
)
def test_loaders_that_differ_stay_apart(tmp_path: Path, other: dict[str, Any]) -> None:
    first = loader(1, **{"site": 5, "length": 640, **({"site": -1} if other.get("site") == -1 else {})})
    found = _of_epochs(tmp_path, first, loader(2, **{"length": 640, **other}))
    assert [one.made for one in found] == [1, 1]
    assert sum(one.steady_batches_per_step for one in found) == pytest.approx(1.0)


def test_folds_of_other_lengths_are_one_loader(tmp_path: Path) -> None:
    (found,) = _of_epochs(tmp_path, loader(1, site=5, length=640), loader(2, site=5, length=641))
    assert (found.made, found.ids, found.steady_batches_per_step) == (2, (1, 2), pytest.approx(1.0))


# ---------------------------------------------------------------------------------------------------------
# Several loaders


def _of_two(tmp_path: Path, *records: Record, **settings: Any) -> tuple[Loader, ...]:
    """A step draws from a slow one and from a quick one, which one line has made of data of one class."""
    rank = recorded(
        tmp_path,
        site(5, 25),
        loader(1, site=5, length=640, **settings),
        loader(2, site=5, length=100, **settings),
        steps(WALL_US, N),
        batches([step for step in range(N) for _ in range(2)], [6_000, 2_000] * N, loader=[1, 2] * N),
        *records,
    )
    return _loaders(rank)


def test_loaders_of_one_line_that_the_loop_draws_from_by_turns_are_several(tmp_path: Path) -> None:
    assert [(one.id, one.wait_ms) for one in _of_two(tmp_path)] == [(1, pytest.approx(6.0)), (2, pytest.approx(2.0))]


def test_each_loader_has_the_times_of_its_own_batches(tmp_path: Path) -> None:
    both = fetches([5_900, 1_900] * N, collate_us=100, loader=[1, 2] * N)
    slow, quick = _of_two(tmp_path, both, sample(1, rchar=0), sample(N - 1, rchar=390 * (N - 2)))
    assert (_fetch(slow).getitem_ms, _fetch(quick).getitem_ms) == (pytest.approx(5.9), pytest.approx(1.9))
    assert _fetch(slow).batches == _fetch(quick).batches == N - 2  # the first two of each are left out
    assert set(_fetch(quick).each_ms) == {2.0}
    assert (_fetch(slow).read_bytes, _fetch(quick).read_bytes) == (pytest.approx(295), pytest.approx(95))


def test_an_older_recording_gives_every_loader_the_mean_of_all(tmp_path: Path) -> None:
    made = [_fetch(one).getitem_ms for one in _of_two(tmp_path, fetches([6_000, 2_000] * N))]
    assert made == [pytest.approx(4.0), pytest.approx(4.0)]


def test_a_loader_whose_batches_were_never_timed_gets_none_of_the_others(tmp_path: Path) -> None:
    slow, quick = _of_two(tmp_path, fetches([5_900] * N, loader=1))
    assert _fetch(slow).getitem_ms == pytest.approx(5.9)
    assert isinstance(quick.fetch, Missing)


def _with_workers(tmp_path: Path, *started: list[int]) -> tuple[Loader, ...]:
    """Two loaders with a worker each, whose batches take 20 and 3 ms; `started`: the workers that the record of either
    iterator names."""
    rank = recorded(
        tmp_path,
        loader(1, num_workers=1),
        loader(2, num_workers=1, dataset="Masks"),
        *({**iterator(0, loader=number), "workers": pids} for number, pids in enumerate(started, 1)),
        steps(WALL_US, N),
        batches([step for step in range(N) for _ in range(2)], [6_000, 2_000] * N, loader=[1, 2] * N, depth=0),
    )
    samples = [(worker_sample(0, affinity=[cpu]), worker_sample(20, delay_us=20_000 * cpu)) for cpu in (0, 1)]
    makers = [
        _worker(tmp_path, fetches([ms * 1_000] * 20, loader=-1), *samples[number], number=number)
        for number, ms in enumerate((20, 3))
    ]
    return _loaders(rank, *makers)


def test_each_loader_has_its_own_workers(tmp_path: Path) -> None:
    slow, quick = _with_workers(tmp_path, [PID + 1], [PID + 2])
    assert (_fetch(slow).getitem_ms, _fetch(quick).getitem_ms) == (pytest.approx(20.0), pytest.approx(3.0))
    assert (_fetch(slow).run_delay_ms, _fetch(quick).run_delay_ms) == (0.0, pytest.approx(1.0))
    assert len(_fetch(slow).each_ms) == 18


def test_workers_that_no_iterator_names_are_those_of_all_loaders(tmp_path: Path) -> None:
    assert [_fetch(one).getitem_ms for one in _with_workers(tmp_path)] == [pytest.approx(11.5), pytest.approx(11.5)]
    (tmp_path / "one").mkdir()
    slow, quick = _with_workers(tmp_path / "one", [PID + 1], [])
    assert (_fetch(slow).getitem_ms, _fetch(quick).getitem_ms) == (pytest.approx(20.0), pytest.approx(3.0))
