"""An interleaved comparison of two arms: fresh launches of both until the rule has enough, then the verdict.

Knows processes and clocks; what the numbers mean is decided in `gate`.
"""

from __future__ import annotations

import math
import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..config.gate import Control
from ..config.settings import Config
from ..diagnosis.diagnoses import Diagnosis
from ..errors import PerfdoctorError
from ..evidence.model import Missing
from ..exits import Exit
from ..injected._perfdoctor_probe.remedies import catalogue
from ..launch.job import write_facts
from ..monitor.machine import read_machine, write_machine
from ..monitor.system import read_available_bytes
from ..observation.enough import SECONDS
from ..observation.session import COUNTING, Request, record
from ..recording.directory import RunDirectory
from ..recording.machine import Machine
from ..trials.judge import judge
from .decision import LEAST_PAIRS, Next, Policy, passes_early, vague, wants
from .failure import job_failed
from .interleaving import Launch, Limits, Program, interleave
from .model import AFTER, BEFORE, Arm, GateResult, Judgement, Verdict
from .outcome import (
    Gathered,
    against_itself,
    control_policy,
    counters_agree,
    grown_counters,
    losses_vary,
    other_configuration,
    other_losses,
    outcome,
    passes_itself,
)
from .plan import has_room, memory_comes_and_goes, why_no_control
from .samples import CORE, Pair, of_launches, of_turns, ratios
from .why import explain

CONTROL = "a-a"
"""The A/A control, in names of directories: as long as those of the other arms."""
STEADY_MEMORY = catalogue.BY_NAME["memory.malloc"].environment
"""Variables that make glibc keep what is freed."""
_COUNTED = 2
"""Pairs with windows: what both of them count is exact."""
_ABBA_STEPS = 60
"""Steady steps of one launch that runs alone."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How arms are compared."""

    policy: Policy
    time_budget_s: float
    control: Control = "off"
    steady_memory: Control = "off"
    abba: bool = False
    allow_loss_change: bool = False
    fail_on: str | None = None
    """Level from which on a finding that is certainly new fails; None for never."""
    seed: int | None = None
    say: Callable[[str], None] = lambda text: None
    """Told of each pair."""
    wrong_tree: Callable[[Sequence[str], Sequence[str]], str] = lambda before, after: ""
    """Given the files that each arm really ran: why they are not its own, or ""."""
    paired: Callable[[int, int], None] = lambda done, wanted: None
    """Told how many pairs are done, and how many there will be as far as is known."""


