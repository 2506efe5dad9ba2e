"""`--trace FILE`: the operator window's own trace, with what perfdoctor has found in it; a file for each rank."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from ..diagnosis.diagnoses import Diagnosis
from ..errors import PerfdoctorError
from ..evidence.model import Missing
from ..evidence.windows import trace
from ..recording.directory import RunDirectory
from ..recording.model import ProcessRecording
from ..recording.nodes import ranks, read_recordings
from .progress import say

_SUFFIXES = (".json.gz", ".json")


def require_writable(path: Path) -> None:
    """Raises PerfdoctorError for a file that no trace can go to, before the job is started."""
    if not path.name.endswith(_SUFFIXES):
        raise PerfdoctorError(
            f"a trace is JSON, which {path.name} does not say",
            slug="trace-name",
            advice="--trace trace.json, or --trace trace.json.gz for a compressed one",
        )
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PerfdoctorError(
            f"cannot write the trace to {path}",
            slug="trace-unwritable",
            advice="name a file in an existing, writable directory",
        )


def write(path: Path, directory: RunDirectory, diagnosis: Diagnosis) -> None:
    """Write every rank's, and say where they are, or why there is none of it."""
    found = ranks(read_recordings(directory))
    if not found:
        say("no trace was kept: the job took no step")
    for here, process in found:
        of_rank = f" of rank {process.rank}" if len(found) > 1 else ""
        why = _write_one(_of_rank(path, process.rank) if of_rank else path, here, process, diagnosis)
        if why:
            say(f"no trace was kept{of_rank}: {why}")


def _of_rank(path: Path, rank: int) -> Path:
    """`trace.rank1.json.gz`."""
    suffix = next(suffix for suffix in _SUFFIXES if path.name.endswith(suffix))
    return path.with_name(f"{path.name.removesuffix(suffix)}.rank{rank}{suffix}")


def _write_one(path: Path, directory: RunDirectory, process: ProcessRecording, diagnosis: Diagnosis) -> str:
    """Returns why it could not be made; "" when it is there. Raises PerfdoctorError where it cannot be written."""
    from ..report.chrome_trace import annotated

    kept = trace(process)
    if isinstance(kept, Missing):
        return str(kept)
    try:
        text = annotated((directory.path / Path(kept.file).name).read_bytes(), kept, diagnosis, process.rank).encode()
    except OSError as error:
        return f"{kept.file} is not in the recording any more ({error.strerror})"
    except ValueError as error:
        return f"{kept.file} cannot be read: {error}"
    try:
        path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    except OSError as error:
        raise PerfdoctorError(
            f"cannot write {path}: {error.strerror}",
            slug="trace-unwritable",
            advice="the recording is complete; write the trace again with `perfdoctor report RUN --trace FILE`",
        ) from error
    say(f"the trace of {_steps(len(kept.steps))} is in {path}: open it in https://ui.perfetto.dev")
    return ""


def _steps(count: int) -> str:
    from ..report import wording

    return wording.plural(count, "step")
