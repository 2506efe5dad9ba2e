"""How far to trust this run: the codes from PD90 on, and what they mean; what findings mean stands in their checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..evidence.causes import SIGNS
from ..evidence.model import Evidence, JobNode, Missing, RunEvidence, Step
from .diagnoses import CheckResult, IntegrityNote
from .findings import Measurement, Severity
from .outcomes import OutcomeKind

_FEW_STEPS = 20
"""Below, the interval of the step is wider than most findings."""
_DRIFT = 0.2
"""Growth of the step over the run from which on its mean is that of no moment."""
_APART = 0.3
"""Between mean and median: a few steps then take much of the time."""
_UNSETTLED = 0.25
"""Half the width of the mean's interval: gains are told to about as much."""
_REGULAR = 0.5
"""Of the time after the warm-up in steady steps: below, the report is about the smaller part of the job."""
DOUBTS = ("mostly-irregular", "drifting-steps", "uneven-steps", "unsettled-steps", "machine-taken-away")
"""Names of the notes with which the verdict begins."""
_STOLEN = 0.1
"""Of the CPU time, by the hypervisor: what PD12 calls a finding."""
_OVERHEAD = 0.01
"""perfdoctor's own budget for steps of 5 ms and more."""


def notes(run: RunEvidence, results: Sequence[CheckResult]) -> tuple[IntegrityNote, ...]:
    """Everything that limits what the numbers are worth."""
    evidence = run.slowest
    asked = (
        _steps(evidence),
        *_doubts(evidence),
        _contention(evidence),
        _overhead(evidence),
        _debugging(evidence),
        _unlike_nodes(evidence.job.nodes),
    )
    found = [note for note in asked if note is not None]
    found += [
        IntegrityNote("PD94", "check-crashed", Severity.ERROR, f"{result.code} {result.name} crashed")
        for result in results
        if result.outcome.kind is OutcomeKind.CRASHED
    ]
    found += [
        # Without numbers a message is no template: braces stay as they are.
        IntegrityNote("PD95", "recording-incomplete", Severity.NOTE, note)
        for note in run.notes[:5]
    ]
    return tuple(found)


def _steps(evidence: Evidence) -> IntegrityNote | None:
    step = evidence.step
    if isinstance(step, Missing):
        return IntegrityNote("PD90", "too-few-steps", Severity.ERROR, str(step))
    if step.count >= _FEW_STEPS:
        return None
    if evidence.job.traced:
        return _few_recorded(step)
    # One that ended by itself has no more steps to give.
    advice = "--steps 30 or --to-end gives" if evidence.job.end.kind == "stopped" else "let the job run longer for"
    return IntegrityNote(
        "PD90",
        "too-few-steps",
        Severity.WARNING,
        f"only {{steps:steady step was|steady steps were}} seen; {advice} firmer numbers",
        (Measurement("steps", step.count, "count"),),
    )


_FEW_RECORDED = 5
"""Steps of a trace, in which each is recorded event by event: with as many the mean of a steady loop is settled."""


def _few_recorded(step: Step) -> IntegrityNote | None:
    if step.boundary == "trace":
        return IntegrityNote(
            "PD90",
            "too-few-steps",
            Severity.WARNING,
            "the trace marks no steps, so that all of it is taken for one; call `prof.step()` after each",
        )
    if step.count >= _FEW_RECORDED:
        return None
    return IntegrityNote(
        "PD90",
        "too-few-steps",
        Severity.WARNING,
        "the trace holds {steps:step} only; record five or more (`schedule(wait=5, warmup=2, active=5)`)",
        (Measurement("steps", step.count, "count"),),
    )


