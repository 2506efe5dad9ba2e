from __future__ import annotations

from typing import Any

import pytest
from etl_outcomes import examined, found, name_of
from ill_runs.etl import (
    DRAW_LINE,
    LOOP_LINE,
    asking,
    collecting_workers,
    fetch,
    looping,
    scattered,
    slow_sampler,
    waiting,
)
from ills import ILL
from samples import LOADER_LINE, healthy, ids, number, only, with_

from perfdoctor.diagnosis.findings import Confidence, Location, Severity
from perfdoctor.evidence.model import CodeLine, Missing, SamplesAsked, Site, ThreadTiming
from perfdoctor.report import wording

# ---------------------------------------------------------------------------------------------------------
# Too few workers, or a batch that is too costly


def test_samples_that_are_scattered_in_memory_are_to_blame_for_collating_them() -> None:
    finding = found(scattered())
    assert finding.id == "PD03.scattered-samples"
    assert finding.savings.low_ms < 0.5 * 2.0 < finding.savings.high_ms <= 2.0
    assert name_of(scattered(SamplesAsked(0, True, 6_000))) == "per-sample-indexing"
    assert name_of(scattered(collate="padded")) != "scattered-samples"
    assert name_of(scattered(made=fetch((1.5, 1.5), (0.4, 0.4)))) != "scattered-samples"


def test_no_workers_and_a_slow_data_set_ask_for_as_many_as_keep_up() -> None:
    finding = found(ILL["PD03.too-few-workers"])
    assert finding.id == "PD03.too-few-workers"
    assert number(finding, "wanted") == 3  # 19.5 ms of mostly waiting, against 10 ms of training, and a fifth more
    assert "num_workers=3" in finding.fix.code
    assert "between the steps" in finding.message
    assert 10.0 < finding.savings.low_ms < finding.savings.high_ms < 20.0


def test_the_fix_speaks_the_language_of_the_trainer() -> None:
    evidence = with_(ILL["PD03.too-few-workers"], job__trainer="transformers")
    assert "dataloader_num_workers=3" in found(evidence).fix.code


def test_workers_that_cannot_keep_up_get_company_where_there_are_cpus() -> None:
    costly = fetch((25.0, 25.0), (0.7, 0.7))
    assert name_of(waiting(20.7, costly, cpus=8)) == "too-few-workers"
    assert name_of(waiting(20.7, costly, cpus=2)) == "transform"


@pytest.mark.parametrize(
    ("alone_ms", "name"),
    [
        (4.1, "too-few-workers"),  # training takes hardly longer on one thread
        (4.75, "transform"),  # they would be sure to help, but win back less than half of the wait
        (8.0, "transform"),
    ],
)
def test_workers_beside_training_on_one_thread_must_be_worth_both_changes(alone_ms: float, name: str) -> None:
    """Two threads train on two CPUs, so that a worker would take one of them."""
    waits = waiting(10.0, fetch((9.0, 9.0), (0.7, 0.7)), train_ms=20.0, num_workers=0)
    team = with_(waits, ops=with_(healthy().ops, thread_timings=(ThreadTiming(1, alone_ms), ThreadTiming(2, 4.0))))
    assert name_of(with_(team, step__process_cpu_ms=50.0, threads__intra_op=2)) == name


def test_waiting_for_storage_needs_no_cpus() -> None:
    blocked = fetch((25.0, 0.5), (0.2, 0.2))
    assert name_of(waiting(20.7, blocked, cpus=2)) == "too-few-workers"


def test_storage_is_blamed_when_sixteen_workers_do_not_hide_it() -> None:
    finding = found(ILL["PD03.storage"])
    assert finding.id == "PD03.storage"
    assert finding.confidence is Confidence.MEDIUM
    assert "storage" in finding.message


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (fetch((30.0, 29.0), (2.0, 2.0)), "transform"),
        (fetch((2.0, 2.0), (30.0, 29.0)), "collate"),
    ],
)
def test_the_larger_half_of_making_a_batch_is_named(made: Any, name: str) -> None:
    finding = found(waiting(27.0, made))
    assert finding.id == f"PD03.{name}"
    assert finding.savings.high_ms < 27.0


