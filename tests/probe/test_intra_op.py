"""Operators that are timed with other numbers of threads, while the job runs."""

from __future__ import annotations

import pytest
import torch

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import intra_op


def test_the_numbers_that_are_tried_are_not_noted_as_the_jobs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", noted.append)
    timed = intra_op.ThreadMicrobenchmark([], [])
    seen: list[int] = []
    timed.counts, timed.left = [1, 3], intra_op._ROUNDS
    timed.calls = [(lambda: seen.append(torch.get_num_threads()), 1.0)]
    assert timed.round() is None
    found = timed.round()
    assert found is not None and [one["threads"] for one in found["timings"]] == [1, 3]
    assert seen == [1, 1, 3, 3] * 2 and torch.get_num_threads() == timed.threads and not noted