def _doubts(evidence: Evidence) -> tuple[IntegrityNote | None, ...]:
    """Why the steady step may not stand for the job: the verdict begins with them."""
    step, host = evidence.step, evidence.host
    if isinstance(step, Missing):
        return ()
    stolen = 0.0 if isinstance(host, Missing) else host.steal_share
    return (
        _doubt(
            step.regular_share < _REGULAR,
            "PD97",
            "mostly-irregular",
            "only {regular} of the time after the warm-up lies in steady steps, which this report is about; "
            "{irregular} went into {steps:step} that held something else (an epoch's start, validation, a checkpoint)",
            Measurement("regular", step.regular_share, "share"),
            Measurement("irregular", step.irregular_s, "s"),
            Measurement("steps", step.irregular, "count"),
        ),
        _doubt(
            abs(step.slope) >= _DRIFT,
            "PD98",
            "drifting-steps",
            f"the steps got {{slope}} {'slower' if step.slope > 0 else 'faster'} over the run: their mean describes "
            "no part of it",
            Measurement("slope", abs(step.slope), "share"),
        )
        or _doubt(
            abs(step.step_ms - step.median_ms) >= _APART * step.median_ms,
            "PD98",
            "uneven-steps",
            "the steps differ: their mean is {mean}, their median {median}, so that a few take much of the time",
            Measurement("mean", step.step_ms, "ms"),
            Measurement("median", step.median_ms, "ms"),
        )
        or _doubt(
            step.half_width >= _UNSETTLED,
            "PD98",
            "unsettled-steps",
            "the steps differ so much that their mean is known to within {half_width} only, and so is all that is told "
            "of them",
            Measurement("half_width", step.half_width, "share"),
        ),
        _doubt(
            stolen >= _STOLEN,
            "PD92",
            "machine-taken-away",
            "the hypervisor took {stolen} of the CPU time, so that every duration is too long",
            Measurement("stolen", stolen, "share"),
        ),
    )


def _doubt(holds: bool, code: str, name: str, message: str, *numbers: Measurement) -> IntegrityNote | None:
    return IntegrityNote(code, name, Severity.WARNING, message, numbers) if holds else None


def _contention(evidence: Evidence) -> IntegrityNote | None:
    host = evidence.host
    if isinstance(host, Missing):
        return None
    delay = host.job_run_delay_share
    starved = not isinstance(delay, Missing) and delay > SIGNS.delay_share
    crowded = host.others_cpus >= SIGNS.others_cpus and host.idle_cpus < SIGNS.idle_cpus
    if not starved and not crowded:
        return None
    measurements = [Measurement("others_cpus", round(host.others_cpus, 2), "count", "cores used by other processes")]
    whose = (
        "the machine was contended"
        if crowded or host.others_cpus >= SIGNS.others_cpus
        else "the job's own threads and processes want more CPUs than there are"
    )
    message = whose + ": other processes used {others_cpus:core}"
    if not isinstance(delay, Missing):
        measurements.append(Measurement("delay", delay, "share", "of its runnable time the job waited for a CPU"))
        message += ", and the job waited for a CPU for {delay} of its runnable time"
    return IntegrityNote("PD92", "contended-machine", Severity.WARNING, message, tuple(measurements))


def _overhead(evidence: Evidence) -> IntegrityNote | None:
    cost, step = evidence.own_cost, evidence.step
    if isinstance(cost, Missing) or isinstance(step, Missing):
        return None
    share = cost.hooks_us_per_step / 1000 / step.step_ms
    if share <= _OVERHEAD:
        return None
    return IntegrityNote(
        "PD93",
        "own-overhead",
        Severity.NOTE,
        "perfdoctor's hooks took {hooks} per step, {share} of it: steps this short are measured less exactly",
        (
            Measurement("hooks", cost.hooks_us_per_step / 1000, "ms"),
            Measurement("share", share, "share"),
        ),
    )


def _debugging(evidence: Evidence) -> IntegrityNote | None:
    aids = evidence.debugging
    if isinstance(aids, Missing) or not aids:
        return None
    return IntegrityNote(
        "PD96",
        "debugging-on",
        Severity.WARNING,
        "debugging is on, and what it costs is in every number of this report: {aids}. Switch it off: {off}",
        (
            Measurement("aids", ", ".join(aid.name for aid in aids), "text"),
            Measurement("off", "; ".join(f"`{aid.off}`" for aid in aids), "text"),
        ),
    )


