"""Two torchrun agents as two nodes: their ranks leave together, whoever ends the run, and run on where they cannot."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from benchmarks.stop_together import Node, free_port, launched, torchrun
from perfdoctor.launch.job import write_facts
from perfdoctor.recording.directory import RunDirectory

pytestmark = pytest.mark.e2e

INJECTED = Path(__file__).parent.parent.parent / "perfdoctor" / "injected"
_STEPPING = 64
"""Steps of a few milliseconds, after which windows have closed and ranks have long connected."""


@dataclass(frozen=True)
class Ended:
    """Two nodes that are through."""

    nodes: Sequence[Node]
    codes: Sequence[int]
    texts: Sequence[str]

    @property
    def steps(self) -> dict[int, int]:
        return {rank: count for node in self.nodes for rank, count in node.steps.items()}


@contextmanager
def started(*nodes: Node) -> Iterator[None]:
    """None is left running."""
    try:
        yield
    finally:
        for node in nodes:
            if node.process.poll() is None:
                node.process.kill()


def through(*nodes: Node) -> Ended:
    texts = [node.process.communicate(timeout=90)[0] for node in nodes]
    return Ended(nodes, [node.process.returncode for node in nodes], texts)


def steps_soon(*nodes: Node) -> None:
    """Wait until every rank has taken so many steps that it surely met the others."""
    deadline = time.monotonic() + 60
    for node in nodes:
        while not _stepping(node):
            assert time.monotonic() < deadline and node.process.poll() is None
            time.sleep(0.2)
    time.sleep(2.0)


def _stepping(node: Node) -> bool:
    return (
        node.runs.is_dir()
        and bool(list(node.runs.glob("*/process-*")))
        and max(node.steps.values(), default=0) > _STEPPING
    )


def test_ranks_of_two_nodes_leave_at_the_same_step(tmp_path: Path) -> None:
    port = free_port()
    nodes = [launched(torchrun(n, 2, port), tmp_path / str(n), "--steps", "40") for n in range(2)]
    with started(*nodes):
        ended = through(*nodes)
    assert ended.codes == [0, 0], ended.texts
    assert [(node.end["end"], node.end["detail"]) for node in nodes] == [("stopped", "")] * 2
    assert set(ended.steps) == {0, 1, 2, 3} and len(set(ended.steps.values())) == 1


def test_who_interrupts_perfdoctor_on_one_node_ends_the_job_on_all(tmp_path: Path) -> None:
    port = free_port()
    nodes = [launched(torchrun(n, 1, port), tmp_path / str(n), "--seconds", "300") for n in range(2)]
    with started(*nodes):
        steps_soon(*nodes)
        nodes[1].process.send_signal(signal.SIGTERM)
        ended = through(*nodes)
    assert ended.codes == [0, 0], ended.texts
    assert nodes[1].end["end"] == "interrupted"
    assert nodes[0].end["end"] == "stopped" and "was interrupted on" in str(nodes[0].end["detail"])
    assert set(ended.steps) == {0, 1} and len(set(ended.steps.values())) == 1


def test_a_job_of_which_one_node_is_not_observed_runs_on_to_its_end_and_it_is_said_why(tmp_path: Path) -> None:
    port = free_port()
    seen = launched(torchrun(0, 1, port, "4", "1500"), tmp_path / "0", "--steps", "40")
    other = launched(torchrun(1, 1, port, "4", "1500"), tmp_path / "1")
    with started(seen, other):
        ended = through(seen, other)
    assert ended.codes == [0, 0], ended.texts
    assert all(f"rank {number}: " in text for number, text in enumerate(ended.texts)), "both came to the end"
    assert seen.end["end"] == "finished"
    assert seen.end["detail"] == "it was not ended early: perfdoctor does not observe rank 1"


def test_a_rank_that_no_launcher_hears_from_leaves_with_the_others(tmp_path: Path) -> None:
    port = free_port()
    lonely = tmp_path / "1" / "run"
    lonely.mkdir(parents=True)
    write_facts(RunDirectory(lonely), command=["train.py"], cwd="/", started="", version="")
    probed = {**os.environ, "PYTHONPATH": str(INJECTED), "PERFDOCTOR_RUN": str(lonely), "PERFDOCTOR_WINDOWS": ""}
    nodes = [
        launched(torchrun(0, 1, port), tmp_path / "0", "--steps", "40"),
        launched(torchrun(1, 1, port), tmp_path / "1", environment=probed),
    ]
    with started(*nodes):
        ended = through(*nodes)
    assert ended.codes == [0, 0], ended.texts
    assert nodes[0].end["end"] == "stopped"
    assert set(ended.steps) == {0, 1} and len(set(ended.steps.values())) == 1


def test_a_node_that_dies_is_not_waited_for(tmp_path: Path) -> None:
    port = free_port()
    nodes = [
        launched(torchrun(0, 1, port), tmp_path / "0", "--seconds", "300"),
        launched(torchrun(1, 1, port), tmp_path / "1"),
    ]
    with started(*nodes):
        steps_soon(nodes[0])
        _kill(nodes[1].process.pid)
        ended = through(*nodes)
    assert nodes[0].end["end"] == "crashed" and nodes[0].steps[0] > _STEPPING
    assert ended.codes[0] == 4, ended.texts


def _kill(pid: int) -> None:
    """The agent and its ranks at once, as when a machine is gone."""
    agent = psutil.Process(pid)
    for process in [agent, *agent.children(recursive=True)]:
        process.kill()
