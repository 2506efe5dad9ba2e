"""Reads a run directory. Tolerates a cut last line, unknown kinds and unknown fields; refuses what is foreign.

Files grow while the job runs, so a `ProcessFile` can be read again and again: it parses only what is new. Each record
is decoded into the type of the field of `ProcessRecording` that `KINDS` names for it; columns become arrays.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import index, or_
from pathlib import Path
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

import numpy as np

from ..errors import PerfdoctorError
from ..injected._perfdoctor_probe import records
from . import ray
from .base import Missing
from .decoding import Decoder, Record, Undecodable, parsed
from .digest import Digest, Entry
from .directory import RunDirectory
from .model import ABSENT, COLUMNS, KINDS, MANY, Columns, Ints, ProcessRecording, Recording, RunFacts
from .phases import is_judged
from .process import BOUNDARIES, Boundary, ProcessHeader
from .settings import PLAIN_ALLOCATOR, AllocatorTiming
from .timings import VectorExtensionTimings
from .trials import Block, TrialPlan

_HINTS = get_type_hints(ProcessRecording)


def _is_all(kind: str) -> bool:
    """Whether all records of a kind are kept, and not the last one."""
    return get_origin(_HINTS[KINDS[kind]]) is tuple


def _type(kind: str) -> Any:
    """What a record of this kind is decoded into."""
    alternatives = get_args(_HINTS[KINDS[kind]])
    return alternatives[0] if _is_all(kind) else reduce(or_, (one for one in alternatives if one is not type(None)))


_OF_STEPS = ("cycle", "long_steps")
"""What is said of how steps come again, of one phase of the job."""
_NUMBERED = ("first", "t")
"""What a block of steps has besides: the number of the first, and when the last ended."""
_MOST_ROWS = 1_000_000
"""In a block, which the probe writes twice a second: more were not written by it, and would fill the memory."""
_MOST = 1 << 62
"""Of a number beside the columns: what is computed from it has 64 bits."""
_TYPES: dict[str, Any] = {"process": ProcessHeader, "boundary": Boundary, **{kind: _type(kind) for kind in KINDS}}


def kind_of(record: Any) -> str:
    """Its kind; of a window, with its name. Raises TypeError or KeyError where it is no record."""
    kind = f"window {record['name']}" if record["k"] == "window" else record["k"]
    if not isinstance(kind, str):
        raise TypeError(kind)
    return kind


class ProcessFile:
    """One probe file, parsed as far as it has been written."""

    def __init__(self, path: Path, cwd: str = "", like: Decoder | None = None) -> None:
        """`cwd`: what paths are made relative to until the process says where it is. `like`: see `Decoder`."""
        self.path = path
        self._offset = 0
        self._tail = b""
        self._decoder = Decoder(cwd, like)
        self._decoded: dict[str, list[tuple[Any, object]]] = {}
        """Values, and the first step of a window."""
        self._blocks: dict[str, list[dict[str, Any]]] = {}
        """Of columns, as arrays."""
        self._damaged = 0
        self._unread: Counter[str] = Counter()
        """Records that are not what their type declares, by kind."""

    def refresh(self) -> None:
        """Parse what has been appended since the last call. Raises PerfdoctorError for another version's file."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = self._tail + file.read()
            self._offset = file.tell()
        lines = data.split(b"\n")
        self._tail = lines.pop()
        for line in lines:
            try:
                record = parsed(line)
                kind = kind_of(record)
            except (ValueError, TypeError, KeyError):
                self._damaged += 1
                continue
            self.add(kind, record)

    def add(self, kind: str, record: Record) -> None:
        """A further record, of this kind. Raises PerfdoctorError for another version's."""
        if kind == "process" and record.get("version") != records.VERSION:
            _refuse(self.path.name, record.get("version"))
        try:
            self._keep(kind, record)
        except (*Undecodable, OverflowError):
            self._unread[kind] += 1

    def _keep(self, kind: str, record: Record) -> None:
        if kind == "site":
            self._decoder.add_site(record)
        elif kind in _TYPES:
            self._decoded.setdefault(kind, []).append(
                (self._decoder.decode(_TYPES[kind], record), record.get("first_step"))
            )
            if kind == "torch":
                self._decoder.cwd = record.get("cwd") or self._decoder.cwd
        elif kind in COLUMNS:
            if "left_out" in record:
                self._decoder.decode(dict[str, int], record["left_out"])
            self._blocks.setdefault(kind, []).append(
                _block(record, COLUMNS[kind], _NUMBERED if kind == "steps" else ())
            )

    def _all(self, kind: str) -> list[Any]:
        return [value for value, _ in self._decoded.get(kind, ())]

    @property
    def step_count(self) -> int:
        """Steps on disk so far."""
        last = self._blocks.get("steps", [{"first": 0, "n": 0}])[-1]
        return int(last["first"]) + int(last["n"])

    def steps(self, since: int = 0) -> Columns:
        """The step rows, with `step`, `boundary`, `marked` and `end_ns` columns added.

        Whole blocks: with `since`, from the block that holds that step.
        """
        blocks = [block for block in self._blocks.get("steps", ()) if block["first"] + block["n"] > since]
        columns = {name: _joined([block[name] for block in blocks]) for name in records.STEP_COLUMNS}
        step = columns["step"] = _joined([np.arange(b["first"], b["first"] + b["n"]) for b in blocks])
        columns["boundary"] = self._boundaries(step)
        columns["end_ns"] = _end_times(blocks, columns["wall_us"])
        columns["marked"] = np.isin(step, _joined([block["marked"] for block in blocks])).astype(np.int64)
        return Columns(columns)

    def _boundaries(self, step: Ints) -> Ints:
        """What each of these steps ended at, as announced before it; the first announcement counts from the start. A
        kind that is announced again has become longer: what it was before are single passes."""
        announced = self._all("boundary")
        if not announced:
            return np.zeros(len(step), np.int64)
        kinds = np.array([BOUNDARIES.index(boundary.kind) for boundary in announced])
        kinds[:-1][kinds[:-1] == kinds[1:]] = BOUNDARIES.index("forward")
        since = np.array([boundary.step for boundary in announced])
        return kinds[np.maximum(np.searchsorted(since, step, side="right") - 1, 0)]

    def samples_per_step(self) -> float | None:
        """Samples per step so far, by the sizes of the first batches; None without a loader."""
        sizes = {seen.loader: seen.samples for seen in self._all("batch")}
        total = sum(sizes.get(int(loader), 0) for loader in self._columns("batches")["loader"])
        return total / self.step_count if total and self.step_count else None

    def blocks(self) -> tuple[Block, ...]:
        """The blocks of trials so far."""
        return tuple(self._all("block"))

    def recording(self) -> ProcessRecording | None:
        """Everything read so far; None when even the first record is missing."""
        header = self._last("process")
        if header is None:
            return None
        problems = [f"a line that is not a record ({self._damaged})"] if self._damaged else []
        problems += [
            f"{n} record{'s'[: n != 1]} of kind {kind!r} could not be read" for kind, n in self._unread.items()
        ]
        if self._tail:
            problems.append("the last line is cut")
        left_out: Counter[str] = Counter()
        for block in self._blocks.get("device", ()):
            left_out.update(block.get("left_out", {}))
        columns = {kind: self._columns(kind) for kind in COLUMNS} | {"steps": self.steps()}
        told = tuple(f"{self.path.name}: {problem}" for problem in problems)
        return self._made(columns, header=header, size_bytes=self._offset, device_left_out=left_out, problems=told)

    def _made(self, columns: Mapping[str, Columns], **told: Any) -> ProcessRecording:
        kept: dict[str, Any] = dict(columns)
        sites = set(kept["nodes"]["site"].tolist())
        kept["stack_sites"] = {number: site for number, site in self._decoder.sites.items() if number in sites}
        for kind, name in KINDS.items():
            kept[name] = tuple(self._all(kind)) if _is_all(kind) else self._last(kind)
        return ProcessRecording(**kept, **told)

    @classmethod
    def from_digest(cls, entry: Entry, cwd: str, like: Decoder, *, whole: bool) -> ProcessRecording:
        """A process as a digest has it, wholly or only what ranks are compared by. Raises PerfdoctorError."""
        file = cls(Path(entry.name), cwd, like)
        for record in entry.records(whole=whole):
            file.add(kind_of(record), record)
        return file._made(
            entry.columns(whole=whole),
            header=file._last("process"),
            size_bytes=entry.size_bytes,
            device_left_out=entry.left_out,
            problems=entry.problems,
        )

    def _last(self, kind: str) -> Any:
        """Of a window, the last that saw the kind of step that the job has taken since, in the phase that is judged."""
        found = self._decoded.get(kind, [])
        if kind.startswith("window"):
            boundaries = self._all("boundary")
            since = boundaries[-1].step if boundaries else 0
            found = [
                pair
                for pair in found
                if not isinstance(pair[1], int) or (pair[1] >= since and is_judged(self._all("phase"), pair[1]))
            ]
        elif kind in _OF_STEPS:
            found = [pair for pair in found if is_judged(self._all("phase"), pair[0].step)]
        return found[-1][0] if found else None

    def _columns(self, kind: str) -> Columns:
        blocks = self._blocks.get(kind, ())
        return Columns({name: _joined([block[name] for block in blocks]) for name in COLUMNS[kind]})


