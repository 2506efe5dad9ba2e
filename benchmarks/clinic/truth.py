"""What a fix is truly worth: both variants run in full, interleaved, in fresh processes; one also against itself.

Kept in `truth/`, a file for each machine; `python -m benchmarks.clinic --truth` measures again.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import platform
import random
import re
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
    """The sick variant against itself, a round later in the same sitting; 1 after a single round."""
    rounds: int
    here: bool = True
    """Measured on this machine. Another's says whether a program is sick, not what its fix is worth here."""

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
    fixes, before = [], []
    for number in range(rounds):
        order = [sick, well]
        random.Random(number).shuffle(order)
        rates = {program is sick: running.rate(program) for program in order}
        fixes.append(math.log(rates[False] / rates[True]))
        before.append(math.log(rates[True]))
    controls = [later - earlier for earlier, later in itertools.pairwise(before)]
    middle = statistics.fmean(fixes)
    spread = stats.t.ppf(0.975, rounds - 1) * statistics.stdev(fixes) / math.sqrt(rounds) if rounds > 1 else math.inf
    return Truth(
        gain=math.exp(middle),
        low=math.exp(middle - spread),
        high=math.exp(middle + spread) if spread < 700 else math.inf,
        control=math.exp(statistics.fmean(controls)) if controls else 1.0,
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
        # Not those that this process may use: programs may be measured two at a time, each on a core of its own.
        "cpus": str(os.cpu_count()),
        "threads": os.environ.get(running.THREADS, ""),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": date.today().isoformat(),
    }


def file_of(facts: Mapping[str, str]) -> Path:
    """Where the truths of such a machine are."""
    name = f"{facts['cpu']} {facts['cpus']} cpus{_threads(facts)}".lower()
    return STORE / (re.sub(r"[^a-z0-9]+", "-", name).strip("-") + ".json")


def _threads(facts: Mapping[str, str]) -> str:
    return f" {facts['threads']} threads" if facts.get("threads") else ""


def store(measured: Mapping[str, Truth]) -> None:
    """Add to what is known of this machine."""
    facts = machine()
    file = file_of(facts)
    kept = json.loads(file.read_text()) if file.exists() else {"machine": facts, "truths": {}}
    kept["truths"] |= {name: _without_here(truth) for name, truth in measured.items()}
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def _without_here(truth: Truth) -> dict[str, float]:
    return {name: value for name, value in asdict(truth).items() if name != "here"}


def known() -> dict[str, Truth]:
    """What was measured, by key: on this machine, else on another."""
    own = file_of(machine())
    found: dict[str, Truth] = {}
    for file in sorted(STORE.glob("*.json"), key=lambda file: (file == own, file)):
        truths = json.loads(file.read_text())["truths"]
        found |= {name: Truth(**facts, here=file == own) for name, facts in truths.items()}
    return found
