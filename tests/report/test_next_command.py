"""The command that a report names at its end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from diagnosis_samples import CHECKS, EVIDENCE, EXPLICIT_GC, tried, two_findings, with_findings

from perfdoctor.commands.check import next_command
from perfdoctor.commands.typed_job import TypedJob
from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.evidence.model import JobAnatomy, JobEnd, JobNode, JobParts, Missing
from perfdoctor.recording.directory import RunDirectory

RUN = RunDirectory(Path("/runs/one"))
CAN_BE_TRIED = replace(EXPLICIT_GC, fix=replace(EXPLICIT_GC.fix, remedies=("gc.no-explicit",)))


def test_a_fix_that_can_be_tried_is_tried_next() -> None:
    diagnosis = with_findings(Diagnosis(EVIDENCE, CHECKS, None), CAN_BE_TRIED)
    assert next_command(diagnosis, RUN, "train.py --lr 1") == "perfdoctor check --trial train.py --lr 1"


def test_one_node_of_several_has_nothing_to_try_on() -> None:
    node = JobNode("gpu-a", (0,), JobEnd("finished", 0), "3.11.7", "2.13.0", "cpu", "EPYC", 8.0)
    evidence = replace(EVIDENCE, job=replace(EVIDENCE.job, nodes=(node, replace(node, name="gpu-b", ranks=(1,)))))
    diagnosis = with_findings(Diagnosis(evidence, CHECKS, None), CAN_BE_TRIED)
    assert next_command(diagnosis, RUN, "train.py") == "perfdoctor explain PD04"


def test_what_no_trial_can_prove_is_explained() -> None:
    assert next_command(two_findings(), RUN, "train.py") == "perfdoctor explain PD03"


def test_after_the_trials_comes_the_explanation() -> None:
    diagnosis = with_findings(tried(), CAN_BE_TRIED)
    assert next_command(diagnosis, RUN, "train.py") == "perfdoctor explain PD04"


def test_without_findings_the_report_is_there_to_be_kept() -> None:
    said = next_command(with_findings(Diagnosis(EVIDENCE, CHECKS, None)), RUN, "train.py")
    assert said == "perfdoctor report /runs/one --output markdown:report.md"


def test_what_a_job_trains_after_it_was_ended_is_watched_next() -> None:
    seen = JobAnatomy(8_000.0, True, True, JobParts(), 200, Missing("it trains on at train.py:30", code="trains-on"))
    evidence = replace(EVIDENCE, anatomy=seen)
    said = next_command(with_findings(Diagnosis(evidence, CHECKS, None)), RUN, "train.py --lr 1")
    assert said == "perfdoctor check --to-end train.py --lr 1"


@pytest.mark.parametrize(
    ("typed", "job"),
    [
        (TypedJob(("train.py", "--lr", "1")), "train.py --lr 1"),
        (TypedJob(("my train.py",)), "'my train.py'"),
        (TypedJob(("--epochs", "3"), module="package.train"), "-m package.train --epochs 3"),
        (TypedJob((), module="package.train"), "-m package.train"),
        (TypedJob(("torchrun", "train.py"), verbatim=True), "-- torchrun train.py"),
        (TypedJob(("train.py",), python="/env/bin/python"), "--python /env/bin/python train.py"),
        (TypedJob(("train.py", "--api-key", "abc")), "train.py --api-key '***'"),
    ],
)
def test_the_job_is_named_as_it_was_typed_without_its_secrets(typed: TypedJob, job: str) -> None:
    assert str(typed) == job