def _end_times(blocks: Sequence[Record], wall_us: Ints) -> Ints:
    """When each step ended: back from the block's last boundary by the steps' own lengths."""
    ends, start = [], 0
    for block in blocks:
        stop = start + block["n"]
        walls = wall_us[start:stop]
        ends.append(block["t"] - 1000 * (walls.sum() - np.cumsum(walls)))
        start = stop
    return _joined(ends)


def _joined(pieces: Sequence[Ints]) -> Ints:
    return np.concatenate([np.empty(0, np.int64), *pieces])


def _block(record: Record, names: Sequence[str], numbers: Sequence[str]) -> dict[str, Any]:
    """With its columns as arrays. Raises what `Undecodable` names where they are none, or of different lengths, and
    where one of `numbers` is none."""
    n, *_ = (index(record[name]) for name in ("n", *numbers))
    if not all(abs(record[name]) < _MOST for name in ("n", *numbers)) or n > _MOST_ROWS:
        raise ValueError(f"no block has {n} rows")
    block = dict(record, marked=np.asarray(record.get("marked", ()), np.int64).ravel())
    for name in names:
        # A column whose entries were all the same was written as one number.
        value = record.get(name, ABSENT.get(name, 0))
        block[name] = np.asarray(value, np.int64) if isinstance(value, list) else np.full(n, value, np.int64)
        if block[name].shape != (n,):
            raise ValueError(f"{name} has not {n} entries")
        # What is too large for its type comes out as the least of it.
        if not (np.abs(block[name].astype(np.float64)) < _MOST).all():
            raise ValueError(f"{name} holds what is no measurement")
    return block