def test_many_cheap_samples_ask_for_indexing_in_one_go() -> None:
    finding = found(ILL["PD03.per-sample-indexing"])
    assert finding.id == "PD03.per-sample-indexing"
    assert number(finding, "sample_us") == pytest.approx(1200 / 256)
    assert "BatchSampler" in finding.fix.code


@pytest.mark.parametrize(("us", "at"), [(14.0, LOADER_LINE.line), (16.0, 79)])
def test_a_line_that_looks_each_of_them_up_in_a_table_is_the_place(us: float, at: int) -> None:
    """A row of a data frame takes 25 us, of two tensors 5 to 8."""
    line = CodeLine(Site("data.py", 79, "__getitem__"), "input_wait", True, 0.0, 0.8)
    made_ms = 32 * us / 0.8 / 1000
    cheap = fetch((0.9 * made_ms, 0.9 * made_ms), (0.1 * made_ms, 0.1 * made_ms), lines=(line,))
    finding = found(waiting(made_ms, cheap, train_ms=made_ms, num_workers=0, batch_size=32))
    assert finding.id == "PD03.per-sample-indexing"
    assert finding.location is not None and finding.location.line == at


def test_a_collate_function_of_the_jobs_own_that_takes_the_time_is_the_cause() -> None:
    """Tokenising 64 sentences in it takes 3.6 ms, picking them 0.04."""
    line = CodeLine(Site("data.py", 7, "tokenise"), "input_wait", True, 0.0, 0.6)
    made = fetch((0.04, 0.03), (3.6, 3.6), lines=(line,))
    cheap = {"train_ms": 16.0, "num_workers": 0, "batch_size": 64}
    finding = found(waiting(3.7, made, collate="tokenised", **cheap))
    assert finding.id == "PD03.collate"
    assert finding.location == Location("data.py", 7, "tokenise")
    assert name_of(waiting(3.7, made, collate="default_collate", **cheap)) == "per-sample-indexing"
    assert name_of(waiting(3.7, made, **cheap)) == "per-sample-indexing"


def test_workers_are_not_advised_where_handing_over_costs_what_making_does() -> None:
    """Two workers on trivial data made a loop run at half its speed."""
    assert name_of(waiting(1.9, fetch((1.2, 1.2), (0.6, 0.6)), num_workers=0, batch_size=256)) == "per-sample-indexing"


@pytest.mark.parametrize(
    ("wait_ms", "severity"), [(0.9, None), (3.7, Severity.NOTE), (4.0, Severity.WARNING), (8.0, Severity.ERROR)]
)
def test_the_ordinary_way_to_use_tensors_is_a_note_at_first(wait_ms: float, severity: Severity | None) -> None:
    cheap = fetch((0.6 * wait_ms, 0.6 * wait_ms), (0.3 * wait_ms, 0.3 * wait_ms))
    outcome = examined(waiting(wait_ms, cheap, train_ms=20.0 - wait_ms, num_workers=0, batch_size=256))
    assert [finding.severity for finding in outcome.findings] == ([severity] if severity else [])


def test_why_workers_would_not_help_depends_on_what_a_batch_takes() -> None:
    cheap = waiting(0.9, fetch((0.9, 0.9), (0.0, 0.0)), num_workers=0, batch_size=1)
    assert "handing batches over" in found(cheap).reasoning
    assert "more workers would not keep up" in found(ILL["PD03.transform"]).reasoning


def test_only_the_making_is_billed_when_the_loader_itself_takes_longer() -> None:
    finding = found(waiting(0.6, fetch((0.1, 0.1), (0.1, 0.1)), train_ms=1.0, num_workers=0, batch_size=256))
    assert finding.id == "PD03.per-sample-indexing"
    assert finding.savings.ceiling_ms == pytest.approx(0.2)


def test_a_wait_that_is_not_the_making_is_not_blamed_on_the_data_set() -> None:
    finding = found(waiting(4.0, fetch((0.1, 0.1), (0.1, 0.1)), num_workers=0))
    assert finding.id == "PD03.input-wait"
    assert finding.confidence is Confidence.LOW
    assert "sampler" in finding.reasoning


def test_a_sampler_that_takes_the_time_is_named_with_its_line() -> None:
    finding = found(slow_sampler())
    assert finding.id == "PD03.slow-sampler" and finding.confidence is Confidence.HIGH
    assert finding.location is not None and finding.location.line == DRAW_LINE.line
    assert (finding.savings.low_ms, finding.savings.high_ms) == pytest.approx((0.8 * 8.0, 8.0))


