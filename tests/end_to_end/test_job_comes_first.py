"""The job's streams, arguments, files and exit are its own, whatever perfdoctor does beside it."""

from __future__ import annotations

import shlex
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from running import JOBS, Checked, Perfdoctor, make_interpreter, wait_until

pytestmark = pytest.mark.e2e


# -- --to-end: one run, many questions ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def to_end(perfdoctor_once: Perfdoctor) -> tuple[Checked, subprocess.CompletedProcess[bytes], Path]:
    """The same job under perfdoctor and bare."""
    directory = perfdoctor_once.directory
    out = directory / "stdout"
    with out.open("wb") as stdout:
        checked = perfdoctor_once.check("--to-end", JOBS / "writes.py", directory / "observed", stdout=stdout)
    bare = perfdoctor_once.bare(JOBS / "writes.py", directory / "bare")
    return checked, bare, directory


def test_stdout_is_the_jobs_byte_for_byte(
    to_end: tuple[Checked, subprocess.CompletedProcess[bytes], Path],
) -> None:
    _, bare, directory = to_end
    stdout = (directory / "stdout").read_bytes()
    assert stdout.startswith(bare.stdout)
    # What follows is the report.
    assert b"The steady step takes" in stdout[len(bare.stdout) :]


def test_stderr_is_the_jobs_and_one_line_on_top(
    to_end: tuple[Checked, subprocess.CompletedProcess[bytes], Path],
) -> None:
    checked, bare, _ = to_end
    assert checked.stderr == bare.stderr.decode() + "perfdoctor: the job failed with exit code 7\n"


def test_the_job_comes_to_its_end(to_end: tuple[Checked, subprocess.CompletedProcess[bytes], Path]) -> None:
    checked, bare, directory = to_end
    assert (directory / "observed").read_text() == (directory / "bare").read_text() == "complete"
    assert bare.returncode == checked.facts["exit_code"] == 7
    assert checked.code == 4
    assert checked.steps == 50


# -- arguments, stdin, modules, commands --------------------------------------------------------------------


