from __future__ import annotations

from typing import Any

import pytest
from etl_outcomes import examined, found, name_of
from ill_runs.etl import (
    UNEVEN_MS,
    fetch,
    restarted_workers,
    uneven_batches,
    waiting,
)
from ills import ILL
from samples import is_clear, number, step, with_

from perfdoctor.diagnosis.findings import Location, Part, Severity
from perfdoctor.evidence.model import Parts, Site

# ---------------------------------------------------------------------------------------------------------
# Transport


@pytest.mark.parametrize(("empty", "name"), [(0.31, "transform"), (0.29, "transport")])
def test_batches_that_were_ready_are_slow_to_hand_over_not_to_make(empty: float, name: str) -> None:
    assert name_of(waiting(40.0, fetch((20.0, 20.0)), empty_share=empty, transport_ms=38.0)) == name


def test_needless_workers_save_the_wait_less_the_making() -> None:
    finding = found(ILL["PD03.needless-workers"])
    assert finding.id == "PD03.needless-workers"
    assert "num_workers=0" in finding.fix.code
    # Collating takes 0.5 ms in a worker, and as little as 30 % of it where no memory has to be shared.
    assert finding.savings.low_ms == pytest.approx(2.0 - 0.51)
    assert finding.savings.high_ms == pytest.approx(2.0 - 0.01 - 0.15)


def test_what_any_hand_over_takes_is_no_finding() -> None:
    made = fetch((20.0, 20.0))
    assert is_clear(examined(waiting(1.9, made, empty_share=0.0, num_workers=8, cpus=16)))
    assert name_of(waiting(2.1, made, empty_share=0.0, num_workers=8, cpus=16)) == "transport"


def test_a_large_batch_promises_little() -> None:
    """64 MiB are 6 to 32 ms of touching shared memory, which no other `collate_fn` avoids."""
    made = fetch((40.0, 40.0), batch_bytes=64.0 * 2**20)
    saved = found(waiting(20.0, made, empty_share=0.0, num_workers=8, cpus=16)).savings
    assert saved.low_ms == 0.0
    assert saved.high_ms == pytest.approx(20.0 - 6.7)


@pytest.mark.parametrize(("size", "severity"), [(999.0, Severity.NOTE), (1_000.0, Severity.ERROR)])
def test_two_tensors_are_not_advised_to_become_one(size: float, severity: Severity) -> None:
    finding = found(with_(ILL["PD03.transport"], loader__transport_bytes=size))
    assert (finding.id, finding.severity) == ("PD03.transport", severity)
    assert ("stack" in finding.fix.code) == (severity is Severity.ERROR)
    assert finding.savings.high_ms == pytest.approx(40.0 - 0.3, rel=0.01)


def test_workers_slower_than_the_loop_are_no_matter_of_transport() -> None:
    made = fetch((20.0, 20.0))
    assert name_of(waiting(15.5, made, empty_share=0.0, cpus=8)) == "too-few-workers"
    assert name_of(waiting(15.5, made, empty_share=0.0, cpus=2)) == "transform"


# ---------------------------------------------------------------------------------------------------------
# Iterators and epochs


def test_an_iterator_for_each_batch_is_named_before_all_other_causes() -> None:
    finding = found(ILL["PD03.iterator-rebuilt"])
    assert finding.id == "PD03.iterator-rebuilt"
    assert finding.severity is Severity.ERROR
    assert finding.location == Location("train.py", 41, "main")  # where it is built, not where the loader is
    made = fetch().total_ms
    saved = 57.0 - made  # the batch itself must still be made
    assert finding.savings.low_ms == pytest.approx(0.9 * saved)
    assert finding.savings.high_ms == pytest.approx(saved + 0.5 * (62.0 - saved))
    shorter = with_(ILL["PD03.iterator-rebuilt"], loader__iterator_start_ms=7.0 + made)
    assert found(shorter).savings.high_ms == pytest.approx(1.9 * 7.0)  # freeing it comes on top, outside the wait
    with_workers = waiting(90.0, fetch(), iterators=200, iterator_start_ms=90.0, batches_per_iterator=1.0)
    assert name_of(with_(with_workers, loader__persistent_workers=False)) == "iterator-rebuilt"
    freed = found(with_(with_workers, loader__iterator_start_ms=50.0, loader__iterator_end_ms=30.0))
    assert freed.savings.high_ms == pytest.approx(80.0 - 0.3)  # the handing over stays


@pytest.mark.parametrize(("iterators", "batches"), [(200, 1.6), (2, 1.0)])
def test_short_epochs_are_not_rebuilt_iterators(iterators: int, batches: float) -> None:
    evidence = with_(ILL["PD03.iterator-rebuilt"], loader__iterators=iterators, loader__batches_per_iterator=batches)
    assert "iterator-rebuilt" not in name_of(evidence)


