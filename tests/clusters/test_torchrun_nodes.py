"""Two agents of torchrun as two nodes, each under a perfdoctor of its own that records into the same directory."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from perfdoctor.exits import Exit

JOB = Path(__file__).parent.parent / "jobs" / "ddp_on_nodes.py"
PATIENCE_S = 120

pytestmark = pytest.mark.e2e


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@dataclass
class Launched:
    """One job of two nodes."""

    nodes: list[subprocess.Popen[str]]
    runs: Path
    report: Path
    """Of whichever node reports."""

    def ended(self) -> list[tuple[int, str, str]]:
        """Exit code, stdout and stderr of both, once they have ended."""
        try:
            said = [node.communicate(timeout=PATIENCE_S) for node in self.nodes]
        finally:
            self.kill()
        return [(node.returncode, *words) for node, words in zip(self.nodes, said, strict=True)]

    def kill(self, *numbers: int) -> None:
        """End nodes, or all of them: perfdoctor, the agent and its ranks at once."""
        for node in [self.nodes[number] for number in numbers] or self.nodes:
            if node.poll() is None:
                for process in (psutil.Process(node.pid), *psutil.Process(node.pid).children(recursive=True)):
                    process.kill()
                node.wait()

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.report.read_text())
        return found


def _started(place: Path, name: str, *words: object, watched: Sequence[bool] = (True, True)) -> Launched:
    """`words` go to the job; `watched` says under which of the nodes perfdoctor runs."""
    launched = Launched([], place / "runs", place / f"{name}.json")
    meeting = ["--master-addr", "127.0.0.1", "--master-port", str(_free_port())]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for node, under in enumerate(watched):
        agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(node), *meeting]
        check = [sys.executable, "-m", "perfdoctor", "check", "--to-end", "--fail-on", "error"]
        check += ["--runs", str(launched.runs), "--output", f"json:{launched.report}", "--"]
        command = [*(check if under else ()), *agent, str(JOB), *map(str, words)]
        launched.nodes.append(
            subprocess.Popen(
                command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
    return launched


@pytest.fixture(scope="module")
def two_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Launched, list[tuple[int, str, str]]]]]:
    """Two jobs at once into one directory of runs, each with a late rank, on another node."""
    place = tmp_path_factory.mktemp("two")
    jobs = [_started(place, name, 80, late) for name, late in (("first", 1), ("second", 0))]
    yield [(job, job.ended()) for job in jobs]


@pytest.mark.parametrize(("number", "late"), [(0, 1), (1, 0)])
def test_a_late_rank_is_named_with_its_cause_and_two_jobs_are_not_mixed_up(
    two_jobs: list[tuple[Launched, list[tuple[int, str, str]]]], number: int, late: int
) -> None:
    job, (reporting, other) = two_jobs[number]
    report = job.document()
    assert reporting[0] == Exit.FINDINGS and other[0] == Exit.OK
    assert "rank 1 recorded; the node with rank 0 reports on the whole job" in other[2]
    assert [node["ranks"] for node in report["environment"]["job"]["nodes"]] == [[0], [1]]
    assert report["environment"]["rank"] == late
    found = {finding["id"]: finding for check in report["checks"] for finding in check["findings"]}
    assert found["PD03.too-few-workers"]["rank_note"].startswith(f"rank {late} on ")
    assert [note for note in report["integrity"]["notes"] if note["code"] == "PD95"] == []


def test_a_healed_job_is_clear_and_computes_what_it_does_without_perfdoctor(tmp_path: Path) -> None:
    bare = _started(tmp_path, "bare", 80, watched=(False, False)).ended()
    job = _started(tmp_path, "healed", 80)
    said = job.ended()
    assert [code for code, *_ in bare] == [code for code, *_ in said] == [0, 0]
    assert bare[0][1] and bare[0][1] in said[0][1], "the same parameters after the last step"
    report = job.document()
    assert report["environment"]["job"]["world_size"] == 2
    late = [finding["id"] for check in report["checks"] for finding in check["findings"] if "late" in finding["id"]]
    alarms = set(report["ranked"]) - set(report["opportunities"])
    assert (late, alarms) == ([], set())


def test_a_node_without_perfdoctor_is_told_as_missing(tmp_path: Path) -> None:
    job = _started(tmp_path, "half", 40, watched=(True, False))
    assert [code for code, *_ in job.ended()] == [0, 0]
    notes = [note["message"] for note in job.document()["integrity"]["notes"] if note["code"] == "PD95"]
    assert notes and notes[0].startswith("rank 1 of 2 is not in it: nobody recorded it. Start perfdoctor on every node")


def test_a_job_is_reported_while_it_runs_and_after_a_node_was_killed(tmp_path: Path) -> None:
    job = _started(tmp_path, "killed", 2_000, 1)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not _found(document := _report(job.runs)) and time.monotonic() < deadline:
            time.sleep(1.0)
        assert _found(document) and document["integrity"]["job_end"]["kind"] == "running"
        assert document["environment"]["rank"] == 1, "the late one"
        job.kill(1)
        code, _, errors = job.ended()[0]
    finally:
        job.kill()
    assert code == Exit.JOB_FAILED, errors
    after = job.document()
    notes = [note["message"] for note in after["integrity"]["notes"] if note["code"] == "PD95"]
    assert any("stops without an end: perfdoctor was killed there" in note for note in notes)
    assert [node["ranks"] for node in after["environment"]["job"]["nodes"]] == [[0], [1]]
    assert _found(after), "nothing is lost"


def _report(runs: Path) -> dict[str, Any]:
    """What `perfdoctor report` says of the first recording there; empty before it can say anything."""
    recorded = sorted(runs.glob("*/run.json"))
    if not recorded:
        return {}
    report = [sys.executable, "-m", "perfdoctor", "report", "--fail-on", "never", "--output", "json:-"]
    said = subprocess.run([*report, str(recorded[0].parent)], capture_output=True, text=True, timeout=PATIENCE_S)
    document: dict[str, Any] = json.loads(said.stdout) if said.stdout else {}
    return document


def _found(document: dict[str, Any]) -> bool:
    """Whether it names what makes the rank late."""
    findings = [finding for check in document.get("checks", ()) for finding in check["findings"]]
    return any(finding["id"] == "PD03.too-few-workers" for finding in findings)
