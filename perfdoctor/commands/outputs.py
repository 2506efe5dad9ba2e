"""Where reports go: `--output FORMAT[:FILE]`, checked before a job is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import PerfdoctorError
from .progress import say

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..report.sheet import Sheet

FORMATS = ("console", "concise", "markdown", "json", "jsonl", "sarif", "junit", "github", "gitlab")
SUMMARY_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Output:
    """One report."""

    format: str
    path: Path | None
    """None is stdout."""


def parse(words: Sequence[str], formats: Sequence[str] = FORMATS) -> tuple[Output, ...]:
    """The outputs asked for, console first by default. Raises PerfdoctorError for what cannot be written."""
    outputs = [_parse_one(word, formats) for word in words]
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


def _parse_one(word: str, formats: Sequence[str]) -> Output:
    name, _, file = word.partition(":")
    if name not in formats:
        raise PerfdoctorError(
            f"there is no output format {name}",
            slug="unknown-format",
            advice=f"use one of {', '.join(formats)}, as in --output markdown:report.md",
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


@dataclass(frozen=True, slots=True)
class Pages:
    """One report in every form; each is made when it is asked for."""

    console: Callable[[], RenderableType]
    markdown: Callable[[], str]
    json: Callable[[], str]
    sheet: Callable[[], Sheet]


def write(pages: Pages, outputs: Sequence[Output]) -> None:
    """Write every report; with `github`, the whole one goes into the step's summary too."""
    for output in outputs:
        if output.format == "console" and output.path is None:
            print_page(pages.console())
            continue
        text = _text(pages, output.format)
        if output.path is None:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            write_file(output.path, text)
    if any(output.format == "github" for output in outputs):
        _add_to_step_summary(pages)


def write_file(path: Path, text: str) -> None:
    """Raises PerfdoctorError where it cannot be written, and leaves no half of it."""
    try:
        path.write_text(text)
    except OSError as error:
        if path.is_file():
            path.unlink()  # half a report is worse than none
        raise PerfdoctorError(
            f"cannot write {path}: {error.strerror}",
            slug="output-unwritable",
            advice="the recording is complete; write the report again with `perfdoctor report`",
        ) from error


def _add_to_step_summary(pages: Pages) -> None:
    """GitHub shows what is in this file under the job; it takes 1 MiB, and nothing of a larger one."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if not summary:
        return
    data = pages.markdown().encode()
    if len(data) > SUMMARY_BYTES:
        cut = data[:SUMMARY_BYTES].decode("utf-8", "ignore").rpartition("\n")[0]
        data = f"{cut}\n\n(cut: the whole report is longer than a summary may be)\n".encode()
    try:
        with Path(summary).open("ab") as file:
            file.write(data)
    except OSError as error:
        say(f"the step summary could not be written: {error.strerror}")


def print_page(page: RenderableType, path: Path | None = None) -> None:
    """On the terminal, or as plain text into a file."""
    from rich.console import Console

    if path is not None:
        write_file(path, _plain(page))
        return
    # Off a terminal rich assumes 80 columns; a log has room for more.
    console = Console() if sys.stdout.isatty() else Console(width=100)
    console.print(page)


def _text(pages: Pages, name: str) -> str:
    from ..report import junit, platforms, sarif

    if name == "json":
        return pages.json()
    if name == "markdown":
        return pages.markdown()
    if name == "console":
        return _plain(pages.console())
    renderers = {
        "concise": platforms.render_concise,
        "github": platforms.render_github,
        "gitlab": platforms.render_gitlab,
        "jsonl": platforms.render_jsonl,
        "junit": junit.render_junit,
        "sarif": sarif.render_sarif,
    }
    return renderers[name](pages.sheet())


def _plain(page: RenderableType) -> str:
    from rich.console import Console

    console = Console(width=100, no_color=True)
    with console.capture() as capture:
        console.print(page)
    return capture.get()
