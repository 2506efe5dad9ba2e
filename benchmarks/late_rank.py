"""How often the rank that is late is named, and why it is: jobs in which that is known, beside healthy ones.

    python -m benchmarks.late_rank [--rounds 2] [--first 0] [--ranks 2 4] [--cases data backward ...]

Each run takes 10 to 20 seconds. An ill run is right when the report's rank and reason are those that were made; a
healthy one when nothing about communication alarms. The extra work is a loop that waits on the CPU, so that it
takes as long on a machine of any speed; for a neighbour, ranks are pinned and one of them shares its CPU; for a
quota, one runs in a control group of its own, which this process must be allowed to make.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from benchmarks.clinic import quota

JOB = Path(__file__).resolve().parent / "jobs" / "ranks.py"
ILL = {
    "data": "input_wait",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "other",
    "update": "optimizer",
    "gc": "gc",
    "neighbour": "other-processes",
    "data+norm": "input_wait",
    "shards": "data-size",
    "quota": "throttled",
}
"""Cases, and the reasons that a report is to give. What follows an optimizer's step lies outside of all parts."""
LINES = {
    "data": "work(self.extra_ms)",
    "data+norm": "work(self.extra_ms)",
    "forward": 'work(MS if CASE == "forward"',
    "backward": 'work(MS if CASE == "backward"',
    "update": 'work(MS if CASE == "update"',
    "gc": "gc.collect()",
    "shards": "DataLoader(",
}
"""What stands in the line to name, where there is one; a line of `work` itself is as good."""
_QUOTA_CPUS = 0.12
TURNS = "PD19.late-by-turns"
"""The finding that the case `turns` is to give: no rank is to blame for it."""
HEALTHY = ("none", "noise", "saves", "norm")
CASES = (*ILL, "turns", *HEALTHY)
STEPS = {2: 200, 4: 200}


def observed(case: str, late: int, milliseconds: float, ranks: int) -> dict[str, Any]:
    """PD19 of the report on one run, with the ids of findings that alarm."""
    limited = quota.group(_QUOTA_CPUS) if case == "quota" else nullcontext(Path())
    with limited as group, tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.json"
        job = [str(JOB), case, str(late), str(milliseconds), str(STEPS.get(ranks, 60))]
        torchrun = [str(Path(sys.executable).with_name("torchrun")), "--standalone", "--nproc-per-node", str(ranks)]
        words = ["check", "--to-end", "--runs", directory, "--job-output", "file", "--output", f"json:{report}"]
        subprocess.run(
            [sys.executable, "-m", "perfdoctor", *words, "--", *torchrun, *job],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=directory,
            env={name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
            | {"GROUP": str(group)},
            timeout=120,
        )
        told = json.loads(report.read_text())
    check = next(check for check in told["checks"] if check["code"] == "PD19")
    measured = {m["name"]: m["value"] for m in check["measurements"]}
    alarms = [finding["id"] for finding in check["findings"] if finding["severity"] != "note"]
    lines = [finding["location"]["line"] for finding in check["findings"] if finding["location"]]
    return {**measured, "outcome": check["outcome"], "alarms": alarms, "lines": lines}


def is_right(case: str, late: int, seen: dict[str, Any]) -> bool:
    """Ranks that share the CPU that a neighbour is on are late alike: each of them is an answer."""
    if case in HEALTHY:
        return not seen["alarms"] and seen["outcome"] != "cannot-tell"
    if case == "turns":
        return TURNS in seen["alarms"]
    cpus = len(os.sched_getaffinity(0))
    late_ones = range(late % cpus, int(seen.get("ranks", 0)), cpus) if case == "neighbour" else (late,)
    return seen.get("late_rank") in late_ones and seen.get("late_reason") == ILL[case]


def names_line(case: str, seen: dict[str, Any]) -> bool:
    """Whether a finding stands at the case's line, or at one of the work that it does."""
    source = JOB.read_text().splitlines()
    start = source.index("def work(milliseconds: float) -> None:")
    body = range(start + 1, source.index("", start) + 1)
    return any(line in body or LINES[case] in source[line - 1] for line in seen["lines"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="number of the first round: it chooses the late ranks")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--cases", nargs="+", default=[*CASES], choices=CASES)
    asked = parser.parse_args()
    counts: dict[tuple[str, int], list[bool]] = {}
    named: list[bool] = []
    for number in range(asked.first, asked.first + asked.rounds):
        for ranks in asked.ranks:
            for case in asked.cases:
                late = random.Random(f"{number} {case}").randrange(ranks)
                seen = observed(case, late, 3.0 if case == "noise" else 15.0, ranks)
                right = is_right(case, late, seen)
                counts.setdefault((case, ranks), []).append(right)
                if right and case in LINES:
                    named.append(names_line(case, seen))
                print("right" if right else "WRONG", case, f"rank {late} of {ranks}", json.dumps(seen), flush=True)
    for name, cases in (("ill", (*ILL, "turns")), ("healthy", HEALTHY)):
        results = [right for (case, _), some in counts.items() if case in cases for right in some]
        print(f"{name}: {sum(results)} of {len(results)} right")
    print(f"line: {sum(named)} of {len(named)} right, of those whose rank and reason are")


if __name__ == "__main__":
    main()
