"""Options that several commands share, and what their words become."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..commands.job_words import IS_COMMAND
from ..config.choices import FailOn, Tracker
from ..launch.command import OutputMode

if TYPE_CHECKING:
    from ..commands.typed_job import TypedJob

Job = Annotated[
    list[str] | None,
    typer.Argument(metavar="SCRIPT [ARGS]", show_default=False, help="The training script and its arguments."),
]
Output = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FORMAT[:FILE]",
        help="console, concise, markdown, json, jsonl, sarif, junit, github, gitlab, html or tensorboard:DIR; "
        "may be repeated.",
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Keep the profiler's trace of a step or two, for Perfetto: FILE.json or .json.gz."
    ),
]
LogTo = Annotated[Tracker | None, typer.Option(help="Leave a note in the run that the job itself has active there.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Configuration to use.")]
Select = Annotated[
    list[str] | None, typer.Option("--select", metavar="CODES", help="Report these only: PD03,PD04.explicit-collect.")
]
Ignore = Annotated[
    list[str] | None, typer.Option("--ignore", metavar="CODES", help="Leave these checks or findings out.")
]
Module = Annotated[
    str | None, typer.Option("--module", "-m", metavar="MODULE", help="Run a module, as `python -m` does.")
]
Python = Annotated[
    str | None, typer.Option(metavar="PATH", help="Interpreter for SCRIPT or MODULE.", show_default=False)
]
Patience = Annotated[
    float | None, typer.Option(metavar="TIME", help="Seconds without a step until the job counts as stuck (300).")
]
Runs = Annotated[
    str | None, typer.Option(metavar="DIR|URL", help="Where recordings go (.perfdoctor/runs), s3://bucket/runs too.")
]
FailFrom = Annotated[FailOn | None, typer.Option(help="Severity from which a finding makes the exit code 1 (error).")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show all there is: evidence, risks, every check.")]
ToEnd = Annotated[bool, typer.Option("--to-end", help="Let the job run to its own end.")]
JobOutput = Annotated[
    OutputMode | None, typer.Option(help="Where the job's output goes: live on a terminal, else passthrough.")
]


def typed(ctx: typer.Context, words: list[str] | None, module: str | None, python: str | None) -> TypedJob:
    """The job as the user typed it."""
    from ..commands.typed_job import TypedJob

    verbatim = bool(ctx.meta.get(IS_COMMAND))
    options = {option for parameter in ctx.command.params for option in parameter.opts if option.startswith("-")}
    ours = tuple(word for word in words or () if word.partition("=")[0] in options and not verbatim)
    return TypedJob(tuple(words or ()), verbatim, module, python, ours)


def recorded_at(word: str) -> Path:
    """Of a URL, what it names is downloaded."""
    from ..storage.copies import local

    return local(word)
