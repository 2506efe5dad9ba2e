"""What timing a fetch leaves behind."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from perfdoctor.injected._perfdoctor_probe.guard import Guard
from perfdoctor.injected._perfdoctor_probe.loading import Loading


def fetched(batches: int) -> tuple[Loading, list[bool]]:
    """`batches` fetches in the training process; for each, whether the collate function was the job's own in it."""
    loading = Loading(SimpleNamespace(line=lambda text: None), str, None, None, Guard(lambda hook, error: None))
    fetcher = SimpleNamespace(collate_fn=len)
    bare = []
    for _ in range(batches):
        timed = loading.untimed == 0
        if timed:
            loading.fetch_began(fetcher)
        else:
            loading.untimed -= 1
        bare.append(fetcher.collate_fn is len)
        assert fetcher.collate_fn([1, 2]) == 2
        if timed:
            loading.fetch_ended(fetcher)
    return loading, bare


@pytest.mark.parametrize(("batches", "timed"), [(199, 199), (200, 200), (207, 200), (208, 201), (360, 220)])
def test_after_two_hundred_fetches_one_in_eight_is_timed(batches, timed):
    loading, _ = fetched(batches)
    assert len(loading.fetches) == timed


def test_an_untimed_fetch_runs_the_job_s_own_collate_function(batches=240):
    _, bare = fetched(batches)
    assert bare == [number > 200 and number % 8 != 0 for number in range(1, batches + 1)]
