"""`%%perfdoctor`: the code of a cell as a job of its own, checked, with its report below the cell.

The code runs in a child process, as a script: it does not see the notebook's variables, nor does the notebook see its.
A job is ended once enough of it was seen, warm-up and imports are part of what is judged, and a kernel that has lived
for hours is neither at its beginning nor alone; only a process of its own can be watched as a script would be.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..commands.check import Settings
from ..exits import Exit
from ..recording.directory import OWN_DIRECTORY, make_parent
from .shown import recordings, show

CELLS = Path(OWN_DIRECTORY) / "cells"
"""Where the code of cells is kept: findings show its lines, also later."""


class CellFailedError(Exception):
    """The cell's code did not run to a report; what it printed says why, its traceback included."""

    def _render_traceback_(self) -> list[str]:
        """What IPython prints in place of our own stack."""
        return [str(self)]


def load(shell: Any) -> None:
    """For `%load_ext perfdoctor`."""
    shell.register_magic_function(check_cell, "cell", "perfdoctor")


def check_cell(line: str, cell: str) -> None:
    """Run this cell's code as a script under `perfdoctor check`, in a process of its own, and show the report.

    `%%perfdoctor --steps 100 --trial`: options are those of `perfdoctor check`. Variables of the notebook are not
    seen by the code, and its own are gone afterwards.
    """
    from IPython.display import display

    runs = Settings().resolve().runs
    before = set(recordings(runs))
    words = ["--output", "json", "--job-output", "passthrough", "--python", sys.executable, "--runs", str(runs)]
    # The report goes nowhere: it is made from the recording, once, in the form that the notebook shows.
    code = _run([sys.executable, "-m", "perfdoctor", "check", *shlex.split(line), *words, str(_kept(cell))])
    made = [path for path in recordings(runs) if path not in before]
    if made:
        display(show(made[-1]))  # type: ignore[no-untyped-call]
    if code not in (Exit.OK, Exit.FINDINGS, Exit.NOT_MEASURABLE):
        raise CellFailedError(
            "The code of the cell failed." if code == Exit.JOB_FAILED else f"perfdoctor check ended with {code}."
        )


def _kept(cell: str) -> Path:
    """The file with the cell's code, numbered."""
    make_parent(CELLS)
    path = CELLS / f"cell-{len(list(CELLS.glob('cell-*.py'))) + 1}.py"
    path.write_text(cell)
    return path


def _run(words: list[str]) -> int:
    """With what it prints below the cell, as it comes; interrupting the cell is Ctrl-C to the job."""
    here = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        words,
        # The script lies elsewhere, and imports what lies beside the notebook.
        env={**os.environ, "PYTHONPATH": here},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    assert process.stderr is not None
    with _ended(process):
        for printed in process.stderr:
            print(printed, end="")
        return process.wait()


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """An interrupt is Ctrl-C to it and to its job, and waits for both."""
    try:
        yield
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate()
        raise
