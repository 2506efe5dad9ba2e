"""Ranks that srun starts, on two nodes of a real Slurm."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import slurm

from benchmarks.stop_together import JOB, free_port
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.reader import read


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm.Slurm]:
    with slurm.running(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


def done(cluster: slurm.Slurm, *command: object) -> subprocess.CompletedProcess[str]:
    """What a user types on the first node of an allocation."""
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [str(word) for word in command],
        env={**cluster.environment, **rendezvous},
        capture_output=True,
        text=True,
        timeout=100,
    )


def check(runs: Path, *options: object) -> list[object]:
    return [sys.executable, "-m", "perfdoctor", "check", "--runs", runs, "--fail-on", "never", *options]


def facts(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text())
    return found


def steps(*runs: Path) -> dict[int, int]:
    """Of each rank, by its number."""
    return {rank.rank: len(rank.steps) for run in runs for rank in read(RunDirectory(run)).ranks}


def test_a_perfdoctor_in_each_task_has_all_ranks_leave_at_the_same_step(cluster: slurm.Slurm, tmp_path: Path) -> None:
    ended = done(cluster, cluster.srun, "-N2", *check(tmp_path, "--steps", 40), JOB)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    runs = sorted(tmp_path.iterdir())
    assert [facts(run)["end"] for run in runs] == ["stopped", "stopped"]
    assert [facts(run)["detail"] for run in runs] == ["", ""], "nobody was terminated"
    taken = steps(*runs)
    assert set(taken) == {0, 1} and len(set(taken.values())) == 1


def test_one_perfdoctor_around_srun_sees_the_ranks_of_all_nodes(cluster: slurm.Slurm, tmp_path: Path) -> None:
    ended = done(cluster, *check(tmp_path, "--steps", 40), "--", cluster.srun, "-N2", sys.executable, JOB)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (run,) = tmp_path.iterdir()
    assert (facts(run)["end"], facts(run)["detail"]) == ("stopped", "")
    taken = steps(run)
    assert set(taken) == {0, 1} and len(set(taken.values())) == 1


def test_what_srun_ends_with_and_what_its_ranks_say_is_as_without(cluster: slurm.Slurm, tmp_path: Path) -> None:
    job = [cluster.srun, "-N2", sys.executable, JOB, 1, 30, 3]
    bare = done(cluster, *job)
    ended = done(cluster, *check(tmp_path, "--to-end", "--output", f"json:{tmp_path / 'report.json'}"), "--", *job)
    (run,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert bare.returncode == 3
    assert (facts(run)["end"], facts(run)["exit_code"]) == ("crashed", 3)
    said = [line for line in bare.stdout.splitlines() if line.startswith("rank ")]
    assert len(said) == 2
    assert sorted(said) == sorted(line for line in ended.stdout.splitlines() if line.startswith("rank "))
