"""The wait for data as it would be with a CPU for every batch."""

from __future__ import annotations

import pytest
from ill_runs.etl import fetch, waiting, waiting_for_each
from samples import healthy, with_

from perfdoctor.evidence.causes import with_cpus
from perfdoctor.evidence.model import Evidence, Fetch, Missing, Step

DELAYED = fetch((20.0, 8.0), (4.0, 2.0), run_delay_ms=7.0)
"""Off the CPU 12 ms in the data set and 2 in `collate_fn`, half of each for want of one."""


def quiet(evidence: Evidence) -> tuple[Step, Fetch]:
    found = with_cpus(evidence)
    assert not isinstance(found.step, Missing) and not isinstance(found.loaders, Missing)
    made = found.loaders[0].fetch
    assert not isinstance(made, Missing)
    return found.step, made


def test_run_delay_goes_off_both_halves_of_a_batch() -> None:
    _, made = quiet(waiting(19.0, DELAYED))
    assert (made.getitem_ms, made.collate_ms) == (pytest.approx(14.0), pytest.approx(3.0))
    assert (made.run_delay_ms, made.getitem_blocked_ms) == (0.0, pytest.approx(6.0))


@pytest.mark.parametrize(
    ("workers", "wait", "left"),
    [
        (0, 24.0, 17.0),  # as much shorter as the batch
        (1, 19.0, 12.0),  # 17 ms beside 5
        (2, 7.0, 3.5),  # 8.5 ms beside 5
        (4, 1.0, 0.0),  # 4.25 ms beside 5
    ],
)
def test_the_wait_is_shorter_by_what_the_workers_share_of_it(workers: int, wait: float, left: float) -> None:
    step, _ = quiet(waiting(wait, DELAYED, num_workers=workers))
    assert step.parts.input_wait == pytest.approx(left)
    assert step.step_ms == pytest.approx(5.0 + left)


@pytest.mark.parametrize("changes", [{"step": Missing("few")}, {"loaders": Missing("none")}, {"loaders": ()}])
def test_without_a_wait_to_divide_nothing_changes(changes: dict[str, object]) -> None:
    evidence = with_(healthy(), **changes)
    assert with_cpus(evidence) == evidence


def test_batches_that_were_not_timed_stay_as_they_are() -> None:
    evidence = waiting(19.0, Missing("not timed"))
    assert with_cpus(evidence) == evidence


def test_collections_in_workers_have_the_delay_that_is_left() -> None:
    _, made = quiet(waiting(40.0, with_(DELAYED, run_delay_ms=20.0, gc_ms=30.0)))
    assert made.gc_ms == pytest.approx(30.0 - (20.0 - 14.0))
    assert made.total_ms == pytest.approx(8.0 + 2.0 + 24.0)


def test_of_several_loaders_only_the_one_asked_about_is_quiet() -> None:
    both = waiting_for_each(waiting(24.0, DELAYED, num_workers=0), waiting(48.0, DELAYED, num_workers=1), train_ms=5.0)
    found = with_cpus(both, 1)
    assert not isinstance(found.step, Missing) and not isinstance(found.loaders, Missing)
    first, second = found.loaders
    assert not isinstance(first.fetch, Missing) and not isinstance(second.fetch, Missing)
    assert (first.fetch.run_delay_ms, second.fetch.run_delay_ms) == (7.0, 0.0)
    assert (first.wait_ms, second.wait_ms) == (pytest.approx(48.0), pytest.approx(17.0))
    assert found.step.parts.input_wait == pytest.approx(48.0 + 17.0)
