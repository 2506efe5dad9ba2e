"""Children, workers, ranks, and the ways a job can end."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from observing import JOBS

from perfdoctor.recording.parallel import Division

pytestmark = pytest.mark.timeout(450)


@pytest.mark.slow
def test_forked_workers(observe):
    seen = observe("workers.py", "fork", "fork-persistent")
    seen.same()
    seen.healthy()
    assert seen.bare.code == 0, seen.bare.stderr
    assert len(seen.rank.steps) == 32
    assert len(seen.workers) in (6, 8)  # two epochs of two, two persistent ones; the failing two may be seen or not
    made = [worker for worker in seen.workers if len(worker.fetches)]
    assert len(made) == 6
    for worker in made:
        assert worker.header.forked
        assert (worker.fetches["getitem_us"] >= 4_000).all()
        assert (worker.fetches["getitem_cpu_us"] < worker.fetches["getitem_us"]).all()
    ended = [one for one in seen.rank.iterators_ended if one.loader == 0]
    assert len(ended) == 2 and all(one.us > 1_000 for one in ended)  # one for each epoch
    batches = seen.rank.batches
    assert (batches["depth"] >= 0).all()
    assert (batches["transport_us"] > 0).any()


@pytest.mark.slow
def test_spawned_workers(observe):
    seen = observe("workers.py", "spawn", "forkserver")
    seen.same()
    seen.healthy()
    assert len(seen.rank.steps) == 16
    made = [worker for worker in seen.workers if len(worker.fetches)]
    assert len(made) == 4
    assert {loader.start_method for loader in seen.rank.loaders[:2]} == {"spawn", "forkserver"}


@pytest.mark.slow
def test_children_that_do_not_train_are_helpers_and_exec_starts_a_new_file(observe):
    seen = observe("processes.py")
    assert seen.probed.stdout == seen.bare.stdout
    assert seen.probed.code == seen.bare.code == 0
    seen.healthy()
    # The program before exec (atexit is lost: the steps of the last flush are there) and the one after it.
    first, second = sorted(seen.ranks, key=lambda p: p.header.t)
    assert first.header.pid == second.header.pid
    assert len(first.steps) == 8
    assert len(second.steps) == 12
    assert all(process.role == "helper" for process in seen.processes if process not in (first, second))


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("raise", 1),
        pytest.param("exit", 3, marks=pytest.mark.slow),
        pytest.param("_exit", 4, marks=pytest.mark.slow),
        pytest.param("SIGTERM", -signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("SIGKILL", -9, marks=pytest.mark.slow),
        pytest.param("handled", 9, marks=pytest.mark.slow),
    ],
)
def test_a_job_ends_in_its_own_way(observe, how, code):
    seen = observe("endings.py", "11", how)
    seen.same()
    assert seen.bare.code == code
    seen.healthy()
    assert (seen.rank.end is not None) == (how in ("raise", "exit", "handled"))
    # Early steps are written at 1, 2, 4, 8; later ones twice a second.
    assert len(seen.rank.steps) >= (11 if seen.rank.end else 8)
    if how in ("SIGTERM", "SIGKILL"):
        assert len(seen.rank.steps) > 30


def test_an_error_in_the_model_shows_its_own_lines(observe):
    seen = observe("endings.py", "30", "forward")
    assert seen.probed.code == seen.bare.code == 1
    shown = seen.probed.stderr.splitlines()
    assert [line for line in shown if line in seen.bare.stderr.splitlines()] == seen.bare.stderr.splitlines()
    # One frame of ours, in the order of calls: three lines of text.
    assert len(shown) <= len(seen.bare.stderr.splitlines()) + 3


@pytest.mark.slow
def test_a_run_directory_deleted_under_the_job(observe):
    seen = observe("endings.py", "11", "delete")
    seen.same()
    assert seen.processes == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_run_directory_that_cannot_be_written(observe, tmp_path):
    run = tmp_path / "sealed"
    run.mkdir(mode=0o500)
    observe("endings.py", "11", "exit", run=run).same()


@pytest.mark.slow
def test_two_ranks_under_torchrun(observe, tmp_path):
    torchrun = Path(sys.executable).parent / "torchrun"
    words = [str(torchrun), "--nproc-per-node", "2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "ddp.py"]
    seen = observe("", command=words)
    assert seen.probed.stdout == seen.bare.stdout
    assert seen.probed.code == seen.bare.code == 0
    seen.healthy()
    assert [(p.rank, p.world_size, len(p.steps)) for p in seen.ranks] == [(0, 2, 25), (1, 2, 25)]
    for process in seen.ranks:
        assert (process.steps["communication_us"] > 0).all()
        counts = Counter(call.kind for call in process.calls for _ in range(call.count))
        assert counts["dist.gradients"] == 25 and counts["dist.barrier"] == 1
        assert process.reduced_model is not None and sum(process.reduced_model.bucket_bytes) > 0
    agents = [process for process in seen.processes if process.header.pid == seen.ranks[0].header.ppid]
    assert [agent.role for agent in agents] == ["helper"]


DIVIDED = JOBS.parent / "end_to_end" / "jobs" / "divided_job.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "waits", "division"),
    [
        ("shards", "dist.fsdp_reduce_scatter", {"data": "0,1", "shard_bytes": (16_640,) * 16, "resharded": 16}),
        ("tensor", "dist.wait_tensor", {"tensor": "0,1"}),
        ("stages", "dist.pipeline", {"of_stages": 2}),
    ],
)
def test_ranks_that_divide_a_model_end_with_the_same_and_are_told_apart(kind, waits, division, observe):
    torchrun = Path(sys.executable).parent / "torchrun"
    words = [str(torchrun), "--nproc-per-node", "2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    seen = observe("", command=[*words, str(DIVIDED), kind, "25"])
    assert sorted(seen.probed.stdout.splitlines()) == sorted(seen.bare.stdout.splitlines())
    assert seen.probed.code == seen.bare.code == 0
    seen.healthy()
    for rank, process in enumerate(seen.ranks):
        stages = {"stages": (rank,)} if kind == "stages" else {}
        assert process.division == Division(**division, **stages)
        assert waits in {call.kind for call in process.calls}
        assert (process.steps["communication_us"][4:] > 0).all(), (
            "functional collectives are seen from the second step on"
        )
