"""Do trials measure truly? Compares what `perfdoctor check --trial` says with both versions of a job run in full.

    python benchmarks/trials.py [--only NAME] [--repeats 1] [--pairs 4] [--neighbour] [--output FILE]

The truth is from fresh processes of the ill and the cured job that take turns. On a healthy job the remedy `nothing`
is tried, which must not be said to help. `--neighbour` keeps one core busy meanwhile, from a session of its own, as
another user would. A case takes about a minute.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

JOB = Path(__file__).parent / "jobs" / "curable.py"
BUSY = "while True: pass"
TIMEOUT_S = 120
TRIAL_SECONDS = 30


@dataclass(frozen=True)
class Case:
    """A job and the remedy that cures it."""

    name: str
    remedy: str
    steps: int
    """Of one run in full: about three seconds."""
    environment: Mapping[str, str] | None = None
    """Of the cured job."""


MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**33), "MALLOC_TOP_PAD_": str(2**28)}
CASES = (
    Case("collect", "gc.no-explicit", 30),
    Case("float64", "dtype.float32", 100),
    Case("malloc", "memory.malloc", 20, MALLOC),
    Case("loading", "etl.workers=2", 100),
    Case("trivial", "etl.workers=0", 800),
    Case("healthy", "nothing", 400),
)


@dataclass(frozen=True)
class Result:
    """One case, once."""

    name: str
    neighbour: bool
    truth: float
    truth_low: float
    truth_high: float
    """99 % interval of the truth itself."""
    measured: float | None
    low: float | None
    high: float | None
    verdict: str

    @property
    def covers(self) -> bool:
        return self.low is not None and self.high is not None and self.low <= self.truth <= self.high

    @property
    def agrees(self) -> bool:
        """The two intervals have something in common."""
        return (
            self.low is not None
            and self.high is not None
            and self.low <= self.truth_high
            and self.truth_low <= self.high
        )


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERFDOCTOR")}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


def in_full(case: Case, cured: bool) -> float:
    """Milliseconds of a step of one fresh process."""
    words = [sys.executable, str(JOB), case.name, "cured" if cured else "ill", str(case.steps)]
    more = case.environment if cured and case.environment else {}
    done = subprocess.run(words, env=environment(**more), capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    return float(done.stdout)


def truth(case: Case, pairs: int) -> tuple[float, float, float]:
    """How many times as fast the cured job is, with its interval, from pairs of runs in random order."""
    ratios = []
    for _ in range(pairs):
        first = random.random() < 0.5
        times = {cured: in_full(case, cured) for cured in (first, not first)}
        ratios.append(math.log(times[False] / times[True]))
    values = np.array(ratios)
    half = float(stdtrit(pairs - 1, 0.995)) * float(values.std(ddof=1)) / math.sqrt(pairs)
    middle = float(values.mean())
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def tried(case: Case) -> tuple[dict[str, float] | None, str]:
    """Gain and verdict of the remedy, from a trial on the ill job."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.json"
        words = [sys.executable, "-m", "perfdoctor", "check", "--trial", "--try", case.remedy, "--steps", "30"]
        words += [
            "--trial-seconds",
            str(TRIAL_SECONDS),
            "--runs",
            directory,
            "--job-output",
            "file",
            "--fail-on",
            "never",
        ]
        # The remedy in question alone: other findings would take their share of the time.
        words += ["--select", "PD01", "--output", f"json:{report}", str(JOB), case.name, "ill", "0"]
        state = environment(XDG_STATE_HOME=directory)
        done = subprocess.run(words, env=state, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)} failed:\n{done.stderr}")
        trials = json.loads(report.read_text())["trials"]["single"]
    found = next(trial for trial in trials if trial["remedy"] == case.remedy)
    return found["gain"], found["verdict"] if found["gain"] else f"{found['verdict']}: {found['reason']}"


@contextmanager
def neighbour(wanted: bool) -> Iterator[None]:
    """One core kept busy. In a session of its own: the scheduler shares CPUs out by session first."""
    if not wanted:
        yield
        return
    busy = subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True)
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def measure(case: Case, pairs: int, beside: bool) -> Result:
    with neighbour(beside):
        gain, verdict = tried(case)
        factor, low, high = (1.0, 1.0, 1.0) if case.remedy == "nothing" else truth(case, pairs)
    known = gain or {}
    return Result(
        case.name, beside, factor, low, high, known.get("factor"), known.get("low"), known.get("high"), verdict
    )


def row(result: Result) -> str:
    where = "neighbour" if result.neighbour else "alone"
    true = f"{result.truth:6.2f} [{result.truth_low:.2f}, {result.truth_high:.2f}]"
    if result.measured is None:
        return f"{result.name:<9} {where:<9} truth {true:<22} {result.verdict}"
    trial = f"{result.measured:6.2f} [{result.low:.2f}, {result.high:.2f}]"
    said = "covers" if result.covers else "agrees" if result.agrees else "MISSES"
    return f"{result.name:<9} {where:<9} truth {true:<22} trial {trial:<22} {result.verdict:<13} {said}"


def summary(results: list[Result]) -> str:
    cured = [result for result in results if result.name != "healthy" and result.measured is not None]
    healthy = [result for result in results if result.name == "healthy"]
    return (
        f"interval covers the truth: {sum(r.covers for r in cured)} of {len(cured)}; "
        f"agrees with the truth's own interval: {sum(r.agrees for r in cured)} of {len(cured)}; "
        f"not measured: {sum(r.measured is None for r in results)}; "
        f"`nothing` said to help: {sum(r.verdict == 'helped' for r in healthy)} of {len(healthy)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=[case.name for case in CASES])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=4, help="of full runs, for the truth")
    parser.add_argument("--neighbour", action="store_true", help="keep one core busy meanwhile")
    parser.add_argument("--output", type=Path, help="add the results to this file of JSON lines")
    options = parser.parse_args()
    results = []
    for _ in range(options.repeats):
        for case in CASES:
            if options.only in (None, case.name):
                results.append(measure(case, options.pairs, options.neighbour))
                print(row(results[-1]), flush=True)
                if options.output:
                    with options.output.open("a") as file:
                        file.write(json.dumps(asdict(results[-1])) + "\n")
    print(summary(results))


if __name__ == "__main__":
    main()
