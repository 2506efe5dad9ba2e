"""How often all ranks of two nodes leave at the same step, though each node's perfdoctor hears from its own ranks only.

    python -m benchmarks.stop_together [--runs 20] [--ranks 1 2]

Two torchrun agents on this machine stand for two nodes, each with a perfdoctor and a directory for runs of its own.
A run takes 10 to 20 seconds. It is right when both agents end by themselves with exit code 0, every rank has taken
the same number of steps, and nobody had to be terminated.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.reader import read

JOB = Path(__file__).resolve().parent / "jobs" / "endless.py"


@dataclass(frozen=True)
class Node:
    """One node's launch, and where its perfdoctor records."""

    process: subprocess.Popen[str]
    runs: Path

    @property
    def run(self) -> Path:
        (run,) = self.runs.iterdir()
        return run

    @property
    def end(self) -> Mapping[str, object]:
        """How its job ended, of run.json."""
        facts: Mapping[str, object] = json.loads((self.run / "run.json").read_text())
        return facts

    @property
    def steps(self) -> dict[int, int]:
        """Of each rank here, by its number."""
        return {rank.rank: len(rank.steps) for rank in read(RunDirectory(self.run)).ranks}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def torchrun(number: int, ranks: int, port: int, *job: str) -> list[str]:
    """What starts node `number` of two."""
    agent = str(Path(sys.executable).with_name("torchrun"))
    words = [agent, "--nnodes", "2", "--node-rank", str(number), "--nproc-per-node", str(ranks)]
    return [*words, "--master-addr", "127.0.0.1", "--master-port", str(port), str(JOB), *job]


def launched(command: Sequence[str], runs: Path, *options: str, environment: Mapping[str, str] = os.environ) -> Node:
    """`command` under a perfdoctor of its own, with these options; without any, as it is."""
    words = [sys.executable, "-m", "perfdoctor", "check", "--runs", str(runs), "--fail-on", "never", *options, "--"]
    process = subprocess.Popen(
        [*(words if options else ()), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**environment, "OMP_NUM_THREADS": "1"},
    )
    return Node(process, runs)


def trouble(ranks: int, directory: Path) -> str:
    """What was wrong with one run; "" if nothing."""
    port = free_port()
    nodes = [launched(torchrun(number, ranks, port), directory / str(number), "--steps", "60") for number in range(2)]
    try:
        for node in nodes:
            node.process.communicate(timeout=100)
    except subprocess.TimeoutExpired:
        return "it hung"
    finally:
        for node in nodes:
            node.process.terminate()
    codes = [node.process.returncode for node in nodes]
    ends = [(node.end["end"], node.end["detail"]) for node in nodes]
    steps = {rank: count for node in nodes for rank, count in node.steps.items()}
    if codes != [0, 0] or ends != [("stopped", "")] * 2:
        return f"exit codes {codes}, {ends}"
    if len(steps) != 2 * ranks or len(set(steps.values())) != 1:
        return f"steps by rank {steps}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="on each node, by turns")
    asked = parser.parse_args()
    right = 0
    for number in range(asked.runs):
        ranks = asked.ranks[number % len(asked.ranks)]
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as directory:
            wrong = trouble(ranks, Path(directory))
        right += not wrong
        print(f"{ranks} ranks x 2 nodes, {time.monotonic() - began:.0f} s: {wrong or 'together'}", flush=True)
    print(f"{right} of {asked.runs} left together")


if __name__ == "__main__":
    main()
