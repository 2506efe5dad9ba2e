"""Healthy jobs of other people's training loops: nothing alarms, and the steps are theirs."""

from __future__ import annotations

import json
import shlex
import socket
from pathlib import Path
from typing import Any

import pytest
from running import JOBS, Checked, Perfdoctor

QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def _healthy(checked: Checked) -> None:
    assert checked.json["integrity"]["probe_faults"] == []
    # Where others crowd the machine out (tests run beside this one), that is found, and rightly so.
    crowded = {"PD03.no-cpu-left", "PD12.cpu-contention", "PD13.spin-collapse"} if checked.contended else set()
    alarming = set(checked.alarming) - crowded
    assert alarming == set(), checked.stdout
    assert checked.code == (1 if checked.alarming else 0), checked.stderr


@pytest.mark.slow
def test_lightning(perfdoctor: Perfdoctor, tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    checked = perfdoctor.check("--fail-on", "warning", "--to-end", JOBS / "lightning_job.py", tmp_path)
    _healthy(checked)
    assert "steps 60\n" in checked.stdout
    assert checked.steps == 60
    assert checked.json["anatomy"]["boundary"] == "optimizer"
    assert "lightning" in checked.json["environment"]["job"]["frameworks"]


@pytest.mark.slow
def test_transformers_trainer(perfdoctor: Perfdoctor, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    checked = perfdoctor.check("--fail-on", "warning", "--to-end", JOBS / "trainer_job.py", tmp_path, env=QUIET)
    _healthy(checked)
    assert "steps 40\n" in checked.stdout
    assert checked.steps == 40
    assert checked.json["anatomy"]["micro_batches"] == 2
    assert "transformers" in checked.json["environment"]["job"]["frameworks"]


TORCHRUN = ("--", "torchrun", "--standalone", "--nproc-per-node", "2", JOBS / "ddp_job.py")


def test_torchrun(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check("--fail-on", "warning", "--to-end", "--trace", "trace.json", *TORCHRUN, "60")
    _healthy(checked)
    assert sorted(line for line in checked.stdout.splitlines() if line.startswith("done")) == ["done 0", "done 1"]
    assert checked.steps == 60
    job = checked.json["environment"]["job"]
    assert (job["local_ranks"], job["world_size"]) == (2, 2)
    told = {measurement["name"]: measurement["value"] for measurement in checked.check("PD19")["measurements"]}
    assert told["ranks"] == 2 and told["exposed_ms"] > 0
    for rank in (0, 1):
        events = json.loads((perfdoctor.directory / f"trace.rank{rank}.json").read_text())["traceEvents"]
        assert "waiting for other ranks" in {event["name"] for event in events}


@pytest.mark.slow
def test_a_rank_that_is_late_in_its_backward_pass_is_named(perfdoctor: Perfdoctor) -> None:
    """Every rank's backward pass takes as long, because it ends with the reduction."""
    checked = perfdoctor.check(*TORCHRUN, "60", "30")
    assert checked.findings["PD19.late-rank"]["severity"] == "error", checked.stdout
    told = {measurement["name"]: measurement["value"] for measurement in checked.check("PD19")["measurements"]}
    assert (told["late_rank"], told["late_reason"]) == (1, "backward")
    assert checked.json["environment"]["rank"] == 1


@pytest.mark.slow
def test_a_node_whose_ranks_are_all_late_is_named(perfdoctor: Perfdoctor) -> None:
    """Two agents of torchrun stand for two nodes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    agent = f"torchrun --nnodes 2 --nproc-per-node 2 --master-addr 127.0.0.1 --master-port {port} --node-rank"
    job = shlex.quote(str(JOBS / "ddp_job.py"))
    both = f"{agent} 1 {job} 60 40 node & {agent} 0 {job} 60 40 node; wait $!"
    checked = perfdoctor.check("--", "bash", "-c", both)
    assert checked.findings["PD19.late-node"]["severity"] == "error", checked.stdout
    told = {one["name"]: one["value"] for one in checked.findings["PD19.late-node"]["evidence"]}
    assert told["late_ranks"] == 2 and told["rank"] in (2, 3)
    assert told["node"].endswith("(1)")


def _divided(perfdoctor: Perfdoctor, kind: str, ranks: int) -> tuple[Checked, dict[str, Any]]:
    """A run whose ranks divide a model, and what PD19 measured."""
    torchrun = ("--", "torchrun", "--standalone", "--nproc-per-node", str(ranks), JOBS / "divided_job.py")
    checked = perfdoctor.check("--to-end", *torchrun, kind, "150")
    done = sorted(line.split()[:2] for line in checked.stdout.splitlines() if line.startswith("done"))
    assert done == [["done", str(rank)] for rank in range(ranks)]
    return checked, {one["name"]: one["value"] for one in checked.check("PD19")["measurements"]}


@pytest.mark.slow
def test_a_model_that_is_sharded_layer_by_layer_is_named_and_one_that_is_whole_is_not(perfdoctor: Perfdoctor) -> None:
    checked, _ = _divided(perfdoctor, "shards", 2)
    assert checked.findings["PD19.small-shards"]["severity"] == "error", checked.stdout
    healed, told = _divided(perfdoctor, "whole", 2)
    assert "PD19.small-shards" not in healed.findings and told["ranks"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "ranks"), [("stages", 2), ("tensor", 2), ("tensor", 4)])
def test_ranks_that_hold_other_parts_of_a_model_are_not_late(kind: str, ranks: int, perfdoctor: Perfdoctor) -> None:
    checked, told = _divided(perfdoctor, kind, ranks)
    alarms = [name for name, one in checked.findings.items() if "late" in name and one["severity"] != "note"]
    assert alarms == [], checked.stdout
    assert told["ranks"] == ranks and told["exposed_ms"] > 0
    if ranks == 2:
        assert told["late_ms"] == 0


@pytest.mark.slow
def test_torchrun_is_stopped_with_all_its_ranks(perfdoctor: Perfdoctor) -> None:
    """Both ranks leave at the same step, so that none waits for the other, and torchrun sees no failure."""
    checked = perfdoctor.check("--fail-on", "warning", "--steps", "30", *TORCHRUN, "0")
    _healthy(checked)
    assert checked.facts["end"] == "stopped"
    assert checked.facts["detail"] == ""
    assert "Traceback" not in checked.stderr and "SIGTERM" not in checked.stderr


@pytest.mark.slow
@pytest.mark.parametrize("by", ["lightning", "transformers"])
def test_a_trainer_that_is_ended_says_how_many_steps_it_would_have_taken(
    by: str, perfdoctor: Perfdoctor, tmp_path: Path
) -> None:
    pytest.importorskip(by)
    whole = perfdoctor.check("--steps", "60", JOBS / "ended.py", by, tmp_path, env=QUIET).json["job"]["whole"]
    assert (whole["by"], whole["at_most"]) == (by, False), whole
    assert whole["steps"] == pytest.approx(50_000, abs=2)
