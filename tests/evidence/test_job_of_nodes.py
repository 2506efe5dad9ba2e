"""A job of several nodes as one: what is known of it, what is missing, and whose the processes of its machines are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nodes_by_hand import RANK_PID, STEP_US, write_node, write_rank
from recordings import START_NS

from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.evidence.build import build_job
from perfdoctor.evidence.model import Host, Missing, RunEvidence, ranks_in_words
from perfdoctor.exits import Exit
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.nodes import read_nodes
from perfdoctor.report.trust import alarm_rows, environment_rows
from perfdoctor.report.verdict import verdict
from perfdoctor.trials.judge import exit_code, judge

IDLE = STEP_US + 1


def _built(directory: RunDirectory) -> RunEvidence:
    return build_job(read_nodes(directory))


def _notes(diagnosis: Diagnosis, code: str) -> list[str]:
    return [note.message for note in diagnosis.integrity if note.code == code]


def test_ranks_of_two_nodes_are_compared_and_told_with_theirs(tmp_path: Path) -> None:
    run = write_node(tmp_path, "gpu-a", {0: 20_000, 1: 20_000}, world="4")
    write_node(tmp_path, "gpu-b", {2: 20_000, 3: 1_000}, world="4")
    diagnosis = judge(run, Config())
    job, together = diagnosis.evidence.job, diagnosis.evidence.communication
    assert not isinstance(together, Missing) and together.late == 3
    assert (job.node, job.seen_ranks, job.local_ranks, job.world_size) == ("gpu-b", 4, 2, 4)
    assert [(node.name, node.ranks) for node in job.nodes] == [("gpu-a", (0, 1)), ("gpu-b", (2, 3))]
    assert "The steady step of rank 3 on gpu-b, for which the others wait 19" in verdict(diagnosis)
    rows = {row.label: row.text for row in environment_rows(diagnosis.evidence)}
    assert rows["nodes"] == "gpu-a (ranks 0 and 1) and gpu-b (ranks 2 and 3)"
    assert _notes(diagnosis, "PD95") == _notes(diagnosis, "PD99") == []


def test_a_job_of_one_node_names_none(tmp_path: Path) -> None:
    job = _built(write_node(tmp_path, "gpu-a", {0: 1_000}, LOCAL_WORLD_SIZE="2")).slowest.job
    assert (job.node, job.nodes, job.seen_ranks) == ("", (), 1)


def test_ranks_of_one_machine_with_a_launcher_each_are_one_node(tmp_path: Path) -> None:
    """`srun -N2 -n4 perfdoctor check train.py`."""
    for rank in range(4):
        host = f"n{rank // 2}"
        step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NODEID": str(rank // 2), "GROUP_RANK": ""}
        there = write_node(tmp_path / "made", host, {rank: 1_000}, world="4", LOCAL_WORLD_SIZE="", **step)
        run = RunDirectory(there.path.rename(tmp_path / f"run-{rank}"))
    job = _built(run).slowest.job
    assert sorted((node.name, node.ranks) for node in job.nodes) == [("n0", (0, 1)), ("n1", (2, 3))]
    assert job.local_ranks == 2


def test_ranks_that_nobody_recorded_are_named(tmp_path: Path) -> None:
    run = write_node(tmp_path, "gpu-a", {0: 1_000, 1: IDLE}, world="4")
    unseen, idle = _built(run).notes
    assert unseen.startswith("ranks 2 and 3 of 4 are not in it: nobody recorded them. Start perfdoctor on every node")
    assert idle == "rank 1 of 4 took no step"


def test_where_nobody_took_a_step_no_rank_is_missed(tmp_path: Path) -> None:
    assert _built(write_node(tmp_path, "gpu-a", {0: IDLE})).notes == ()


def test_a_node_that_died_is_named_and_what_it_wrote_counts(tmp_path: Path) -> None:
    run = write_node(tmp_path, "gpu-a", {0: 20_000}, facts={"end": "crashed", "exit_code": 1})
    write_node(tmp_path, "gpu-b", {1: 1_000}, over=False)
    diagnosis = judge(run, Config())
    assert [len(node.ranks) for node in diagnosis.evidence.job.nodes] == [1, 1]
    assert _notes(diagnosis, "PD95") == [
        "the recording of gpu-b stops without an end: perfdoctor was killed there, or the machine was lost"
    ]
    end = diagnosis.evidence.job.end
    assert (end.kind, end.exit_code, end.detail) == ("crashed", 1, "on gpu-a")
    assert exit_code(diagnosis, "never") is Exit.JOB_FAILED


def test_a_job_that_still_runs_says_so(tmp_path: Path) -> None:
    run = write_node(tmp_path, "gpu-a", {0: 1_000})
    other = write_node(tmp_path, "gpu-b", {1: 1_000}, over=False)
    for path in other.path.iterdir():
        path.touch()
    evidence = _built(run)
    assert evidence.slowest.job.end.kind == "running"
    assert evidence.notes == (
        "the recording of gpu-b was still being written when this was read: report it again later",
    )


def test_the_job_failed_with_what_no_other_rank_only_suffered(tmp_path: Path) -> None:
    crashed = {"end": "crashed", "exit_code": 1}
    for host, rank, error in (
        ("gpu-a", 0, "RuntimeError: Connection closed by peer [10.0.0.2]:7"),
        ("gpu-b", 1, "ValueError: a bad shard"),
    ):
        run = write_node(tmp_path, host, {rank: 1_000}, facts=crashed)
        (file,) = run.process_files()
        file.write_text(file.read_text() + json.dumps({"k": "failure", "error": error}) + "\n")
    evidence = _built(run).slowest
    assert evidence.job.end.exception == "ValueError: a bad shard"
    assert "it failed with exit code 1; ValueError: a bad shard" in [row.text for row in alarm_rows(evidence)][-1]


def test_a_job_that_was_started_anew_says_so(tmp_path: Path) -> None:
    run = write_node(tmp_path, "gpu-a", {0: 1_000}, TORCHELASTIC_RESTART_COUNT="2")
    write_node(tmp_path, "gpu-b", {1: 1_000}, TORCHELASTIC_RESTART_COUNT="2")
    assert _built(run).notes == ("the job was started 3 times, and this is about the last start",)


def _placed(run: RunDirectory, rank: int, host: str, group: str, t: int, error: str = "") -> None:
    """A rank of Ray Train's that was started there then."""
    raylet = 100 * t + rank  # nobody starts two ranks
    header = {"host": host, "boot": f"boot-{host}", "t": t, "ppid": raylet}
    write_rank(run.path, rank, header=header)
    records: list[dict[str, Any]] = [{"k": "ray", "run": "fit", "group": group}]
    records += [{"k": "failure", "error": error}] if error else []
    with (run.path / f"process-{RANK_PID + rank}-{t}.jsonl").open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def test_a_training_that_ray_went_on_with_without_a_lost_node_says_why(tmp_path: Path) -> None:
    run = write_node(tmp_path, "gpu-a", {}, facts={"end": "stopped"})
    _placed(run, 0, "gpu-a", "first", 1, "RuntimeError: Connection closed by peer [10.0.0.2]:7")
    _placed(run, 1, "gpu-b", "first", 9, "OSError: no space left for --token=abc")
    for rank in (0, 1):
        _placed(run, rank, "gpu-a", "last", 2)
    evidence = _built(run)
    assert [(node.name, node.ranks) for node in evidence.slowest.job.nodes] == [("gpu-a", (0, 1)), ("gpu-b", ())]
    assert evidence.slowest.job.end.exception == "", "that one was made good"
    assert "an earlier attempt failed: rank 1 raised OSError: no space left for --token=***" in evidence.notes


