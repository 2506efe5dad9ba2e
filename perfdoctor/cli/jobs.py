"""Commands that run one training job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import (
    ConfigFile,
    FailFrom,
    Ignore,
    Job,
    JobOutput,
    LogTo,
    Module,
    Output,
    Patience,
    Python,
    Runs,
    Select,
    ToEnd,
    Trace,
    Verbose,
    recorded_at,
    typed,
)


def check(
    ctx: typer.Context,
    job: Job = None,
    module: Module = None,
    steps: Annotated[int | None, typer.Option(metavar="N", help="Steady steps to observe; else until settled.")] = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="TIME", help="Seconds of steady training to observe.")
    ] = None,
    to_end: ToEnd = False,
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
    patience: Patience = None,
    python: Python = None,
    job_output: JobOutput = None,
    log_every: Annotated[
        int | None, typer.Option(metavar="N", help="Print a line every N steps.", show_default=False)
    ] = None,
    output: Output = None,
    trace: Trace = None,
    log_to: LogTo = None,
    config: ConfigFile = None,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailFrom = None,
    runs: Runs = None,
    verbose: Verbose = False,
) -> int:
    """Run a training job unchanged, watch it, and report what costs time and what the fix is worth.

    SCRIPT and everything after it belong to the job, so options of perfdoctor go before it. To run something
    other than a Python script, put it after `--`: perfdoctor check -- torchrun --nproc-per-node 2 train.py
    """
    from ..commands import check as command

    options = command.Options(
        job=typed(ctx, job, module, python),
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


def profile(
    ctx: typer.Context,
    job: Job = None,
    module: Module = None,
    steps: Annotated[int | None, typer.Option(metavar="N", help="Steady steps to observe.")] = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="TIME", help="Seconds of steady training to observe; else 600 samples.")
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Show what the memory of a step consists of, instead of its time.")
    ] = False,
    to_end: ToEnd = False,
    recorded: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Run nothing: show a recording.",
            envvar="PERFDOCTOR_PROFILE_FROM",
            parser=recorded_at,
        ),
    ] = None,
    patience: Patience = None,
    python: Python = None,
    job_output: JobOutput = None,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FORMAT[:FILE]",
            help="console, flame (SVG), speedscope, collapsed, json, trace or html; may be repeated.",
        ),
    ] = None,
    config: ConfigFile = None,
    runs: Runs = None,
) -> int:
    """Run a training job unchanged, sample its stacks, and show which lines of its code a steady step's time goes to.

    perfdoctor profile --output flame:flame.svg train.py --epochs 3
    """
    from ..commands import profile as command
    from ..commands.check import Settings

    options = command.Options(
        job=typed(ctx, job, module, python),
        recorded=recorded,
        to_end=to_end,
        job_output=job_output,
        outputs=tuple(output or ()),
        memory=memory,
        settings=Settings(config, steps=steps, seconds=seconds, patience=patience, runs=runs),
    )
    return command.run(options)


def run(
    ctx: typer.Context,
    job: Job = None,
    apply: Annotated[
        str, typer.Option("--apply", metavar="REMEDIES", help="Names with commas between, as reports show them.")
    ] = "",
    module: Module = None,
    python: Python = None,
) -> int:
    """Run a job to its end with remedies in place: perfdoctor run --apply memory.malloc,threads=1 -- python train.py

    Everything else about the job is unchanged: its output, its signals, its exit code.
    """
    from ..commands import run as command

    wanted = typed(ctx, job, module, python).command()
    return command.run(wanted, apply)