def test_arguments_that_look_like_ours_reach_the_job(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check(JOBS / "train.py", "--steps", "12", "-v")
    assert checked.stdout.startswith("training for 12 steps, verbose True\ntrained\n")


def test_a_double_dash_after_the_script_is_ours(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check(JOBS / "train.py", "--", "--steps", "12", "-v")
    assert checked.stdout.startswith("training for 12 steps, verbose True\ntrained\n")


def test_a_module_runs_with_its_arguments(perfdoctor: Perfdoctor, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    for name in ("tiny", "train"):
        text = (JOBS / f"{name}.py").read_text().replace("import tiny", "from . import tiny")
        (package / f"{name}.py").write_text(text)
    checked = perfdoctor.check("-m", "package.train", "--steps", "12", "-v")
    assert checked.stdout.startswith("training for 12 steps, verbose True\ntrained\n")
    assert checked.run.name.endswith("-train")
    assert checked.steps == 12


def test_stdin_reaches_the_job(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check(JOBS / "reads.py", input=b"14\n")
    assert checked.stdout.startswith("14 steps, as told\n")
    assert checked.steps == 14


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_an_interpreter_option_that_keeps_the_probe_out_is_named(perfdoctor: Perfdoctor, option: str) -> None:
    checked = perfdoctor.check("--", sys.executable, option, "-c", "print('ran')")
    assert checked.stdout.startswith("ran\n")
    assert checked.code == 3
    assert f"{option} keeps PYTHONPATH and sitecustomize out" in checked.stderr


# -- what jobs do to themselves -----------------------------------------------------------------------------


def test_the_jobs_own_sitecustomize_runs(perfdoctor: Perfdoctor, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("print('custom', flush=True)\n")
    checked = perfdoctor.check(
        "--python", sys.executable, JOBS / "train.py", "--steps", "12", env={"PYTHONPATH": str(tmp_path / "own")}
    )
    # perfdoctor's own interpreter has that PYTHONPATH too.
    assert checked.stdout.count("custom\n") == 2
    assert checked.steps == 12


def test_a_job_that_leaves_by_os_exit_has_been_seen(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check(JOBS / "exits.py")
    assert checked.code == 0, checked.stderr
    assert checked.stdout.startswith("leaving\n")
    assert checked.steps >= 64


def test_a_job_that_will_not_leave_is_killed(perfdoctor: Perfdoctor) -> None:
    """It catches the stop at a step, and SIGTERM takes it minutes: after the grace comes SIGKILL."""
    checked = perfdoctor.check("--steps", "20", "--job-output", "file", JOBS / "stubborn.py")
    assert checked.code == 0, checked.stderr
    assert (checked.run / "job.out").read_text() == "caught StopJob\ncleaning up\n"
    assert checked.facts["end"] == "stopped"
    assert "was terminated" in checked.facts["detail"]


def test_a_neighbour_started_by_the_same_shell_is_left_alone(perfdoctor: Perfdoctor, tmp_path: Path) -> None:
    """`perfdoctor check ... > >(tee log)`: bash makes `tee` a child of perfdoctor."""
    command = shlex.join([sys.executable, "-m", "perfdoctor", "check", "--steps", "20", str(JOBS / "train.py")])
    subprocess.run(
        ["bash", "-c", f"{command} > >(cat > log; echo complete >> log)"],
        env=perfdoctor.environment,
        cwd=tmp_path,
        check=True,
        timeout=150,
    )
    wait_until(lambda: (tmp_path / "log").read_text().endswith("complete\n"))
    assert "perfdoctor stopped it" in (tmp_path / "log").read_text()


# -- recordings ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secretive(perfdoctor_once: Perfdoctor) -> Checked:
    """A job with secrets in its arguments and its environment."""
    return perfdoctor_once.check(
        JOBS / "train.py",
        "--steps",
        "20",
        "--api-key",
        "abc123secret",
        env={"WANDB_API_KEY": "def456secret", "MALLOC_ARENA_MAX": "2"},
    )


def test_recordings_are_readable_by_their_owner_only(secretive: Checked) -> None:
    assert stat.S_IMODE(secretive.run.stat().st_mode) == 0o700
    # machine.json names no job; the directory keeps it from others all the same.
    for file in secretive.run.iterdir():
        assert file.name == "machine.json" or stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_recordings_hold_no_secrets(secretive: Checked) -> None:
    for file in secretive.run.iterdir():
        assert "secret" not in file.read_text(), file
    assert secretive.facts["command"][-2:] == ["--api-key", "***"]
    assert "secret" not in secretive.stdout + str(secretive.json)


def test_only_allowed_variables_are_recorded(secretive: Checked) -> None:
    assert secretive.facts["environment"] == {"MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1"}


def test_nothing_of_the_run_stays_open(secretive: Checked) -> None:
    assert not (secretive.run / "control.sock").exists()
    assert not (secretive.run / "run.tmp").exists()


# -- other interpreters -------------------------------------------------------------------------------------


def test_a_job_in_an_environment_without_perfdoctor(perfdoctor: Perfdoctor, tmp_path: Path) -> None:
    python = make_interpreter(tmp_path / "other", [sysconfig.get_paths()["purelib"]])
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


def test_an_interpreter_without_torch_is_named(perfdoctor: Perfdoctor, tmp_path: Path) -> None:
    python = make_interpreter(tmp_path / "bare")
    checked = perfdoctor.check("--python", python, JOBS / "train.py")
    assert checked.code == 4
    last = checked.stderr.splitlines()[-2:]
    assert "torch" in last[0]
    assert str(python) in last[1] and "--python" in last[1]
    assert "ModuleNotFoundError: No module named 'torch'" in checked.stderr
