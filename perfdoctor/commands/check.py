"""`perfdoctor check` and `perfdoctor report`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from ..config import files
from ..config.choices import FailOn, Tracker
from ..config.settings import Config
from ..diagnosis.diagnoses import Diagnosis
from ..diagnosis.registry import codes
from ..errors import PerfdoctorError
from ..evidence.model import Evidence, Missing
from ..evidence.series import StepSeries, series
from ..exits import Exit, worst
from ..launch import command as commands
from ..launch.command import OutputMode
from ..launch.environment import leaving_at
from ..launch.job import signal_name
from ..observation.session import COUNTING, WINDOWS, Request, record
from ..observation.watch import output_tail
from ..recording.directory import RunDirectory
from ..recording.nodes import read_recordings
from ..report import wording
from ..storage.copies import origin
from ..trials import history
from ..trials.conductor import Conductor
from ..trials.judge import checks_with_limits, exit_code, judge, judge_recorded
from ..trials.plan import plan
from . import log_to, other_nodes, outputs, traces
from .budgets import keep_budgets, needs_counters, require_known_budgets
from .progress import say
from .run import known
from .stored import deliver, stored
from .typed_job import TypedJob
from .watch import watcher

_LAST_WORDS = 200
"""Lines of a failed job's output in which its traceback is looked for ..."""
_FEW_WORDS = 20
"""... and how many are shown when there is none."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Command-line options that lie over the configuration file; None leaves a setting alone."""

    config: Path | None = None
    select: Sequence[str] | None = None
    ignore: Sequence[str] = ()
    fail_on: FailOn | None = None
    steps: int | None = None
    seconds: float | None = None
    patience: float | None = None
    runs: str | Path | None = None

    def resolve(self) -> Config:
        """The configuration in force. Raises PerfdoctorError."""
        given = asdict(self)
        return files.load(Path.cwd(), given.pop("config")).merged(**given).with_codes(codes())


@dataclass(frozen=True, slots=True)
class Options:
    """`perfdoctor check`, as typed."""

    job: TypedJob
    to_end: bool = False
    leave_at: int | None = None
    """The step after which every rank leaves, agreed on before the start; None where that is found out."""
    job_output: OutputMode | None = None
    log_every: int | None = None
    trial_seconds: float | None = None
    """For trials; None for none."""
    also_try: str | None = None
    """Names of remedies with commas between."""
    outputs: tuple[str, ...] = ()
    trace: Path | None = None
    """Where the operator window's own trace goes."""
    log_to: Tracker | None = None
    verbose: bool = False
    settings: Settings = Settings()


def run(options: Options) -> Exit:
    """Record, judge, report. What cannot work is refused before the job starts."""
    with stored(options.settings.resolve()) as config:
        return _run(options, config)