def test_another_torch_on_one_node_is_told(tmp_path: Path) -> None:
    run = write_node(tmp_path, "gpu-a", {0: 1_000})
    other = write_node(tmp_path, "gpu-b", {1: 1_000})
    (file,) = other.process_files()
    file.write_text(file.read_text().replace('"version": "2.13.0"', '"version": "2.12.1"'))
    (note,) = [note for note in judge(run, Config()).integrity if note.code == "PD99"]
    assert note.measurements[0].value == ("torch 2.13.0 on Python 3.11.7: gpu-a; torch 2.12.1 on Python 3.11.7: gpu-b")


def _host_sample(cpus: float, busy: float, neighbour: int) -> dict[str, Any]:
    return {
        "k": "host",
        "interval_ns": 500_000_000,
        "job": {"cpus": cpus, "rss_bytes": 1 << 30, "run_ns": 1_000, "run_delay_ns": 0},
        "cpus": {"busy": busy, "idle": 4 - busy, "iowait": 0.0, "steal": 0.0},
        "throttling": None,
        "pressure_share": None,
        "memory_pressure_share": None,
        "memory_available_bytes": 1 << 33,
        "swap_in_bytes": 0,
        "neighbours": {
            "interval_ns": 500_000_000,
            "top": [{"pid": neighbour, "command": "python", "user": "ann", "cpus": 1.0}],
        },
        "gpus": None,
        "job_gpu_pids": [],
        "monitor_cpus": 0.0,
    }


@pytest.mark.parametrize(("boot", "others", "ranks", "neighbours"), [("one", 0.0, 2, 0), ("two", 1.0, 1, 1)])
def test_nodes_on_one_machine_are_no_neighbours_to_each_other(
    tmp_path: Path, boot: str, others: float, ranks: int, neighbours: int
) -> None:
    """Two launchers on one machine of four CPUs, with a rank each that keeps one of them busy."""
    runs = [write_node(tmp_path, "gpu-a", {0: 1_000}, boot="one", GROUP_RANK="0")]
    there = write_node(tmp_path / "elsewhere", "gpu-a", {1: 1_000}, boot=boot, GROUP_RANK="1")
    runs.append(RunDirectory(there.path.rename(tmp_path / "run-gpu-b")))
    for run, other in zip(runs, (RANK_PID + 1, RANK_PID), strict=True):
        samples = [
            {**_host_sample(1.0, 2.0, other), "monotonic_ns": START_NS + i * 500_000_000 + (other % 2) * 100_000_000}
            for i in range(1, 4)
        ]
        run.host_file.write_text("".join(json.dumps(one) + "\n" for one in ({"k": "format", "version": 2}, *samples)))
    for evidence in _built(runs[0]).ranks:
        assert isinstance(evidence.host, Host)
        assert evidence.host.others_cpus == pytest.approx(others)
        assert len(evidence.host.neighbours) == neighbours
        assert evidence.job.local_ranks == ranks
        assert evidence.job.node == ("gpu-a (0)", "gpu-a (1)")[evidence.rank] or boot == "two"


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([3], "rank 3"),
        ([1, 0], "ranks 0 and 1"),
        ([0, 1, 2, 5], "ranks 0 to 2 and 5"),
        (range(8), "ranks 0 to 7"),
        (range(0, 20, 2), "ranks 0, 2, 4, 6 and 6 more"),
    ],
)
def test_ranks_are_told_in_few_words(ranks: list[int], words: str) -> None:
    assert ranks_in_words(ranks) == words
