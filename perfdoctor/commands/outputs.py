"""Where reports go: `--output FORMAT[:FILE]`, checked before a job is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import PerfdoctorError
from .progress import say

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..report.sheet import Sheet

OF_COMPARISONS = ("console", "concise", "markdown", "json", "jsonl", "sarif", "junit", "github", "gitlab", "html")
FORMATS = (*OF_COMPARISONS, "tensorboard")
SUMMARY_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Output:
    """One report."""

    format: str
    path: Path | None
    """None is stdout; of `tensorboard` a folder."""


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
    if name == "tensorboard":
        return Output(name, _folder(file))
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


def _folder(name: str) -> Path:
    """Where TensorBoard's events go. Raises PerfdoctorError where they cannot be written."""
    if find_spec("tensorboard") is None:
        raise PerfdoctorError(
            "--output tensorboard needs the package tensorboard, which is not installed beside perfdoctor",
            slug="no-tensorboard",
            advice="pip install tensorboard, or perfdoctor[tensorboard]",
        )
    if not name:
        raise PerfdoctorError(
            "--output tensorboard needs a folder", slug="output-unwritable", advice="--output tensorboard:runs"
        )
    path = Path(name)
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise PerfdoctorError(
            f"cannot write the report to {name}",
            slug="output-unwritable",
            advice="name a writable folder, or a new one",
        )
    return path


def machine_output(outputs: Sequence[Output]) -> bool:
    """Whether stdout belongs to a program that reads a report."""
    return any(output.path is None and output.format != "console" for output in outputs)


@dataclass(frozen=True, slots=True)
class Pages:
    """One report in every form; each is made when it is asked for."""

    console: Callable[[], RenderableType]
    markdown: Callable[[], str]
    json: Callable[[], str]
    html: Callable[[], str]
    sheet: Callable[[], Sheet]
    tensorboard: Callable[[Path], None] | None = None
    """Writes into a folder; None for a comparison."""


def write(pages: Pages, outputs: Sequence[Output]) -> None:
    """Write every report; with `github`, the whole one goes into the step's summary too."""
    for output in outputs:
        if output.format == "console" and output.path is None:
            print_page(pages.console())
            continue
        if output.path is not None and output.format == "tensorboard" and pages.tensorboard is not None:
            with _writing(output.path):
                pages.tensorboard(output.path)
            continue
        write_text(output, _text(pages, output.format))
    if any(output.format == "github" for output in outputs):
        _add_to_step_summary(pages)


def write_text(output: Output, text: str) -> None:
    """To its file, or to stdout without one."""
    if output.path is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_file(output.path, text)


def write_file(path: Path, text: str) -> None:
    """Raises PerfdoctorError where it cannot be written, and leaves no half of it."""
    with _writing(path):
        path.write_text(text, encoding="utf-8")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
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
    if name == "html":
        return pages.html()
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
