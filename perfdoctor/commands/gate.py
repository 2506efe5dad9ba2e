"""`perfdoctor gate`."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ..config.decoding import Place, laid_over
from ..config.gate import COUNTER, GateSettings
from ..config.settings import Config
from ..errors import PerfdoctorError
from ..exits import Exit
from ..gate.failure import JobFailedError
from ..gate.model import Arm, GateResult, Verdict
from ..launch import command as commands
from ..observation.session import signals_as_interrupts
from ..recording.directory import make_parent
from ..report.gate_words import SHOWN
from ..storage.copies import local, origin
from ..trials.judge import checks_with_limits, judge_recorded
from . import outputs
from .budgets import require_known_budgets
from .check import Settings, show_last_words
from .progress import say
from .stored import stored
from .typed_job import TypedJob

if TYPE_CHECKING:
    from ..diagnosis.diagnoses import Diagnosis
    from ..gate.interleaving import Program
    from ..gate.worktrees import Tree, Trees

_REPORTED = (Exit.JOB_FAILED, Exit.NOT_MEASURABLE)
"""Wrong options are for whoever typed them, and crashes of perfdoctor for its authors."""
LOCK = Path(tempfile.gettempdir()) / "perfdoctor-gate.lock"


@dataclass(frozen=True, slots=True)
class Options:
    """`perfdoctor gate`, as typed."""

    job: TypedJob
    against: str | None
    baseline: Path | None
    stored: tuple[Path, Path] | None
    """Two arms that are stored already (`--from`)."""
    merge_base: bool
    allow_loss_change: bool
    launches: int
    outputs: tuple[str, ...]
    verbose: bool
    settings: Settings
    gate: Mapping[str, object] = field(default_factory=dict)
    """Options over `[gate]`, by its keys; None leaves a setting alone."""
    counter_tolerance: Sequence[str] = ()
    """`METRIC=N`."""
    self_test: bool = False


def with_options(settings: GateSettings, options: Mapping[str, object], counters: Sequence[str]) -> GateSettings:
    """Raises PerfdoctorError for a value that is not what it should be."""
    allowed = dict(COUNTER.decode(word, Place(key="counter-tolerance")) for word in counters)
    return laid_over(settings, {**options, "counter-tolerance": {**settings.counter_tolerance, **allowed}})


def run(options: Options) -> Exit:
    """Compare, report, and say what the shell gets."""
    config = options.settings.resolve()
    if options.stored is not None or options.self_test:
        return _run(options, config)
    # Most of its recordings are taken away again: only what it keeps is uploaded.
    with stored(config, growing=False) as here:
        return _run(options, here)


def _run(options: Options, config: Config) -> Exit:
    gate = with_options(config.gate, options.gate, options.counter_tolerance)
    config = dataclasses.replace(config, gate=gate)
    where = outputs.parse(options.outputs, outputs.OF_COMPARISONS)
    checks_with_limits(config)
    require_known_budgets(config)
    from ..gate.interleaving import one_gate_at_a_time

    if options.self_test:
        from . import selftest

        with one_gate_at_a_time(LOCK), signals_as_interrupts():
            return selftest.run(config)
    _require_one_comparison(options)
    if options.stored is not None:
        from ..gate.stored import judge as judge_stored
        from .baseline import read_arm

        before, after = (read_arm(path, config) for path in options.stored)
        result = judge_stored(
            before,
            after,
            config,
            today=after.content.written,
            fail_on=options.settings.fail_on,
            allow_loss_change=options.allow_loss_change,
        )
        return _finish(result, config, where, after.argv, options.verbose)
    command = options.job.command()
    from .watch import gate_watcher

    try:
        with (
            one_gate_at_a_time(LOCK),
            signals_as_interrupts(),
            gate_watcher(config.gate.time_budget_s) as paired,
        ):
            if options.baseline is not None:
                from .baseline import gate_against

                result = gate_against(options.baseline, command, config, options.launches, date.today())
            else:
                result = _against(options, config, paired)
    except PerfdoctorError as error:
        if error.exit_code in _REPORTED:
            # A red run of CI shows its reports, not its stderr.
            failed = _failure(error, str(options.baseline or options.against))
            write(failed, config, where, command.argv, verbose=options.verbose)
        raise
    return _finish(result, config, where, command.argv, options.verbose)


def _require_one_comparison(options: Options) -> None:
    """Raises PerfdoctorError for none or several, and for a job where none is run."""
    given = [other for other in (options.against, options.baseline, options.stored) if other is not None]
    if len(given) != 1:
        raise PerfdoctorError(
            "several things to compare with" if given else "nothing to compare with",
            slug="gate-against",
            advice="one of: perfdoctor gate --against main train.py, --baseline perf-baseline.json train.py, "
            "or --from BEFORE AFTER without a script",
        )
    if options.stored is not None and (options.job.words or options.job.module):
        raise PerfdoctorError(
            "--from runs nothing, so it takes no script",
            slug="gate-from",
            advice="perfdoctor gate --from BEFORE AFTER",
        )


def _failure(error: PerfdoctorError, before: str) -> GateResult:
    """A gate that could not compare anything, as a result like any other: its reports say why.

    What the job printed last goes to stderr as a whole, its last line into the reports.
    """
    notes = [error.advice]
    lines = show_last_words(error.output) if isinstance(error, JobFailedError) and error.output else []
    if any(lines):
        notes.append(f"the last line of its output: {next(line for line in reversed(lines) if line.strip())}")
    verdict = Verdict.FAILED if error.exit_code is Exit.JOB_FAILED else Verdict.NOT_COMPARABLE
    return GateResult(verdict, error.message, Arm(before), Arm("this run"), notes=tuple(notes))


def _finish(
    result: GateResult, config: Config, where: Sequence[outputs.Output], argv: Sequence[str], verbose: bool
) -> Exit:
    """Every report, and what the shell gets."""
    result = dataclasses.replace(result, fail_on_doubt=config.gate.on_inconclusive == "fail")
    write(result, config, where, argv, verbose=verbose)
    return exit_code(result)


def exit_code(result: GateResult) -> Exit:
    """What the shell gets for a gate."""
    if result.verdict is Verdict.INCONCLUSIVE and not result.fail_on_doubt:
        return Exit.OK
    return SHOWN[result.verdict].exit_code


def write_baseline(job: TypedJob, file: Path, launches: int, settings: Settings) -> Exit:
    """`perfdoctor baseline write`."""
    from ..gate.interleaving import one_gate_at_a_time
    from . import baseline

    config = settings.resolve()
    checks_with_limits(config)
    command = job.command()
    with one_gate_at_a_time(LOCK), stored(config, growing=False) as here:
        baseline.write(file, command, here, launches, date.today())
    return Exit.OK


def write(
    result: GateResult, config: Config, where: Sequence[outputs.Output], argv: Sequence[str], *, verbose: bool
) -> None:
    """Every report of a gate."""
    from ..report.gate_console import render_gate_console
    from ..report.gate_json import render_gate_json
    from ..report.gate_markdown import render_gate_markdown
    from ..report.gate_sheet import gate_sheet
    from ..report.sheet import script_of

    result = dataclasses.replace(result, before=_called(result.before), after=_called(result.after))
    pages = outputs.Pages(
        console=lambda: render_gate_console(result, verbose=verbose),
        markdown=lambda: render_gate_markdown(result),
        json=lambda: render_gate_json(result, int(exit_code(result))),
        html=lambda: _html(result, config),
        sheet=lambda: gate_sheet(result, script_of(argv[1:] or argv)),
    )
    outputs.write(pages, where)


def _called(arm: Arm) -> Arm:
    """With its recording as a user would name it later."""
    return dataclasses.replace(arm, recording=arm.recording and origin(Path(arm.recording)))


def _html(result: GateResult, config: Config) -> str:
    from ..report.html.gate import render_gate_html  # with jinja2, which no other report needs at once

    return render_gate_html(result, config.gate.tolerance, _diagnoses(result, config))


def _diagnoses(result: GateResult, config: Config) -> tuple[Diagnosis, Diagnosis] | None:
    """Of both arms' recordings; None where one has none, or has lost it."""
    if not result.before.recording or not result.after.recording:
        return None
    try:
        before, after = (judge_recorded([local(arm.recording)], config) for arm in (result.before, result.after))
    except PerfdoctorError:
        return None
    return before, after


