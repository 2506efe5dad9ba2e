"""Jobs of more ranks than are judged one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.evidence.model import Communication, Missing
from perfdoctor.recording.digesting import write_digest
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.model import MANY
from perfdoctor.recording.reader import read
from perfdoctor.report.content import prepare
from perfdoctor.report.jsonreport import document
from perfdoctor.trials.judge import judge

RECORDED = Path(__file__).parent.parent / "recordings" / "two_ranks"
RANKS = MANY + 6
LATE = 41
BY_US = 3_000
DEAD = (50, 51, 52)
"""Ranks of a node that died early."""


def _copies(directory: Path) -> RunDirectory:
    """As many ranks as that, all doing what rank 0 of the recording did, but one that is late, and all wait for it."""
    for name in ("run.json", "machine.json", "host.jsonl"):
        (directory / name).write_bytes((RECORDED / name).read_bytes())
    path = min(RECORDED.glob("process-*.jsonl"), key=lambda one: '"rank":0' not in one.read_text())
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for rank in range(RANKS):
        lines = [json.dumps(record, separators=(",", ":")) for record in _of_rank(records, rank)]
        (directory / f"process-{1000 + rank}-{rank}.jsonl").write_text("\n".join(lines) + "\n")
    return RunDirectory(directory)


def _of_rank(records: Sequence[dict[str, object]], rank: int) -> list[dict[str, object]]:
    numbers = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    made: list[dict[str, object]] = []
    for record in records:
        match record["k"]:
            case "process":
                made.append(record | {"pid": 1000 + rank})
            case "torch":
                made.append(record | {"environment": numbers})
            case "settings":
                made.append(record | {"environment": numbers, "rank": rank, "world_size": RANKS})
            case "steps" if rank in DEAD and int(str(record["first"])) > 150:
                break
            case "steps":
                longer = "backward_us" if rank == LATE else "communication_us"
                made.append(record | {name: _more(record[name], BY_US) for name in ("wall_us", longer)})
            case _:
                made.append(record)
    return made


def _more(column: object, us: int) -> object:
    return [one + us for one in column] if isinstance(column, list) else int(str(column)) + us


@pytest.fixture(scope="module")
def from_files(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    return judge(_copies(tmp_path_factory.mktemp("files")), Config())


@pytest.fixture(scope="module")
def digested(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    run = _copies(tmp_path_factory.mktemp("digests"))
    assert write_digest(run) is not None
    for path in run.process_files():
        path.unlink()
    return run


@pytest.fixture(scope="module")
def from_digests(digested: RunDirectory) -> Diagnosis:
    return judge(digested, Config())


def _together(diagnosis: Diagnosis) -> Communication:
    together = diagnosis.evidence.communication
    assert not isinstance(together, Missing), together
    return together


def test_findings_and_gains_are_those_of_the_recordings(from_files: Diagnosis, from_digests: Diagnosis) -> None:
    def told(diagnosis: Diagnosis) -> list[tuple[object, ...]]:
        return [(found.id, found.location, found.savings, found.rank_note) for found in diagnosis.ranked]

    assert told(from_digests) == told(from_files)
    assert "PD19.late-rank" in {found.id for found in from_digests.ranked}
    assert document(from_digests) == document(from_files)


def test_collectives_are_those_of_the_recordings(from_files: Diagnosis, from_digests: Diagnosis) -> None:
    assert _together(from_files).collectives
    for one, other in zip(_together(from_files).collectives, _together(from_digests).collectives, strict=True):
        assert (one.kind, one.site) == (other.kind, other.site)
        assert other.least_ms == pytest.approx(one.least_ms, rel=0.1)


def test_every_rank_is_compared_and_few_are_judged(from_digests: Diagnosis) -> None:
    together = _together(from_digests)
    assert len(together.ranks) == RANKS - len(DEAD)
    assert (together.late, together.longest[0].rank, from_digests.evidence.rank) == (LATE, LATE, LATE)
    assert together.late_ms == pytest.approx(BY_US / 1000)
    assert {0, LATE} < set(together.judged)
    assert len(together.judged) <= 5


def test_ranks_of_a_dead_node_cost_the_others_no_steps(from_digests: Diagnosis) -> None:
    together = _together(from_digests)
    assert together.left_out == DEAD
    assert together.steps > 300


def test_only_what_ranks_are_compared_by_is_read_of_all(digested: RunDirectory) -> None:
    recording = read(digested)
    assert len(recording.ranks) == RANKS
    assert all(process.ops is None and not len(process.fetches) for process in recording.ranks)
    whole = recording.in_full(recording.ranks[3:4])
    assert len(whole.processes) == len(recording.processes)
    assert [process.rank for process in whole.ranks if process.ops is not None] == [3]
    assert [process.rank for process in whole.read_wholly().ranks] == [3]


def test_a_report_names_three_ranks_and_the_distribution(from_digests: Diagnosis) -> None:
    sentence = prepare(from_digests).ranks
    assert sentence.startswith(f"Own work of {RANKS - len(DEAD)} ranks per step: median ")
    assert f"most on rank {LATE} (" in sentence
    assert "Not compared: ranks 50 to 52," in sentence
    ranks = document(from_digests)["ranks"]
    assert isinstance(ranks, dict)
    longest, own = ranks["longest"], ranks["own_ms"]
    assert isinstance(longest, list)
    assert isinstance(own, dict)
    assert len(longest) == 3
    assert own["least"] == own["median"] < own["most"]
