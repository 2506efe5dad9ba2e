"""The command line: parse, call, print, exit. Heavy imports wait until a command needs them."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from .commands.job_words import INTERRUPTED, IS_COMMAND, Command, GateCommand, JobCommand
from .config.choices import FailOn, OnInconclusive, Schedule, Tracker
from .errors import PerfdoctorError
from .exits import Exit
from .launch.command import OutputMode
from .version import VERSION

if TYPE_CHECKING:
    from .commands.typed_job import TypedJob

Platform = Literal["github", "gitlab"]
PageFormat = Literal["text", "markdown"]

app = typer.Typer(
    name="perfdoctor",
    help="A performance doctor for PyTorch training jobs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "PERFDOCTOR"},
)


def _typed(ctx: typer.Context, words: list[str] | None, module: str | None, python: str | None) -> TypedJob:
    from .commands.typed_job import TypedJob

    verbatim = bool(ctx.meta.get(IS_COMMAND))
    options = {option for parameter in ctx.command.params for option in parameter.opts if option.startswith("-")}
    ours = tuple(word for word in words or () if word.partition("=")[0] in options and not verbatim)
    return TypedJob(tuple(words or ()), verbatim, module, python, ours)


def _recorded(word: str) -> Path:
    """Of a URL, what it names is downloaded."""
    from .storage.copies import local

    return local(word)


# Options that several commands share.
_Job = Annotated[
    list[str] | None,
    typer.Argument(metavar="SCRIPT [ARGS]", show_default=False, help="The training script and its arguments."),
]
_Output = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FORMAT[:FILE]",
        help="console, concise, markdown, json, jsonl, sarif, junit, github, gitlab, html or tensorboard:DIR; "
        "may be repeated.",
    ),
]
_Trace = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Keep the profiler's trace of a step or two, for Perfetto: FILE.json or .json.gz."
    ),
]
_LogTo = Annotated[Tracker | None, typer.Option(help="Leave a note in the run that the job itself has active there.")]
_ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Configuration to use.")]
_Select = Annotated[
    list[str] | None, typer.Option("--select", metavar="CODES", help="Report these only: PD03,PD04.explicit-collect.")
]
_Ignore = Annotated[
    list[str] | None, typer.Option("--ignore", metavar="CODES", help="Leave these checks or findings out.")
]
_Module = Annotated[
    str | None, typer.Option("--module", "-m", metavar="MODULE", help="Run a module, as `python -m` does.")
]
_Python = Annotated[
    str | None, typer.Option(metavar="PATH", help="Interpreter for SCRIPT or MODULE.", show_default=False)
]
_Patience = Annotated[
    float | None, typer.Option(metavar="TIME", help="Seconds without a step until the job counts as stuck (300).")
]
_Runs = Annotated[
    str | None, typer.Option(metavar="DIR|URL", help="Where recordings go (.perfdoctor/runs), s3://bucket/runs too.")
]
_FailOn = Annotated[FailOn | None, typer.Option(help="Severity from which a finding makes the exit code 1 (error).")]
_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show all there is: evidence, risks, every check.")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", allow_from_autoenv=False)
    ] = False,
) -> None:
    if version:
        typer.echo(f"perfdoctor {VERSION}")
        raise typer.Exit


@app.command(cls=JobCommand, short_help="Run a training job, find what costs time, and report.")
def check(
    ctx: typer.Context,
    job: _Job = None,
    module: _Module = None,
    steps: Annotated[int | None, typer.Option(metavar="N", help="Steady steps to observe; else until settled.")] = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="TIME", help="Seconds of steady training to observe.")
    ] = None,
    to_end: Annotated[bool, typer.Option("--to-end", help="Let the job run to its own end.")] = False,
    leave_at: Annotated[
        int | None,
        typer.Option(metavar="STEP", help="End it at this step, given alike on all nodes: for ranks without a store."),
    ] = None,
    trial: Annotated[
        bool, typer.Option("--trial", help="Then try the fixes in the running job, and measure what each is worth.")
    ] = False,
    trial_seconds: Annotated[float, typer.Option(metavar="TIME", help="Seconds for all trials.")] = 120.0,
    also_try: Annotated[
        str | None,
        typer.Option(
            "--try",
            metavar="REMEDIES",
            help="With --trial: these too, whatever the findings (perfdoctor explain --remedies).",
            envvar="PERFDOCTOR_CHECK_TRY",
        ),
    ] = None,
    patience: _Patience = None,
    python: _Python = None,
    job_output: Annotated[
        OutputMode | None,
        typer.Option(help="Where the job's output goes: live on a terminal, else passthrough."),
    ] = None,
    log_every: Annotated[
        int | None, typer.Option(metavar="N", help="Print a line every N steps.", show_default=False)
    ] = None,
    output: _Output = None,
    trace: _Trace = None,
    log_to: _LogTo = None,
    config: _ConfigFile = None,
    select: _Select = None,
    ignore: _Ignore = None,
    fail_on: _FailOn = None,
    runs: _Runs = None,
    verbose: _Verbose = False,
) -> int:
    """Run a training job unchanged, watch it, and report what costs time and what the fix is worth.

    SCRIPT and everything after it belong to the job, so options of perfdoctor go before it. To run something
    other than a Python script, put it after `--`: perfdoctor check -- torchrun --nproc-per-node 2 train.py
    """
    from .commands import check as command

    options = command.Options(
        job=_typed(ctx, job, module, python),
        to_end=to_end,
        leave_at=leave_at,
        trial_seconds=trial_seconds if trial else None,
        also_try=also_try,
        job_output=job_output,
        log_every=log_every,
        outputs=tuple(output or ()),
        trace=trace,
        log_to=log_to,
        verbose=verbose,
        settings=command.Settings(config, select, ignore or (), fail_on, steps, seconds, patience, runs),
    )
    return command.run(options)


@app.command(cls=JobCommand, short_help="Run a training job, and show which lines cost its time.")
def profile(
    ctx: typer.Context,
    job: _Job = None,
    module: _Module = None,
    steps: Annotated[int | None, typer.Option(metavar="N", help="Steady steps to observe.")] = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="TIME", help="Seconds of steady training to observe; else 600 samples.")
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Show what the memory of a step consists of, instead of its time.")
    ] = False,
    to_end: Annotated[bool, typer.Option("--to-end", help="Let the job run to its own end.")] = False,
    recorded: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Run nothing: show a recording.",
            envvar="PERFDOCTOR_PROFILE_FROM",
            parser=_recorded,
        ),
    ] = None,
    patience: _Patience = None,
    python: _Python = None,
    job_output: Annotated[
        OutputMode | None,
        typer.Option(help="Where the job's output goes: live on a terminal, else passthrough."),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FORMAT[:FILE]",
            help="console, flame (SVG), speedscope, collapsed, json, trace or html; may be repeated.",
        ),
    ] = None,
    config: _ConfigFile = None,
    runs: _Runs = None,
) -> int:
    """Run a training job unchanged, sample its stacks, and show which lines of its code a steady step's time goes to.

    perfdoctor profile --output flame:flame.svg train.py --epochs 3
    """
    from .commands import profile as command
    from .commands.check import Settings

    options = command.Options(
        job=_typed(ctx, job, module, python),
        recorded=recorded,
        to_end=to_end,
        job_output=job_output,
        outputs=tuple(output or ()),
        memory=memory,
        settings=Settings(config, steps=steps, seconds=seconds, patience=patience, runs=runs),
    )
    return command.run(options)


@app.command(cls=GateCommand, short_help="Compare a job with what it was, and fail when it is slower.")
def gate(
    ctx: typer.Context,
    job: _Job = None,
    module: _Module = None,
    against: Annotated[
        str | None, typer.Option(metavar="REF", help="Compare with this git ref: its merge base with HEAD.")
    ] = None,
    baseline: Annotated[Path | None, typer.Option(metavar="FILE", help="Compare with a stored baseline.")] = None,
    stored: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            "--from",
            metavar="BEFORE AFTER",
            help="Run nothing: two recordings, traces, baselines or JSON reports.",
            envvar="PERFDOCTOR_GATE_FROM",
            parser=_recorded,
        ),
    ] = None,
    merge_base: Annotated[
        bool, typer.Option("--merge-base/--no-merge-base", help="Compare with the merge base, or with REF itself.")
    ] = True,
    tolerance: Annotated[str | None, typer.Option(metavar="SHARE", help="Slowdown that fails (5%).")] = None,
    time_budget: Annotated[str | None, typer.Option(metavar="TIME", help="Give up after this long (10m).")] = None,
    on_inconclusive: Annotated[
        OnInconclusive | None, typer.Option(help="What to do when the gate cannot tell (fail).")
    ] = None,
    schedule: Annotated[
        Schedule | None, typer.Option(help="Arms take turns, or one launch runs at a time (interleaved).")
    ] = None,
    control: Annotated[
        bool | None,
        typer.Option("--control/--no-control", help="A/A control: a second copy of the arm before has to pass (auto)."),
    ] = None,
    steady_memory: Annotated[
        bool | None,
        typer.Option("--steady-memory/--no-steady-memory", help="Make glibc keep freed memory, in both arms (auto)."),
    ] = None,
    setup: Annotated[str | None, typer.Option(metavar="COMMAND", help="Prepare each arm: pip install -e .")] = None,
    allow_loss_change: Annotated[
        bool, typer.Option("--allow-loss-change", help="Compare times even where losses differ.")
    ] = False,
    counter_tolerance: Annotated[
        list[str] | None, typer.Option(metavar="METRIC=N", help="Allow N more per step; may be repeated.")
    ] = None,
    max_age: Annotated[
        int | None, typer.Option(metavar="DAYS", help="Age at which a baseline's times no longer count (14).")
    ] = None,
    launches: Annotated[int, typer.Option(metavar="N", help="Launches to compare with a stored baseline.", min=2)] = 2,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Try the gate here, on a job whose slowdowns are known.")
    ] = False,
    python: _Python = None,
    patience: _Patience = None,
    output: _Output = None,
    config: _ConfigFile = None,
    fail_on: _FailOn = None,
    runs: _Runs = None,
    verbose: _Verbose = False,
) -> int:
    """Compare a job with what it was, and fail when it is slower, uses more memory, or does more per step.

    Options may follow SCRIPT from --against, --baseline or --from on: perfdoctor gate train.py --against main -- ARGS

    Exit codes: 0 pass or improvement, 1 regression, 3 it cannot tell, 4 the job failed.
    """
    from .commands import gate as command
    from .commands.check import Settings

    options = command.Options(
        job=_typed(ctx, job, module, python),
        against=against,
        baseline=baseline,
        stored=stored,
        merge_base=merge_base,
        allow_loss_change=allow_loss_change,
        launches=launches,
        outputs=tuple(output or ()),
        verbose=verbose,
        settings=Settings(config, fail_on=fail_on, patience=patience, runs=runs),
        gate={
            "tolerance": tolerance,
            "time-budget": time_budget,
            "on-inconclusive": on_inconclusive,
            "schedule": schedule,
            "control": control,
            "steady-memory": steady_memory,
            "setup": setup,
            "max-age": max_age,
        },
        counter_tolerance=tuple(counter_tolerance or ()),
        self_test=self_test,
    )
    return command.run(options)


_baseline = typer.Typer(help="Stored numbers that a job is compared with.", no_args_is_help=True)
app.add_typer(_baseline, name="baseline", short_help="Write, show or prune stored numbers.")
_BaselineFile = Annotated[Path, typer.Option("--file", metavar="FILE", help="The baseline.")]
_STORED = Path("perf-baseline.json")


@_baseline.command("write", cls=JobCommand, short_help="Launch a job and store what it gave.")
def baseline_write(
    ctx: typer.Context,
    job: _Job = None,
    module: _Module = None,
    file: _BaselineFile = _STORED,
    launches: Annotated[int, typer.Option(metavar="N", help="Fresh launches; times count from 8 on.", min=2)] = 2,
    python: _Python = None,
    config: _ConfigFile = None,
    runs: _Runs = None,
) -> int:
    """Launch a job and store its counters, memory, times and findings, to be committed."""
    from .commands import gate as command
    from .commands.check import Settings

    return command.write_baseline(_typed(ctx, job, module, python), file, launches, Settings(config, runs=runs))


@_baseline.command("show", cls=Command, short_help="Show what a baseline holds.")
def baseline_show(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", show_default=False, help="The baseline.")] = _STORED,
) -> None:
    """Show what a baseline holds."""
    from .commands import baseline as command

    typer.echo(command.show(file))


@_baseline.command("prune", cls=Command, short_help="Take out findings that are gone.")
def baseline_prune(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A recording without them.", parser=_recorded)],
    file: _BaselineFile = _STORED,
    config: _ConfigFile = None,
) -> None:
    """Take out the known findings that a recording does not have any more."""
    from .commands import baseline as command
    from .commands.check import Settings

    typer.echo(command.prune(file, run, Settings(config).resolve()))


@app.command(cls=Command, short_help="Write a configuration and a workflow for CI.")
def init(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="The training script.")],
    platform: Annotated[Platform | None, typer.Option(help="By default, gitlab where it has a workflow.")] = None,
) -> None:
    """Write a configuration and a workflow for CI, where there are none yet."""
    from .commands import init as command

    typer.echo(command.run(Path.cwd(), script, platform))


@app.command(cls=Command, short_help="Put two recordings side by side.")
def diff(
    before: Annotated[
        Path,
        typer.Argument(
            metavar="BEFORE",
            help="A directory in .perfdoctor/runs or its URL, or a trace of torch.profiler.",
            parser=_recorded,
        ),
    ],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another one.", parser=_recorded)],
    output: _Output = None,
    config: _ConfigFile = None,
    verbose: _Verbose = False,
) -> int:
    """Metrics and findings of two recordings, without a verdict."""
    from .commands import diff as command
    from .commands.check import Settings

    return command.run(before, after, Settings(config), tuple(output or ()), verbose)


@app.command(cls=JobCommand, short_help="Run a job to its end with proven remedies, without a change to its code.")
def run(
    ctx: typer.Context,
    job: _Job = None,
    apply: Annotated[
        str, typer.Option("--apply", metavar="REMEDIES", help="Names with commas between, as reports show them.")
    ] = "",
    module: _Module = None,
    python: _Python = None,
) -> int:
    """Run a job to its end with remedies in place: perfdoctor run --apply memory.malloc,threads=1 -- python train.py

    Everything else about the job is unchanged: its output, its signals, its exit code.
    """
    from .commands import run as command

    wanted = _typed(ctx, job, module, python).command()
    return command.run(wanted, apply)


@app.command(cls=Command, short_help="Judge a recording or a profiler's trace, and show its report.")
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|TRACE...",
            help="A directory in .perfdoctor/runs, or its URL; or traces of torch.profiler or Nsight Systems, one for "
            "each rank.",
            parser=_recorded,
        ),
    ],
    output: _Output = None,
    trace: _Trace = None,
    log_to: _LogTo = None,
    config: _ConfigFile = None,
    select: _Select = None,
    ignore: _Ignore = None,
    fail_on: _FailOn = None,
    verbose: _Verbose = False,
) -> int:
    """Judge a recording again, without running the job and without torch; or traces that were recorded elsewhere."""
    from .commands import check as command

    settings = command.Settings(config, select, ignore or (), fail_on)
    return command.report(runs, settings, tuple(output or ()), verbose, trace, log_to)


@app.command(cls=Command, short_help="Make the digest of a node's recordings, for jobs of many ranks.")
def digest(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A directory in .perfdoctor/runs.")],
) -> int:
    """Write what a diagnosis of many ranks needs of the processes in RUN into one file there, 100 KiB for a rank of
    10,000 steps: of a job of more than 64 ranks the launcher has done so, where it lived to see the job's end."""
    from .commands import digest as command

    return command.run(run)


