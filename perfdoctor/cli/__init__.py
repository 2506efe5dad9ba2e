"""The command line: parse, call, print, exit. Heavy imports wait until a command needs them."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer

from ..commands.job_words import INTERRUPTED, Command, GateCommand, JobCommand
from ..errors import PerfdoctorError
from ..exits import Exit
from ..version import VERSION
from . import gating, jobs, reading

app = typer.Typer(
    name="perfdoctor",
    help="A performance doctor for PyTorch training jobs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "PERFDOCTOR"},
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", allow_from_autoenv=False)
    ] = False,
) -> None:
    if version:
        typer.echo(f"perfdoctor {VERSION}")
        raise typer.Exit


_baseline = typer.Typer(help="Stored numbers that a job is compared with.", no_args_is_help=True)
app.add_typer(_baseline, name="baseline", short_help="Write, show or prune stored numbers.")

for group, kind, function, short_help in (
    (app, JobCommand, jobs.check, "Run a training job, find what costs time, and report."),
    (app, JobCommand, jobs.profile, "Run a training job, and show which lines cost its time."),
    (app, GateCommand, gating.gate, "Compare a job with what it was, and fail when it is slower."),
    (_baseline, JobCommand, gating.write, "Launch a job and store what it gave."),
    (_baseline, Command, gating.show, "Show what a baseline holds."),
    (_baseline, Command, gating.prune, "Take out findings that are gone."),
    (app, Command, gating.init, "Write a configuration and a workflow for CI."),
    (app, Command, reading.diff, "Put two recordings side by side."),
    (app, JobCommand, jobs.run, "Run a job to its end with proven remedies, without a change to its code."),
    (app, Command, reading.report, "Judge a recording or a profiler's trace, and show its report."),
    (app, Command, reading.digest, "Make the digest of a node's recordings, for jobs of many ranks."),
    (app, Command, reading.explain, "Explain a check, or list them all."),
    (app, Command, reading.env, "Describe this machine and its torch, to paste into an issue."),
):
    group.command(cls=kind, short_help=short_help)(function)


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
    from ..report.wording import clean  # names of files, and what a recording holds, may be anybody's

    print(clean("\n".join(lines)), file=sys.stderr)
