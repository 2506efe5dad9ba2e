"""Commands that compare a job with what it was."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..config.choices import OnInconclusive, Schedule
from .options import ConfigFile, FailFrom, Job, Module, Output, Patience, Python, Runs, Verbose, recorded_at, typed


def gate(
    ctx: typer.Context,
    job: Job = None,
    module: Module = None,
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
            parser=recorded_at,
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
    python: Python = None,
    patience: Patience = None,
    output: Output = None,
    config: ConfigFile = None,
    fail_on: FailFrom = None,
    runs: Runs = None,
    verbose: Verbose = False,
) -> int:
    """Compare a job with what it was, and fail when it is slower, uses more memory, or does more per step.

    Options may follow SCRIPT from --against, --baseline or --from on: perfdoctor gate train.py --against main -- ARGS

    Exit codes: 0 pass or improvement, 1 regression, 3 it cannot tell, 4 the job failed.
    """
    from ..commands import gate as command
    from ..commands.check import Settings

    options = command.Options(
        job=typed(ctx, job, module, python),
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


# Stored numbers.
_File = Annotated[Path, typer.Option("--file", metavar="FILE", help="The baseline.")]
_STORED = Path("perf-baseline.json")


def write(
    ctx: typer.Context,
    job: Job = None,
    module: Module = None,
    file: _File = _STORED,
    launches: Annotated[int, typer.Option(metavar="N", help="Fresh launches; times count from 8 on.", min=2)] = 2,
    python: Python = None,
    config: ConfigFile = None,
    runs: Runs = None,
) -> int:
    """Launch a job and store its counters, memory, times and findings, to be committed."""
    from ..commands import gate as command
    from ..commands.check import Settings

    return command.write_baseline(typed(ctx, job, module, python), file, launches, Settings(config, runs=runs))


def show(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", show_default=False, help="The baseline.")] = _STORED,
) -> None:
    """Show what a baseline holds."""
    from ..commands import baseline as command

    typer.echo(command.show(file))


def prune(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A recording without them.", parser=recorded_at)],
    file: _File = _STORED,
    config: ConfigFile = None,
) -> None:
    """Take out the known findings that a recording does not have any more."""
    from ..commands import baseline as command
    from ..commands.check import Settings

    typer.echo(command.prune(file, run, Settings(config).resolve()))


def init(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="The training script.")],
    platform: Annotated[
        Literal["github", "gitlab"] | None, typer.Option(help="By default, gitlab where it has a workflow.")
    ] = None,
) -> None:
    """Write a configuration and a workflow for CI, where there are none yet."""
    from ..commands import init as command

    typer.echo(command.run(Path.cwd(), script, platform))
