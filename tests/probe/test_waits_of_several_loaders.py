"""Jobs whose steps draw from two loaders: whose batch each one is, wherever it was made."""

from __future__ import annotations

import numpy as np
import pytest
from observing import Observed, Observer, line_of

from perfdoctor.recording.lines import LinesWindow
from perfdoctor.recording.model import Columns, ProcessRecording

pytestmark = pytest.mark.timeout(450)

SLOW_US = 2_000
"""That a batch of the slow loader takes at least."""


def _observed(observe: Observer, *arguments: str, windows: str = "lines") -> Observed:
    seen = observe("two_loaders.py", *arguments, windows=windows)
    seen.same()
    seen.healthy()
    return seen


def _loaders(rank: ProcessRecording) -> list[int]:
    """Of the slow data and of the quick."""
    names = {made.dataset: made.id for made in rank.loaders}
    return [names["Labelled"], names["Unlabelled"]]


def _is_slow(fetches: Columns) -> bool:
    return bool(np.median(fetches["getitem_us"]) >= SLOW_US)


def _workers(seen: Observed) -> dict[int, list[ProcessRecording]]:
    """By the loader that has started them."""
    whose = {pid: made.loader for made in seen.rank.iterators for pid in made.workers}
    found: dict[int, list[ProcessRecording]] = {}
    for worker in seen.workers:
        found.setdefault(whose[worker.header.pid], []).append(worker)
    return found


def test_a_batch_of_the_training_process_is_of_the_loader_that_is_waited_for(observe: Observer) -> None:
    rank = _observed(observe, "0", "0").rank
    slow, quick = _loaders(rank)
    assert set(rank.fetches["loader"].tolist()) == {slow, quick}
    assert (rank.fetches["getitem_us"][rank.fetches["loader"] == slow] >= SLOW_US).all()
    assert not _is_slow(rank.fetches.where(rank.fetches["loader"] == quick))


def test_of_two_loaders_by_turns_both_are_timed_when_few_batches_are(observe: Observer) -> None:
    rank = _observed(observe, "0", "0").rank
    later = rank.fetches["loader"][200:]
    assert 40 <= len(later) <= 45  # of 360
    assert abs(np.mean(later == _loaders(rank)[0]) - 0.5) < 0.05


def test_lines_that_make_a_batch_are_charged_to_its_loader(observe: Observer) -> None:
    rank = _observed(observe, "0", "0").rank
    assert isinstance(rank.code_lines, LinesWindow)
    made = {line_of(line.site).rpartition("# ")[2]: line for line in rank.code_lines.lines if line.called}
    slow, quick = _loaders(rank)
    assert made["slow"].loaders == ((slow, 1.0),)
    assert made["quick"].loaders == ((quick, 1.0),)
    assert all(line.loaders == () for line in rank.code_lines.lines if line.part != "input_wait")


@pytest.mark.parametrize(
    "method",
    ["fork", pytest.param("spawn", marks=pytest.mark.slow), pytest.param("forkserver", marks=pytest.mark.slow)],
)
def test_workers_are_those_of_the_loader_that_has_started_them(observe: Observer, method: str) -> None:
    seen = _observed(observe, "1", "1", method)
    slow, quick = _loaders(seen.rank)
    found = _workers(seen)
    (of_slow,), (of_quick,) = found[slow], found[quick]
    assert _is_slow(of_slow.fetches) and not _is_slow(of_quick.fetches)
    assert set(of_slow.fetches["loader"].tolist()) == {-1}  # its iterator says it


def test_one_loader_may_have_a_worker_and_the_other_none(observe: Observer) -> None:
    seen = _observed(observe, "1", "0")
    slow, quick = _loaders(seen.rank)
    ((worker,),) = _workers(seen).values()
    assert _is_slow(worker.fetches) and not _is_slow(seen.rank.fetches)
    assert list(_workers(seen)) == [slow]
    assert set(seen.rank.fetches["loader"].tolist()) == {quick}
