"""Trials in words: predicted beside measured, what helped together, and the lines that keep it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from statistics import median

from ..diagnosis.diagnoses import Diagnosis
from ..diagnosis.findings import Finding
from ..diagnosis.measured import Gain, Past, Range, Trial, Trials, Verdict
from ..evidence.model import Missing
from . import wording

TRIAL_MARKS = {
    Verdict.HELPED: "✓",
    Verdict.HURT: "✗",
    Verdict.NO_DIFFERENCE: "=",
    Verdict.NOT_MEASURED: "?",
    Verdict.NOT_TRIED: "-",
}
MOVED = 1.25
"""The job's own step, during the trials over before: by more than this factor is worth telling."""


@dataclass(frozen=True, slots=True)
class TrialText:
    """One trial in words."""

    mark: str
    remedy: str
    predicted: str
    """"1.5x to 1.8x"; "" without a prediction."""
    measured: str
    """"1.71x [1.66, 1.76]"; "" without one."""
    outcome: str
    """What it comes to: "helped", "no difference shown", why there is none."""


@dataclass(frozen=True, slots=True)
class TrialsText:
    """What the report says about all trials."""

    rows: tuple[TrialText, ...]
    together: str
    """What everything that helped came to; "" where that was not measured."""
    unit: str
    """How it was measured."""
    warning: str
    """Why nothing was tried, or that the machine was another one meanwhile; "" without either."""
    accuracy: str
    """How far predictions were off on this machine so far; "" where none was ever tried."""
    keep: tuple[tuple[str, str, str], ...]
    """Remedy, language and lines, of what helped."""
    apply: str
    """The command that runs the job with what helped; "" where nothing did."""


def trials_text(diagnosis: Diagnosis) -> TrialsText | None:
    """None when no remedy was tried."""
    trials = diagnosis.trials
    if trials is None:
        return None
    helped = [trial for trial in trials.single if trial.verdict is Verdict.HELPED]
    best = trials.together if trials.together and trials.together.verdict is Verdict.HELPED else None
    names = list(best.names) if best else [trial.remedy for trial in helped if trial.keep][:1]
    command = shlex.join(diagnosis.evidence.job.command)
    return TrialsText(
        rows=tuple(_row(trial) for trial in trials.single),
        together=_together(trials.together),
        unit=_unit(trials),
        warning=_warning(diagnosis, trials),
        accuracy=accuracy(Past(trials.typical_error, trials.past)),
        keep=tuple((trial.remedy, trial.language, _lines(trial)) for trial in helped if trial.keep),
        apply=wording.clean(f"perfdoctor run --apply {','.join(names)} -- {command}") if names else "",
    )


def tried(diagnosis: Diagnosis, finding: Finding) -> tuple[str, ...]:
    """One sentence for each trial of a finding's remedies."""
    if diagnosis.trials is None:
        return ()
    return tuple(trial_sentence(trial) for trial in diagnosis.trials.of(finding.fingerprint))


def best_measured(diagnosis: Diagnosis, finding: Finding) -> str:
    """The sentence about the trial that made the job fastest; "" where none was measured."""
    trials = () if diagnosis.trials is None else diagnosis.trials.of(finding.fingerprint)
    gains = {trial_sentence(trial): trial.gain.factor for trial in trials if trial.gain is not None and trial.keep}
    return max(gains, key=lambda sentence: gains[sentence], default="")


def trial_sentence(trial: Trial) -> str:
    """ "speed-up 1.71x [1.66, 1.76] with memory.malloc, predicted 1.5x to 1.8x"."""
    if trial.gain is None:
        return f"{trial.remedy}: {_outcome(trial)}"
    text = f"{_speed_up(trial.gain)} with {trial.remedy}"
    if trial.verdict is Verdict.HELPED:
        return f"{text}, {_predicted(trial.predicted)}" if trial.predicted else text
    return f"{text}; {_outcome(trial)}"


def _lines(trial: Trial) -> str:
    """To paste, with what they risk."""
    return f"# {trial.caution}\n{trial.keep}" if trial.caution else trial.keep