@pytest.mark.parametrize(
    "changes",
    [{"draw_ms": 4.0}, {"called": False}, {"part": "other"}],
    ids=["little of the wait", "the loop itself", "elsewhere"],
)
def test_other_lines_are_no_sampler(changes: dict[str, Any]) -> None:
    assert found(slow_sampler(**changes)).id == "PD03.input-wait"


def test_lines_that_make_the_batch_are_no_sampler() -> None:
    """4 ms of the wait, of which the data set is 3."""
    made = fetch((2.9, 2.9), (0.1, 0.1))
    assert found(slow_sampler(4.0, made=made)).id == "PD03.input-wait"


def test_quick_workers_and_an_empty_queue_are_not_blamed_on_the_data_set() -> None:
    """A batch takes 0.5 ms to make and is waited for 10: a few slow ones, or a sampler."""
    finding = found(waiting(10.0, fetch(), empty_share=0.9))
    assert finding.id == "PD03.input-wait"
    assert finding.confidence is Confidence.LOW


def test_an_unseen_worker_leaves_the_cause_open_and_promises_nothing() -> None:
    finding = found(ILL["PD03.input-wait"])
    assert finding.id == "PD03.input-wait"
    assert finding.confidence is Confidence.LOW
    assert (finding.savings.low_ms, finding.savings.high_ms) == (0.0, 10.0)
    assert "{0}" in wording.fill(finding.reasoning, finding.evidence)  # braces of a reason are no placeholders


# ---------------------------------------------------------------------------------------------------------
# Collections in the workers


def test_collections_that_a_line_in_the_workers_asks_for_are_named_with_it() -> None:
    finding = only(examined(collecting_workers()))
    assert (finding.id, finding.location.line if finding.location else 0) == ("PD03.worker-collections", 31)
    # Two workers share 30 ms of collections, so a step waits 15 less, all of its wait.
    assert finding.savings.high_ms == pytest.approx(15.0)
    assert finding.savings.low_ms == pytest.approx(0.85 * 15.0 * 30 / 40)


def test_pythons_own_collections_in_workers_point_at_the_loader() -> None:
    finding = only(examined(collecting_workers(line=None)))
    assert "gc.freeze()" in finding.fix.code
    assert finding.location is not None
    assert finding.savings.high_ms == pytest.approx(0.95 * 15.0)


def test_few_collections_in_workers_are_not_to_blame() -> None:
    assert ids(examined(collecting_workers(gc_ms=8.0))) != ["PD03.worker-collections"]


# ---------------------------------------------------------------------------------------------------------
# The line that makes the batch


def _line(share: float) -> CodeLine:
    return CodeLine(Site("data.py", 41, "resized"), "input_wait", True, 0.0, share)


def test_a_batch_that_must_become_cheaper_is_found_where_it_is_made() -> None:
    finding = found(waiting(25.0, fetch((60.0, 60.0), lines=(_line(0.7), _line(0.2))), num_workers=2))
    assert finding.id == "PD03.transform"
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == ("data.py", 41)
    assert "{hottest}" in finding.reasoning
    assert number(finding, "hottest_share") == 0.7


@pytest.mark.parametrize("lines", [(), (_line(0.2), _line(0.2))])
def test_time_that_is_all_over_the_data_set_is_found_at_its_loader(lines: tuple[CodeLine, ...]) -> None:
    finding = found(waiting(25.0, fetch((60.0, 60.0), lines=lines), num_workers=2))
    assert finding.location is not None
    assert finding.location.file == LOADER_LINE.file
    assert "{hottest}" not in finding.reasoning


def test_workers_are_asked_for_at_the_loader_and_the_line_is_named_beside() -> None:
    finding = found(waiting(20.0, fetch((20.0, 20.0), lines=(_line(0.7),)), train_ms=20.0, num_workers=0))
    assert finding.id == "PD03.too-few-workers"
    assert finding.location is not None
    assert finding.location.line == LOADER_LINE.line
    assert "{hottest}" in finding.reasoning


