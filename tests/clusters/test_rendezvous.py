"""Two nodes whose ranks are numbered, restarted or brought together otherwise than by `--node-rank`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.stop_together import JOB, Node, free_port, launched
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.nodes import starts_before
from perfdoctor.recording.reader import read

pytestmark = pytest.mark.e2e

FAILS_ONCE = Path(__file__).parent / "jobs" / "fails_once.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
OTHER_TORCH = """
import sys
from importlib.machinery import PathFinder, SourceFileLoader

class Other(SourceFileLoader):
    def exec_module(self, module):
        super().exec_module(module)
        module.__version__ = "2.12.1+cpu"

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch.version":
            spec = PathFinder.find_spec(name, path)
            spec.loader = Other(name, spec.origin)
            return spec

sys.meta_path.insert(0, Finder)
"""
"""For sitecustomize: a PyTorch that calls itself another version."""


WITHOUT_STORE = """
import os, runpy
import torch.distributed as dist

met = dist.init_process_group

def meet(*words, **more):
    met(*words, **more)
    dist.barrier()
    if dist.get_rank() == 0:
        os.remove(os.environ["INIT_METHOD"].removeprefix("file://"))

dist.init_process_group = meet
runpy.run_path("{job}", run_name="__main__")
"""


@dataclass(frozen=True)
class Ended:
    """A job of two nodes that has ended."""

    place: Path
    codes: Sequence[int]
    texts: Sequence[str]

    @property
    def report(self) -> Mapping[str, Any]:
        found: dict[str, Any] = json.loads((self.place / "report.json").read_text())
        return found

    @property
    def notes(self) -> list[str]:
        return [note["message"] for note in self.report["integrity"]["notes"]]

    @property
    def runs(self) -> list[Path]:
        return sorted(path.parent for path in self.place.glob("runs/*/run.json"))

    @property
    def ends(self) -> list[tuple[str, str]]:
        facts = [json.loads((run / "run.json").read_text()) for run in self.runs]
        return [(one["end"], one["detail"]) for one in facts]

    @property
    def steps(self) -> dict[tuple[int, int], int]:
        """By attempt and rank."""
        found = {}
        for run in self.runs:
            recording = read(RunDirectory(run))
            counts = starts_before(recording)
            found.update({(counts[rank.header], rank.rank): len(rank.steps) for rank in recording.ranks})
        return found


def ended(
    place: Path,
    command: Sequence[object],
    *variables: Mapping[str, object],
    runs: str = "",
    until: tuple[str, str] = ("--steps", "40"),
) -> Ended:
    """`command` on each node, with these variables."""
    nodes: list[Node] = []
    words = [str(word) for word in command]
    try:
        for more in variables:
            environment = {**os.environ, **{name: str(value) for name, value in more.items()}}
            options = [*until, "--output", f"json:{place / 'report.json'}"]
            options += ["--runs", runs] if runs else []
            nodes.append(launched(words, place / "runs", *options, environment=environment))
        texts = [node.process.communicate(timeout=100)[0] for node in nodes]
    finally:
        for node in nodes:
            if node.process.poll() is None:
                # Its ranks would outlive it and wait for one another for hours.
                for one in [*psutil.Process(node.process.pid).children(recursive=True), node.process]:
                    one.kill()
    return Ended(place, [node.process.returncode for node in nodes], texts)


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    """Nodes that the rendezvous numbers; one of them has another PyTorch. In the store that agents share by default,
    ranks of a second attempt meet what the first has left, and hang, with perfdoctor or without (PyTorch 2.13)."""
    place = tmp_path_factory.mktemp("restarted")
    (place / "other").mkdir()
    (place / "other/sitecustomize.py").write_text(OTHER_TORCH)
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}", "--rdzv-id", "again"]
    agent = [*TORCHRUN, "--nnodes", 2, "--max-restarts", 1, *meeting, FAILS_ONCE]
    own_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": 1}
    yield ended(place, agent, own_store, {**own_store, "PYTHONPATH": place / "other"})


def test_of_a_job_that_was_restarted_all_ranks_of_the_last_attempt_leave_together(restarted: Ended) -> None:
    assert restarted.codes == [0, 0], restarted.texts
    assert restarted.ends == [("stopped", "")] * 2
    last = {rank: count for (number, rank), count in restarted.steps.items() if number == 1}
    assert set(last) == {0, 1} and len(set(last.values())) == 1


def test_the_last_attempt_is_judged_and_the_first_one_named(restarted: Ended) -> None:
    assert sorted(node["ranks"] for node in restarted.report["environment"]["job"]["nodes"]) == [[0], [1]]
    assert restarted.report["anatomy"]["count"] >= 40
    assert any("started 2 times, and this is about the last start" in note for note in restarted.notes)
    assert not any("nobody recorded" in note for note in restarted.notes)


def test_the_node_that_was_given_rank_0_reports_on_both(restarted: Ended) -> None:
    (other,) = [text for text in restarted.texts if "recorded; the node with rank" in text]
    assert "perfdoctor: rank 1 recorded; the node with rank 0 reports on the whole job" in other


def test_a_node_with_another_pytorch_is_named(restarted: Ended) -> None:
    assert any("torch 2.12.1+cpu" in note for note in restarted.notes), restarted.notes


def test_ranks_that_met_in_a_file_leave_at_the_same_step(tmp_path: Path) -> None:
    store = {"WORLD_SIZE": 2, "INIT_METHOD": f"file://{tmp_path}/store"}
    job = ended(tmp_path, [sys.executable, JOB], *({**store, "RANK": rank} for rank in range(2)))
    assert job.codes == [0, 0], job.texts
    assert job.ends == [("stopped", "")] * 2
    assert set(job.steps) == {(0, 0), (0, 1)} and len(set(job.steps.values())) == 1


def test_ranks_without_a_store_leave_at_the_step_that_was_agreed_on_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(WITHOUT_STORE.format(job=JOB))
    store = {"WORLD_SIZE": 2, "INIT_METHOD": f"file://{tmp_path}/store"}
    nodes = [{**store, "RANK": rank} for rank in range(2)]
    job = ended(tmp_path, [sys.executable, tmp_path / "job.py"], *nodes, until=("--leave-at", "150"))
    assert job.codes == [0, 0], job.texts
    assert job.ends == [("stopped", "")] * 2
    assert job.steps == {(0, 0): 150, (0, 1): 150}


@pytest.mark.parametrize("ranks", [1, 2])
def test_pods_of_a_pytorchjob_are_nodes_of_one_job(tmp_path: Path, ranks: int) -> None:
    """Each with the variables that Kubernetes' operator sets: RANK is the pod's."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    common = {**meeting, **{f"PET_{name}": value for name, value in meeting.items()}, "WORLD_SIZE": 2 * ranks}
    common |= {"PET_NNODES": 2, "PET_NPROC_PER_NODE": ranks, "PYTHONUNBUFFERED": 1}
    pods = [{**common, "RANK": pod, "PET_NODE_RANK": pod} for pod in range(2)]
    job = ended(tmp_path, [*(TORCHRUN if ranks > 1 else [sys.executable]), JOB], *pods, runs=f"file://{tmp_path}/runs")
    assert job.codes == [0, 0], job.texts
    assert job.ends == [("stopped", "")] * 2
    assert {rank for _, rank in job.steps} == set(range(2 * ranks)) and len(set(job.steps.values())) == 1
    found = job.report["environment"]["job"]
    assert found["world_size"] == 2 * ranks and not any("nobody recorded" in note for note in job.notes)
    # Pods have host names of their own; here only torchrun's numbers tell the nodes apart.
    nodes = [[0, 1], [2, 3]] if ranks == 2 else []
    assert [node["ranks"] for node in found["nodes"]] == nodes
