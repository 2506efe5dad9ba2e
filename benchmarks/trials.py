"""Do trials measure truly? Compares what `perfdoctor check --trial` says with the ill and the cured job themselves.

    python benchmarks/trials.py [--only NAME,NAME] [--repeats 1] [--trials 1] [--pairs 3] [--neighbour] [--output FILE]

The truth is from fresh processes of both versions that run side by side and take turns, slice by slice, in random
order, so that what the machine does to one it does to the other; steps after each change of turns are not timed, as a
trial does not count them. The pair of processes is the unit of its interval. On a healthy job the remedy `nothing` is
tried, which must not be said to help. `--neighbour` keeps one core busy meanwhile, from a session of its own, as
another user would. A case takes one to two minutes; `healthy` is tried 25 times in one launch. How often intervals hold
the truth is told by `--trials 10 --pairs 10`: the truth is then known better than a trial can know it.
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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
from scipy.special import stdtrit

from perfdoctor.gate.comparison import STEADY_MEMORY
from perfdoctor.trials.blocks import MORE

JOB = Path(__file__).parent / "jobs" / "curable.py"
BUSY = "while True: pass"
REST_S = 90
"""For the check before the trial, and to end the job."""
TRIAL_SECONDS = 30
WARM_UP = 20
SLICE_MS = 250.0
ROUNDS = 12


@dataclass(frozen=True)
class Case:
    """A job and the remedy that cures it; several, with commas between, are judged by the trial of all together."""

    name: str
    remedy: str
    settle: int = 3
    """Steps after each change of turns that are not timed; more than a loader's queue holds."""
    environment: Mapping[str, str] = field(default_factory=lambda: STEADY_MEMORY)
    """Of the job, ill and cured and in its trial. A trial is made in one launch and the truth in several, which differ
    by 10 % where memory comes and goes."""
    cured: Mapping[str, str] = field(default_factory=dict)
    """Besides, of the cured job."""
    seconds: int = TRIAL_SECONDS
    tries: int = 1
    """Of the remedy in one launch, one after the other, each a trial of its own with a number for a name."""

    @property
    def wanted(self) -> list[str]:
        """What `--try` is given."""
        return [self.remedy] if self.tries == 1 else [f"{self.remedy}={number + 1}" for number in range(self.tries)]


CASES = (
    Case("collect", "gc.no-explicit"),
    Case("containers", "gc.thresholds"),
    Case("float64", "dtype.float32"),
    Case("malloc", "memory.malloc", environment={}, cured=STEADY_MEMORY),
    Case("anomaly", "debug.off"),
    Case("onednn", "onednn.on"),
    Case("update", "optimizer.fused"),
    Case("uneven", "etl.prefetch=8", settle=20),
    Case("loading", "etl.workers=2", settle=12),
    Case("trivial", "etl.workers=0", settle=12),
    Case("both", "gc.no-explicit,dtype.float32", seconds=120),
    Case("compiled", "compile.model", seconds=90),
    Case("healthy", "nothing", seconds=120, tries=25),
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
        """The difference is no larger than both intervals together explain."""
        if self.measured is None or self.low is None or self.high is None:
            return False
        half = math.hypot(math.log(self.high / self.low) / 2, math.log(self.truth_high / self.truth_low) / 2)
        return abs(math.log(self.measured / self.truth)) <= half

    @property
    def error(self) -> float | None:
        """Of the trial, relative to the truth."""
        return None if self.measured is None else self.measured / self.truth - 1


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERFDOCTOR")}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


class Version:
    """One process of the job, which steps when it is told to."""

    def __init__(self, case: Case, cured: bool) -> None:
        words = [sys.executable, str(JOB), case.name, "cured" if cured else "ill", "turns"]
        more = {**case.environment, **(case.cured if cured else {})}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, env=environment(**more), stdin=pipe, stdout=pipe, text=True)
        self.settle = case.settle
        # The first steps of a process are unlike all others.
        self.count = max(3, round(SLICE_MS / self.turn(max(WARM_UP, case.settle), 3)))

    def turn(self, settle: int, count: int) -> float:
        """Milliseconds of a step."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{settle} {count}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def slice(self) -> float:
        """The same, in this version's next turn, of uneven length as a trial's blocks are."""
        return self.turn(self.settle, self.count + random.randint(0, MORE))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def log_ratio(case: Case) -> float:
    """Of one pair of processes: the mean over rounds of turns."""
    versions: dict[bool, Version] = {}
    try:
        for cured in random.sample([False, True], 2):
            versions[cured] = Version(case, cured)
        ratios = []
        for _ in range(ROUNDS):
            times = {cured: versions[cured].slice() for cured in random.sample([False, True], 2)}
            ratios.append(math.log(times[False] / times[True]))
    finally:
        for version in versions.values():
            version.close()
    return float(np.mean(ratios))


def truth(case: Case, pairs: int) -> tuple[float, float, float]:
    """How many times as fast the cured job is, with its interval, from pairs of processes."""
    values = np.array([log_ratio(case) for _ in range(pairs)])
    half = float(stdtrit(pairs - 1, 0.995)) * float(values.std(ddof=1)) / math.sqrt(pairs)
    middle = float(values.mean())
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def tried(case: Case) -> list[tuple[dict[str, float] | None, str]]:
    """Gain and verdict of the remedy, from each trial on the ill job."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.json"
        words = [sys.executable, "-m", "perfdoctor", "check", "--steps", "30"]
        words += ["--trial", "--try", ",".join(case.wanted), "--trial-seconds", str(case.seconds), "--runs", directory]
        words += ["--job-output", "file", "--fail-on", "never"]
        # The remedy in question alone: other findings would take their share of the time.
        words += ["--select", "PD01", "--output", f"json:{report}", str(JOB), case.name, "ill"]
        state = environment(XDG_STATE_HOME=directory, **case.environment)
        limit = case.seconds + REST_S
        done = subprocess.run(words, env=state, capture_output=True, text=True, check=False, timeout=limit)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)} failed:\n{done.stderr}")
        trials = json.loads(report.read_text())["trials"]
    if "," in case.remedy:
        chosen = [trials["together"] or {"gain": None, "verdict": "not tried", "reason": "fewer than two helped"}]
    else:
        chosen = [trial for trial in trials["single"] if trial["remedy"] in case.wanted]
    return [
        (found["gain"], found["verdict"] if found["gain"] else f"{found['verdict']}: {found['reason']}")
        for found in chosen
    ]


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


