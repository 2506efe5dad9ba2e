"""`perfdoctor gate --self-test`: the gate tried on this machine, on a job whose slowdowns are known."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..config.settings import Config
from ..errors import PerfdoctorError
from ..exits import Exit
from ..gate.comparison import Comparison, Terms
from ..gate.decision import Policy
from ..gate.interleaving import Program
from ..gate.model import GateResult, Verdict
from ..launch.command import Command, python_for_jobs
from .progress import say

JOB = Path(__file__).parent.parent / "gate" / "trial_job.py"


@dataclass(frozen=True, slots=True)
class Trial:
    """One comparison whose answer is known."""

    name: str
    after: tuple[str, ...]
    """Options of the arm after."""
    expected: tuple[Verdict | Exit, ...]
    """What it may end in; an exit code where it must be refused."""
    moved: tuple[str, ...] = ()
    """Operators that must be named, each once more per step, and no others."""
    loss_may_change: bool = False
    before: tuple[str, ...] = ()
    """Options of the arm before."""
    differs: tuple[str, ...] = ()
    """Metrics of which one at least must differ."""


TRIALS = (
    Trial("the same program", (), (Verdict.PASS,)),
    Trial("10 % slower by spinning", ("--spin", "0.1"), (Verdict.REGRESSION,)),
    Trial("one .item() more", ("--items", "1"), (Verdict.REGRESSION,), ("op:aten::item",)),
    Trial("another batch size", ("--batch", "32"), (Verdict.NOT_COMPARABLE,)),
    Trial("a program that does next to nothing", ("--hollow",), (Verdict.NOT_COMPARABLE,)),
    Trial("a data set that is missing", ("--data", "no-such-file"), (Exit.JOB_FAILED,)),
    Trial("a program that fails", ("--fail", "30"), (Exit.JOB_FAILED,)),
)


def compare(
    trial: Trial, config: Config, policy: Policy, say: Callable[[str], None] = lambda text: None
) -> GateResult | PerfdoctorError:
    """One comparison, as a gate would make it; an error that it ends in is an answer too."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}

    def program(title: str, options: Sequence[str]) -> Program:
        return Program(title, Command((python_for_jobs(), str(JOB), *options), "trial"), Path.cwd(), environment)

    terms = Terms(policy, config.gate.time_budget_s, allow_loss_change=trial.loss_may_change, say=say)
    try:
        return Comparison(program("before", trial.before), program("after", trial.after), config, terms).run()
    except PerfdoctorError as error:
        return error


def problem_of(trial: Trial, found: GateResult | PerfdoctorError) -> str:
    """Why the answer is wrong; "" when it is right."""
    if isinstance(found, PerfdoctorError):
        return "" if found.exit_code in trial.expected else f"{found.message} [{found.slug}]"
    if found.verdict not in trial.expected:
        return f"{found.verdict.value}: {found.reason}"
    rose = {j.name for j in found.judgements if j.name.startswith("op:") and j.verdict is Verdict.REGRESSION}
    if trial.moved and rose != set(trial.moved):
        return f"named {', '.join(sorted(rose)) or 'nothing'}"
    if trial.differs and not any(j.change for j in found.judgements if j.name in trial.differs):
        return f"none of these moved: {', '.join(trial.differs)}"
    return ""


def run(config: Config) -> Exit:
    """All trials, one after the other; 0 when every answer is right, 3 when the machine is too busy to tell."""
    wrong: list[str] = []
    unsure: list[str] = []
    for trial in TRIALS:
        say(f"self-test: {trial.name}")
        with tempfile.TemporaryDirectory(prefix="perfdoctor-") as runs:
            found = compare(trial, replace(config, runs=Path(runs)), Policy(tolerance=config.gate.tolerance), say=say)
        problem = problem_of(trial, found)
        doubt = isinstance(found, GateResult) and found.verdict is Verdict.INCONCLUSIVE
        mark = "?" if problem and doubt else "✗" if problem else "✓"
        print(f"{mark} {trial.name}{f': {problem}' if problem else ''}", flush=True)
        if problem:
            (unsure if doubt else wrong).append(trial.name)
    if wrong:
        print(f"{len(wrong)} of {len(TRIALS)} answers are wrong: do not gate on this machine")
        return Exit.INTERNAL
    if unsure:
        print("this machine is too busy, or too noisy, for a verdict within the time budget")
        return Exit.NOT_MEASURABLE
    print("every answer is right")
    return Exit.OK