def _refuse(what: str, version: object) -> NoReturn:
    """Say that another version of perfdoctor wrote it."""
    newer = isinstance(version, int) and version > records.VERSION
    age, article = ("newer", "a") if newer else ("older", "an")
    raise PerfdoctorError(
        f"{what} was written by {article} {age} perfdoctor (format {version}, this one reads {records.VERSION})",
        slug=f"{age}-recording",
        advice="upgrade perfdoctor: pip install --upgrade perfdoctor" if newer else "record the job again",
    )


def _not_ours(what: str, slug: str = "not-a-recording") -> PerfdoctorError:
    return PerfdoctorError(
        what, slug=slug, advice="name a directory that `perfdoctor check` wrote (.perfdoctor/runs/...)"
    )


def read_facts(directory: RunDirectory) -> RunFacts:
    """run.json. Raises PerfdoctorError when the directory is not a recording, or holds what is none of it."""
    try:
        if stray := directory.stray():
            raise _not_ours(f"{directory.path} is not read: {stray} is no plain file", "stray-file")
        record = parsed(directory.run_file.read_text())
    except (OSError, ValueError) as error:
        why = "run.json is damaged" if isinstance(error, ValueError) else "there is no run.json in it"
        raise _not_ours(f"{directory.path} is not a perfdoctor recording: {why}") from error
    schema = re.fullmatch(r"perfdoctor\.run/(\d+)", str(record.get("schema"))) if isinstance(record, dict) else None
    if schema is None:
        raise _not_ours(f"{directory.path}/run.json belongs to another program", "foreign-recording")
    if int(schema[1]) != records.VERSION:
        _refuse(str(directory.path), int(schema[1]))
    try:
        return Decoder().decode(RunFacts, record)
    except Undecodable as error:
        raise _not_ours(f"{directory.path}/run.json is damaged: {error}") from error


