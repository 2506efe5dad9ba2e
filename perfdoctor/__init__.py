"""perfdoctor: a performance doctor for PyTorch training jobs.

In a notebook, `perfdoctor.show()` shows the report of a recording, and `%load_ext perfdoctor` makes `%%perfdoctor`
known, which checks the code of a cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import VERSION

if TYPE_CHECKING:
    from pathlib import Path

    from .notebook.shown import Shown

__version__ = VERSION

__all__ = ["__version__", "show"]


def show(run: str | Path | None = None) -> Shown:
    """The report of a run directory, or of a trace, as a notebook shows it; without one, of the latest run here."""
    from .notebook import shown

    return shown.show(run)


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext perfdoctor`."""
    from .notebook import magic

    magic.load(shell)
