"""The probe as one file, for engines that ship files to machines on which perfdoctor is not installed."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from .environment import INJECTED

NAME = "perfdoctor_probe.zip"


def packed(run: Path) -> Path:
    """The file in the run directory `run`, made when first asked for; nobody may write it, and its owner only reads it.

    It holds no settings: those travel as the environment of the processes that it is for. Raises OSError.
    """
    path = run / NAME
    if path.exists():
        return path
    temporary = path.with_suffix(".tmp")
    with (
        os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o400), "wb") as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive,
    ):
        for source in sorted(INJECTED.rglob("*.py")):
            archive.write(source, source.relative_to(INJECTED))
    temporary.replace(path)
    return path