def _run(options: Options, config: Config) -> Exit:
    command = options.job.command()
    where = outputs.parse(options.outputs)
    on_terminal = sys.stdout.isatty() and sys.stderr.isatty()
    mode = options.job_output or ("live" if on_terminal and options.log_every is None else "passthrough")
    if options.log_every is not None and options.log_every < 1:
        raise PerfdoctorError("--log-every needs a number of steps", slug="log-every", advice="--log-every 10")
    also_try = _also_try(options)
    environment = _environment(options)
    if options.trace is not None:
        traces.require_writable(options.trace)
    checks_with_limits(config)
    require_known_budgets(config)
    _say_what_is_missing_here()
    directory = RunDirectory.create(config.runs, command.name)
    request = Request(
        command=command,
        config=config,
        to_end=options.to_end or options.leave_at is not None,
        output=mode,
        # A program that reads our stdout must not get the job's lines too.
        stdout=sys.stderr.fileno() if outputs.machine_output(where) else None,
        windows=COUNTING if needs_counters(config.budgets) else WINDOWS,
        environment=environment,
        # An HTML report draws a step of it.
        keep_trace=options.trace is not None or any(output.format == "html" for output in where),
    )
    seconds = options.trial_seconds
    conductor = None if seconds is None else Conductor(directory, config, seconds, also_try)
    try:
        with watcher(directory, mode, options.log_every, seconds) as show:
            ending = record(request, directory, show, conductor, history.facts(os.environ))
        if deliver(directory):
            other_nodes.gather(directory, ending)
        elsewhere = other_nodes.handed_over(directory, ending)
        if elsewhere is not None:
            if mode != "passthrough" and elsewhere is Exit.JOB_FAILED:
                show_last_words(directory.job_output)
            return elsewhere
        if ending.kind != "interrupted":  # whoever interrupts it does not want to wait
            other_nodes.wait_for_others(directory)
        other_nodes.complete(directory)
        diagnosis = judge(directory, config)
        if mode != "passthrough" and diagnosis.evidence.job.end.kind in ("crashed", "killed"):
            show_last_words(directory.job_output)
            say(f"all of the job's output is in {origin(directory.job_output)}")
        _write(diagnosis, directory, str(options.job), where, options.verbose, options.log_to, own=True)
        if options.trace is not None:
            traces.write(options.trace, directory, diagnosis)
    except (Exception, KeyboardInterrupt):
        if directory.run_file.exists():
            say(f"what was measured is kept: perfdoctor report {shown(directory)}")
        raise
    explain_failure(diagnosis, command, options.job)
    return worst(exit_code(diagnosis, config.fail_on), keep_budgets(diagnosis, config))


def _environment(options: Options) -> dict[str, str] | None:
    """The job's; None for ours. Raises PerfdoctorError for options that do not go together."""
    asked = log_to.asking(options.log_to)
    if options.leave_at is None:
        return asked
    if options.leave_at < 1 or options.to_end or options.trial_seconds is not None:
        raise PerfdoctorError(
            "--leave-at needs the number of a step, and goes with neither --to-end nor --trial",
            slug="leave-at",
            advice="--leave-at 300, alike on all nodes",
        )
    return leaving_at(options.leave_at, asked or os.environ)


def _also_try(options: Options) -> tuple[str, ...]:
    """The remedies of `--try`. Raises PerfdoctorError for options that do not go together, and for unknown names."""
    names = tuple(name.strip() for name in (options.also_try or "").split(",") if name.strip())
    if options.trial_seconds is None:
        if names:
            raise PerfdoctorError(
                "--try says what to try, and needs --trial", slug="try-without-trial", advice="add --trial"
            )
        return ()
    if options.to_end:
        raise PerfdoctorError(
            "--trial changes the running job, so it does not go with --to-end",
            slug="trial-to-end",
            advice="leave out --to-end; afterwards, perfdoctor run --apply REMEDY -- COMMAND runs the job to its end",
        )
    if options.trial_seconds <= 0:
        raise PerfdoctorError(
            "--trial-seconds needs a number of seconds", slug="trial-seconds", advice="--trial-seconds 120"
        )
    return tuple(known(name) for name in names)


def _say_what_is_missing_here() -> None:
    """perfdoctor is made for Linux; elsewhere it says what it cannot see rather than staying silent about it."""
    if sys.platform != "linux":
        say(
            f"on {sys.platform} the job cannot be ended early (it runs to its own end), and run delay, "
            "page faults, CPU quotas and neighbours are not seen: several checks will say that they cannot tell"
        )