class Comparison:
    """One gate. Use it once."""

    def __init__(self, before: Program, after: Program, config: Config, terms: Terms) -> None:
        self.machine = read_machine()
        pinned = _threads_within_quota(self.machine)
        self.programs = {
            name: replace(program, environment={**pinned, **program.environment})
            for name, program in ((BEFORE, before), (AFTER, after))
        }
        self.config = config
        self.terms = terms
        self.policy = terms.policy
        self.rng = random.Random(terms.seed)
        self.began = time.monotonic()
        self.longest_s = 0.0
        self.first: list[Pair] = []
        self.fresh: list[Pair] = []
        self.diagnoses: dict[str, list[Diagnosis]] = {BEFORE: [], AFTER: []}
        self.kept: dict[str, str] = {BEFORE: "", AFTER: ""}
        self.notes: list[str] = []
        self.memory_decided = terms.abba or terms.steady_memory == "on"
        self.controlled = terms.control == "on" and not terms.abba
        if terms.control == "on" and terms.abba:
            self.notes.append("no A/A control: launches run one at a time")
        if terms.steady_memory == "on":
            self._steady_memory()

    def run(self) -> GateResult:
        """Launch, decide, explain. Raises PerfdoctorError when an arm fails or cannot be launched."""
        policy = self.policy
        want = Next.MORE
        while want is Next.MORE:
            self._pair(self.first)
            if len(self.first) in (1, 2):
                unlike = self._unlike()
                if unlike:
                    return self._result(Verdict.NOT_COMPARABLE, unlike)
            if len(self.first) == _COUNTED and (
                grown := grown_counters(self.diagnoses, self.config.gate.counter_tolerance)
            ):
                self.terms.say(f"{', '.join(grown)} grew: that decides, whatever the times are")
                return self._verdict()
            if len(self.first) == 1:
                self._decide_on_control()
            self._decide_on_memory()
            if self._passes_early():
                return self._verdict()
            done = len(self.first)
            settled = done >= policy.first and (done - policy.first) % policy.more == 0
            if settled or not self._time_left():
                want = wants(ratios(self.first), CORE, policy, self._time_left())
                if self._control_is_vague() and self._time_left():
                    want = Next.MORE
        if want is Next.CONFIRM:
            self.terms.say("it looks slower: confirming with fresh launches")
            while len(self.fresh) < policy.fresh and self._time_left():
                self._pair(self.fresh)
        return self._verdict()

    def _passes_early(self) -> bool:
        """Whether arms that count the same are as fast as each other, as far as a few pairs say: then these will do."""
        done = len(self.first)
        if not passes_early(ratios(self.first), CORE, self.policy):
            return False
        if not counters_agree(self.diagnoses, self.config.gate.counter_tolerance):
            return False
        fewer = replace(self.policy, first=done)
        control = against_itself(self.first)
        if self.controlled and (
            len(control) < LEAST_PAIRS or passes_itself(control, fewer).verdict is not Verdict.PASS
        ):
            return False
        self.terms.say(f"both arms count the same, and {done} pairs rule a slowdown out: no more are needed")
        self.policy = fewer
        return True

    # -- launches -----------------------------------------------------------------------------------------

    def _time_left(self) -> bool:
        return time.monotonic() - self.began + self.longest_s < self.terms.time_budget_s

    def _pair(self, seen: list[Pair]) -> None:
        began = time.monotonic()
        number = len(self.first) + len(self.fresh) + 1
        # Findings need the windows of a report; whether they are certain, a second launch with them.
        second = COUNTING if self.terms.fail_on else ("counters",)
        windows = {1: COUNTING, 2: second}.get(number, ())
        directories: dict[str, RunDirectory] = {}
        try:
            if self.terms.abba:
                self._abba(seen, windows, directories)
            else:
                self._turns(seen, windows, directories)
        except BaseException:
            self.kept = {name: str(path.path) for name, path in directories.items() if name in self.kept}
            raise
        for name, directory in directories.items():
            if windows and name in self.diagnoses:
                self.diagnoses[name].append(judge(directory, self.config))
            if number == 1 and name in self.kept:
                self.kept[name] = str(directory.path)
            else:
                shutil.rmtree(directory.path, ignore_errors=True)
        took = time.monotonic() - began
        self.longest_s = max(self.longest_s, took)
        wanted = self.policy.fresh if seen is self.fresh else self.policy.first
        more = f" of {wanted}{'' if seen is self.fresh else ' or more'}" if len(seen) <= wanted else ", for precision"
        self.terms.say(f"{'fresh pair' if seen is self.fresh else 'pair'} {len(seen)}{more} ({took:.0f} s)")
        self.terms.paired(len(seen), max(wanted, len(seen)))

    def _directory(self, name: str) -> RunDirectory:
        directory = RunDirectory.create(self.config.runs, f"gate-{name}-{self.programs[AFTER].command.name}")
        write_machine(self.machine, directory.machine_file)
        return directory

    def _turns(self, seen: list[Pair], windows: tuple[str, ...], directories: dict[str, RunDirectory]) -> None:
        # An A/A control makes a pair half as long again: it goes once enough is known about it.
        names = (BEFORE, AFTER, CONTROL) if self._control_is_vague() else (BEFORE, AFTER)
        launches = []
        for name in names:
            program = self.programs[AFTER if name == AFTER else BEFORE]
            directories[name] = self._directory(name)
            launches.append(Launch(name, program, directories[name], windows if name != CONTROL else ()))
        samples = interleave(launches, Limits(self.config.patience_s, self.machine.usable_cpus), self.rng)
        was, now = samples[BEFORE], samples[AFTER]
        if len(self.first) == 0:
            wrong = self.terms.wrong_tree(was.sources, now.sources)
            if wrong:
                raise PerfdoctorError(
                    wrong,
                    slug="wrong-tree",
                    advice='the package is installed from one place for both arms: --setup "pip install -e ."',
                    exit_code=Exit.NOT_MEASURABLE,
                )
        seen.append(of_turns(was, now, samples.get(CONTROL)))
        for name, sample in samples.items():
            # The recording says how its job ended, as every recording does.
            write_facts(directories[name], end="stopped", detail=f"after {len(sample.turns)} turns of a gate")

    def _abba(self, seen: list[Pair], windows: tuple[str, ...], directories: dict[str, RunDirectory]) -> None:
        """Two launches of each arm in the order ABBA or BAAB, so that a slower slot falls on both."""
        outer, inner = self.rng.sample([BEFORE, AFTER], 2)
        found: dict[str, list[Diagnosis]] = {BEFORE: [], AFTER: []}
        for name in (outer, inner, inner, outer):
            program, directory = self.programs[name], self._directory(name)
            is_first = name not in directories
            if is_first:
                directories[name] = directory
            steps, seconds = min(self.config.steps or _ABBA_STEPS, _ABBA_STEPS), self.config.seconds or SECONDS
            wanted = replace(self.config, steps=steps, seconds=seconds)
            request = Request(
                program.command, wanted, False, "file", windows=windows if is_first else (),
                environment=program.environment, cwd=program.cwd,
            )  # fmt: skip
            ending = record(request, directory, lambda progress: None)
            if ending.kind in ("crashed", "killed", "timeout"):
                directories[name] = directory
                timeout = ending.kind == "timeout"
                how = ending.detail if timeout else ending.how
                code = Exit.NOT_MEASURABLE if timeout else Exit.JOB_FAILED
                raise job_failed(program.title, how, directory.job_output, code)
            found[name].append(judge(directory, self.config))
            if directories[name] is not directory:
                shutil.rmtree(directory.path, ignore_errors=True)
        seen.append(of_launches(found[BEFORE], found[AFTER]))

    # -- what the first pair decides ----------------------------------------------------------------------

    def _decide_on_control(self) -> None:
        """The first pair says how long one takes and what it needs."""
        if self.terms.control != "auto" or self.terms.abba or self.controlled:
            return
        policy, types = self.policy, self.diagnoses[BEFORE][0].evidence.precision
        on_device = not isinstance(types, Missing) and any(name != "cpu" for name in types.parameter_devices)
        why_not = why_no_control(
            self.longest_s,
            (policy.first, policy.first + policy.fresh),
            self.terms.time_budget_s - (time.monotonic() - self.began),
            max(self.first[0].both("peak_rss_bytes")),
            self._available_bytes(),
            on_device,
        )
        self.controlled = not why_not
        if why_not:
            self.notes.append(f"no A/A control (a second copy of the arm before): {why_not}; --control insists")

    def _decide_on_memory(self) -> None:
        """Once a pair shows page faults; the first one may have none because of the windows in it."""
        if self.memory_decided or not self._time_left():
            return
        pair, memory = self.first[-1], self.diagnoses[BEFORE][0].evidence.memory
        faults = max(pair.both("faults"))
        if not memory_comes_and_goes(faults, min(pair.both("core_ms"))):
            return
        self.memory_decided = True
        noisy = f"memory that comes and goes ({faults:,.0f} page faults per step) makes launches differ by chance"
        if self.terms.steady_memory == "off":
            self.notes.append(f"{noisy}; --steady-memory makes it stay, in both arms")
        elif isinstance(memory, Missing) or memory.malloc_settings:
            self.notes.append(f"{noisy}; the job has settings of its own for that, which were left alone")
        elif not has_room(3 if self.controlled else 2, max(pair.both("peak_rss_bytes")), self._available_bytes()):
            self.notes.append(f"{noisy}; there is little memory, so it was left alone: --steady-memory insists")
        else:
            self.terms.say(f"{noisy}: it is made to stay, in both arms, from a new start")
            self._steady_memory()
            self._start_over()

    def _steady_memory(self) -> None:
        """From the next launch on."""
        self.programs = {
            name: replace(program, environment={**program.environment, **STEADY_MEMORY})
            for name, program in self.programs.items()
        }
        settings = " ".join(f"{name}={value}" for name, value in STEADY_MEMORY.items())
        self.notes.append(f"times and memory are those with freed memory kept, in both arms alike: {settings}")

    def _start_over(self) -> None:
        """Nothing that was measured so far counts, recordings included: their parts of the step would not agree."""
        for directory in self.kept.values():
            shutil.rmtree(directory, ignore_errors=True)
        self.first = []
        self.diagnoses = {BEFORE: [], AFTER: []}

    def _available_bytes(self) -> float:
        return min(read_available_bytes(), self.machine.memory_bytes)

    # -- the A/A control ----------------------------------------------------------------------------------

    def _control_is_vague(self) -> bool:
        return self.controlled and vague(against_itself(self.first), control_policy(self.policy))

    # -- judgement ----------------------------------------------------------------------------------------

    def _unlike(self) -> str:
        """Why the two arms do not do the same work, after the first pair and after the second; "" when they do."""
        if len(self.first) == 1:
            return other_configuration(self.diagnoses)
        if losses_vary(self.diagnoses):
            self.notes.append("losses differ from launch to launch (no seed?), so they were not compared")
            return ""
        differ = other_losses(self.diagnoses)
        if differ and self.terms.allow_loss_change:
            self.notes.append(f"the two arms compute something else: {differ} (allowed)")
        elif differ:
            return f"the two arms do not compute the same: {differ}; if that is meant: --allow-loss-change"
        return ""

    def _verdict(self) -> GateResult:
        seen = Gathered(self.first, self.fresh, self.diagnoses, self.controlled)
        verdict, said, judgements = outcome(seen, self.policy, self.config, self.terms.fail_on, self.notes)
        if verdict is Verdict.INCONCLUSIVE and len(self.first) < self.policy.first and not self._time_left():
            enough = math.ceil((self.policy.early + 1) * self.longest_s)
            self.notes.append(f"a pair took up to {self.longest_s:.0f} s: --time-budget {enough}s can pass")
        return self._result(verdict, said, judgements)

    def _result(self, verdict: Verdict, said: str, judgements: Sequence[Judgement] = ()) -> GateResult:
        was, now = self.diagnoses[BEFORE], self.diagnoses[AFTER]
        why = None
        if was and now and any(j.verdict is Verdict.REGRESSION and j.gates for j in judgements):
            why = explain(was[0], now[0], judgements)
        return GateResult(
            verdict,
            said,
            Arm(self.programs[BEFORE].title, self.kept[BEFORE]),
            Arm(self.programs[AFTER].title, self.kept[AFTER]),
            tuple(judgements),
            why,
            tuple(dict.fromkeys(self.notes)),
            ratios([*self.first, *self.fresh]),
            time.monotonic() - self.began,
        )


def _threads_within_quota(machine: Machine) -> dict[str, str]:
    """torch starts a thread for every core, however few a control group allows: then it is the quota that is timed."""
    quota = machine.quota_cpus
    if quota is None or quota >= machine.affinity_cpus:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, int(quota)))}
