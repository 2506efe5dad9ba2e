"""What a fix is truly worth: both variants run in full, interleaved, in fresh processes; one also against itself.

Kept in `truth/`, with the machine; `python -m benchmarks.clinic --truth` measures again.
"""

from __future__ import annotations

import json
import math
import os
import platform
import random
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import torch
from scipy import stats

from . import running
from .case import Case, write

STORE = Path(__file__).parent / "truth"
_QUIET = 0.05
"""An A/A control further from 1 than this says that the sitting was too noisy for a label."""


@dataclass(frozen=True)
class Truth:
    """Gain of one fix (or of all of them) as a ratio of rates, well over sick."""

    gain: float
    low: float
    high: float
    """95 % interval of the median over rounds, by Student's t on log-ratios."""
    control: float
    """The sick variant against itself in the same sitting."""
    rounds: int

    @property
    def label(self) -> str:
        """positive, null, harmful, or ambiguous."""
        if abs(self.control - 1) > max(_QUIET, (self.gain - 1) / 2):
            return "ambiguous"
        if self.low > 1.05:
            return "positive"
        if self.high < 0.95:
            return "harmful"
        return "null" if self.low >= 0.9 and self.high <= 1.1 else "ambiguous"


def measure(case: Case, seed: int, severity: int, cured: frozenset[str], rounds: int) -> Truth:
    """The fix of the illnesses in `cured`, against none of them."""
    sick, well = write(case, seed, severity), write(case, seed, severity, cured)
    fixes, controls = [], []
    for number in range(rounds):
        order = [sick, well, sick]
        random.Random(number).shuffle(order)
        rates: dict[bool, list[float]] = {True: [], False: []}
        for program in order:
            rates[program is sick].append(running.rate(program))
        first, second = rates[True]
        fixes.append(math.log(rates[False][0] / math.sqrt(first * second)))
        controls.append(math.log(first / second))
    middle = statistics.fmean(fixes)
    spread = stats.t.ppf(0.975, rounds - 1) * statistics.stdev(fixes) / math.sqrt(rounds) if rounds > 1 else math.inf
    return Truth(
        gain=math.exp(middle),
        low=math.exp(middle - spread),
        high=math.exp(middle + spread) if spread < 700 else math.inf,
        control=math.exp(statistics.fmean(controls)),
        rounds=rounds,
    )


def key(case: Case, seed: int, severity: int, cured: frozenset[str]) -> str:
    """What a measurement is filed under."""
    return f"{case.name}/{seed}/{severity}/{''.join(sorted(cured)) or '-'}"


def machine() -> dict[str, str]:
    """What the numbers hold for."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "cpu": model,
        "cpus": str(len(os.sched_getaffinity(0))),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": date.today().isoformat(),
    }


def store(measured: Mapping[str, Truth], file: Path) -> None:
    """Add to what is in the file."""
    known = json.loads(file.read_text()) if file.exists() else {"machine": machine(), "truths": {}}
    known["truths"] |= {name: asdict(truth) for name, truth in measured.items()}
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def known(file: Path) -> dict[str, Truth]:
    """What was measured, by key."""
    if not file.exists():
        return {}
    return {name: Truth(**facts) for name, facts in json.loads(file.read_text())["truths"].items()}