def test_restarted_workers_cost_beside_the_steady_step() -> None:
    finding = found(ILL["PD03.workers-restarted"])
    assert finding.id == "PD03.workers-restarted"
    assert finding.savings.part is Part.EPOCH
    assert finding.savings.ceiling_ms == pytest.approx((100.0 - 0.3) / 10)
    ending = found(with_(restarted_workers(irregular_ms=14.0), loader__iterator_end_ms=40.0))
    assert ending.savings.ceiling_ms == pytest.approx((140.0 - 0.3) / 10)
    assert "persistent_workers=True" in finding.fix.code


def test_workers_that_start_slow_down_the_step_beside_them() -> None:
    """They take its CPUs, and a fork makes it copy what it writes to: 240 ms, 180 of them in training alone."""
    slowed = with_(restarted_workers(irregular_ms=24.0), loader__first_step_ms=(180.0, 240.0))
    finding = found(slowed)
    assert finding.savings.low_ms == pytest.approx(0.7 * 18.0)
    assert finding.savings.high_ms == pytest.approx(0.98 * 24.0)
    assert "take CPUs from the step" in finding.reasoning
    assert "take CPUs" not in found(ILL["PD03.workers-restarted"]).reasoning
    # Never more than irregular steps add.
    assert found(with_(slowed, step__irregular_ms=20.0)).savings.ceiling_ms == pytest.approx(20.0)


def test_restarted_workers_of_short_epochs_are_in_the_wait_and_billed_there() -> None:
    """With three batches an epoch every third step starts one: that is how this loop steps."""
    slow_start = restarted_workers(start_ms=60.0, epoch=3.0, irregular_ms=0.0)
    evidence = with_(slow_start, step=step(Parts(input_wait=20.0, forward=8.0, backward=14.0, optimizer=2.0)))
    finding = found(evidence)  # and no second finding for the same wait
    assert finding.id == "PD03.workers-restarted"
    assert finding.savings.part is Part.INPUT_WAIT
    assert finding.savings.ceiling_ms == pytest.approx((60.0 - 0.3) / 3)


@pytest.mark.parametrize(
    "changes",
    [
        {"loader__persistent_workers": True},
        {"loader__num_workers": 0},
        {"loader__iterators": 1},
        {"loader__batches_per_iterator": 100.0},  # 1 ms a step
    ],
)
def test_workers_that_stay_or_start_rarely_are_fine(changes: dict[str, Any]) -> None:
    assert is_clear(examined(with_(ILL["PD03.workers-restarted"], **changes)))


@pytest.mark.parametrize(("epoch", "count"), [(78.0, 1), (82.0, 0)])
def test_restarts_count_from_five_per_cent_on(epoch: float, count: int) -> None:
    assert len(examined(restarted_workers(start_ms=100.3, epoch=epoch)).findings) == count


def test_workers_that_are_kept_by_a_loader_that_is_not_are_started_anew() -> None:
    kept = with_(ILL["PD03.workers-restarted"], loader__persistent_workers=True)
    assert is_clear(examined(kept))
    finding = found(with_(kept, loader__made=3))
    assert finding.id == "PD03.workers-restarted"
    assert "Make the loader once" in finding.fix.text


def test_they_are_told_where_one_would_say_that_they_stay() -> None:
    passed = Site("train.py", 105, "build_loaders")
    finding = found(with_(ILL["PD03.workers-restarted"], loader__workers_passed_at=passed))
    assert finding.location is not None and finding.location.line == 105
    said = {"loader__workers_passed_at": passed, "loader__persistent_at": with_(passed, line=9)}
    other = found(with_(ILL["PD03.workers-restarted"], **said)).location
    assert other is not None and other.line == 9


# ---------------------------------------------------------------------------------------------------------
# A slow batch now and then


def test_workers_that_keep_up_but_for_a_slow_batch_are_to_work_further_ahead() -> None:
    finding = found(uneven_batches())
    assert finding.id == "PD03.uneven-batches"
    factor = int(number(finding, "prefetch"))
    assert factor > 2 and finding.fix.remedies == (f"etl.prefetch={factor}",)
    assert f"prefetch_factor={factor}" in finding.fix.code
    assert (number(finding, "slow_ms"), number(finding, "typical_ms")) == (60.0, 4.0)
    part = 1 - number(finding, "ahead_ms") / number(finding, "now_ms")
    assert finding.savings.high_ms == pytest.approx(part * 2.5)
    assert finding.savings.low_ms == pytest.approx(0.5 * part * 2.5)


@pytest.mark.parametrize(
    "changes",
    [
        {"each_ms": tuple(4.0 for _ in UNEVEN_MS)},  # all alike
        {"each_ms": ()},  # an older recording
        {"wait_ms": 20.0},  # slow batches explain a small part of this
        {"prefetch_factor": 32},
        {"num_workers": 1},  # one worker cannot keep up
    ],
)
def test_other_waits_are_not_put_down_to_slow_batches(changes: dict[str, Any]) -> None:
    assert "uneven-batches" not in name_of(uneven_batches(**changes))


def test_a_trainer_has_its_own_word_for_the_prefetch_factor() -> None:
    finding = found(with_(uneven_batches(), job__trainer="transformers"))
    assert "dataloader_prefetch_factor=" in finding.fix.code
