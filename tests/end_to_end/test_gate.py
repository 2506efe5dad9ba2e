"""`perfdoctor gate` on whole jobs: messages, exit codes, and that nothing stays behind."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from running import Perfdoctor

from perfdoctor.config.settings import Config
from perfdoctor.errors import PerfdoctorError
from perfdoctor.gate.interleaving import Launch, Limits, Program, interleave, one_gate_at_a_time
from perfdoctor.gate.metrics import metrics
from perfdoctor.launch.command import Command
from perfdoctor.monitor.machine import read_machine, write_machine
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.trials.judge import judge

pytestmark = pytest.mark.e2e

TRIAL = Path(__file__).parent.parent.parent / "perfdoctor" / "gate" / "trial_job.py"


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path, perfdoctor: Perfdoctor) -> Path:
    perfdoctor.environment["TMPDIR"] = str(tmp_path)  # a lock of its own: tests run side by side
    root = tmp_path / "project"
    root.mkdir()
    (root / "train.py").write_text(TRIAL.read_text())
    git(root, "init", "--quiet", "--initial-branch", "main")
    git(root, "config", "user.email", "ann@example.org")
    git(root, "config", "user.name", "Ann")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "one")
    return root


def test_what_needs_no_launch_is_said_at_once(perfdoctor, repository):
    same = perfdoctor("gate", "--against", "main", "train.py", cwd=repository)
    assert (same.code, same.stdout.startswith("IDENTICAL")) == (0, True)
    missing = perfdoctor("gate", "--against", "nowhere", "train.py", cwd=repository)
    assert (missing.code, "no commit nowhere" in missing.stderr) == (2, True)
    nothing = perfdoctor("gate", "train.py", cwd=repository)
    assert (nothing.code, "--against main" in nothing.stderr) == (2, True)
    outside = perfdoctor("gate", "--against", "main", TRIAL, cwd=repository.parent)
    assert (outside.code, "not in a git repository" in outside.stderr) == (2, True)
    assert git(repository, "worktree", "list").count("\n") == 1


@pytest.mark.slow
def test_a_side_that_fails_ends_in_four_and_leaves_no_worktree(perfdoctor, repository):
    source = (repository / "train.py").read_text()
    (repository / "train.py").write_text(source.replace("if step == given.fail:", "if step == 3:"))
    words = ("--against", "main", "--output", "junit:../gate.xml")
    failed = perfdoctor("gate", *words, "train.py", cwd=repository)
    assert failed.code == 4
    assert "working tree: the job failed with exit code 1" in failed.stderr
    assert failed.stdout.startswith("FAILED: working tree")
    assert "RuntimeError: told to fail" in (repository.parent / "gate.xml").read_text()
    (log,) = repository.glob(".perfdoctor/runs/*now*/job.out")
    assert "told to fail" in log.read_text()
    assert git(repository, "worktree", "list").count("\n") == 1
    assert git(repository, "status", "--porcelain") == " M train.py\n"


def test_two_copies_take_turns_and_one_call_more_is_counted_exactly(tmp_path):
    launches = []
    for name, options in (("was", ()), ("now", ("--items", "1"))):
        directory = RunDirectory.create(tmp_path / "runs", name)
        write_machine(read_machine(), directory.machine_file)
        command = Command((sys.executable, str(TRIAL), "--workers", "1", *options), "trial")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        launches.append(Launch(name, Program(name, command, tmp_path, environment), directory, ("counters",)))
    samples = interleave(launches, Limits(patience_s=60, usable_cpus=2, slices=12), random.Random(1))
    assert [len(samples[name].turns) for name in ("was", "now")] == [12, 12]
    was, now = (metrics(judge(c.directory, Config()).evidence) for c in launches)
    differ = {name for name, metric in now.items() if name.startswith("op:") and metric.value != was[name].value}
    assert differ == {"op:aten::item"}
    assert now["syncs"].value == was["syncs"].value + 1


def test_a_second_gate_is_refused(tmp_path):
    lock = tmp_path / "lock"
    with one_gate_at_a_time(lock):
        with pytest.raises(PerfdoctorError) as caught, one_gate_at_a_time(lock):
            pass
        assert (int(caught.value.exit_code), str(os.getpid()) in caught.value.message) == (3, True)
    with one_gate_at_a_time(lock):
        pass
