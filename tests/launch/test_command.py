"""What was asked to run, as an argument vector."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from perfdoctor.cli import app
from perfdoctor.commands.job_words import JobCommand
from perfdoctor.errors import PerfdoctorError
from perfdoctor.launch.command import Command, module, python_for_jobs, script, skips_site, verbatim

# -- which words are whose ----------------------------------------------------------------------------------


def _split(name: str, words: str) -> tuple[list[str], list[str], bool]:
    import typer

    group = typer.main.get_command(app)
    command = group.commands[name]  # type: ignore[attr-defined]
    assert isinstance(command, JobCommand)
    return command._split(words.split())


@pytest.mark.parametrize(
    ("words", "own", "job", "verbatim"),
    [
        ("train.py --steps 5 -v", "", "train.py --steps 5 -v", False),
        ("--steps 5 train.py --steps 7", "--steps 5", "train.py --steps 7", False),
        ("--steps=5 -v train.py -- --lr 3", "--steps=5 -v", "train.py --lr 3", False),
        ("train.py a -- b", "", "train.py a -- b", False),
        ("-m pkg.train --epochs 3 -- x", "-m pkg.train", "--epochs 3 -- x", False),
        ("-m pkg.train -- --epochs 3", "-m pkg.train", "--epochs 3", False),
        ("--module pkg.train --epochs 3", "--module pkg.train", "--epochs 3", False),
        ("--module=pkg.train --epochs 3", "--module=pkg.train", "--epochs 3", False),
        ("-mpkg.train --epochs 3", "-mpkg.train", "--epochs 3", False),
        ("-o json -- torchrun --nproc-per-node 2 x.py", "-o json", "torchrun --nproc-per-node 2 x.py", True),
        ("-ojson -- ls", "-ojson", "ls", True),
        ("-vo json -- ls -- x", "-vo json", "ls -- x", True),
        ("--to-end -- ls", "--to-end", "ls", True),
        ("--select PD03 --", "--select PD03", "", True),
        ("--help", "--help", "", False),
        ("", "", "", False),
    ],
)
def test_words_are_split_between_perfdoctor_and_the_job(words: str, own: str, job: str, verbatim: bool) -> None:
    assert _split("check", words) == (own.split(), job.split(), verbatim)


@pytest.mark.parametrize(
    ("words", "own", "job", "verbatim"),
    [
        ("--against main train.py -v", "--against main", "train.py -v", False),
        ("train.py --against main", "--against main", "train.py", False),
        ("-v train.py --against=main --tolerance 3%", "-v --against=main --tolerance 3%", "train.py", False),
        ("train.py --lr 3 --baseline p.json -- -v", "--baseline p.json", "train.py --lr 3 -v", False),
        ("-m pkg.train --against main", "-m pkg.train --against main", "", False),
        ("--against main train.py --baseline its.json", "--against main", "train.py --baseline its.json", False),
        ("train.py -- --against main", "", "train.py --against main", False),
        ("-- torchrun train.py --against main", "", "torchrun train.py --against main", True),
    ],
)
def test_a_gate_takes_its_options_behind_the_script_too(words: str, own: str, job: str, verbatim: bool) -> None:
    assert _split("gate", words) == (own.split(), job.split(), verbatim)


# -- scripts, modules, commands -----------------------------------------------------------------------------


def test_a_script_runs_under_the_interpreter(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    path = str(tmp_path / "train.py")
    assert script("python", path, ["--lr", "3"]) == Command(("python", path, "--lr", "3"), "train")


@pytest.mark.parametrize("first", [b"#!/usr/bin/env python3\n", b"#!/opt/python3.12 -u\n"])
def test_a_script_may_lack_the_suffix(tmp_path: Path, first: bytes) -> None:
    (tmp_path / "train").write_bytes(first + b"print()\n")
    assert script("python", str(tmp_path / "train"), ()).name == "train"


def test_a_directory_runs_by_its_main(tmp_path: Path) -> None:
    with pytest.raises(PerfdoctorError, match="directory without"):
        script("python", str(tmp_path), ())
    (tmp_path / "__main__.py").touch()
    assert script("python", str(tmp_path), ()).argv == ("python", str(tmp_path))


@pytest.mark.parametrize("content", [b"#!/bin/bash\npython train.py\n", b"\x7fELF", b"text", b""])
def test_what_is_not_python_is_refused_with_the_way_to_run_it(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run").write_bytes(content)
    with pytest.raises(PerfdoctorError) as error:
        script("python", str(tmp_path / "run"), ())
    assert error.value.slug == "script-not-python"
    assert "perfdoctor check -- " in error.value.advice


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("trian.py", "did you mean train.py?"),
        ("sub/train.py", "there is no directory sub either"),
        ("quite-different.py", "check the path"),
        ("sh", "perfdoctor check -- sh -c x"),
    ],
)
def test_a_missing_script_gets_the_nearest_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, advice: str
) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PerfdoctorError) as error:
        script("python", typed, ["-c", "x"])
    assert error.value.slug == "script-missing"
    assert advice in error.value.advice


def test_a_module_is_named_by_its_last_part() -> None:
    assert module("python", "package.train", ["x"]) == Command(("python", "-m", "package.train", "x"), "train")


def test_a_command_is_named_by_its_script() -> None:
    assert verbatim(["sh", "-x", "dir/train.py", "other.py"]).name == "train"
    assert verbatim(["/bin/sh", "-c", "x"]).name == "sh"


def test_a_command_must_exist() -> None:
    with pytest.raises(PerfdoctorError, match="no command surely-not-there"):
        verbatim(["surely-not-there"])
    with pytest.raises(PerfdoctorError, match="nothing to run"):
        verbatim([])


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("python -I x.py", "-I"),
        ("python3.11 -uE x.py", "-E"),
        ("/usr/bin/python3 -S -m x", "-S"),
        ("python x.py -I", ""),
        ("python -c I -E", ""),
        ("python -m I -E", ""),
        ("python -W IgnoreE x.py", ""),
        ("python -X importtime -I x.py", "-I"),
        ("sh -E x", ""),
        ("torchrun x.py", ""),
    ],
)
def test_options_that_keep_the_probe_out_are_found(words: str, option: str) -> None:
    assert skips_site(words.split()) == option


# -- the interpreter ----------------------------------------------------------------------------------------


def test_jobs_run_in_the_active_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    assert python_for_jobs() == sys.executable  # nothing is there
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    assert python_for_jobs() == os.fspath(tmp_path / "bin" / "python")