@app.command(cls=Command, short_help="Explain a check, or list them all.")
def explain(
    code: Annotated[str | None, typer.Argument(metavar="CODE", help="PD03, etl, or PD03.too-few-workers.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All checks.", envvar="PERFDOCTOR_EXPLAIN_ALL")] = False,
    remedies: Annotated[bool, typer.Option("--remedies", help="The remedies of `perfdoctor run --apply`.")] = False,
    output_format: Annotated[
        PageFormat, typer.Option("--format", help="Form of the page.", envvar="PERFDOCTOR_EXPLAIN_FORMAT")
    ] = "text",
) -> None:
    """Say what a check looks at, why it costs time, how to fix it, and when it stays silent; without CODE, list all."""
    from .commands import explain as command

    typer.echo(command.remedies() if remedies else command.render(code, every, output_format))


@app.command(cls=Command, short_help="Describe this machine and its torch, to paste into an issue.")
def env(
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.", envvar="PERFDOCTOR_ENV_JSON")] = False,
    python: Annotated[str | None, typer.Option(metavar="PATH", help="Interpreter whose torch to ask.")] = None,
) -> None:
    """Describe this machine and the torch that a job would use. Always exits with 0."""
    import dataclasses
    import json

    from .commands.environment import read_environment
    from .launch.command import python_for_jobs

    environment = read_environment(python or python_for_jobs())
    typer.echo(json.dumps(dataclasses.asdict(environment), indent=2) if as_json else environment.as_text())


def main(argv: list[str] | None = None) -> None:
    """Entry point: the one place where errors become advice and exit codes."""
    try:
        app(args=argv)
    except PerfdoctorError as error:
        _complain(f"perfdoctor: {error.message}", f"  {error.advice} [{error.slug}]")
        sys.exit(int(error.exit_code))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone
        sys.exit(int(Exit.OK))
    except Exception:
        _complain(
            traceback.format_exc().rstrip(),
            "perfdoctor: this is a bug of perfdoctor, not of your job.",
            f"  Please report it with the lines above and the output of `perfdoctor env` (version {VERSION}).",
        )
        sys.exit(int(Exit.INTERNAL))


def _complain(*lines: str) -> None:
    from .report.wording import clean  # names of files, and what a recording holds, may be anybody's

    print(clean("\n".join(lines)), file=sys.stderr)
