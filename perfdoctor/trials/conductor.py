"""Conducts trials on the running job: judges what is on disk, plans, sends blocks, reads them, decides.

The job never waits for any of this: blocks queue in the probe, and between them it trains on as it is.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Any

from ..config.settings import Config
from ..diagnosis.measured import Trial
from ..evidence import steady
from ..evidence.model import Evidence, Missing
from ..injected._perfdoctor_probe.remedies import catalogue
from ..launch.environment import found_library, preloading
from ..observation.relaunch import STEPS, Launcher
from ..observation.running_job import RunningJob
from ..recording.directory import RunDirectory
from ..recording.reader import read
from ..recording.trials import PlannedTrial, TrialPlan
from . import history
from .analyse import LEAST_LAUNCHES, MOST_PAIRS, measured, pairs_of, precise_enough, undisturbed
from .blocks import LEAST_PAIRS, SETTLE, Size, block_steps, orders
from .judge import judge
from .plan import Wanted, opportunity, plan, predicted_together, together
from .results import results

_ROUND = 2
"""Pairs sent at a time: one with the remedy first, one without."""
_TIMINGS_S = 20.0
_MOST_FOR_LAUNCHES = 0.5
"""Of the seconds, kept for remedies that need launches."""
_COMPILED = 4.0
"""A compilation may take so many times what it usually takes."""
_SILENCE = 12.0
"""A block may take so many times what it should; then the job has stopped stepping."""
_LEAST_SILENCE_S = 20.0
_LAUNCHED_S = 4.0
"""Of a launch after its first step: two seconds of steps, what they are rounded up to, and its end."""
_MOST_LAUNCHES = 6
_SCHEMA = "perfdoctor.trials/1"


@dataclass(slots=True)
class _Budget:
    """The seconds of all trials."""

    seconds: float
    began: float
    kept: float = 0.0
    """For what comes later."""

    @property
    def spent(self) -> float:
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        return self.seconds - self.spent - self.kept


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
        self.for_launches: set[int] = set()
        """Trials that wait for launches of their own."""
        self.problem = (
            "the job ended, or could not be reached, before enough of it was seen; let it train for longer, or look at "
            "fewer steps before the trials (--steps 50)"
        )
        self.history = history.history_file(os.environ)
        self.known = history.read(self.history)
        self.launch_s = float("inf")
        """What one launch takes, about."""
        self.epoch = Size(0, 0.0, epochs=1)
        """Of the job's longest epoch; without steps where none is known."""
        self.saves = Size(0, 0.0, epochs=1, by_save=True)
        """From a step that saves to another; without steps where fewer than two did."""
        self.draw = random.Random()

    def prove(self, job: RunningJob) -> str:
        """Try every remedy that a finding names, until that is done, the time is up, or the job has ended.

        Returns the remedy that was being tried when the job ended; "" when none was.
        """
        self._prove(job)
        broken = next((planned for planned in self.planned if planned.broke), None)
        return broken.remedy if broken else ""

    def _prove(self, job: RunningJob) -> None:
        self.budget.began = time.monotonic()
        if job.out_of_reach:
            self.problem = job.out_of_reach
            return
        job.say("timing the job's operators", None)
        if not job.timed(_TIMINGS_S):
            self.problem = "the job ended, or did not answer, before anything could be tried"
            return
        job.say("judging what was seen", None)
        diagnosis = judge(self.directory, self.config)
        wanted = plan(diagnosis, self.also, found_library)
        self.planned = [_planned(number, one) for number, one in enumerate(wanted, 1)]
        more = opportunity(diagnosis, wanted)
        self.problem = "" if wanted or more is not None else "no finding names a fix that can be tried"
        self._write()
        file = job.read()
        process = file.recording() if file is not None else None
        selection = steady.select(steady.untouched(process)) if process is not None else Missing("no rank")
        if isinstance(selection, Missing) or self.problem:
            return
        walls = selection.series("wall_us") / 1000
        # The mean: what a job does every few steps takes its time too, and a median would not plan for it.
        size = Size(block_steps(walls * selection.cycle) * selection.cycle, float(walls.mean()) / 1000)
        self._estimate(diagnosis.evidence, size)
        in_process = [(number, one) for number, one in enumerate(wanted, 1) if not one.launches]
        launched = 0 if job.has_other_nodes else sum(one.launches for one in wanted)
        launches_s = self.budget.kept = self._for_launches(launched)
        self.budget.kept += self._for_together([one.remedy for _, one in in_process], size)
        for turn, (number, one) in enumerate(in_process):
            share = self.budget.left / (len(in_process) - turn + 1)
            if not self._try(job, number, one, size, share, again=True):
                break
        for number, one in in_process:
            # Its share of the seconds was over too soon; by now it is known what the others have left.
            if job.alive() and self._was_disturbed(job, number) and self.budget.left > 0:
                self._try(job, number, one, size, self.budget.left / 2)
        self.budget.kept = launches_s
        for number, one in enumerate(wanted, 1):
            if one.launches and job.has_other_nodes:
                self._note(number, why_not="it needs launches of its own, and one node cannot launch a job of several")
            elif one.launches:
                self.for_launches.add(number)
                self._note(number, why_not="it needs launches of its own, which were not made")
        chosen = together(self._trials())
        if chosen and job.alive():
            self.together = len(wanted) + 1
            one = Wanted(chosen, (), predicted_together(diagnosis, chosen))
            self.planned.append(_planned(self.together, one))
            self._try(job, self.together, one, size, self.budget.left)
        # Nobody asked for it, so nobody misses it where the time is short.
        if more is not None and self._needed_s(more.remedy, size) < self.budget.left and job.alive():
            number = len(self.planned) + 1
            self.planned.append(_planned(number, more))
            self._try(job, number, more, size, self.budget.left)
        elif not wanted:
            self.problem = "no finding names a fix that can be tried"
            self._write()

    def _estimate(self, evidence: Evidence, size: Size) -> None:
        """How long a launch takes, an epoch, and as many rounds from save to save as a block of this size holds."""
        step, loaders = evidence.step, evidence.loaders
        if not isinstance(step, Missing) and not isinstance(step.first_step_s, Missing):
            self.launch_s = step.first_step_s + max(_LAUNCHED_S, 2 * STEPS * step.step_ms / 1000)
        for loader in () if isinstance(loaders, Missing) else loaders:
            if loader.iterators > 1 and loader.steady_batches_per_step > 0:
                steps = max(1, round(loader.batches_per_iterator / loader.steady_batches_per_step))
                epoch_s = steps * size.step_s + loader.iterator_ms / 1000
                if epoch_s > self.epoch.steps * self.epoch.step_s:
                    self.epoch = Size(steps, epoch_s / steps, epochs=1)
        saves = evidence.checkpoints
        if not isinstance(saves, Missing) and saves.saves > 1:
            rounds = math.ceil(size.steps / saves.every)
            step_s = size.step_s + (0.0 if saves.is_steady else saves.ms_per_step / 1000)
            self.saves = Size(round(rounds * saves.every), step_s, epochs=rounds, by_save=True)

    def _for_launches(self, count: int) -> float:
        """Seconds kept for remedies that need launches, where they fit in at all."""
        needed = 2 * LEAST_LAUNCHES * self.launch_s * count
        return needed if needed < _MOST_FOR_LAUNCHES * self.budget.seconds else 0.0

    def _for_together(self, singles: Sequence[str], size: Size) -> float:
        """Seconds kept for what helps, together, where they fit in beside the single trials: gains do not multiply, so
        that only this trial says what a user gets."""
        entries = [entry for remedy in singles for entry in catalogue.entries(remedy)]
        if len({entry.slot for entry in entries if entry.combinable}) < 2:
            return 0.0
        shortest = size.within(0.0)
        singles_s = sum(self._needed_s(remedy, shortest) for remedy in singles)
        return shortest.least_s if singles_s + shortest.least_s < self.budget.left else 0.0

    def _needed_s(self, remedy: str, size: Size) -> float:
        return size.least_s + max(entry.starts_s for entry in catalogue.entries(remedy))

    def launch(self, launcher: Launcher, say: Callable[[str, Trial | None], None]) -> None:
        """After the job has ended: what needs launches of its own, as many pairs as there is time for."""
        self.budget.kept = 0.0
        for planned in self.planned:
            if planned.trial not in self.for_launches:
                continue
            if 2 * LEAST_LAUNCHES * self.launch_s > self.budget.left:
                needed = 2 * LEAST_LAUNCHES * self.launch_s
                self._note(planned.trial, why_not=f"it needs about {needed:.0f} s of launches (--trial-seconds)")
                continue
            entry, _ = catalogue.parse(planned.remedy)
            library = found_library(entry.preload)
            if entry.preload and not library:
                self._note(planned.trial, why_not=f"this machine has no lib{entry.preload[0]}")
                continue
            variables = preloading(library, launcher.base) if library else entry.environment
            pairs: list[tuple[float, float]] = []
            while len(pairs) < _MOST_LAUNCHES and 2 * self.launch_s < self.budget.left:
                say(f"trying {planned.remedy}: launch {2 * len(pairs) + 1}", None)
                first = self.draw.random() < 0.5
                times = {changed: launcher.step_ms(variables if changed else {}) for changed in (first, not first)}
                without, treated = times[False], times[True]
                if without is None or treated is None:
                    break
                pairs.append((without, treated))
            self._note(planned.trial, why_not="", launches=tuple(pairs))
            say(f"tried {planned.remedy}", self._trial(planned.trial))

    def close(self) -> None:
        """Write down what was tried, and how good the predictions were."""
        self._write()
        if self.planned:
            history.append(self.history, history.records(self._trials(), datetime.now(timezone.utc)))

    # -- one trial ----------------------------------------------------------------------------------------

    def _was_disturbed(self, job: RunningJob, number: int) -> bool:
        """Whether enough pairs of blocks were seen, and too few of them tell anything."""
        blocks = job.blocks(number)
        failed = any(block.error for block in blocks)
        return not failed and len(pairs_of(blocks)) >= LEAST_PAIRS and measured(blocks)[1] is None

    def _try(self, job: RunningJob, number: int, one: Wanted, size: Size, share_s: float, again: bool = False) -> bool:
        """Go on with it, if it was begun before; `again`: whether there may be another time. Returns whether the job is
        there for another one."""
        entries = catalogue.entries(one.remedy)
        if any(entry.by_epoch for entry in entries):
            size = self.epoch
            if not size.steps:
                self._note(number, why_not="it pays where an epoch begins, and no two epochs were seen")
                return job.alive()
        if any(entry.by_save for entry in entries):
            size = self.saves
            if not size.steps:
                self._note(number, why_not="it pays where the loop saves, and no two saves were seen")
                return job.alive()
        blocks = job.blocks(number)
        size = size.within(share_s)
        needed_s = self._needed_s(one.remedy, size)
        if needed_s > self.budget.left and not blocks:
            self._note(number, why_not=f"it needs about {needed_s:.0f} s (--trial-seconds)")
            return job.alive()
        self._note(number, why_not="")
        deadline = time.monotonic() + (share_s if blocks else max(share_s, needed_s))
        patience_s = max(_LEAST_SILENCE_S, _SILENCE * size.block_s, *(_COMPILED * e.starts_s for e in entries))
        sent = len(blocks)
        heard = time.monotonic()
        job.say(f"trying {one.remedy}", None)
        while job.alive():
            if sent == len(blocks):
                _, gain, _ = measured(blocks)
                pairs = pairs_of(blocks)
                if gain is not None and precise_enough(gain, one.predicted):
                    break
                # Disturbed pairs are made up for.
                enough = len(undisturbed(pairs)) >= MOST_PAIRS or len(pairs) >= 2 * MOST_PAIRS
                no_time = bool(blocks) and 2 * _ROUND * size.block_s > self.budget.left
                if enough or no_time or time.monotonic() > deadline:
                    break
                sent += self._send(job, number, one.remedy, sent, size)
            job.wait()
            now = job.blocks(number)
            if any(block.error for block in now):
                break
            if len(now) > len(blocks):
                heard, blocks = time.monotonic(), now
                job.say(f"trying {one.remedy}: {len(blocks) // 2} pairs of blocks", None)
            elif time.monotonic() - heard > patience_s:
                job.order({"do": "drop"})
                break
        alive = job.alive()
        if not alive:
            self._note(number, broke=True)
        if alive and again and self._was_disturbed(job, number):
            job.say(f"{one.remedy} was disturbed: it goes on after the others", None)
        else:
            job.say(f"tried {one.remedy}", self._trial(number))
        return alive

    def _send(self, job: RunningJob, number: int, remedy: str, sent: int, size: Size) -> int:
        """The next blocks: enough for a first look, or one round more."""
        pairs = LEAST_PAIRS if sent == 0 else _ROUND
        commands: list[dict[str, object]] = []
        for remedy_first in orders(pairs, self.draw):
            for name in (remedy, None) if remedy_first else (None, remedy):
                command = {"do": "block", "trial": number, "block": sent + len(commands), "remedy": name}
                rounds = {"epochs": size.epochs, "by_save": size.by_save}
                commands.append({**command, "settle": SETTLE, "steps": size.drawn(self.draw), **rounds})
        job.order(*commands)
        return len(commands)

    # -- on disk ------------------------------------------------------------------------------------------

    def _note(self, number: int, **known: Any) -> None:
        self.planned = [replace(p, **known) if p.trial == number else p for p in self.planned]
        self._write()

    def _trials(self) -> Sequence[Trial]:
        found = results(read(self.directory))
        return () if found is None else (*found.single, *([found.together] if found.together else []))

    def _trial(self, number: int) -> Trial:
        singles = [planned.trial for planned in self.planned if planned.trial != self.together]
        return self._trials()[-1 if number == self.together else singles.index(number)]

    def _write(self) -> None:
        error, past = self.known
        spent = round(self.budget.spent, 1)
        record = TrialPlan(tuple(self.planned), self.together, spent, error, past, self.problem)
        temporary = self.directory.trials_file.with_suffix(".tmp")
        temporary.touch(mode=0o600)
        temporary.write_text(json.dumps({"schema": _SCHEMA, **asdict(record)}, indent=1) + "\n")
        temporary.replace(self.directory.trials_file)


def _planned(number: int, one: Wanted) -> PlannedTrial:
    predicted = (one.predicted.low, one.predicted.high) if one.predicted else None
    return PlannedTrial(number, one.remedy, one.findings, predicted, why_not="not reached within the time budget")
