"""The job's streams, arguments, files and exit are its own, whatever perfdoctor does beside it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from launches import Launches
from running import JOBS, Checked, Perfdoctor, make_interpreter, wait_until

# -- --to-end: one run, many questions ----------------------------------------------------------------------


@pytest.fixture
def to_end(launches: Launches) -> Checked:
    """A job that prints to both streams, writes a file at its very end and then exits with 7."""

    def launch(here: Path) -> Checked:
        runner = Perfdoctor(here, launches)
        with (here / "stdout").open("wb") as stdout:
            return runner.check("--to-end", JOBS / "writes.py", here / "written", stdout=stdout)

    return launches.once("to the end of a job that writes", launch)


@pytest.fixture
def bare(perfdoctor: Perfdoctor) -> subprocess.CompletedProcess[bytes]:
    """The same job without perfdoctor."""
    return perfdoctor.bare(JOBS / "writes.py", "written")


def _here(checked: Checked) -> Path:
    return checked.runs.parent.parent


def test_stdout_is_the_jobs_byte_for_byte(to_end: Checked, bare: subprocess.CompletedProcess[bytes]) -> None:
    stdout = (_here(to_end) / "stdout").read_bytes()
    assert stdout.startswith(bare.stdout)
    # What follows is the report.
    assert b"The steady step takes" in stdout[len(bare.stdout) :]


def test_stderr_is_the_jobs_and_one_line_on_top(to_end: Checked, bare: subprocess.CompletedProcess[bytes]) -> None:
    assert to_end.stderr == bare.stderr.decode() + "perfdoctor: the job failed with exit code 7\n"


def test_the_job_comes_to_its_end(to_end: Checked, bare: subprocess.CompletedProcess[bytes]) -> None:
    assert (_here(to_end) / "written").read_text() == "complete"
    assert bare.returncode == to_end.facts["exit_code"] == 7
    assert to_end.code == 4
    assert to_end.steps == 50


# -- arguments, stdin, modules, commands --------------------------------------------------------------------


def test_arguments_that_look_like_ours_reach_the_job(healthy: Checked) -> None:
    assert healthy.stdout.startswith("training for 60 steps, verbose True\ntrained\n")


def test_stdin_reaches_the_job_and_a_double_dash_after_the_script_is_ours(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check(JOBS / "reads.py", "--", "--steps", "12", "-v", input=b"14\n")
    assert checked.stdout.startswith("['--steps', '12', '-v']\n14 steps, as told\n")
    assert checked.steps == 14


@pytest.mark.slow
def test_a_module_runs_with_its_arguments_after_the_jobs_own_sitecustomize(
    perfdoctor: Perfdoctor, tmp_path: Path
) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    for name in ("tiny", "train"):
        text = (JOBS / f"{name}.py").read_text().replace("import tiny", "from . import tiny")
        (package / f"{name}.py").write_text(text)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("print('custom', flush=True)\n")
    words = ("--python", sys.executable, "-m", "package.train", "--steps", "12", "-v")
    checked = perfdoctor.check(*words, env={"PYTHONPATH": str(tmp_path / "own")})
    # perfdoctor's own interpreter has that PYTHONPATH too.
    assert checked.stdout.startswith("custom\ncustom\ntraining for 12 steps, verbose True\ntrained\n")
    assert checked.stdout.count("custom\n") == 2
    assert checked.run.name.endswith("-train")
    assert checked.steps == 12


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_an_interpreter_option_that_keeps_the_probe_out_is_named(perfdoctor: Perfdoctor, option: str) -> None:
    checked = perfdoctor.check("--", sys.executable, option, "-c", "print('ran')")
    assert checked.stdout.startswith("ran\n")
    assert checked.code == 3
    assert f"{option} keeps PYTHONPATH and sitecustomize out" in checked.stderr


# -- what jobs do to themselves -----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_job_that_will_not_leave_is_killed(perfdoctor: Perfdoctor) -> None:
    """It catches the stop at a step, and SIGTERM takes it minutes: after the grace comes SIGKILL."""
    checked = perfdoctor.check("--steps", "20", "--job-output", "file", JOBS / "stubborn.py")
    assert checked.code == 0, checked.stderr
    assert (checked.run / "job.out").read_text() == "caught StopJob\ncleaning up\n"
    assert checked.facts["end"] == "stopped"
    assert "was terminated" in checked.facts["detail"]


@pytest.mark.slow
def test_a_neighbour_started_by_the_same_shell_is_left_alone(perfdoctor: Perfdoctor, tmp_path: Path) -> None:
    """`perfdoctor check ... > >(tee log)`: bash makes `tee` a child of perfdoctor."""
    command = shlex.join([sys.executable, "-m", "perfdoctor", "check", "-v", "--steps", "20", str(JOBS / "train.py")])
    subprocess.run(
        ["bash", "-c", f"{command} > >(cat > log; echo complete >> log)"],
        env=perfdoctor.environment,
        cwd=tmp_path,
        check=True,
        timeout=150,
    )
    wait_until(lambda: (tmp_path / "log").read_text().endswith("complete\n"))
    assert "perfdoctor stopped it" in (tmp_path / "log").read_text()


# -- other interpreters -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_job_in_an_environment_without_perfdoctor(perfdoctor: Perfdoctor, tmp_path: Path) -> None:
    python = make_interpreter(tmp_path / "other", [_torchs_site()])
    missing = subprocess.run([python, "-c", "import perfdoctor"], cwd=tmp_path, capture_output=True, check=False)
    if missing.returncode == 0:
        pytest.skip("perfdoctor is installed as a copy here, next to torch")
    for words, env in (
        (("--python", python), {}),
        ((), {"VIRTUAL_ENV": str(tmp_path / "other")}),
    ):
        checked = perfdoctor.check(*words, JOBS / "train.py", "--steps", "20", env=env)
        assert checked.code == 0, checked.stderr
        assert checked.facts["command"][0] == str(python)
        assert checked.steps == 20


def _torchs_site() -> Path:
    """The directory that torch is installed in."""
    torch = find_spec("torch")
    assert torch is not None and torch.origin is not None
    return Path(torch.origin).parent.parent


def test_an_interpreter_without_torch_is_named(perfdoctor: Perfdoctor, tmp_path: Path) -> None:
    python = make_interpreter(tmp_path / "bare")
    checked = perfdoctor.check("--python", python, JOBS / "train.py")
    assert checked.code == 4
    last = checked.stderr.splitlines()[-2:]
    assert "torch" in last[0]
    assert str(python) in last[1] and "--python" in last[1]
    assert "ModuleNotFoundError: No module named 'torch'" in checked.stderr
