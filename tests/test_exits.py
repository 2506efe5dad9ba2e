"""Exit codes by precedence: broken instrumentation is never hidden by a verdict."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import diagnosis_samples as samples
import pytest

from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.evidence.model import JobEnd
from perfdoctor.exits import Exit, worst
from perfdoctor.trials.judge import exit_code

ORDER = (5, 4, 2, 3, 1, 0)


@pytest.mark.parametrize(("winner", "loser"), list(combinations(ORDER, 2)))
def test_of_two_the_graver_one_wins_in_either_order(winner: int, loser: int) -> None:
    assert int(worst(Exit(winner), Exit(loser))) == int(worst(Exit(loser), Exit(winner))) == winner


def test_every_code_has_its_place() -> None:
    assert sorted(ORDER) == [int(code) for code in Exit]
    assert int(worst(*Exit)) == 5
    assert worst() is Exit.OK


@pytest.mark.parametrize(
    ("diagnosis", "fail_on", "code"),
    [
        (samples.healthy(), "error", Exit.OK),
        (samples.two_findings(), "error", Exit.FINDINGS),
        (samples.two_findings(), "never", Exit.OK),
        (samples.troubled(), "never", Exit.INTERNAL),  # a check crashed
        (samples.no_step(), "error", Exit.JOB_FAILED),
        (
            replace(samples.no_step(), evidence=replace(samples.no_step().evidence, job=samples.EVIDENCE.job)),
            "error",
            Exit.NOT_MEASURABLE,
        ),
    ],
    ids=["healthy", "findings", "never", "crashed check", "failed job", "no step"],
)
def test_what_a_diagnosis_gives_the_shell(diagnosis: Diagnosis, fail_on: str, code: Exit) -> None:
    assert exit_code(diagnosis, fail_on) is code


def test_a_job_that_was_killed_failed_whatever_was_found() -> None:
    killed = replace(samples.EVIDENCE, job=replace(samples.EVIDENCE.job, end=JobEnd("killed", signal=9)))
    assert exit_code(replace(samples.two_findings(), evidence=killed), "error") is Exit.JOB_FAILED
