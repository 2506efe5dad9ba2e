"""Ranks that Open MPI's mpirun starts; they meet over gloo, since wheels of PyTorch have no MPI backend."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.stop_together import JOB, free_port
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.reader import read

pytestmark = pytest.mark.e2e

ROOT = Path(os.environ.get("MPI_ROOT", "/"))
"""Where Debian's package openmpi-bin and what it depends on were installed or unpacked."""


@pytest.fixture(scope="module")
def environment() -> Mapping[str, str]:
    """Of mpirun."""
    libraries = ROOT / "usr/lib/x86_64-linux-gnu"
    unpacked = {
        "OPAL_PREFIX": str(ROOT / "usr"),
        "LD_LIBRARY_PATH": ":".join(map(str, (libraries, libraries / "openmpi/lib", libraries / "pmix2/lib"))),
    }
    return {
        **os.environ,
        **(unpacked if str(ROOT) != "/" else {}),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }


def mpirun(*command: object) -> list[str]:
    """`command` on two ranks."""
    found = shutil.which("mpirun.openmpi", path=str(ROOT / "usr/bin"))
    if found is None:
        pytest.skip("no mpirun: install Debian's openmpi-bin, or unpack it to $MPI_ROOT")
    return [found, "--oversubscribe", "-n", "2", *map(str, command)]


def check(runs: Path, *command: object) -> list[str]:
    words = [sys.executable, "-m", "perfdoctor", "check", "--runs", runs, "--steps", 40, "--fail-on", "never", *command]
    return [str(word) for word in words]


def done(command: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=dict(environment), capture_output=True, text=True, timeout=100)


def left(runs: Path) -> tuple[set[tuple[str, str]], dict[int, int]]:
    """How the job ended by each recording, and the steps of each rank."""
    facts = [json.loads(path.read_text()) for path in runs.glob("*/run.json")]
    ranks = [rank for path in runs.iterdir() for rank in read(RunDirectory(path)).ranks]
    return {(one["end"], one["detail"]) for one in facts}, {rank.rank: len(rank.steps) for rank in ranks}


def test_a_perfdoctor_in_each_rank_has_all_leave_at_the_same_step(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    ended = done(mpirun(*check(tmp_path, JOB)), environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    ends, steps = left(tmp_path)
    assert ends == {("stopped", "")} and set(steps) == {0, 1} and len(set(steps.values())) == 1
    assert "rank 1 recorded; the node with rank 0 reports on the whole job" in ended.stderr


def test_one_perfdoctor_around_mpirun_sees_the_ranks_of_its_machine(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    ended = done(check(tmp_path, "--", *mpirun(sys.executable, JOB)), environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    ends, steps = left(tmp_path)
    assert ends == {("stopped", "")} and set(steps) == {0, 1} and len(set(steps.values())) == 1
