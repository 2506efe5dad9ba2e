"""`perfdoctor digest`: the digest of a node's recordings, for a diagnosis of a job of many ranks."""

from __future__ import annotations

from pathlib import Path

from ..errors import PerfdoctorError
from ..exits import Exit
from ..recording.digesting import write_digest
from ..recording.directory import RunDirectory
from .progress import say


def run(path: Path) -> Exit:
    """Write it into the run directory, and say where it is."""
    try:
        digest = write_digest(RunDirectory(path))
    except OSError as error:
        raise PerfdoctorError(
            f"cannot write a digest into {path}: {error.strerror}",
            slug="digest-unwritable",
            advice="name a run directory that you may write to",
        ) from error
    if digest is None:
        raise PerfdoctorError(
            f"there is nothing to digest in {path}: no process of the job was recorded",
            slug="nothing-recorded",
            advice="record the job first: perfdoctor check train.py",
        )
    say(f"the digest is {digest}: {digest.stat().st_size:,} bytes")
    return Exit.OK