def _row(trial: Trial) -> TrialText:
    return TrialText(
        mark=TRIAL_MARKS[trial.verdict],
        remedy=trial.remedy,
        predicted=wording.factors(trial.predicted.low, trial.predicted.high) if trial.predicted else "",
        measured=wording.interval(trial.gain.factor, trial.gain.low, trial.gain.high) if trial.gain else "",
        outcome=_outcome(trial),
    )


def _outcome(trial: Trial) -> str:
    if trial.verdict is Verdict.HELPED:
        text = f"helped: {trial.text}{_start(trial)}"
        return text if trial.keep else f"{text} (upper bound only)"
    if trial.verdict is Verdict.HURT:
        return f"made it slower: not recommended here{_start(trial)}"
    if trial.verdict is Verdict.NO_DIFFERENCE:
        useless = trial.gain is not None and trial.gain.no_use
        return f"no difference shown{': not recommended here' if useless else ''}{_start(trial)}"
    began = "could not be measured" if trial.verdict is Verdict.NOT_MEASURED else "not tried"
    return wording.clean(f"{began}: {trial.reason}")


def _start(trial: Trial) -> str:
    """What its start takes, and when that is earned back."""
    if trial.start_s is None:
        return ""
    took = wording.elapsed(trial.start_s)
    if trial.verdict is not Verdict.HELPED or trial.pays_after_steps is None:
        return f"; its start took {took}"
    return f", which took {took} and pays after {wording.plural(trial.pays_after_steps, 'step')}"


def _speed_up(gain: Gain) -> str:
    return f"speed-up {wording.interval(gain.factor, gain.low, gain.high)}"


def _predicted(predicted: Range) -> str:
    return f"predicted {wording.factors(predicted.low, predicted.high)}"


def _together(trial: Trial | None) -> str:
    if trial is None:
        return ""
    names = wording.listing(trial.names)
    if trial.gain is None:
        return f"Together ({names}): {_outcome(trial)}."
    predicted = f", {_predicted(trial.predicted)}" if trial.predicted else ""
    return f"Together ({names}): {_speed_up(trial.gain)}{predicted}."


def _unit(trials: Trials) -> str:
    gains = [trial.gain for trial in trials.single if trial.gain is not None]
    if trials.problem or not gains:
        return ""
    dropped = sum(gain.dropped for gain in gains)
    text = (
        f"Measured in the running job within {wording.elapsed(trials.seconds)}: blocks of steps with the change and "
        "without, in random order, compared pair by pair; in brackets the 99 % interval."
    )
    launches = sum(gain.pairs for gain in gains if not gain.steps)
    if launches:
        text += f" What is read when a process starts: by {wording.plural(launches, 'pair')} of launches."
    if dropped:
        text += f" Left out and repeated: {wording.plural(dropped, 'pair')} in which other processes had the CPU."
    return text


def _warning(diagnosis: Diagnosis, trials: Trials) -> str:
    """Where the job as it is ran otherwise during the trials, they are about a slower or faster machine."""
    if trials.problem:
        return f"Nothing was tried: {wording.clean(trials.problem)}."
    step = diagnosis.evidence.step
    during = [trial.gain.step_ms for trial in trials.single if trial.gain is not None and trial.gain.steps]
    if isinstance(step, Missing) or not during or step.step_ms <= 0:
        return ""
    typical = median(during)
    if 1 / MOVED < typical / step.step_ms < MOVED:
        return ""
    now, before = wording.duration(typical), wording.duration(step.step_ms)
    return f"Meanwhile a step without any change took {now} instead of the {before} before: something else changed."


def accuracy(past: Past) -> str:
    """How far predictions were off on this machine before; "" where none was ever tried."""
    if not past.trials:
        return ""
    trials = wording.plural(past.trials, "trial")
    if past.typical_error is None:
        return (
            f"Before this run, predictions on this machine had been compared with {trials}: too few to say how far off "
            "they usually are."
        )
    off = wording.share(past.typical_error)
    return f"Before this run, predictions on this machine were off by {off} (median of {trials})."