def _against(options: Options, config: Config, paired: Callable[[int, int], None]) -> GateResult:
    from ..gate import worktrees
    from ..gate.comparison import Comparison, Terms
    from ..gate.decision import Policy

    gate = config.gate
    make_parent(config.runs)
    place = config.runs / f"trees-{os.getpid()}"
    began = time.monotonic()
    with worktrees.prepared(
        cast("str", options.against),
        merge_base=options.merge_base,
        setup=gate.setup,
        python=options.job.interpreter,
        where=place,
    ) as trees:
        if trees.identical:
            arms = Arm(trees.before.title), Arm(trees.after.title)
            reason = f"{trees.before.title} and {trees.after.title} hold the same files: nothing to measure"
            return GateResult(Verdict.IDENTICAL, reason, *arms, notes=trees.notes)

        def wrong_tree(before: Sequence[str], after: Sequence[str]) -> str:
            for tree, sources in ((trees.before, before), (trees.after, after)):
                foreign = worktrees.foreign_sources(sources, tree, trees)
                if foreign:
                    return f"{tree.title} runs {foreign[0]}, which is not its own file"
            same = worktrees.fingerprint_of(before, trees.before) == worktrees.fingerprint_of(after, trees.after)
            if same:
                say("the Python files that the job runs are the same in both arms; data or settings may differ")
            return ""

        terms = Terms(
            Policy(tolerance=gate.tolerance),
            gate.time_budget_s - (time.monotonic() - began),
            control=gate.control,
            steady_memory=gate.steady_memory,
            abba=gate.schedule == "abba",
            allow_loss_change=options.allow_loss_change,
            # Only when asked for: whether a finding is just above its threshold is partly chance.
            fail_on=options.settings.fail_on,
            say=say,
            wrong_tree=wrong_tree,
            paired=paired,
        )
        before, after = (_program(options.job, trees, tree) for tree in (trees.before, trees.after))
        try:
            result = Comparison(before, after, config, terms).run()
        except PerfdoctorError as error:
            if error.slug != "several-ranks":
                raise
            say("a job of several ranks cannot take turns: one launch runs at a time (--schedule abba)")
            result = Comparison(before, after, config, dataclasses.replace(terms, abba=True)).run()
        return dataclasses.replace(result, notes=(*trees.notes, *result.notes, *trees.linked.problems()))


def _program(job: TypedJob, trees: Trees, tree: Tree) -> Program:
    """One arm's own command, in its own directory."""
    from ..gate.interleaving import Program

    cwd = trees.cwd(tree)
    words = tuple(trees.within(tree, word) for word in job.words)
    script = cwd / words[0] if words and not job.module and not job.verbatim else None
    if not cwd.is_dir() or (script is not None and not script.exists()):
        raise PerfdoctorError(
            f"{tree.title} has no {script.relative_to(tree.root) if script else cwd.relative_to(tree.root)}",
            slug="script-missing",
            advice="the job is new: there is nothing to compare with yet",
            exit_code=Exit.NOT_MEASURABLE,
        )
    if job.verbatim:
        command = commands.Command(words, Path(words[0]).name)
    elif job.module:
        command = commands.module(tree.python, job.module, words)
    else:
        command = commands.Command((tree.python, *words), Path(words[0]).stem)
    return Program(tree.title, command, cwd, tree.environment)
