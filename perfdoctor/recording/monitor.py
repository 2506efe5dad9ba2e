"""Reads what the monitor wrote: machine.json and host.jsonl."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from ..errors import PerfdoctorError
from ..injected._perfdoctor_probe import records
from .decoding import Decoder, Undecodable, parsed
from .host import HostFault, HostRecording, HostSample
from .machine import Machine


def read_machine_file(path: Path) -> Machine:
    """Reads machine.json. Raises PerfdoctorError when it is absent or not what this version's monitor writes."""
    try:
        record = parsed(path.read_bytes())
        _require_version(path, record)
        return Decoder().decode(Machine, record)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    except Undecodable as error:
        raise _unusable(path, "it is damaged") from error


def read_host_file(path: Path) -> HostRecording:
    """Reads host.jsonl; a file that cannot be read is an empty recording with a note.

    A line cut by a crash, a sample that cannot be decoded and an unknown kind of record are passed over and noted.
    Raises PerfdoctorError for a file of another version.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        return HostRecording((), (), (f"{path.name} cannot be read: {error.strerror or error}",))
    decoder = Decoder()
    samples: list[HostSample] = []
    faults: list[HostFault] = []
    passed_over: Counter[str] = Counter()
    first = True
    for line in filter(bytes.strip, lines):
        try:
            record = parsed(line)
            kind = record["k"]
        except (ValueError, TypeError, KeyError):
            passed_over["cut or damaged"] += 1
            continue
        if first:
            _require_version(path, record)
            first = False
        try:
            if kind == "host":
                samples.append(decoder.decode(HostSample, record))
            elif kind == "fault":
                faults.append(decoder.decode(HostFault, record))
            elif kind != "format":
                passed_over[f"of unknown kind {kind!r}"] += 1
        except Undecodable:
            passed_over[f"of kind {kind!r} that cannot be decoded"] += 1
    notes = tuple(f"{path.name}: {count} line(s) {what}" for what, count in passed_over.items())
    return HostRecording(tuple(samples), tuple(faults), notes)


def _require_version(path: Path, record: dict[str, Any]) -> None:
    if record.get("version") != records.VERSION:
        raise _unusable(path, "another version of perfdoctor wrote it")


def _unusable(path: Path, why: str) -> PerfdoctorError:
    return PerfdoctorError(
        f"{path} cannot be used: {why}",
        slug="recording-machine",
        advice="record the job again, or name the directory of a whole recording",
    )
