"""Conducts trials on the running job: judges what is on disk, plans, sends blocks, reads them, decides.

The job never waits for any of this: blocks queue in the probe, and between them it trains on as it is.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone

import numpy as np

from .bench import Bench
from .config import Config
from .diagnosis.measured import Trial
from .evidence import steady
from .evidence.model import Missing
from .evidence.untouched import untouched
from .injected._perfdoctor_probe.remedies import catalogue
from .judge import judge
from .recording.directory import RunDirectory
from .recording.model import Block, PlannedTrial, TrialPlan
from .recording.reader import read
from .relaunch import STEPS, Launcher
from .trials import history
from .trials.analyse import LEAST_LAUNCHES, LEAST_PAIRS, MOST_PAIRS, measured, pairs_of, precise_enough
from .trials.blocks import block_steps, least_steps, orders
from .trials.plan import Wanted, plan, predicted_together, together
from .trials.results import results

_SETTLE = 2
"""Steps after each switch that no block counts, at least; a remedy may ask for more."""
_ROUND = 2
"""Pairs sent at a time: one with the remedy first, one without."""
_PRICES_S = 20.0
_SILENCE = 12.0
"""A block may take so many times what it should; then the job has stopped stepping."""
_LEAST_SILENCE_S = 20.0
_LAUNCHED_S = 4.0
"""Of a launch after its first step: two seconds of steps, what they are rounded up to, and its end."""
_MOST_LAUNCHES = 6
_NO_LAUNCH = "it needs launches of its own, which were not made"
_SCHEMA = "perfdoctor.trials/1"


@dataclass(slots=True)
class _Budget:
    """The seconds of all trials."""

    seconds: float
    began: float

    @property
    def spent(self) -> float:
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        return self.seconds - self.spent


class Conductor:
    """The trials of one run."""

    def __init__(self, directory: RunDirectory, config: Config, seconds: float, also: Sequence[str] = ()) -> None:
        """`also`: remedies to try whether or not a finding names them."""
        self.directory = directory
        self.config = config
        self.also = also
        self.budget = _Budget(seconds, time.monotonic())
        self.planned: list[PlannedTrial] = []
        self.together = -1
        self.problem = "the job ended, or could not be reached, before enough of it was seen"
        self.history = history.history_file(os.environ)
        self.known = history.read(self.history)
        self.launch_s = float("inf")
        """What one launch takes, about."""
        self.draw = random.Random()

    def prove(self, bench: Bench) -> str:
        """Try every remedy that a finding names, until that is done, the time is up, or the job has ended.

        Returns the remedy that was being tried when the job ended; "" when none was.
        """
        self._prove(bench)
        broken = next((planned for planned in self.planned if planned.broke), None)
        return broken.remedy if broken else ""

    def _prove(self, bench: Bench) -> None:
        self.budget.began = time.monotonic()
        bench.say("pricing the job's operators", None)
        if not bench.priced(_PRICES_S):
            self.problem = "the job ended, or did not answer, before anything could be tried"
            return
        bench.say("judging what was seen", None)
        diagnosis = judge(self.directory, self.config)
        wanted = plan(diagnosis, self.also)
        self.planned = [_planned(number, one, "its turn did not come") for number, one in enumerate(wanted, 1)]
        self.problem = "" if wanted else "no finding names a fix that can be tried"
        self._write()
        file = bench.read()
        process = file.recording() if file is not None else None
        selection = steady.select(untouched(process)) if process is not None else Missing("no rank")
        if isinstance(selection, Missing) or not wanted:
            return
        walls = selection.column("wall_us") / 1000
        steps, step_s = block_steps(walls), float(np.median(walls)) / 1000
        in_process = [(number, one) for number, one in enumerate(wanted, 1) if one.possible and not one.launches]
        for turn, (number, one) in enumerate(in_process):
            share = self.budget.left / (len(in_process) - turn + 1)
            if not self._try(bench, number, one, _Size(steps, step_s), share):
                break
        for number, one in enumerate(wanted, 1):
            if not one.possible:
                self._note(number, why_not="perfdoctor cannot make this change to a running job")
            elif one.launches:
                self._note(number, why_not=_NO_LAUNCH)
        step = diagnosis.evidence.step
        if not isinstance(step, Missing) and not isinstance(step.first_step_s, Missing):
            self.launch_s = step.first_step_s + max(_LAUNCHED_S, 2 * STEPS * step.step_ms / 1000)
        chosen = together(self._trials())
        if chosen and bench.alive():
            self.together = len(wanted) + 1
            one = Wanted(chosen, (), predicted_together(diagnosis, chosen))
            self.planned.append(_planned(self.together, one, "its turn did not come"))
            self._try(bench, self.together, one, _Size(steps, step_s), self.budget.left)

    def launch(self, launcher: Launcher, say: Callable[[str, Trial | None], None]) -> None:
        """After the job has ended: what needs launches of its own, as many pairs as there is time for."""
        for planned in self.planned:
            if planned.why_not != _NO_LAUNCH:
                continue
            if 2 * LEAST_LAUNCHES * self.launch_s > self.budget.left:
                needed = 2 * LEAST_LAUNCHES * self.launch_s
                self._note(planned.trial, why_not=f"it needs about {needed:.0f} s of launches (--trial-seconds)")
                continue
            variables = catalogue.parse(planned.remedy)[0].environment or {}
            pairs: list[tuple[float, float]] = []
            while len(pairs) < _MOST_LAUNCHES and 2 * self.launch_s < self.budget.left:
                say(f"trying {planned.remedy}: launch {2 * len(pairs) + 1}", None)
                first = self.draw.random() < 0.5
                times = {changed: launcher.step_ms(variables if changed else {}) for changed in (first, not first)}
                without, treated = times[False], times[True]
                if without is None or treated is None:
                    break
                pairs.append((without, treated))
            self.planned = [
                replace(p, why_not="", launches=tuple(pairs)) if p.trial == planned.trial else p for p in self.planned
            ]
            self._write()
            say(f"tried {planned.remedy}", self._trials()[planned.trial - 1])

    def close(self) -> None:
        """Write down what was tried, and how good the predictions were."""
        self._write()
        if self.planned:
            history.append(self.history, history.records(self._trials(), datetime.now(timezone.utc)))

    # -- one trial ----------------------------------------------------------------------------------------

    def _try(self, bench: Bench, number: int, one: Wanted, size: _Size, share_s: float) -> bool:
        """Whether the job is there for another one."""
        size = size.within(share_s)
        if size.least_s > self.budget.left:
            self._note(number, why_not=f"it needs about {size.least_s:.0f} s (--trial-seconds)")
            return bench.alive()
        self._note(number, why_not="")
        deadline = time.monotonic() + max(share_s, size.least_s)
        sent, blocks = 0, list[Block]()
        heard = time.monotonic()
        bench.say(f"trying {one.remedy}", None)
        while bench.alive():
            if sent == len(blocks):
                _, gain, _ = measured(blocks)
                done = len(pairs_of(blocks))
                if gain is not None and precise_enough(gain, one.predicted):
                    break
                if done >= MOST_PAIRS or time.monotonic() > deadline:
                    break
                sent += self._send(bench, number, one.remedy, sent, size.steps)
            bench.wait()
            now = [block for block in bench.blocks() if block.trial == number]
            if any(block.error for block in now):
                break
            if len(now) > len(blocks):
                heard, blocks = time.monotonic(), now
                bench.say(f"trying {one.remedy}: {len(blocks) // 2} pairs of blocks", None)
            elif time.monotonic() - heard > max(_LEAST_SILENCE_S, _SILENCE * size.block_s):
                bench.order({"do": "drop"})
                break
        alive = bench.alive()
        if not alive:
            self.planned = [replace(p, broke=True) if p.trial == number else p for p in self.planned]
            self._write()
        bench.say(f"tried {one.remedy}", self._trials()[number - 1])
        return alive

    def _send(self, bench: Bench, number: int, remedy: str, sent: int, steps: int) -> int:
        """The next blocks: enough for a first look, or one round more."""
        pairs = LEAST_PAIRS if sent == 0 else _ROUND
        commands: list[dict[str, object]] = []
        for remedy_first in orders(pairs, self.draw):
            for name in (remedy, None) if remedy_first else (None, remedy):
                command = {"do": "block", "trial": number, "block": sent + len(commands), "remedy": name}
                commands.append({**command, "settle": _SETTLE, "steps": steps})
        bench.order(*commands)
        return len(commands)

    # -- on disk ------------------------------------------------------------------------------------------

    def _note(self, number: int, why_not: str) -> None:
        self.planned = [replace(p, why_not=why_not) if p.trial == number else p for p in self.planned]
        self._write()

    def _trials(self) -> Sequence[Trial]:
        found = results(read(self.directory))
        return () if found is None else (*found.single, *([found.together] if found.together else []))

    def _write(self) -> None:
        error, past = self.known
        spent = round(self.budget.spent, 1)
        record = TrialPlan(tuple(self.planned), self.together, spent, error, past, self.problem)
        temporary = self.directory.trials_file.with_suffix(".tmp")
        temporary.touch(mode=0o600)
        temporary.write_text(json.dumps({"schema": _SCHEMA, **asdict(record)}, indent=1) + "\n")
        temporary.replace(self.directory.trials_file)


@dataclass(frozen=True, slots=True)
class _Size:
    """Of the blocks of a trial."""

    steps: int
    step_s: float

    @property
    def block_s(self) -> float:
        return (self.steps + _SETTLE) * self.step_s

    @property
    def least_s(self) -> float:
        """For the fewest pairs that tell anything."""
        return 2 * LEAST_PAIRS * self.block_s

    def within(self, seconds: float) -> _Size:
        """Shorter blocks if these do not fit: a few noisy pairs are better than none."""
        steps, least = self.steps, least_steps(1000 * self.step_s)
        while steps > least and _Size(steps, self.step_s).least_s > seconds:
            steps -= 1
        return _Size(steps, self.step_s)


def _planned(number: int, one: Wanted, why_not: str) -> PlannedTrial:
    predicted = (one.predicted.low, one.predicted.high) if one.predicted else None
    return PlannedTrial(number, one.remedy, one.findings, predicted, why_not)
