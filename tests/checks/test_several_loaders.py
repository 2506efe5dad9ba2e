"""PD03 on steps that draw from several loaders: a finding for each that is waited for, and none for the others."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from etl_outcomes import CHECK, examined, found
from ill_runs.etl import DRAW_LINE, fetch, restarted_workers, waiting, waiting_crowded, waiting_for_each
from ill_runs.omp_threads import pinned_workers
from perfdoctor.checks.etl.several import names
from perfdoctor.checks.omp_threads import CHECK as OMP_THREADS
from samples import LOADER, LOADER_LINE, ids, is_clear, number, with_

from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.examine import Rules, examine
from perfdoctor.diagnosis.findings import Confidence, Finding, Part
from perfdoctor.evidence.model import CodeLine, Evidence, Loader, Missing, RunEvidence, Site
from perfdoctor.report import wording

RULES = Rules(Config(), date(2030, 1, 1), lambda _: None)
IN_PROCESS: dict[str, Any] = {"num_workers": 0, "cpus": 4}


def making(wait_ms: float, **loader: Any) -> Evidence:
    """A loop that waits for batches which are made in the training process, in a data set that computes."""
    return waiting(wait_ms, fetch((wait_ms - 0.5, wait_ms - 0.5), (0.4, 0.4)), **IN_PROCESS, **loader)


def said(finding: Finding) -> str:
    return wording.filled(finding).message


SLOW_AND_QUICK = waiting_for_each(making(66.0), making(19.0), train_ms=20.0)
"""As in a job that was told of neither: the mean of both, 42 ms, explained no wait."""


def test_each_loader_is_told_at_its_own_line_with_its_own_batches() -> None:
    slow, quick = examined(SLOW_AND_QUICK).findings
    assert [finding.id for finding in (slow, quick)] == ["PD03.too-few-workers"] * 2
    assert [finding.location.line for finding in (slow, quick) if finding.location] == [20, 21]
    assert (number(slow, "make_ms"), number(quick, "make_ms")) == (pytest.approx(65.9), pytest.approx(18.9))
    assert (number(slow, "wait_ms"), number(quick, "wait_ms")) == (pytest.approx(66.0), pytest.approx(19.0))
    assert said(slow) == (
        "the loop waits 66.0 ms per step for data of `A` at train.py:20 (63 %): batches are made between the steps"
    )
    assert "while training and waiting for other loaders take 39.0 ms" in wording.filled(slow).reasoning


def test_what_one_loader_could_save_leaves_the_wait_for_the_other() -> None:
    slow, quick = examined(SLOW_AND_QUICK).findings
    # Training takes 20 ms, and with the wait for the other loader 39 or 86.
    assert slow.savings.high_ms <= 105.0 - 39.0
    assert quick.savings.high_ms <= 105.0 - 86.0
    assert slow.savings.high_ms == pytest.approx(66.0 - 0.3 - 0.05, abs=0.1)


def test_the_wait_of_the_step_is_billed_once() -> None:
    assert sum(finding.savings.ceiling_ms for finding in examined(SLOW_AND_QUICK).findings) == pytest.approx(85.0)
    diagnosis = examine(RunEvidence((SLOW_AND_QUICK,)), [(CHECK, CHECK.limits)], RULES)
    assert len(diagnosis.ranked) == 2
    assert diagnosis.combined is not None and diagnosis.combined.high_ms <= 85.0


def test_each_has_a_cause_of_its_own() -> None:
    storage = waiting(30.0, fetch((29.0, 1.0), (0.5, 0.5)), **IN_PROCESS)
    transport = waiting(40.0, fetch((20.0, 20.0)), empty_share=0.0, transport_ms=38.0, num_workers=4)
    outcome = examined(waiting_for_each(storage, transport, train_ms=30.0))
    assert ids(outcome) == ["PD03.transport", "PD03.too-few-workers"]
    assert "waiting for storage" in outcome.findings[1].reasoning
    assert number(outcome, "wait_ms") == pytest.approx(70.0)


def test_a_loader_that_keeps_up_has_no_finding_beside_one_that_does_not() -> None:
    ready = waiting(0.3, fetch((8.0, 8.0)), empty_share=0.0, num_workers=2, persistent_workers=True)
    finding = found(waiting_for_each(ready, making(30.0)))
    assert finding.location is not None and finding.location.line == 21
    assert "of `B` at train.py:21" in said(finding)


def test_loaders_that_all_keep_up_are_clear() -> None:
    ready = waiting(0.2, fetch((8.0, 8.0)), empty_share=0.0, num_workers=2)
    outcome = examined(waiting_for_each(ready, ready))
    assert is_clear(outcome) and outcome.reason.startswith("the loaders keep up")


def test_many_short_waits_that_are_long_together_are_told_as_what_they_are() -> None:
    finding = found(waiting_for_each(*[making(0.9)] * 3, train_ms=20.0))
    assert (finding.id, finding.confidence) == ("PD03.input-wait", Confidence.LOW)
    assert number(finding, "wait_ms") == pytest.approx(2.7)
    assert wording.filled(finding).reasoning.startswith("3 loaders share it, and `A` at train.py:20")
    assert said(finding).startswith("the loop waits 2.70 ms per step for data (12 %)")


def test_one_loader_is_not_called_by_its_name() -> None:
    finding = found(making(66.0))
    assert said(finding).startswith("the loop waits 66.0 ms per step for data (93 %): ")
    assert (finding.about, "loader" in [m.name for m in finding.evidence]) == ("", False)
    assert "while training takes" in wording.filled(finding).reasoning


# ---------------------------------------------------------------------------------------------------------
# Names


@pytest.mark.parametrize(
    ("changes", "called"),
    [
        ([{}], [""]),
        ([{}, {"dataset": "Masks"}], ["`Images` at train.py:12", "`Masks` at train.py:12"]),
        ([{"site": Missing("none")}, {"dataset": "Masks"}], ["`Images`", "`Masks` at train.py:12"]),
        (
            [{"length": 640}, {"length": 100}, {"dataset": "Masks"}],
            [
                "`Images` at train.py:12, 640 samples, batches of 32",
                "`Images` at train.py:12, 100 samples, batches of 32",
                "`Masks` at train.py:12",
            ],
        ),
        (
            [{"batch_size": None}, {"batch_size": None}],
            [
                "`Images` at train.py:12, no batch size, number 1",
                "`Images` at train.py:12, no batch size, number 2",
            ],
        ),
    ],
)
def test_no_two_loaders_are_called_the_same(changes: list[dict[str, Any]], called: list[str]) -> None:
    loaders: list[Loader] = [with_(LOADER, id=number, **some) for number, some in enumerate(changes)]
    assert list(names(loaders)) == called


def test_loaders_of_one_line_are_two_findings() -> None:
    """As from a function that makes all loaders of a job: none of them is lost, and none is billed for both."""
    assert not isinstance(SLOW_AND_QUICK.loaders, Missing)
    slow, quick = (replace(one, dataset="Images", site=LOADER_LINE) for one in SLOW_AND_QUICK.loaders)
    evidence = with_(SLOW_AND_QUICK, loaders=(replace(slow, length=500), replace(quick, length=80)))
    diagnosis = examine(RunEvidence((evidence,)), [(CHECK, CHECK.limits)], RULES)
    assert len(diagnosis.ranked) == 2
    assert len({finding.fingerprint for finding in diagnosis.ranked}) == 1
    assert [round(number(finding, "wait_ms")) for finding in diagnosis.ranked] == [66, 19]
    assert not any(finding.savings.claimed for finding in diagnosis.ranked)
    assert {"500 samples" in said(finding) for finding in diagnosis.ranked} == {True, False}


# ---------------------------------------------------------------------------------------------------------
# Other findings about loaders


def test_each_loader_has_the_sampler_that_is_waited_for() -> None:
    drawing = waiting(10.0, fetch((0.1, 0.1), (0.1, 0.1)), **IN_PROCESS)
    other = Site("data.py", 7, "resized")
    lines = (
        CodeLine(other, "input_wait", True, 29.0, 0.7, ((1, 1.0),)),
        CodeLine(DRAW_LINE, "input_wait", True, 8.2, 0.2, ((0, 1.0),)),
    )
    evidence = with_(waiting_for_each(drawing, making(30.0)), code_lines=lines)
    making_one, sampling = examined(evidence).findings
    assert (making_one.id, sampling.id) == ("PD03.too-few-workers", "PD03.slow-sampler")
    assert sampling.location is not None and sampling.location.line == DRAW_LINE.line
    assert number(sampling, "drawing_share") == pytest.approx(0.8)
    # Where nobody knows whose lines they are, they are those of all.
    unknown = tuple(replace(line, loaders=()) for line in lines)
    assert number(examined(with_(evidence, code_lines=unknown)).findings[1], "drawing_share") == pytest.approx(1.0)


def test_a_lack_of_cpus_in_one_loader_leaves_the_wait_for_the_other() -> None:
    starved = waiting(20.0, fetch((25.0, 14.6), (0.7, 0.7), run_delay_ms=10.4), cpus=2)
    outcome = examined(waiting_for_each(starved, waiting(40.0, fetch((39.0, 39.0)), num_workers=0, cpus=2)))
    assert ids(outcome)[1:] == ["PD03.no-cpu-left"]
    assert sum(finding.savings.ceiling_ms for finding in outcome.findings) <= 60.0
    assert "of `A`" in said(outcome.findings[1])


def test_workers_that_take_training_s_cpus_are_told_once() -> None:
    """Two loaders whose batches are there in time: the one whose workers are busiest has the blame."""
    crowded = waiting_crowded(0.3)
    lighter = with_(crowded, loader__fetch=fetch((30.0, 31.0), (0.6, 0.6)))
    evidence = with_(waiting_for_each(lighter, crowded, train_ms=59.4), step__run_delay_ms=20.0)
    finding = found(evidence)
    assert finding.id == "PD03.crowded-training"
    assert "making batches of `B` at train.py:21 takes CPUs" in said(finding)


def test_workers_that_start_anew_are_told_with_their_loader() -> None:
    evidence = restarted_workers()
    assert not isinstance(evidence.loaders, Missing)
    (first,) = evidence.loaders
    finding = found(with_(evidence, loaders=(first, replace(first, id=1, dataset="Masks", persistent_workers=True))))
    assert "restarts the 2 workers of `Images` at train.py:12, which" in said(finding)


def test_workers_on_one_cpu_cost_no_more_than_the_wait_for_them() -> None:
    evidence = pinned_workers(20.0)
    assert not isinstance(evidence.loaders, Missing)
    (bound,) = evidence.loaders
    beside = replace(bound, id=1, num_workers=0, wait_ms=bound.wait_ms / 3, worker_threads=Missing("none"))
    (finding,) = OMP_THREADS.examine(with_(evidence, loaders=(bound, beside)), OMP_THREADS.limits).findings
    assert finding.savings.part is Part.INPUT_WAIT
    assert number(finding, "wait_ms") == pytest.approx(15.0)