@pytest.mark.parametrize(
    ("lines", "severity"), [((), Severity.NOTE), ((_line(0.1),), Severity.WARNING)], ids=["a library's", "the user's"]
)
def test_a_batch_that_a_library_makes_quickly_is_no_alarm(lines: tuple[CodeLine, ...], severity: Severity) -> None:
    """Whole batches of a TensorDataset that are collated: 0.5 ms of a step of 4."""
    made = fetch((0.0, 0.0), (0.48, 0.48), lines=lines)
    evidence = waiting(0.5, made, train_ms=3.5, num_workers=0, batch_size=None, collate="stacked")
    finding = found(with_(evidence, code_lines=lines))
    assert (finding.id, finding.severity) == ("PD03.collate", severity)


# ---------------------------------------------------------------------------------------------------------
# A transform that takes long: wrong only where it runs a loop over elements


def test_a_transform_that_loops_over_elements_is_told_with_the_loop() -> None:
    finding = found(ILL["PD03.transform"])
    assert finding.severity is Severity.ERROR
    assert "Python loop" in finding.message
    assert finding.location == Location(LOOP_LINE.file, LOOP_LINE.line, LOOP_LINE.function)
    assert (number(finding, "loop_runs"), number(finding, "loop_share")) == (64.0, 0.6)
    assert "whole arrays" in finding.fix.text


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({"runs": 32.0}, Severity.ERROR),
        ({"runs": 31.0}, Severity.NOTE),
        ({"share": 0.26}, Severity.ERROR),
        ({"share": 0.24}, Severity.NOTE),
        ({"share": 0.9, "runs": 32.0, "batch_size": 1}, Severity.ERROR),
    ],
)
def test_a_loop_runs_often_for_each_sample_and_takes_a_quarter_of_the_making(
    changes: dict[str, Any], severity: Severity
) -> None:
    assert found(looping(**changes)).severity is severity


def test_a_line_that_works_for_long_each_time_is_no_loop_over_elements() -> None:
    """One sample per batch, of 40 frames that take 0.4 ms each."""
    assert found(looping(share=0.6, runs=40 / 32, batch_size=1)).severity is Severity.NOTE


def test_in_the_training_process_lines_are_counted_by_steps() -> None:
    line = CodeLine(LOOP_LINE, "input_wait", True, 0.0, 0.6, runs_per_step=4 * 32 * 20.0)
    made = fetch((25.0, 25.0), (0.7, 0.7), lines=(line,))
    accumulating = waiting(103.0, made, num_workers=0, cpus=1, steady_batches_per_step=4.0)
    assert found(accumulating).severity is Severity.NOTE
    often = with_(accumulating, loader__fetch__lines=(with_(line, runs_per_step=4 * 32 * 40.0),))
    assert found(often).severity is Severity.ERROR


@pytest.mark.parametrize(
    ("again", "text"),
    [
        (SamplesAsked(0, False, 40_000), "samples differ each time"),
        (SamplesAsked(0, Missing("it is told which epoch it is")), "no function of it was seen"),
        (Missing("they were not asked for"), "no function of it was seen"),
    ],
)
def test_a_transform_without_evidence_of_waste_is_an_opportunity_and_says_why(again: Any, text: str) -> None:
    finding = found(waiting(20.7, fetch((25.0, 25.0), (0.7, 0.7)), again=again))
    assert (finding.id, finding.severity) == ("PD03.transform", Severity.NOTE)
    assert finding.is_opportunity
    assert text in finding.reasoning and "needless" in finding.reasoning


def test_samples_that_come_in_an_order_of_their_own_cannot_be_indexed() -> None:
    """Shards that are unpacked: 1.5 ms of 6, 32 samples a batch."""
    made = fetch((1.4, 1.4), (0.1, 0.1), lines=(_line(0.8),))
    streamed = waiting(1.5, made, train_ms=4.5, num_workers=0, batch_size=32)
    assert name_of(streamed) == "per-sample-indexing"
    finding = found(with_(streamed, loader__iterable=True))
    assert finding.id == "PD03.transform"
    assert "`__iter__`" in finding.message
    assert finding.location == Location("data.py", 41, "resized")


# ---------------------------------------------------------------------------------------------------------
# Asked of another process