def measure(case: Case, trials: int, pairs: int, beside: bool) -> list[Result]:
    """Trials, each in a launch of its own, beside one truth."""
    with neighbour(beside):
        outcomes = [outcome for _ in range(trials) for outcome in tried(case)]
        factor, low, high = (1.0, 1.0, 1.0) if case.remedy == "nothing" else truth(case, pairs)
    results = []
    for gain, verdict in outcomes:
        known = gain or {}
        measured = known.get("factor"), known.get("low"), known.get("high")
        results.append(Result(case.name, beside, factor, low, high, *measured, verdict))
    return results


def row(result: Result) -> str:
    where = "neighbour" if result.neighbour else "alone"
    true = f"{result.truth:6.2f} [{result.truth_low:.2f}, {result.truth_high:.2f}]"
    if result.measured is None:
        return f"{result.name:<10} {where:<9} truth {true:<22} {result.verdict}"
    trial = f"{result.measured:6.2f} [{result.low:.2f}, {result.high:.2f}]"
    said = "covers" if result.covers else "agrees" if result.agrees else "MISSES"
    return f"{result.name:<10} {where:<9} truth {true:<22} trial {trial:<22} {result.verdict:<13} {said}"


def summary(results: list[Result]) -> str:
    cured = [result for result in results if result.name != "healthy" and result.measured is not None]
    healthy = [result for result in results if result.name == "healthy"]
    errors = [abs(result.error) for result in cured if result.error is not None]
    lines = [
        f"interval covers the truth's middle: {sum(r.covers for r in cured)} of {len(cured)}",
        f"agrees within both intervals: {sum(r.agrees for r in cured)} of {len(cured)}",
        *([f"median error {median(errors):.1%}"] if errors else []),
        f"not measured: {sum(r.measured is None for r in results)}",
        f"`nothing` said to help: {sum(r.verdict == 'helped' for r in healthy)} of {len(healthy)}, "
        f"to hurt: {sum(r.verdict == 'hurt' for r in healthy)}",
    ]
    return "; ".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", metavar="NAME,NAME", help=", ".join(case.name for case in CASES))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--trials", type=int, default=1, help="launches of a case with its trial, beside one truth")
    parser.add_argument("--pairs", type=int, default=3, help="of processes, for the truth")
    parser.add_argument("--neighbour", action="store_true", help="keep one core busy meanwhile")
    parser.add_argument("--output", type=Path, help="add the results to this file of JSON lines")
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    unknown = only - {case.name for case in CASES}
    if unknown:
        parser.error(f"there is no case {', '.join(sorted(unknown))}")
    results = []
    for _ in range(options.repeats):
        for case in CASES:
            if not only or case.name in only:
                results += (found := measure(case, options.trials, options.pairs, options.neighbour))
                for result in found:
                    print(row(result), flush=True)
                if options.output:
                    with options.output.open("a") as file:
                        file.writelines(json.dumps(asdict(result)) + "\n" for result in found)
    print(summary(results))


if __name__ == "__main__":
    main()
