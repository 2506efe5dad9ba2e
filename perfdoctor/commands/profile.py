"""`perfdoctor profile`: where the time of steady steps goes, by the user's own lines."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from ..config.settings import Config
from ..diagnosis.diagnoses import Diagnosis
from ..errors import PerfdoctorError
from ..evidence.model import Missing
from ..exits import Exit, worst
from ..launch.command import OutputMode
from ..observation.session import Request, record
from ..profiles import memory, objects
from ..profiles.build import build
from ..recording.directory import RunDirectory
from ..recording.reader import read
from ..storage.copies import origin
from ..trials import history
from ..trials.judge import exit_code, judge
from . import outputs, profile_outputs, traces
from .check import Settings, explain_failure, html_page, show_last_words, shown
from .progress import say
from .stored import stored
from .typed_job import TypedJob
from .watch import watcher

_SAMPLES = 600
"""To wait for: the share of a line that has a third of the step is then right to 4 points in 95 of 100 runs. About
12 seconds of steady training."""
_WINDOWS = ("sites",)
"""What lines issue which operators."""
_WITH_TRACE = (*_WINDOWS, "ops")
_OF_MEMORY = ("memory", "objects")
"""Alone: no stacks are sampled beside it, for what watches the memory takes the job's time."""


@dataclass(frozen=True, slots=True)
class Options:
    """`perfdoctor profile`, as typed."""

    job: TypedJob
    recorded: Path | None = None
    """A recording to show, instead of a job to run."""
    to_end: bool = False
    job_output: OutputMode | None = None
    outputs: tuple[str, ...] = ()
    memory: bool = False
    """What the memory consists of, instead of where the time goes."""
    settings: Settings = field(default_factory=Settings)


def run(options: Options) -> Exit:
    """Record, fold, show. What cannot work is refused before the job starts."""
    config = options.settings.resolve()
    if options.recorded is not None:
        return _run(options, config)
    with stored(config) as here:
        return _run(options, here)


def _run(options: Options, config: Config) -> Exit:
    where = profile_outputs.parse(
        options.outputs, profile_outputs.OF_MEMORY if options.memory else profile_outputs.FORMATS
    )
    show_it = _show_memory if options.memory else _show
    if options.recorded is not None:
        directory = RunDirectory(options.recorded)
        return show_it(directory, judge(directory, config), where)
    command = options.job.command()
    mode = options.job_output or ("live" if sys.stdout.isatty() and sys.stderr.isatty() else "passthrough")
    keep_trace = any(output.format in profile_outputs.OF_RUNS for output in where)
    directory = RunDirectory.create(config.runs, command.name)
    request = Request(
        command=command,
        config=config,
        to_end=options.to_end,
        output=mode,
        stdout=sys.stderr.fileno() if outputs.machine_output(where) else None,
        windows=_OF_MEMORY if options.memory else _WITH_TRACE if keep_trace else _WINDOWS,
        keep_trace=keep_trace,
        samples=0 if options.memory else _SAMPLES,
    )
    try:
        with watcher(directory, mode, None) as show:
            record(request, directory, show, facts=history.facts(os.environ))
        diagnosis = judge(directory, config)
        if mode != "passthrough" and diagnosis.evidence.job.end.kind in ("crashed", "killed"):
            show_last_words(directory.job_output)
            say(f"all of the job's output is in {origin(directory.job_output)}")
        code = show_it(directory, diagnosis, where)
    except (Exception, KeyboardInterrupt):
        if directory.run_file.exists():
            say(f"what was measured is kept: perfdoctor profile --from {shown(directory)}")
        raise
    explain_failure(diagnosis, command, options.job)
    return code


def _show(directory: RunDirectory, diagnosis: Diagnosis, where: tuple[outputs.Output, ...]) -> Exit:
    """Write every output of a recording."""
    code = exit_code(diagnosis, "never")
    profiles = build(read(directory))
    if isinstance(profiles, Missing):
        return _without(profiles, diagnosis, code)
    profile_outputs.write(profiles, diagnosis.evidence.job, where)
    for output in where:
        if output.format == profile_outputs.TRACE and output.path is not None:
            traces.write(output.path, directory, diagnosis)
        if output.format == profile_outputs.PAGE:
            page = html_page(diagnosis, [directory.path], f"perfdoctor profile --from {shown(directory)}")
            profile_outputs.write_text(output, page)
    return code


def _show_memory(directory: RunDirectory, diagnosis: Diagnosis, where: tuple[outputs.Output, ...]) -> Exit:
    """The same of what the memory consists of."""
    code = exit_code(diagnosis, "never")
    recording = read(directory)
    profiles = memory.build(recording)
    if isinstance(profiles, Missing):
        return _without(profiles, diagnosis, code)
    profile_outputs.write_memory(profiles, objects.build(recording), diagnosis.evidence.job, where)
    return code


def _without(missing: Missing, diagnosis: Diagnosis, code: Exit) -> Exit:
    """Nothing can be shown."""
    if missing.code or isinstance(diagnosis.evidence.step, Missing):
        return worst(code, Exit.NOT_MEASURABLE)  # `explain_failure` says why
    raise PerfdoctorError(
        f"there is no profile: {missing.reason}",
        slug="no-profile",
        advice=missing.remedy or "perfdoctor profile train.py",
        exit_code=Exit.NOT_MEASURABLE,
    )