def _unlike_nodes(nodes: Sequence[JobNode]) -> IntegrityNote | None:
    """By what they run: a node that runs something else computes, and waits, in other ways than the rest."""
    by_software: dict[str, list[str]] = {}
    for node in nodes:
        if node.torch_version:
            software = f"torch {node.torch_version} on Python {node.python_version}"
            by_software.setdefault(software, []).append(node.name)
    if len(by_software) < 2:
        return None
    told = [f"{software}: {_few(names)}" for software, names in by_software.items()]
    return IntegrityNote(
        "PD99",
        "nodes-differ",
        Severity.WARNING,
        "the nodes of the job do not run the same software: {software}",
        (Measurement("software", "; ".join(told), "text"),),
    )


def _few(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


@dataclass(frozen=True, slots=True)
class Page:
    """One code of the part "How far to trust this run"."""

    title: str
    meaning: str
    advice: str
    """What the reader can do."""


PAGES: dict[str, Page] = {
    "PD90": Page(
        "too few steps",
        "Fewer than 20 steady steps were seen, or none that can be used: warm-up and profiled steps are left out. The "
        "interval of the step is then wider than most findings.",
        "Let the job run longer: --steps 200 or --seconds 60, and enough epochs.",
    ),
    "PD91": Page(
        "a suppression that does not do what it says",
        "An entry under [[suppress]] or a `# perfdoctor: ignore` comment is malformed, has expired, or matches nothing "
        "in this run. What has expired is reported again.",
        "Mend or remove the line that the report names.",
    ),
    "PD92": Page(
        "a contended machine",
        "Other processes kept CPUs busy, or the job waited for one. Steps are then longer and noisier than the job's "
        "own; PD12 says by how much and, where it can be seen, by whom.",
        "Run it again when the machine is quiet, or read shares rather than milliseconds.",
    ),
    "PD93": Page(
        "perfdoctor's own overhead",
        "The hooks took more than 1 % of the step. That happens with steps of a few milliseconds and less.",
        "Nothing needs to be done; parts of such short steps are a little too long in the report.",
    ),
    "PD94": Page(
        "a check crashed",
        "A check raised an exception. The other checks are not affected; the exit code is 5.",
        "Report it with the traceback on stderr and the output of `perfdoctor env`.",
    ),
    "PD95": Page(
        "an incomplete recording",
        "A file of the recording is missing, cut off or unreadable, as happens when a process is killed.",
        "Read the note: it says what is missing. What was recorded before counts.",
    ),
    "PD96": Page(
        "debugging is on",
        "A variable has switched on an aid for debugging that makes every step dearer: Python's development mode, a "
        "debugging allocator, tracemalloc, a wait after every CUDA kernel, checks of every collective.",
        "Unset the variable that the report names, unless it is needed.",
    ),
    "PD97": Page(
        "mostly no steady steps",
        "More than half of the time after the warm-up went into steps that held something else: an epoch's start, "
        "validation, a checkpoint. The step and its findings are about the smaller part of the job.",
        "Look at what lies between the steps: fewer checkpoints and validations, or what they do.",
    ),
    "PD98": Page(
        "steps that are not alike",
        "The steps got slower or faster over the run by a fifth and more, or a few of them take so long that mean and "
        "median part by 30 %, or they differ so much that their mean is known to within a quarter only. The steady "
        "step is then the mean of different things.",
        "Let it run longer (--steps 500), and look at the steps over time in the JSON report.",
    ),
    "PD99": Page(
        "nodes that do not run the same",
        "The nodes of a job have another PyTorch or another Python. Ranks then differ by what computes them, a "
        "collective may fail or hang, and the settings in this report are those of one rank.",
        "Install the same versions on every node, best from one image or lock file.",
    ),
}
