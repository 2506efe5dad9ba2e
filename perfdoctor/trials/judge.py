"""From a run directory, or from traces, to a diagnosis. Needs no job and no torch, so an old recording can be judged
again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from ..config.rules import apply_limits
from ..config.settings import Config, require_known_codes
from ..config.suppressions import inline_suppression
from ..diagnosis.diagnoses import Diagnosis
from ..diagnosis.examine import Rules, examine
from ..diagnosis.measured import Past
from ..diagnosis.outcomes import Check, OutcomeKind
from ..diagnosis.registry import discover
from ..evidence.build import build_job
from ..evidence.model import Missing
from ..evidence.traced.build import build as build_traced
from ..exits import Exit, worst
from ..recording.directory import RunDirectory
from ..recording.nodes import read_nodes
from ..traces.reader import read as read_trace
from ..traces.source import find, is_trace
from .results import results, with_trials


def checks_with_limits(config: Config) -> Sequence[tuple[Check[Any], Any]]:
    """Every check and its thresholds, known before a job runs. Raises PerfdoctorError for settings that fit none."""
    registered = [entry.check for entry in discover()]
    require_known_codes(config, {check.code for check in registered})
    return [(check, apply_limits(check, config.rule(check.code), config.source)) for check in registered]


def judge(directory: RunDirectory, config: Config) -> Diagnosis:
    """Read what all nodes of the job recorded, build evidence, run the checks. Raises PerfdoctorError for a directory
    that is no recording."""
    checks = checks_with_limits(config)
    nodes = read_nodes(directory)
    recording, run = nodes[0].recording, build_job(nodes)
    comment = partial(inline_suppression, cwd=Path(recording.facts.cwd))
    diagnosis = examine(run, checks, Rules(config, date.today(), comment))
    past = Past(recording.facts.past_error, recording.facts.past_trials)
    return with_trials(replace(diagnosis, past=past), results(recording))


def judge_recorded(paths: Sequence[Path], config: Config) -> Diagnosis:
    """A run directory, or traces of one job: files, one of each rank, or folders of them. Raises PerfdoctorError."""
    if len(paths) == 1 and not is_trace(paths[0]):
        return judge(RunDirectory(paths[0]), config)
    checks = checks_with_limits(config)
    sources = [find(path) for path in paths]
    traces = [read_trace(file) for source in sources for file in source.paths]
    run = build_traced(traces)
    notes = (*(source.note for source in sources if source.note), *run.notes)
    comment = partial(inline_suppression, cwd=Path.cwd())
    return examine(replace(run, notes=notes), checks, Rules(config, date.today(), comment))


def exit_code(diagnosis: Diagnosis, fail_on: str) -> Exit:
    """What the shell gets for a diagnosis."""
    codes = [Exit.OK]
    if any(result.outcome.kind is OutcomeKind.CRASHED for result in diagnosis.checks):
        codes.append(Exit.INTERNAL)
    if diagnosis.evidence.job.end.kind in ("crashed", "killed"):
        codes.append(Exit.JOB_FAILED)
    if isinstance(diagnosis.evidence.step, Missing):
        codes.append(Exit.NOT_MEASURABLE)
    if any(finding.severity.fails(fail_on) for finding in diagnosis.ranked):
        codes.append(Exit.FINDINGS)
    return worst(*codes)
