"""Which run directories are of one job, and what is read of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nodes_by_hand import AGENT, RANK_PID, write_node, write_rank
from recordings import process, torch, worker, write

from perfdoctor.recording import nodes
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.identity import attempts, read_places
from perfdoctor.recording.nodes import read_nodes, read_recordings
from perfdoctor.recording.siblings import find, lead

LATER = "2024-03-01T12:05:00+00:00"


def _ranks(directory: RunDirectory) -> list[int]:
    return [process.rank for _, process in nodes.ranks(read_recordings(directory))]


def test_the_nodes_of_a_job_are_read_as_one_from_each_of_them(tmp_path: Path) -> None:
    first = write_node(tmp_path, "gpu-a", {0: 1_000, 1: 1_000}, world="4")
    second = write_node(tmp_path, "gpu-b", {2: 1_000, 3: 1_000}, world="4")
    assert _ranks(first) == _ranks(second) == [0, 1, 2, 3]
    assert [one for one, _ in read_recordings(second)] == [second, first]


@pytest.mark.parametrize(
    "variables",
    [
        {"TORCHELASTIC_RUN_ID": "b7c1"},
        {"TORCHELASTIC_RUN_ID": "b7c1", "MASTER_ADDR": "10.0.0.1"},
        {"SLURM_JOB_ID": "81", "SLURM_STEP_ID": "0", "MASTER_ADDR": "", "MASTER_PORT": ""},
    ],
)
def test_what_launchers_tell_all_nodes_alike_makes_them_one_job(tmp_path: Path, variables: dict[str, str]) -> None:
    first = write_node(tmp_path, "gpu-a", {0: 1_000}, **{**variables, "MASTER_ADDR": ""})
    write_node(tmp_path, "gpu-b", {1: 1_000}, **variables)
    assert _ranks(first) == [0, 1]


@pytest.mark.parametrize(
    ("rank", "other"),
    [
        (1, {"MASTER_PORT": "29501"}),
        (1, {"MASTER_ADDR": "gpu-c"}),
        (1, {"TORCHELASTIC_RUN_ID": "100", "MASTER_PORT": "41003"}),
        (1, {"SLURM_JOB_ID": "82", "SLURM_STEP_ID": "0"}),
        (0, {}),
        (1, {"LOCAL_WORLD_SIZE": "2"}),
        (1, {"facts": {"started": LATER}}),
    ],
    ids=["port", "address", "port of one id", "step", "rank is taken", "whole job is there", "later"],
)
def test_jobs_into_one_directory_of_runs_are_not_mixed_up(tmp_path: Path, rank: int, other: dict[str, Any]) -> None:
    own = {"TORCHELASTIC_RUN_ID": "100"} if "TORCHELASTIC_RUN_ID" in other else {}
    slurm = {"SLURM_JOB_ID": "81", "SLURM_STEP_ID": "0"} if "SLURM_JOB_ID" in other else {}
    first = write_node(tmp_path, "gpu-a", {0: 1_000}, **own, **slurm)
    write_node(tmp_path, "gpu-b", {rank: 1_000}, **other)
    assert _ranks(first) == [0]
    assert find(first)[0].directory == first and len(find(first)) == 1


@pytest.mark.parametrize(("boots", "found"), [(("a", "a"), [0, 1]), (("a", "b"), [0])])
def test_a_loopback_address_is_another_on_every_machine(
    tmp_path: Path, boots: tuple[str, str], found: list[int]
) -> None:
    first = write_node(tmp_path, "vm", {0: 1_000}, boot=boots[0], MASTER_ADDR="127.0.0.1")
    other = write_node(tmp_path / "elsewhere", "vm", {1: 1_000}, boot=boots[1], MASTER_ADDR="127.0.0.1")
    other.path.rename(tmp_path / "run-other")
    assert _ranks(first) == found


def test_a_node_that_came_after_a_restart_is_found_by_those_that_stayed(tmp_path: Path) -> None:
    first = write_node(tmp_path, "gpu-a", {0: 1_000}, MASTER_PORT="1")
    again = {"t": 2_000_000_000, "host": "gpu-a", "boot": "boot-gpu-a"}
    write_rank(first.path, 0, header=again, MASTER_PORT="2", TORCHELASTIC_RESTART_COUNT="1")
    lost = write_node(tmp_path, "gpu-b", {1: 1_000}, MASTER_PORT="1", over=False)
    write_node(tmp_path, "gpu-c", {1: 1_000}, MASTER_PORT="2", TORCHELASTIC_RESTART_COUNT="1")
    assert _ranks(first) == [0, 1]
    assert {one.directory.path.name for one in find(lost)} == {"run-gpu-a", "run-gpu-b", "run-gpu-c"}
    hosts = [process.header.host for _, process in nodes.ranks(read_recordings(lost))]
    assert hosts == ["gpu-a", "gpu-c"], "what failed is over on every node"


def test_agents_that_count_restarts_differently_are_nodes_of_one_attempt(tmp_path: Path) -> None:
    """Its own rank has failed on gpu-b only; the rendezvous numbers the nodes anew."""
    first, second = (write_node(tmp_path, f"gpu-{name}", {rank: 1_000}) for name, rank in (("a", 0), ("b", 1)))
    for run, name, rank, count in ((first, "a", 1, "0"), (second, "b", 0, "1")):
        again = {"t": 2_000_000_000, "host": f"gpu-{name}", "boot": f"boot-gpu-{name}", "pid": 7}
        write_rank(run.path, rank, header=again, LOCAL_RANK="0", TORCHELASTIC_RESTART_COUNT=count)
    assert [part.ranks for part in find(first)] == [{(0, 0), (1, 1)}, {(0, 1), (1, 0)}]
    assert [part.last_ranks for part in find(first)] == [{1}, {0}]
    assert (found := lead(find(first))) is not None and found.directory == second
    started = [(process.rank, process.header.t) for _, process in nodes.ranks(read_recordings(first))]
    assert started == [(0, 2_000_000_000), (1, 2_000_000_000)]


def test_what_a_restarted_rank_starts_is_of_its_attempt(tmp_path: Path) -> None:
    run = write_node(tmp_path, "gpu-a", {0: 1_000})
    here = {"host": "gpu-a", "boot": "boot-gpu-a"}
    write_rank(run.path, 0, header={**here, "t": 2_000_000_000, "pid": 7})
    for number in (8, 9):
        write_rank(run.path, 0, header={**here, "ppid": 7, "pid": number, "t": 2_000_000_000 + number})
    recording = read_nodes(run)[0].recording
    counts = attempts([(process.header, process.environment) for process in recording.processes])
    assert sorted(counts) == [0, 1, 1, 1]


def test_of_the_processes_of_one_local_rank_the_last_counts(tmp_path: Path) -> None:
    run = write_node(tmp_path, "gpu-a", {0: 1_000})
    write_rank(run.path, 0, header={"t": 2_000_000_000, "host": "gpu-a", "boot": "boot-gpu-a"})
    (rank,) = read_nodes(run)[0].recording.ranks
    assert rank.header.t == 2_000_000_000


def test_children_that_a_rank_trains_with_are_no_restarts(tmp_path: Path) -> None:
    run = write_node(tmp_path, "gpu-a", {0: 1_000})
    inherited = {"host": "gpu-a", "boot": "boot-gpu-a", "ppid": RANK_PID}
    for number in (8, 9):
        write_rank(run.path, 0, header={**inherited, "pid": number, "t": number})
    assert len(read_nodes(run)[0].recording.ranks) == 3


def test_processes_of_another_machine_in_one_directory_are_a_node_of_their_own(tmp_path: Path) -> None:
    run = write_node(tmp_path, "gpu-a", {0: 1_000})
    write_rank(run.path, 1, header={"host": "gpu-b", "boot": "boot-gpu-b", "cpus": 8})
    stray = process(5, ppid=RANK_PID, host="gpu-b", boot="boot-gpu-b")
    write(run.path, stray, worker(0, ppid=RANK_PID), pid=5)
    here, there = read_nodes(run)
    assert [process.rank for process in here.recording.processes] == [0], "a worker elsewhere has another parent"
    assert (here.machine.logical_cpus, there.machine.logical_cpus) == (4, 8)
    assert there.host.samples == ()


def test_a_recording_of_another_node_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    first = write_node(tmp_path, "gpu-a", {0: 1_000})
    second = write_node(tmp_path, "gpu-b", {1: 1_000})
    second.machine_file.write_text("{")
    (node,) = read_nodes(first)
    (problem,) = node.recording.problems
    assert problem.startswith("the recording of another node cannot be used: ")


def test_the_node_with_the_lowest_rank_of_the_last_attempt_leads(tmp_path: Path) -> None:
    first = write_node(tmp_path, "gpu-a", {0: 1_000})
    second = write_node(tmp_path, "gpu-b", {1: 1_000})
    assert (found := lead(find(second))) is not None and found.directory == first
    again = {"t": 2_000_000_000, "host": "gpu-b", "boot": "boot-gpu-b"}
    write_rank(second.path, 0, header=again, TORCHELASTIC_RESTART_COUNT="1")
    assert (found := lead(find(first))) is not None and found.directory == second


def test_the_rank_of_a_pod_is_none_of_the_jobs_where_torchrun_runs_in_it(tmp_path: Path) -> None:
    first = write_node(tmp_path, "gpu-a", {0: 1_000, 1: 1_000}, world="4")
    second = write_node(tmp_path, "gpu-b", {2: 1_000, 3: 1_000}, world="4")
    for number, run in enumerate((first, second)):
        pod = {"RANK": str(number), "WORLD_SIZE": "2", "MASTER_ADDR": "gpu-a", "MASTER_PORT": "29500"}
        write(run.path, process(AGENT), torch(environment=pod), pid=AGENT)
    assert _ranks(second) == [0, 1, 2, 3]


def test_where_no_rank_is_known_nobody_leads(tmp_path: Path) -> None:
    assert lead(find(write_node(tmp_path, "gpu-b", {0: 1_000}, LOCAL_WORLD_SIZE="2"))) is None


def test_a_file_that_is_nested_too_deeply_has_no_place(tmp_path: Path) -> None:
    path = tmp_path / "process-1-1.jsonl"
    path.write_bytes(b"[" * 60_000 + b"\n")
    assert read_places([path]) == []
