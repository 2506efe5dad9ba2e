"""Workers that keep their share of the samples after they have made all of them."""

from __future__ import annotations

import importlib
import itertools
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from observing import JOBS, line_of

from perfdoctor.injected._perfdoctor_probe.windows import late_sharding, share_lines

JOB = str(JOBS / "sharded_late.py")
LINES = (JOBS / "sharded_late.py").read_text().splitlines()
SLICED = "yield from itertools.islice(map(made, self.records()), self.worker, None, self.workers)"
TAKEN = "for values, label in itertools.islice(self.samples(), self.worker, None, self.workers):"
LATE = {
    "sliced": SLICED,
    "taken": TAKEN,
    "numbered": "if number % (info.num_workers if info is not None else 1) == (info.id if info is not None else 0):",
    "skipped": "if number % self.workers != self.worker:",
    "expressed": "return (one for number, one in enumerate(map(made, self.records())) if number % shards == mine)",
}
"""Forms of the job that keep a share after the work, and where."""


class Sites:
    """The job's file is the user's, and nothing else."""

    def is_library(self, filename: str) -> bool:
        return filename != JOB

    def at(self, code, line: int) -> str:
        return LINES[line - 1].strip()


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of a worker that makes the job's samples, in this process, half a millisecond each; each look at the clock is a
    microsecond later."""
    monkeypatch.syspath_prepend(JOBS)
    job = importlib.import_module("sharded_late")
    now = [0]

    def passes(ns: int) -> int:
        now[0] += ns
        return now[0]

    monkeypatch.setattr(late_sharding, "_clock", lambda: passes(1_000))
    monkeypatch.setattr(job, "spent", lambda values: (passes(500_000), values * 2)[1])

    def seen(form: str, worker: int = 1, workers: int = 2, looks: int = 1) -> tuple[list[dict[str, Any]], list[int]]:
        """The rows of one batch of four samples, and the labels of those; of so many the last."""
        info = SimpleNamespace(id=worker, num_workers=workers)
        for module in (job, late_sharding, share_lines):
            monkeypatch.setattr(module, "get_worker_info", lambda: info)
        samples = iter(job.Stream(form))
        warm = list(itertools.islice(samples, 4))
        look = late_sharding.LateSharding(Sites())
        before = sys.gettrace()
        sys.settrace(None)
        for _ in range(looks):
            look.begin()
            batch = list(itertools.islice(samples, 4))
        record = look.end()
        assert sys.gettrace() is None
        sys.settrace(before)
        assert record["kind"] == "late_sharding" and len(warm) == 4
        return record["rows"], [label for _, label in batch]

    return seen


@pytest.mark.parametrize("form", LATE)
@pytest.mark.parametrize("worker", [0, 1])
def test_what_is_made_before_a_share_is_kept_is_seen(rows: Any, form: str, worker: int) -> None:
    ((row,), labels) = rows(form, worker)
    assert (row["site"], row["samples"], row["share_number"], row["shards"]) == (LATE[form], 4, worker, 2)
    assert row["share"] > 0.5
    assert labels == [worker] * 4


def test_of_three_workers_each_throws_two_of_three_away(rows: Any) -> None:
    ((row,), _) = rows("sliced", worker=2, workers=3)
    assert (row["share_number"], row["shards"]) == (2, 3)


def test_a_share_that_is_kept_of_records_takes_none_of_the_making(rows: Any) -> None:
    assert rows("in_order")[0] == rows("expressed_first")[0] == []
    for form in ("skipped_first", "cropped"):
        assert all(row["share"] < 0.5 for row in rows(form)[0])


@pytest.mark.parametrize("form", ["buffered", "summed", "averaged", "rejected"])
def test_what_the_samples_need_or_what_decides_is_not_thrown_away(rows: Any, form: str) -> None:
    for worker in (0, 1):
        assert rows(form, worker)[0] == []


def test_every_second_sample_is_the_share_of_one_worker_at_most(rows: Any) -> None:
    assert [len(rows("thinned", worker)[0]) for worker in (0, 1)] == [1, 0]


def test_a_batch_that_was_not_finished_is_forgotten(rows: Any) -> None:
    ((row,), _) = rows("sliced", looks=2)
    assert row["samples"] == 4 and row["share"] <= 1


@pytest.mark.parametrize(
    ("mine", "shards", "is_own"),
    [(1, 2, True), (0, 2, False), (5, 8, True), (6, 8, True), (2, 8, False), (1, 3, False), (1.0, 2, False)],
)
def test_shares_may_be_those_of_ranks_too(
    monkeypatch: pytest.MonkeyPatch, mine: float, shards: int, is_own: bool
) -> None:
    """Of the second of two workers: ranks come first (1, 3, 5, 7) or workers do (4 to 7)."""
    monkeypatch.setattr(late_sharding, "get_worker_info", lambda: SimpleNamespace(id=1, num_workers=2))
    assert late_sharding.LateSharding(Sites())._is_own(4, mine, shards) is is_own


def test_one_worker_makes_nobody_elses(rows: Any) -> None:
    assert rows("sliced", worker=0, workers=1)[0] == []


@pytest.mark.timeout(450)
@pytest.mark.parametrize(("form", "workers", "line"), [("sliced", 2, SLICED), ("in_order", 2, ""), ("sliced", 1, "")])
def test_a_real_job_does_not_notice(observe: Any, form: str, workers: int, line: str) -> None:
    job = observe("sharded_late.py", form, str(workers), windows="lines")
    job.same()
    job.healthy()
    assert "None" in job.bare.stdout, job.bare.stderr
    assert len(job.workers) == workers
    for worker in job.workers:
        found = worker.late_sharding.rows
        assert [line_of(row.site) for row in found] == [line] * bool(line)
    numbers = {row.share_number for worker in job.workers for row in worker.late_sharding.rows}
    assert numbers == ({0, 1} if line else set())
