"""Batches with work that is needless: functions that return the same, samples that are made again or for nobody."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from etl_outcomes import examined, found
from ill_runs.etl import (
    BANK,
    BANK_LINE,
    SHARDED,
    SHARE_LINE,
    crowding_workers,
    fetch,
    lost_by_workers,
    made_again,
    made_each_epoch,
    part_made_again,
    same_result,
    sharded_late,
    waiting,
)
from ills import ILL
from perfdoctor.checks.etl import CHECK
from samples import LOADER_LINE, healthy, ids, is_clear, number, with_

from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.examine import Rules
from perfdoctor.diagnosis.examine import examine as judge
from perfdoctor.diagnosis.findings import Location, Part, Severity
from perfdoctor.evidence.model import CodeLine, Drawn, Missing, RunEvidence, SamplesAsked, Site, StepGrowth
from perfdoctor.report import wording

# ---------------------------------------------------------------------------------------------------------
# Functions that return the same


def test_a_function_is_told_with_what_it_takes_of_a_batch_at_the_line_that_calls_it() -> None:
    finding = found(ILL["PD03.same-result"])
    assert (finding.id, finding.severity) == ("PD03.same-result", Severity.ERROR)
    assert wording.fill(finding.message, finding.evidence) == (
        "`mel_bank()` returns the same for every sample: 23.0 ms per batch"
    )
    assert finding.location == Location(BANK_LINE.file, BANK_LINE.line, BANK_LINE.function)
    assert "lru_cache" in finding.fix.text and "mel_bank(...)" in finding.fix.code


def test_it_saves_its_share_of_the_wait_at_least_and_what_its_making_takes_at_most() -> None:
    saved = found(same_result(ms_per_step=12.85)).savings
    assert saved.low_ms == pytest.approx(0.85 * 0.5 * 20.7)
    assert saved.high_ms == pytest.approx(0.5 * 25.7)
    assert saved.part is Part.INPUT_WAIT
    assert found(same_result()).savings.high_ms == pytest.approx(20.7)  # no more than the wait


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"calls_per_step": 1.0}, "returns the same in every batch"),
        ({"calls_per_step": 4.0}, "returns the same 4 times per batch"),
        ({"calls_per_step": 32.0, "arguments": 10}, "returns again what it has returned before"),
    ],
)
def test_how_often_it_does_is_said(changes: dict[str, Any], text: str) -> None:
    finding = found(same_result(**changes))
    assert text in wording.fill(finding.message, finding.evidence)


@pytest.mark.parametrize(("ms", "count"), [(1.0, 0), (2.3, 1)])
def test_it_counts_from_a_twentieth_of_the_step_on(ms: float, count: int) -> None:
    assert ids(examined(same_result(ms_per_step=ms))).count("PD03.same-result") == count


def test_the_transform_gives_way_and_two_functions_are_two_findings() -> None:
    other = with_(BANK, function="window", at=with_(BANK_LINE, line=31), ms_per_step=10.0)
    assert ids(examined(same_result(other, ms_per_step=12.85))) == ["PD03.same-result"] * 2


def test_more_workers_are_billed_for_what_it_leaves() -> None:
    evidence = same_result(ms_per_step=12.85, loader={"cpus": 8})
    same, workers = examined(evidence).findings
    assert (same.id, workers.id) == ("PD03.same-result", "PD03.too-few-workers")
    assert workers.savings.general and not same.savings.general


def test_together_they_are_billed_no_more_than_there_is_to_save() -> None:
    evidence = same_result(ms_per_step=12.85, loader={"cpus": 8})
    rules = Rules(Config(), date(2030, 6, 15), lambda _: None)
    (judged,) = judge(RunEvidence((evidence,)), [(CHECK, CHECK.limits)], rules).checks
    claimed = {finding.id: finding.savings.claimed for finding in judged.outcome.findings}
    # Workers act on the 7.85 ms of the wait that the function leaves.
    assert claimed == {"PD03.same-result": 0.0, "PD03.too-few-workers": pytest.approx(12.85 / 20.7)}


def test_where_making_is_not_what_is_waited_for_it_costs_nothing() -> None:
    made = fetch((1.3, 1.3), (0.0, 0.0), same=(BANK,))
    delivered = waiting(41.7, made, empty_share=0.0, transport_ms=1.8, transport_bytes=12.6e6)
    assert ids(examined(delivered)) == ["PD03.needless-workers"]
    keeps_up = with_(healthy(), loader__fetch__same=(BANK,))
    assert is_clear(examined(keeps_up))


def test_workers_that_take_cpus_from_training_have_them_back_for_it() -> None:
    evidence = crowding_workers()
    same, crowded = examined(with_(evidence, loader__fetch__same=(with_(BANK, ms_per_step=22.8),))).findings
    assert (same.id, crowded.id) == ("PD03.same-result", "PD03.crowded-training")
    assert same.savings.low_ms >= 0.85 * 0.5 * 20.0
    assert crowded.savings.general


def test_without_a_cpu_it_is_told_for_a_quiet_machine() -> None:
    made = fetch((25.0, 14.6), (0.7, 0.7), run_delay_ms=10.4, same=(BANK,))
    lack, same = examined(waiting(20.0, made)).findings
    assert (lack.id, same.id) == ("PD03.no-cpu-left", "PD03.same-result")
    assert same.savings.share == pytest.approx(same.savings.ceiling_ms / 25.0)


# ---------------------------------------------------------------------------------------------------------
# Samples that are made again


def test_samples_that_are_the_same_each_time_are_told_at_their_loader() -> None:
    finding = found(ILL["PD03.samples-made-again"])
    assert (finding.id, finding.severity) == ("PD03.samples-made-again", Severity.ERROR)
    assert finding.location == Location(LOADER_LINE.file, LOADER_LINE.line, LOADER_LINE.function)
    assert number(finding, "all_bytes") == 5_000 * 40_500
    part = 20.7 * 25.0 / 25.7
    assert (finding.savings.low_ms, finding.savings.high_ms) == pytest.approx((0.75 * part, part))


def test_of_samples_that_differ_the_part_before_anything_random_is_told() -> None:
    finding = found(ILL["PD03.part-made-again"])
    assert (finding.id, finding.severity) == ("PD03.part-made-again", Severity.ERROR)
    assert finding.location == Location("data.py", 21, "__getitem__")
    assert number(finding, "all_bytes") == 5_000 * 40_500
    assert next(one.value for one in finding.evidence if one.name == "drawn_at") == "data.py:23 in __getitem__"
    part = 0.8 * 20.7 * 25.0 / 25.7
    assert (finding.savings.low_ms, finding.savings.high_ms) == pytest.approx((0.75 * part, part))


@pytest.mark.parametrize(
    "changes", [{"share": 0.02}, {"bytes": 10**8}, {"length": None}], ids=["little", "large", "stream"]
)
def test_a_part_that_is_little_or_does_not_fit_is_left_to_each_epoch(changes: dict[str, Any]) -> None:
    assert "PD03.part-made-again" not in ids(examined(part_made_again(**changes)))


def test_of_slow_samples_the_hottest_line_is_told() -> None:
    line = CodeLine(Site("data.py", 9, "__getitem__"), "input_wait", True, 15.0, 0.6)
    made = fetch((25.0, 25.0), (0.7, 0.7), lines=(line,))
    finding = next(one for one in examined(made_again(made)).findings if one.id == "PD03.samples-made-again")
    assert finding.location == Location("data.py", 9, "__getitem__")


def test_storage_gives_way_too() -> None:
    read = made_again(fetch((60.0, 1.0)), num_workers=16)
    assert ids(examined(with_(read, step__step_ms=25.7))) == ["PD03.samples-made-again"]


@pytest.mark.parametrize(
    ("cpus", "order"),
    [
        (8, ["PD03.too-few-workers", "PD03.samples-made-again"]),
        (2, ["PD03.samples-made-again", "PD03.too-few-workers"]),
    ],
)
def test_workers_that_save_as_much_come_before_samples_that_are_kept(cpus: int, order: list[str]) -> None:
    evidence = made_again(num_workers=0, wait_ms=25.7, train_ms=18.0, cpus=cpus)
    first, other = examined(evidence).findings
    assert [first.id, other.id] == order
    assert other.savings.general and not first.savings.general


def test_what_a_data_set_keeps_in_workers_that_end_is_lost() -> None:
    finding = found(lost_by_workers(0.95))
    assert finding.id == "PD03.lost-by-workers" and "persistent_workers=True" in (finding.fix.code or "")
    again = found(made_again())
    assert finding.savings.high_ms == pytest.approx(0.95 * again.savings.high_ms)
    assert finding.location == Location(LOADER_LINE.file, LOADER_LINE.line, LOADER_LINE.function)


@pytest.mark.parametrize("changes", [{"persistent_workers": True}, {"num_workers": 0}, {"kept": 0.8}])
def test_workers_that_stay_or_keep_nothing_lose_nothing(changes: dict[str, Any]) -> None:
    assert "PD03.lost-by-workers" not in ids(examined(lost_by_workers(**changes)))


EPOCH = StepGrowth(Missing("steps have no trend"), planned_steps=100)


@pytest.mark.parametrize(
    "changes",
    [
        {"loader__again": SamplesAsked(0, False, 40_000)},
        {"loader__again": SamplesAsked(0, Missing("it is told which epoch it is"))},
        {"loader__length": None},
        {"loader__length": 5_000_000},
        {"host": Missing("no samples")},
        {"growth": EPOCH},
    ],
    ids=["random", "not known", "no length", "too many", "memory not known", "one epoch"],
)
def test_samples_that_differ_or_do_not_fit_or_come_once_are_a_slow_transform(changes: dict[str, Any]) -> None:
    finding = found(with_(made_again(), **changes))
    assert (finding.id, finding.severity) == ("PD03.transform", Severity.NOTE)


@pytest.mark.parametrize(("steps", "count"), [(156, 0), (157, 1)])
def test_a_second_epoch_makes_them_again(steps: int, count: int) -> None:
    """156 batches of 32 are 4,992 samples of 5,000."""
    evidence = with_(made_again(), growth=with_(EPOCH, planned_steps=steps))
    assert ids(examined(evidence)).count("PD03.samples-made-again") == count


PICKED = Drawn(calls=72, calls_per_step=24.0, arguments=66, apart=0.3, ms_per_step=23.0)
"""Of 72 calls six were made with arguments that had come before: there may be 432, and are at most 823."""


@pytest.mark.parametrize(
    ("changes", "steps", "least", "most"),
    [
        ({}, 250, 1 - 823 / 6000, 1 - 432 / 6000),
        ({}, 20, 4 / 23, 4 / 23),
        ({"apart": 0.05}, 250, 4 / 23, 4 / 23),
        ({"arguments": 70}, 250, 4 / 23, 4 / 23),
    ],
    ids=["drawn by chance", "a short job", "neighbours share them", "too few"],
)
def test_what_is_drawn_from_a_few_comes_again_in_the_long_run(
    changes: dict[str, Any], steps: int, least: float, most: float
) -> None:
    """Of the 23 ms of all calls four were seen in calls that came again."""
    evidence = same_result(loader={"num_workers": 0}, arguments=5, ms_per_step=4.0, drawn=with_(PICKED, **changes))
    evidence = with_(evidence, growth=with_(EPOCH, planned_steps=steps), step__count=20 if steps < 100 else 150)
    (finding,) = (one for one in examined(evidence).findings if one.id == "PD03.same-result")
    assert number(finding, "function_ms") == pytest.approx(23.0 * (least + most) / 2, rel=0.01)
    assert finding.savings.low_ms == pytest.approx(0.85 * least * 23.0 / 25.7 * 20.7, rel=0.01)
    drawn = changes == {}
    assert ("one of about" in finding.reasoning) == drawn


def test_cheap_samples_are_no_waste() -> None:
    """0.05 ms each: a list of them would take as long."""
    made, again = fetch((1.6, 1.6), (0.1, 0.1)), SamplesAsked(0, True, 40_000)
    cheap = waiting(1.7, made, num_workers=0, again=again, length=5_000)
    assert ids(examined(cheap)) == ["PD03.per-sample-indexing"]


def test_a_function_inside_is_told_first_and_the_samples_for_what_it_leaves() -> None:
    made = fetch((25.0, 25.0), (0.7, 0.7), same=(with_(BANK, ms_per_step=12.85),))
    same, again = examined(made_again(made)).findings
    assert (same.id, again.id) == ("PD03.same-result", "PD03.samples-made-again")
    assert again.savings.high_ms == pytest.approx(0.5 * 20.7 * 25.0 / 25.7)
    assert same.savings.low_ms + again.savings.high_ms <= 20.7


def test_samples_are_told_where_the_data_set_makes_them_and_not_in_a_helper() -> None:
    own, helper = Site("data.py", 31, "__getitem__"), Site("features.py", 8, "mel")
    made = fetch((25.0, 25.0), (0.7, 0.7), lines=(CodeLine(helper, "input_wait", True, 20.0, 0.8),))
    (deep,) = examined(made_again(made)).findings
    asked = SamplesAsked(0, True, 40_000, at=own)
    (finding,) = examined(waiting(20.7, made, num_workers=0, again=asked, length=5_000)).findings
    assert finding.id == deep.id == "PD03.samples-made-again"
    assert (deep.location, finding.location) == (
        Location("features.py", 8, "mel"),
        Location("data.py", 31, own.function),
    )


def test_samples_that_came_twice_are_no_function_of_their_own() -> None:
    made = fetch((25.0, 25.0), (0.7, 0.7), same=(with_(BANK, function="Clips.__getitem__"),))
    assert ids(examined(made_again(made))) == ["PD03.samples-made-again"]
    assert ids(examined(waiting(20.7, made))) == ["PD03.same-result"]


def test_an_archive_that_reads_an_array_again_is_no_sample_that_came_twice() -> None:
    read = with_(BANK, function="NpzFile.__getitem__", reads=True, ms_per_step=12.85)
    made = fetch((25.0, 25.0), (0.7, 0.7), same=(read,))
    assert ids(examined(made_again(made))) == ["PD03.same-result", "PD03.samples-made-again"]


@pytest.mark.parametrize(
    ("function", "code"),
    [
        ("NpzFile.__getitem__", "arrays = dict(numpy.load(path))  # reads all of them, once"),
        ("torch.load", "kept = torch.load(...)  # once, before the first batch"),
    ],
)
def test_a_file_that_is_read_again_is_to_be_read_once(function: str, code: str) -> None:
    finding = found(same_result(function=function, reads=True))
    assert finding.fix.code == code and "Read it once" in finding.fix.text


# ---------------------------------------------------------------------------------------------------------
# Samples that are thrown away


def test_samples_of_other_workers_are_told_where_the_share_is_kept() -> None:
    finding = found(ILL["PD03.discarded-samples"])
    assert (finding.id, finding.severity) == ("PD03.discarded-samples", Severity.ERROR)
    assert wording.fill(finding.message, finding.evidence) == (
        "each of the 2 workers makes all samples and keeps one in 2; the others take 24.0 ms per batch"
    )
    assert "48 % of it" in wording.fill(finding.reasoning, finding.evidence)
    assert finding.location == Location(SHARE_LINE.file, SHARE_LINE.line, SHARE_LINE.function)
    assert "islice(self.records()" in finding.fix.code


def test_they_save_their_share_of_the_wait_at_least_and_what_making_them_takes_at_most() -> None:
    saved = found(sharded_late()).savings
    assert saved.low_ms == pytest.approx(0.7 * 0.48 * 20.0)
    assert saved.high_ms == pytest.approx(0.48 * 50.0 / 2)
    assert saved.part is Part.INPUT_WAIT
    ranks_too = found(sharded_late(shards=8)).savings
    assert ranks_too.high_ms == pytest.approx(20.0)  # no more than the wait


def test_what_is_slow_because_of_them_is_no_cause_of_its_own() -> None:
    assert ids(examined(sharded_late(loader={"cpus": 8}))) == ["PD03.discarded-samples"]
    starved = fetch((25.0, 14.6), (0.7, 0.7), run_delay_ms=10.4, sharded=SHARDED)
    assert ids(examined(waiting(20.0, starved, num_workers=2))) == ["PD03.discarded-samples"]
    crowded = with_(crowding_workers(), loader__fetch__sharded=SHARDED, loader__num_workers=2)
    assert ids(examined(crowded)) == ["PD03.discarded-samples"]
    assert found(crowded).savings.low_ms >= 0.7 * 0.48 * 20.0
    assert "waits 20.0 ms per step for a CPU" in wording.fill(found(crowded).reasoning, found(crowded).evidence)


def test_a_function_that_returns_the_same_is_billed_for_what_they_leave() -> None:
    evidence = with_(sharded_late(), loader__fetch__same=(with_(BANK, ms_per_step=25.0),))
    discarded, same = examined(evidence).findings
    assert (discarded.id, same.id) == ("PD03.discarded-samples", "PD03.same-result")
    assert same.savings.general and not discarded.savings.general


def test_a_share_that_is_kept_before_most_of_the_work_is_how_a_stream_is_divided() -> None:
    assert "PD03.discarded-samples" not in ids(examined(sharded_late(share=0.45)))


def test_workers_that_keep_up_and_take_nobodys_cpu_may_throw_away_what_they_like() -> None:
    assert is_clear(examined(with_(healthy(), loader__fetch__sharded=SHARDED)))
    made = fetch((1.3, 1.3), (0.0, 0.0), sharded=SHARDED)
    delivered = waiting(41.7, made, empty_share=0.0, transport_ms=1.8, transport_bytes=12.6e6)
    assert ids(examined(delivered)) == ["PD03.needless-workers"]


# ---------------------------------------------------------------------------------------------------------
# What an epoch begins with


def test_what_each_epoch_makes_anew_is_told_at_its_line_with_its_share_of_all_the_time() -> None:
    finding = found(made_each_epoch())
    assert (finding.id, finding.severity) == ("PD03.same-each-epoch", Severity.WARNING)
    assert wording.fill(finding.message, finding.evidence) == (
        "`spectral_frames()` returns the same again every 50 steps: 300 ms each time, 23 % of all the time"
    )
    assert finding.location == Location("data.py", 64, "train_dataloader")
    assert finding.savings.part is Part.EPOCH
    assert finding.savings.low_ms == pytest.approx(0.85 * 300 / 50)
    assert finding.savings.high_ms == pytest.approx(300 / 50)


@pytest.mark.parametrize(
    ("changes", "severity"),
    [({"ms_per_step": 60.0}, None), ({"ms_per_step": 100.0}, Severity.WARNING), ({"every": 400}, None)],
)
def test_it_is_weighed_by_what_it_adds_to_each_step(changes: dict[str, Any], severity: Severity | None) -> None:
    outcome = examined(made_each_epoch(**changes))
    assert [finding.severity for finding in outcome.findings] == ([severity] if severity else [])


def test_short_epochs_begin_in_the_steady_step() -> None:
    assert found(made_each_epoch(regular=True, every=60)).savings.part is Part.COMPUTE


def test_a_function_that_every_step_calls_too_is_told_of_there() -> None:
    whole = made_each_epoch()
    assert not isinstance(whole.epoch_starts, Missing) and whole.epoch_starts is not None
    assert is_clear(examined(with_(whole, same_results=whole.epoch_starts.rows)))


def test_a_loop_without_a_loader_is_told_of_it_too() -> None:
    assert ids(examined(with_(made_each_epoch(), loaders=()))) == ["PD03.same-each-epoch"]
