"""What is typed: options and variables, whose they are, and what is said when the job did not understand its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import pytest
import typer
from diagnosis_samples import EVIDENCE
from samples import with_
from typer.testing import CliRunner

from perfdoctor.cli import app
from perfdoctor.commands import check
from perfdoctor.commands.typed_job import TypedJob
from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.evidence.model import JobEnd, Missing
from perfdoctor.exits import Exit
from perfdoctor.launch.command import Command
from perfdoctor.recording.base import MissingCode


def _commands(command: Any = None, path: str = "PERFDOCTOR") -> Iterator[tuple[str, click.Command]]:
    command = command or typer.main.get_command(app)
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{path}_{name.upper()}")
    if path != "PERFDOCTOR":
        yield path, command


@pytest.mark.parametrize(("path", "command"), [pytest.param(*found, id=found[0]) for found in _commands()])
def test_an_option_is_the_variable_of_its_name(path: str, command: click.Command) -> None:
    for parameter in command.params:
        long = next((option for option in parameter.opts if option.startswith("--")), None)
        if long is not None:
            used = parameter.envvar or f"{path}_{str(parameter.name).upper()}"
            assert used == f"{path}_{long[2:].replace('-', '_').upper()}"


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What `check` was asked for, by the words that were typed."""

    def read(*words: str) -> check.Options:
        asked: list[check.Options] = []
        monkeypatch.setattr(check, "run", lambda options: asked.append(options) or Exit.OK)
        done = CliRunner().invoke(app, ["check", *words])
        assert done.exit_code == 0, done.output
        return asked[0]

    return read


def test_an_option_behind_the_script_is_the_jobs_and_noticed(typed: Any) -> None:
    job = typed("--steps", "5", "train.py", "-o", "json", "--lr", "1", "--trial=yes").job
    assert job.words == ("train.py", "-o", "json", "--lr", "1", "--trial=yes")
    assert job.ours == ("-o", "--trial=yes")
    assert typed("-o", "json", "train.py", "--lr", "1").job.ours == ()
    assert typed("--", "python", "-m", "pkg.train", "-v").job.ours == ()


@pytest.mark.parametrize("words", [("check", "-m"), ("check", "--steps"), ("run", "--apply"), ("gate", "-m")])
def test_an_option_without_its_value_is_refused(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert f"Option '{words[-1]}' requires an argument" in done.output


def _said(capsys: pytest.CaptureFixture[str], code: MissingCode, ours: tuple[str, ...], kind: Any = "crashed") -> str:
    evidence = with_(EVIDENCE, step=Missing("nothing was seen", code=code), job__end=JobEnd(kind, exit_code=2))
    job = TypedJob(("train.py", *ours), ours=ours)
    check.explain_failure(Diagnosis(evidence, (), None), Command(("python", "train.py"), "train"), job)
    return capsys.readouterr().err


def test_a_job_that_fails_on_an_option_of_ours_is_told_where_it_belongs(capsys: pytest.CaptureFixture[str]) -> None:
    said = _said(capsys, "no-torch", ("-o",))
    assert "-o came after train.py, so it went to the job" in said
    assert "perfdoctor check -o ... train.py" in said
    assert "--python" not in said


def test_a_job_that_fails_otherwise_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert "went to the job" not in _said(capsys, "no-torch", ())
    assert "--python PATH" in _said(capsys, "no-torch", ())
    assert "went to the job" not in _said(capsys, "no-step", ("-o",), "stopped")
