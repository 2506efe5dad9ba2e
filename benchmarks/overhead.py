"""What observing costs the job: perfdoctor and its peers on the same training loop, paired and interleaved.

    python benchmarks/overhead.py [--rounds 7] [--peers] [--output FILE.json]
    python benchmarks/overhead.py --only profile --longer 5     sampling: what `perfdoctor profile` costs

Every round runs each variant once, in random order, in fresh processes; a variant is compared with the bare run
of its own round, and medians over the rounds are printed with their range. The loop times its own steps, so start-up
and exit are apart. With `--peers` Scalene and TraceML are installed into an environment of their own first.

All run with one thread, and with freed memory kept: where it comes and goes, launches of one program differ by 10 %.
Run it on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from perfdoctor.gate.comparison import STEADY_MEMORY

HERE = Path(__file__).resolve().parent
JOB = HERE / "jobs" / "mlp.py"
PEERS = HERE.parent / ".venv-peers"
CONSTRAINTS = HERE.parent / "constraints.txt"
WARM_UP = 30
"""Steps left out at the start; perfdoctor's windows lie among the steps that a trimmed mean leaves out."""
SIZES = {"1 ms": ("1500", "160"), "5 ms": ("800", "512"), "20 ms": ("200", "1024")}


@dataclass(frozen=True)
class Result:
    """One run of the job."""

    step_us: float
    """10 % trimmed mean of its steps after the warm-up."""
    median_us: float
    first_step_s: float
    total_s: float


Variant = Callable[[list[str], Path], Result]


def run(argv: list[str], **extra: str) -> Result:
    """Run `argv` and read what the job printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **STEADY_MEMORY, **extra}
    began = time.time()
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    total = time.time() - began
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{") and "step" in line]
    found = {key: value for line in lines for key, value in line.items()}
    if "step_us" not in found:
        raise SystemExit(f"{' '.join(argv)} printed no steps:\n{done.stdout[-500:]}\n{done.stderr[-1500:]}")
    steps = sorted(found["step_us"][WARM_UP:])
    cut = len(steps) // 10
    return Result(
        step_us=statistics.fmean(steps[cut : len(steps) - cut]),
        median_us=statistics.median(steps),
        first_step_s=found["first_step_s"],
        total_s=total,
    )


def variants(peers: bool) -> dict[str, Variant]:
    """Name -> how to run the job under it."""
    python = sys.executable
    perfdoctor = str(Path(python).with_name("perfdoctor"))

    def under_perfdoctor(command: list[str], job: list[str], scratch: Path) -> Result:
        where = ["--runs", str(scratch / "runs"), "--output", f"json:{scratch}/report.json"]
        return run([perfdoctor, *command, "--to-end", *where, *job])

    found: dict[str, Variant] = {
        "bare": lambda job, scratch: run([python, *job]),
        "bare again": lambda job, scratch: run([python, *job]),
        "perfdoctor": partial(under_perfdoctor, ["check", "--fail-on", "never"]),
        "profile": partial(under_perfdoctor, ["profile"]),
        "torch.profiler": lambda job, scratch: run([python, *job], PROFILE="torch"),
        "cProfile": lambda job, scratch: run([python, "-m", "cProfile", "-o", str(scratch / "c.prof"), *job]),
    }
    if peers:
        scripts = _peers()
        found["scalene"] = lambda job, scratch: run(
            [str(scripts / "scalene"), "run", "--cpu-only", "-o", str(scratch / "scalene.json"), *job]
        )
        found["traceml"] = lambda job, scratch: run([str(scripts / "traceml"), "run", job[0], "--args", *job[1:]])
    return found


def _peers() -> Path:
    scripts = PEERS / "bin"
    if not scripts.is_dir():
        venv.create(PEERS, with_pip=True)
        subprocess.run(
            [scripts / "pip", "install", "-q", "-c", CONSTRAINTS, "torch", "scalene", "traceml-ai", "numpy"], check=True
        )
    return scripts


def measure(rounds: int, peers: bool, only: list[str], longer: int) -> dict[str, dict[str, list[Result]]]:
    """Size -> variant -> one result per round."""
    table: dict[str, dict[str, list[Result]]] = {size: {} for size in SIZES}
    known = {name: way for name, way in variants(peers).items() if not only or name in (*only, "bare", "bare again")}
    for number in range(rounds):
        for size, (steps, width) in SIZES.items():
            arguments = [str(longer * int(steps)), width]
            names = list(known)
            random.shuffle(names)
            for name in names:
                with tempfile.TemporaryDirectory() as scratch:
                    try:
                        result = known[name]([str(JOB), *arguments], Path(scratch))
                    except SystemExit as error:
                        print(error, file=sys.stderr)
                        del known[name]  # a peer that cannot run the job at all is reported as such
                        continue
                table[size].setdefault(name, []).append(result)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return table


def report(table: dict[str, dict[str, list[Result]]]) -> str:
    """Markdown: added per step, as a ratio, and at the start; medians over rounds with their range."""
    lines = ["| step | under | added per step | step, ratio to bare | start, added |", "|---|---|---|---|---|"]
    for size, results in table.items():
        bare = results["bare"]
        for name, runs in results.items():
            if name == "bare":
                continue
            pairs = list(zip(runs, bare, strict=False))
            added = [one.step_us - other.step_us for one, other in pairs]
            ratio = [one.step_us / other.step_us for one, other in pairs]
            start = [one.first_step_s - other.first_step_s for one, other in pairs]
            lines.append(
                f"| {size} | {name} | {_middle(added, 'us', 0)} | {_middle(ratio, 'x', 3)} | {_middle(start, 's', 2)} |"
            )
    return "\n".join(lines)


def _middle(values: list[float], unit: str, digits: int) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} {unit} [{low:.{digits}f}, {high:.{digits}f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these, beside the bare runs")
    parser.add_argument("--longer", type=int, default=1, help="times the steps of each job")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    table = measure(options.rounds, options.peers, options.only, options.longer)
    print(report(table))
    if options.output:
        plain = {
            size: {name: [vars(r) for r in runs] for name, runs in results.items()} for size, results in table.items()
        }
        options.output.write_text(json.dumps(plain, indent=1))


if __name__ == "__main__":
    main()
