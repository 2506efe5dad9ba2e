"""`--log-to`: a note to the run of MLflow or W&B that the job itself had started.

It is written from outside, when the job is gone and judged: what it says is not known before, and the job must not
wait for it. The job's interpreter writes it, which has the tracker, with the environment that the job got, so that no
credential need be recorded.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from ..config.choices import Tracker
from ..diagnosis.diagnoses import Diagnosis
from ..injected._perfdoctor_probe.tracker import public
from ..launch.command import python_for_jobs
from ..recording.directory import RunDirectory
from ..recording.process import TrackedRun
from ..recording.reader import read
from ..report import tracker_note
from ..report.numbers import numbers
from ..report.verdict import verdict
from .progress import say

VARIABLE = "PERFDOCTOR_LOG_TO"
"""By which the probe knows which trackers to look for."""
PATIENCE_S = 90.0
"""Importing a tracker takes seconds, and a server that does not answer is given up after some tries."""
_ONLY_INSTALLED = "import sys; sys.path[:] = filter(None, sys.path); "
"""Without the working directory, which `-c` puts in front."""
_TITLES = {"mlflow": ("MLflow", "mlflow.start_run()"), "wandb": ("W&B", "wandb.init()")}


def asking(tracker: Tracker | None) -> dict[str, str] | None:
    """The environment of a job whose run is to be recorded; None where it is ours."""
    return {**os.environ, VARIABLE: tracker} if tracker else None


def note(tracker: Tracker, directory: RunDirectory, diagnosis: Diagnosis, report: str, *, own: bool = False) -> None:
    """Write it, and say where it is, or why there is none. `report` is the whole one, in Markdown. `own`: the job has
    just run; else the recording may be anybody's, and no program that it names is run."""
    title, start = _TITLES[tracker]
    recording = read(directory)
    found = [(one, process) for process in recording.processes for one in process.tracked if one.tracker == tracker]
    if not found:
        say(
            f"no note to {title}: the recording knows no run. It knows one where `perfdoctor check --log-to {tracker}` "
            f"made it and the loop runs within `{start}`"
        )
        return
    run, process = found[-1]
    said: tracker_note.Note = {
        "tracker": tracker,
        "run": run.run,
        "at": _address(run),
        "path": run.path,
        "files": run.files,
        "offline": run.offline,
        "verdict": verdict(diagnosis),
        "report": report,
        "numbers": numbers(diagnosis),
    }
    named = process.header.executable
    python = named if own and os.access(named, os.X_OK) else python_for_jobs()
    say(_written(said, title, python, recording.facts.cwd))


def _address(run: TrackedRun) -> str:
    """As the environment has it, with the password that was not recorded, where that is the same place."""
    ours = os.environ.get("MLFLOW_TRACKING_URI", "") if run.tracker == "mlflow" else ""
    return ours if ours and public(ours) == run.at else run.at


def _written(note: tracker_note.Note, title: str, python: str, cwd: str) -> str:
    """What became of it, in a sentence."""
    try:
        done = subprocess.run(
            # Not by its path: modules beside it would stand in front of packages of the same name, as would those in
            # the directory that the recording names.
            [python, "-c", f"{_ONLY_INSTALLED}exec({Path(tracker_note.__file__).read_text()!r})"],
            input=json.dumps(note),
            capture_output=True,
            text=True,
            cwd=cwd if Path(cwd).is_dir() else None,
            timeout=PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        return f"no note to {title}: no answer within {PATIENCE_S:.0f} s"
    except OSError as error:
        return f"no note to {title}: {error.strerror}"
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    last = public(lines[-1]) if lines else ""
    return f"no note to {title}: {last}" if done.returncode else f"the note is {last}"
