"""Commands that run no job: what was recorded, the checks, the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from .options import ConfigFile, FailFrom, Ignore, LogTo, Output, Select, Trace, Verbose, recorded_at


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|TRACE...",
            help="A directory in .perfdoctor/runs, or its URL; or traces of torch.profiler or Nsight Systems, one for "
            "each rank.",
            parser=recorded_at,
        ),
    ],
    output: Output = None,
    trace: Trace = None,
    log_to: LogTo = None,
    config: ConfigFile = None,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailFrom = None,
    verbose: Verbose = False,
) -> int:
    """Judge a recording again, without running the job and without torch; or traces that were recorded elsewhere."""
    from ..commands import check as command

    settings = command.Settings(config, select, ignore or (), fail_on)
    return command.report(runs, settings, tuple(output or ()), verbose, trace, log_to)


def diff(
    before: Annotated[
        Path,
        typer.Argument(
            metavar="BEFORE",
            help="A directory in .perfdoctor/runs or its URL, or a trace of torch.profiler.",
            parser=recorded_at,
        ),
    ],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another one.", parser=recorded_at)],
    output: Output = None,
    config: ConfigFile = None,
    verbose: Verbose = False,
) -> int:
    """Metrics and findings of two recordings, without a verdict."""
    from ..commands import diff as command
    from ..commands.check import Settings

    return command.run(before, after, Settings(config), tuple(output or ()), verbose)


def digest(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A directory in .perfdoctor/runs.")],
) -> int:
    """Write what a diagnosis of many ranks needs of the processes in RUN into one file there, 100 KiB for a rank of
    10,000 steps: of a job of more than 64 ranks the launcher has done so, where it lived to see the job's end."""
    from ..commands import digest as command

    return command.run(run)


def explain(
    code: Annotated[str | None, typer.Argument(metavar="CODE", help="PD03, etl, or PD03.too-few-workers.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All checks.", envvar="PERFDOCTOR_EXPLAIN_ALL")] = False,
    remedies: Annotated[bool, typer.Option("--remedies", help="The remedies of `perfdoctor run --apply`.")] = False,
    output_format: Annotated[
        Literal["text", "markdown"],
        typer.Option("--format", help="Form of the page.", envvar="PERFDOCTOR_EXPLAIN_FORMAT"),
    ] = "text",
) -> None:
    """Say what a check looks at, why it costs time, how to fix it, and when it stays silent; without CODE, list all."""
    from ..commands import explain as command

    typer.echo(command.remedies() if remedies else command.render(code, every, output_format))


def env(
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.", envvar="PERFDOCTOR_ENV_JSON")] = False,
    python: Annotated[str | None, typer.Option(metavar="PATH", help="Interpreter whose torch to ask.")] = None,
) -> None:
    """Describe this machine and the torch that a job would use. Always exits with 0."""
    import dataclasses
    import json

    from ..commands.environment import read_environment
    from ..launch.command import python_for_jobs

    environment = read_environment(python or python_for_jobs())
    typer.echo(json.dumps(dataclasses.asdict(environment), indent=2) if as_json else environment.as_text())