def test_samples_that_a_manager_keeps_are_told_at_the_line_that_asks_for_them() -> None:
    finding = found(asking())
    assert (finding.id, finding.location) == ("PD03.asked-of-a-process", Location("data.py", 18, "__getitem__"))
    assert number(finding, "asked") == 64
    assert finding.savings.low_ms == pytest.approx(5.4 * 64 * 0.06 / 5.8)
    assert finding.savings.high_ms == pytest.approx(0.95 * 0.8 * 5.4)


def test_workers_wait_for_the_same_process_and_it_is_no_storage() -> None:
    assert name_of(asking(num_workers=2, empty_share=0.95)) == "asked-of-a-process"


def test_questions_of_an_accumulating_step_are_counted_by_batches() -> None:
    finding = found(asking(steady_batches_per_step=4.0, asked=256.0))
    assert number(finding, "asked") == 64


def test_a_few_questions_are_not_what_takes_long() -> None:
    """One look at a shared flag for each batch, on a line that decodes."""
    assert name_of(asking(asked=1.0)) != "asked-of-a-process"


# ---------------------------------------------------------------------------------------------------------
# No CPU left


def test_making_a_batch_without_a_cpu_is_not_a_slow_transform() -> None:
    finding = found(with_(ILL["PD03.no-cpu-left"], host__others_cpus=1.6))
    assert finding.id == "PD03.no-cpu-left"
    assert number(finding, "others") == pytest.approx(1.6)
    assert finding.savings.high_ms == pytest.approx(30.0 * 21.0 / 25.5)


@pytest.mark.parametrize(("delay_ms", "name"), [(10.0, "transform"), (10.4, "no-cpu-left")])
def test_run_delay_takes_the_blame_from_two_fifths_on(delay_ms: float, name: str) -> None:
    made = fetch((25.0, 25.0 - delay_ms), (0.7, 0.7), run_delay_ms=delay_ms)
    assert examined(waiting(20.0, made)).findings[0].id == f"PD03.{name}"


def test_what_stays_on_a_quiet_machine_is_a_cause_beside_the_neighbours() -> None:
    """Of 25.7 ms a batch 10.4 wait for a CPU: one worker that got them would still need 15.3 beside training of 5."""
    evidence = waiting(20.0, fetch((25.0, 14.6), (0.7, 0.7), run_delay_ms=10.4))
    lack, own = examined(evidence).findings
    assert (lack.id, own.id) == ("PD03.no-cpu-left", "PD03.transform")
    assert "on a quiet machine" in own.reasoning
    assert number(own, "wait_ms") == pytest.approx(9.6)
    # The wait is billed once.
    assert lack.savings.ceiling_ms == pytest.approx(20.0 - 9.6)
    assert lack.savings.high_ms <= lack.savings.ceiling_ms
    assert own.savings.ceiling_ms == pytest.approx(9.6)
    assert own.savings.share == pytest.approx(9.6 / 25.0)


def test_a_loader_that_would_keep_up_on_a_quiet_machine_has_no_cause_of_its_own() -> None:
    assert ids(examined(waiting(20.0, fetch((24.0, 4.0), (0.7, 0.7), run_delay_ms=20.0)))) == ["PD03.no-cpu-left"]


@pytest.mark.parametrize(
    ("changes", "text", "remedy"),
    [
        ({}, "compete for CPU with each other", "fewer OpenMP threads"),
        ({"host__others_cpus": 1.0, "host__idle_cpus": 0.0}, "other processes take", "the other processes"),
        ({"host__throttled_share": 0.6}, "quota", "a larger quota"),
        ({"host": Missing("no samples")}, "not known", "Free CPUs"),
        ({"loader__num_workers": 2, "loader__worker_threads__affinity_cpus": 1}, "bound to fewer CPUs", "fewer OpenMP"),
    ],
)
def test_who_had_the_cpu_is_said(changes: dict[str, Any], text: str, remedy: str) -> None:
    finding = found(with_(ILL["PD03.no-cpu-left"], **changes))
    assert finding.id == "PD03.no-cpu-left"
    assert text in finding.reasoning
    assert remedy in finding.fix.text


def test_without_the_monitor_no_number_of_neighbours_is_shown() -> None:
    finding = found(with_(ILL["PD03.no-cpu-left"], host=Missing("no samples")))
    assert "others" not in [m.name for m in finding.evidence]
