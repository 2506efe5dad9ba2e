"""Files that are no trace, and what to do about each."""

from __future__ import annotations

from pathlib import Path

from ..errors import PerfdoctorError

_HOW_TO_RECORD = "name a file that torch.profiler exported (`prof.export_chrome_trace(FILE)`), or its folder"
_TAR_MARK = slice(257, 262)
_ZIP = b"PK\x03\x04"
_REPORTS = (".nsys-rep", ".qdrep")
"""Of Nsight Systems, in a format of its own."""


def unreadable(path: Path, error: OSError) -> PerfdoctorError:
    """For what the system will not open."""
    return PerfdoctorError(
        f"{path} cannot be read: {(error.strerror or str(error)).lower()}",
        slug="trace-unreadable",
        advice=_HOW_TO_RECORD,
    )


def no_trace(path: Path, beginning: bytes) -> PerfdoctorError:
    """For a file whose first bytes (after decompression) are these."""
    text = beginning.lstrip().lower()
    if path.name.endswith(_REPORTS):
        return _refusal(
            path,
            "is a report of Nsight Systems in its own format",
            "trace-nsys-report",
            f"export it: nsys export --type sqlite {path.name}",
        )
    if not text:
        return _refusal(
            path, "is empty", "trace-empty-file", "record it again, and let the profiler end before the job does"
        )
    if text.startswith(b"version https://git-lfs"):
        return _refusal(
            path,
            "is a pointer of Git LFS, not the trace itself",
            "trace-lfs-pointer",
            f"fetch it: git lfs pull --include '*{path.name}'",
        )
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        return _refusal(path, "is a web page, not a trace", "trace-web-page", "download the raw file")
    if beginning[_TAR_MARK] == b"ustar" or beginning.startswith(_ZIP):
        command = "unzip" if beginning.startswith(_ZIP) else "tar xf"
        return _refusal(
            path,
            "is an archive",
            "trace-archive",
            f"unpack it ({command} {path.name}), and name the file or folder that is in it",
        )
    return _refusal(path, "is no trace: it has no `traceEvents`", "not-a-trace", _HOW_TO_RECORD)


def without_events(path: Path, foreign: int = 0) -> PerfdoctorError:
    """For a trace that says nothing about a job; `foreign` events of it are another program's."""
    if foreign:
        return _refusal(
            path,
            "has events, but none that torch.profiler writes (operators, calls, kernels)",
            "not-a-trace",
            _HOW_TO_RECORD,
        )
    return PerfdoctorError(
        f"{path} has no operator, no call and no kernel",
        slug="trace-without-events",
        advice="record whole steps: call prof.step() after each, for more steps than the schedule waits and warms up",
    )


def no_traces_in(folder: Path) -> PerfdoctorError:
    """For a folder without any."""
    return PerfdoctorError(f"{folder} holds no trace", slug="no-traces", advice=_HOW_TO_RECORD)


def no_nsys_export(path: Path) -> PerfdoctorError:
    """For a database of another program."""
    return _refusal(
        path,
        "has none of the tables that Nsight Systems exports",
        "not-an-nsys-export",
        "make one: nsys profile -t cuda,nvtx -o NAME COMMAND, then nsys export --type sqlite NAME.nsys-rep",
    )


def damaged_database(path: Path, why: str) -> PerfdoctorError:
    """For what SQLite refuses, and for columns that are not there."""
    return _refusal(
        path,
        f"cannot be read as an export of Nsight Systems: {why}",
        "trace-damaged-database",
        "export it again: nsys export --type sqlite --force-overwrite true NAME.nsys-rep",
    )


def _refusal(path: Path, what: str, slug: str, advice: str) -> PerfdoctorError:
    return PerfdoctorError(f"{path} {what}", slug=slug, advice=advice)