def report(
    runs: Sequence[Path],
    settings: Settings,
    words: Sequence[str],
    verbose: bool,
    trace: Path | None = None,
    tracker: Tracker | None = None,
) -> Exit:
    """Judge an old recording again, or what torch.profiler recorded elsewhere."""
    config = settings.resolve()
    require_known_budgets(config)
    where = outputs.parse(words)
    if trace is not None:
        traces.require_writable(trace)
    diagnosis = judge_recorded(runs, config)
    if diagnosis.evidence.job.traced:
        _write_of_trace(diagnosis, runs, where, verbose)
        if trace is not None:
            raise PerfdoctorError(
                "--trace keeps what perfdoctor recorded, and a trace is there already",
                slug="trace-of-trace",
                advice="open it as it is, in ui.perfetto.dev",
            )
        if tracker:
            raise PerfdoctorError(
                "--log-to needs the recording of a job, and a trace names no run of a tracker",
                slug="log-to-trace",
                advice="--output markdown:report.md writes what can be put there by hand",
            )
    else:
        directory = RunDirectory(runs[0])
        _write(diagnosis, directory, f"-- {shlex.join(diagnosis.evidence.job.command)}", where, verbose, tracker)
        if trace is not None:
            traces.write(trace, directory, diagnosis)
    return worst(exit_code(diagnosis, config.fail_on), keep_budgets(diagnosis, config))


def _write(
    diagnosis: Diagnosis,
    directory: RunDirectory,
    job: str,
    where: Sequence[outputs.Output],
    verbose: bool,
    tracker: Tracker | None,
    *,
    own: bool = False,
) -> None:
    """Every report of a run, and the note to a tracker. `own`: this very command ran the job."""
    full = f"perfdoctor report -v {shown(directory)}"
    advice = next_command(diagnosis, directory, job)
    pages = _write_all(diagnosis, [directory.path], advice, full, where, verbose)
    if tracker:
        log_to.note(tracker, directory, diagnosis, pages.markdown(), own=own)


def _write_of_trace(
    diagnosis: Diagnosis, paths: Sequence[Path], where: Sequence[outputs.Output], verbose: bool
) -> None:
    """Every report of traces: there is no job to run again."""
    names = shlex.join(map(origin, paths))
    advice = (
        f"perfdoctor explain {diagnosis.ranked[0].id.partition('.')[0]}"
        if diagnosis.ranked
        else f"perfdoctor report {names} --output markdown:report.md"
    )
    full = wording.clean(f"perfdoctor report -v {names}")
    _write_all(diagnosis, paths, wording.clean(advice), full, where, verbose)


def _write_all(
    diagnosis: Diagnosis,
    recorded: Sequence[Path],
    advice: str,
    full: str,
    where: Sequence[outputs.Output],
    verbose: bool,
) -> outputs.Pages:
    from ..report.console import render_console
    from ..report.jsonreport import render_json
    from ..report.markdown import render_markdown
    from ..report.sheet import diagnosis_sheet

    pages = outputs.Pages(
        console=lambda: render_console(diagnosis, next_command=advice, full_command=full, verbose=verbose),
        markdown=lambda: render_markdown(diagnosis, next_command=advice),
        json=lambda: render_json(diagnosis),
        html=lambda: html_page(diagnosis, recorded, advice),
        sheet=lambda: diagnosis_sheet(diagnosis),
        tensorboard=partial(_write_events, diagnosis, recorded),
    )
    outputs.write(pages, where)
    return pages


def html_page(diagnosis: Diagnosis, recorded: Sequence[Path], advice: str) -> str:
    """The report as one HTML file; `recorded` is the run's directory, or the files of a trace."""
    from ..report.html.page import render_html  # with jinja2, which no other report needs at once

    return render_html(diagnosis, next_command=advice, recorded=recorded)


def _write_events(diagnosis: Diagnosis, recorded: Sequence[Path], folder: Path) -> None:
    """For TensorBoard; a trace has too few steps for curves."""
    from ..report.tensorboard import write_tensorboard

    steps = () if diagnosis.evidence.job.traced else _series(RunDirectory(recorded[0]))
    write_tensorboard(folder / recorded[0].name, diagnosis, steps)


def _series(directory: RunDirectory) -> Sequence[StepSeries]:
    return [one for _, recording in read_recordings(directory) for one in series(recording)]