def read(directory: RunDirectory) -> Recording:
    """The whole recording. Raises PerfdoctorError when it is none, or another version's."""
    facts = read_facts(directory)
    decoder = Decoder()
    problems = list(facts.problems)
    files = {path.name: path for path in directory.process_files()}
    entries = _digested(directory, problems)
    many = max((entry.world_size for entry in entries if entry.role == "rank"), default=1) > MANY
    processes, unread_workers = [], 0
    for entry in entries:
        if not many and entry.name in files:
            continue  # its own file is there, and there is time to read it
        files.pop(entry.name, None)
        if many and entry.role == "worker":
            unread_workers += 1
        else:
            processes.append(_from_digest(entry, entries, facts.cwd, decoder, briefly=many and entry.role == "rank"))
    for path in files.values():
        file = ProcessFile(path, facts.cwd, decoder)
        try:
            file.refresh()
        except OSError as error:
            problems.append(f"{path.name}: {error.strerror}")
            continue
        process = file.recording()
        if process is None:
            problems.append(f"{path.name}: no complete record")
            continue
        processes.append(process)
    problems += [problem for process in processes for problem in process.problems]
    problems += ray.notes(processes)
    return Recording(
        facts,
        tuple(processes),
        tuple(problems),
        read_vector_extension_timings(directory),
        read_trial_plan(directory),
        read_allocator_timing(directory),
        unread_workers,
    )


def _digested(directory: RunDirectory, problems: list[str]) -> list[Entry]:
    """All processes in digests; a damaged one is a problem, and its processes are read from their own files."""
    entries: list[Entry] = []
    for path in directory.digest_files():
        try:
            entries += Digest(path).entries
        except PerfdoctorError as error:
            problems.append(str(error))
    return entries


def _from_digest(
    entry: Entry, entries: Sequence[Entry], cwd: str, decoder: Decoder, *, briefly: bool
) -> ProcessRecording:
    process = ProcessFile.from_digest(entry, cwd, decoder, whole=not briefly)

    def whole() -> tuple[ProcessRecording, ...]:
        workers = (one for one in entries if one.file is entry.file and one.parent == entry.pid)
        return tuple(ProcessFile.from_digest(one, cwd, decoder, whole=True) for one in (entry, *workers))

    return replace(process, whole=whole) if briefly else process


def read_trial_plan(directory: RunDirectory) -> TrialPlan | None:
    """trials.json; None when there is none, or it is cut: blocks without a plan belong to nothing."""
    try:
        return Decoder().decode(TrialPlan, _json(directory.trials_file))
    except (OSError, *Undecodable):
        return None


def read_vector_extension_timings(directory: RunDirectory) -> VectorExtensionTimings | Missing | None:
    """timings.json; None when there is none, which says that no variable limited vector extensions."""
    try:
        return Decoder().decode(VectorExtensionTimings | Missing, _json(directory.timings_file))  # type: ignore[arg-type]
    except FileNotFoundError:
        return None
    except (OSError, *Undecodable) as error:
        return Missing(f"{directory.timings_file.name} cannot be read: {error}")


def read_allocator_timing(directory: RunDirectory) -> AllocatorTiming | Missing:
    """python.json."""
    try:
        return Decoder().decode(AllocatorTiming, _json(directory.python_file))
    except (OSError, *Undecodable):
        return PLAIN_ALLOCATOR


def _json(path: Path) -> Mapping[str, Any]:
    record: Mapping[str, Any] = parsed(path.read_text())
    return record
