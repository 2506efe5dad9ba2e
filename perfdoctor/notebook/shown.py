"""A report as a notebook shows it."""

from __future__ import annotations

import html
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..commands.check import Settings, called, next_command
from ..diagnosis.diagnoses import Diagnosis
from ..errors import PerfdoctorError
from ..recording.directory import RunDirectory
from ..storage.copies import latest, local
from ..storage.urls import shown
from ..trials.judge import judge_recorded

HEIGHT = "85vh"
"""Of the frame that the page lies in: most of the window, so that the notebook can still be scrolled beside it."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The report of a recording: HTML in a notebook, text in a terminal."""

    diagnosis: Diagnosis
    recorded: Sequence[Path]

    def _repr_html_(self) -> str:
        """The whole page in a frame: its styles and scripts are its own, and cannot reach the notebook."""
        from ..report.html.page import render_html

        page = render_html(self.diagnosis, next_command=self._next_command(), recorded=self.recorded)
        return (
            f'<iframe title="perfdoctor" sandbox="allow-scripts allow-popups" '
            f'style="width: 100%; height: {HEIGHT}; border: 0" srcdoc="{html.escape(page)}"></iframe>'
        )

    def _repr_markdown_(self) -> str:
        from ..report.markdown import render_markdown

        return render_markdown(self.diagnosis, next_command=self._next_command())

    def __repr__(self) -> str:
        from rich.console import Console

        from ..report.console import render_console

        console = Console(width=100, no_color=True)
        names = shlex.join(called(path) for path in self.recorded)
        with console.capture() as capture:
            console.print(
                render_console(
                    self.diagnosis, next_command=self._next_command(), full_command=f"perfdoctor report -v {names}"
                )
            )
        return capture.get()

    def _next_command(self) -> str:
        job = self.diagnosis.evidence.job
        if job.traced:
            return ""
        return next_command(self.diagnosis, RunDirectory(self.recorded[0]), f"-- {shlex.join(job.command)}")


def show(run: str | Path | None = None) -> Shown:
    """The report of a run directory, its URL, or a trace; without one, of the latest run of this working directory.

    Raises PerfdoctorError where there is none.
    """
    config = Settings().resolve()
    if run is None:
        run = latest(config.storage) if config.storage else next(iter(recordings(config.runs)[-1:]), "")
        if not run:
            raise PerfdoctorError(
                f"there is no recording in {shown(config.storage) or config.runs}",
                slug="not-a-recording",
                advice="make one with `perfdoctor check train.py`, or in a cell that begins with %%perfdoctor",
            )
    path = local(str(run))
    return Shown(judge_recorded([path], config), (path,))


def recordings(runs: Path) -> list[Path]:
    """The run directories there, the latest last."""
    # Their names begin with the time, but of two in one second only the clock of the file system tells.
    found = [path for path in runs.glob("*") if RunDirectory(path).run_file.exists()]
    return sorted(found, key=lambda path: (path.name[: len("20261123-120000")], path.stat().st_mtime_ns))