def next_command(diagnosis: Diagnosis, directory: RunDirectory, job: str) -> str:
    """The command a user would type next; `job` is how the job was typed: here, and with several nodes each needs a
    command of its own."""
    if diagnosis.trials is None and not diagnosis.evidence.job.nodes and plan(diagnosis):
        return wording.clean(f"perfdoctor check --trial {job}")
    if diagnosis.ranked:
        return f"perfdoctor explain {diagnosis.ranked[0].id.partition('.')[0]}"
    if isinstance(diagnosis.evidence.step, Missing):
        return "perfdoctor env"
    if _trains_on(diagnosis.evidence) and not diagnosis.evidence.job.nodes:
        return wording.clean(f"perfdoctor check --to-end {job}")
    return f"perfdoctor report {shown(directory)} --output markdown:report.md"


def _trains_on(evidence: Evidence) -> bool:
    """Whether perfdoctor ended the job before it had begun all of its training."""
    whole = evidence.anatomy if isinstance(evidence.anatomy, Missing) else evidence.anatomy.whole
    return isinstance(whole, Missing) and whole.code == "trains-on"


def shown(directory: RunDirectory) -> str:
    """The run directory as a user would type it."""
    return shlex.quote(called(directory.path))


def called(path: Path) -> str:
    """The URL of what lies in storage; else the path, relative where that is shorter."""
    name = origin(path)
    near = os.path.relpath(path)
    return near if name == str(path) and not near.startswith("..") else name


def show_last_words(output: Path) -> list[str]:
    """What a failed job said last, on stderr too: the traceback at the end of its output, or its last lines."""
    lines = list(output_tail(output, _LAST_WORDS))
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    last = lines[starts[0] :] if starts else lines[-_FEW_WORDS:]
    if any(last):
        print("\n".join(last), file=sys.stderr)
    return last


def explain_failure(diagnosis: Diagnosis, command: commands.Command, job: TypedJob) -> None:
    """One line on stderr when the job failed or gave nothing to judge, and what to do about it."""
    end, step = diagnosis.evidence.job.end, diagnosis.evidence.step
    lines = []
    if end.kind == "crashed":
        detail = f" ({end.detail})" if end.detail else ""
        lines.append(f"perfdoctor: the job failed with exit code {end.exit_code}{detail}")
    elif end.kind == "killed":
        name = signal_name(end.signal)
        lines.append(f"perfdoctor: the job was killed by {name}" + (f": {end.detail}" if end.detail else ""))
    elif end.kind == "timeout":
        lines.append(f"perfdoctor: {end.detail}; the job was ended (wait longer with --patience SECONDS)")
    elif end.kind == "stopped" and end.detail and not isinstance(step, Missing):
        lines.append(f"perfdoctor: ended the job, having seen enough; {end.detail}")
    if isinstance(step, Missing) and not lines:
        lines += [f"perfdoctor: nothing to judge: {step}", *_advice(step, command)]
    elif isinstance(step, Missing) and end.kind != "timeout":
        # Why there is no step is clear: the job failed first. But torch may be what it failed for.
        lines[0] += f"; {step}"
        if end.kind == "crashed" and job.ours:
            target = f"-m {job.module}" if job.module else job.words[0]
            lines.append(
                f"  {job.ours[0]} came after {target}, so it went to the job; to give it to perfdoctor: "
                f"perfdoctor check {job.ours[0]} ... {target}"
            )
        elif step.code in ("torch-broken", "no-torch"):
            lines += _advice(step, command)
    if lines:
        print(wording.clean("\n".join(lines)), file=sys.stderr)


def _advice(step: Missing, command: commands.Command) -> list[str]:
    option = commands.skips_site(command.argv)
    if option:
        return [f"  {option} keeps PYTHONPATH and sitecustomize out, and the probe with them: run without it"]
    if step.code == "no-step":
        return [
            "  A step ends at optimizer.step(); without an optimizer, at each batch from a DataLoader; without that,",
            "  at each call of a torch.nn.Module. Point perfdoctor at the program that has such a loop.",
        ]
    if step.code in ("torch-broken", "no-torch"):
        return [f"  The job ran under {command.argv[0]}; if that is the wrong one: --python PATH."]
    return []
