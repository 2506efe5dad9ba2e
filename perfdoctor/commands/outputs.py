"""Where reports go: `--output FORMAT[:FILE]`, checked before a job is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..diagnosis.findings import Diagnosis
from ..errors import PerfdoctorError

FORMATS = ("console", "markdown", "json")


@dataclass(frozen=True, slots=True)
class Output:
    """One report."""

    format: str
    path: Path | None
    """None is stdout."""


def parse(words: Sequence[str]) -> tuple[Output, ...]:
    """The outputs asked for, console first by default. Raises PerfdoctorError for what cannot be written."""
    outputs = [_parse_one(word) for word in words]
    if not any(output.path is None for output in outputs):
        # Files are in addition to the report on the terminal.
        outputs.insert(0, Output("console", None))
    if sum(output.path is None for output in outputs) > 1:
        raise PerfdoctorError(
            "two reports cannot share stdout",
            slug="output-twice",
            advice="give all but one a file: --output json:report.json",
        )
    return tuple(outputs)


def _parse_one(word: str) -> Output:
    name, _, file = word.partition(":")
    if name not in FORMATS:
        raise PerfdoctorError(
            f"there is no output format {name}",
            slug="unknown-format",
            advice=f"use one of {', '.join(FORMATS)}, as in --output markdown:report.md",
        )
    if not file or file == "-":
        return Output(name, None)
    path = Path(file)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PerfdoctorError(
            f"cannot write the report to {file}",
            slug="output-unwritable",
            advice="name a file in an existing, writable directory",
        )
    return Output(name, path)


def machine_output(outputs: Sequence[Output]) -> bool:
    """Whether stdout belongs to a program that reads a report."""
    return any(output.path is None and output.format != "console" for output in outputs)


def write(diagnosis: Diagnosis, outputs: Sequence[Output], *, next_command: str, verbose: bool) -> None:
    """Render and write every report."""
    for output in outputs:
        if output.format == "console" and output.path is None:
            _print(diagnosis, next_command, verbose)
            continue
        text = _text(diagnosis, output.format, next_command, verbose)
        if output.path is None:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            try:
                output.path.write_text(text)
            except OSError as error:
                if output.path.is_file():
                    output.path.unlink()  # half a report is worse than none
                raise PerfdoctorError(
                    f"cannot write {output.path}: {error.strerror}",
                    slug="output-unwritable",
                    advice="the recording is complete; write the report again with `perfdoctor report`",
                ) from error


def _print(diagnosis: Diagnosis, next_command: str, verbose: bool) -> None:
    from rich.console import Console

    from ..report.console import render_console

    # Off a terminal rich assumes 80 columns; a log has room for more.
    console = Console() if sys.stdout.isatty() else Console(width=100)
    console.print(render_console(diagnosis, next_command=next_command, verbose=verbose))


def _text(diagnosis: Diagnosis, name: str, next_command: str, verbose: bool) -> str:
    if name == "json":
        from ..report.jsonreport import render_json

        return render_json(diagnosis)
    if name == "markdown":
        from ..report.markdown import render_markdown

        return render_markdown(diagnosis, next_command=next_command)
    from rich.console import Console

    from ..report.console import render_console

    console = Console(width=100, no_color=True)
    with console.capture() as capture:
        console.print(render_console(diagnosis, next_command=next_command, verbose=verbose))
    return capture.get()
