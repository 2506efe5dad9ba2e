"""A job by its nodes: what each launcher recorded, and on which machine. Clocks and process numbers of two nodes do not
compare, so nothing of one is looked up in another."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ..errors import PerfdoctorError
from . import ray
from .directory import RunDirectory
from .host import HostRecording
from .identity import attempts
from .machine import Machine
from .model import ProcessRecording, Recording
from .monitor import read_host_file, read_machine_file
from .process import ProcessHeader
from .reader import read
from .siblings import find, is_growing

Owner = TypeVar("Owner")

NOT_WATCHED = HostRecording((), (), ())
"""Of a machine on which no monitor ran."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """Processes of a job that one launcher has started on one machine."""

    recording: Recording
    machine: Machine
    host: HostRecording

    @property
    def machine_id(self) -> tuple[str, str]:
        """Its machine's name and the boot id of its kernel: several nodes of a job may share a machine."""
        headers = [process.header for process in self.recording.processes if process.header.boot]
        facts = self.recording.facts
        return (headers[0].host, headers[0].boot) if headers else (facts.host, facts.boot)


def read_nodes(directory: RunDirectory) -> tuple[Node, ...]:
    """The nodes of the job that this directory is a recording of, this one's first. A recording of another node that
    cannot be used is one of the first's problems. Raises PerfdoctorError when this one is none, or another version's.
    """
    first, *others = find(directory)
    nodes = [*_read(first.directory)]
    for part in others:
        try:
            nodes += _read(part.directory)
        except PerfdoctorError as error:
            problem = f"the recording of another node cannot be used: {error.message}"
            recording = nodes[0].recording
            nodes[0] = replace(nodes[0], recording=replace(recording, problems=(*recording.problems, problem)))
    return tuple(nodes)


def read_recordings(directory: RunDirectory) -> list[tuple[RunDirectory, Recording]]:
    """What was recorded of the job into this directory and into those of its other nodes, as far as it can be read,
    without their machines. Raises PerfdoctorError when this one is no recording, or another version's."""
    first, *others = find(directory)
    found = [(directory, read(first.directory))]
    for part in others:
        with contextlib.suppress(PerfdoctorError):
            found.append((part.directory, read(part.directory)))
    return found


def ranks(recordings: Iterable[tuple[Owner, Recording]]) -> list[tuple[Owner, ProcessRecording]]:
    """The ranks of all nodes in their order, with what they are given with; of the last attempt only: one that failed
    is over for all of them."""
    found: list[tuple[int, Owner, ProcessRecording]] = []
    for owner, recording in _of_one_training(list(recordings)):
        counts = starts_before(recording)
        found += [(counts[process.header], owner, process) for process in recording.ranks]
    last = max((count for count, _, _ in found), default=0)
    return sorted(
        ((owner, process) for count, owner, process in found if count == last),
        key=lambda pair: (pair[1].rank, pair[1].header.t),
    )


def starts_before(recording: Recording) -> dict[ProcessHeader, int]:
    """For each of its processes: how often the job had been started before."""
    counts = attempts([(process.header, process.environment) for process in recording.processes])
    return {process.header: count for process, count in zip(recording.processes, counts, strict=True)}


def _of_one_training(recordings: Sequence[tuple[Owner, Recording]]) -> list[tuple[Owner, Recording]]:
    """Without the ranks that Ray has placed for another training, or for an attempt that failed: which those are, no
    node knows by itself."""
    stepped = [process for _, recording in recordings for process in recording.processes if process.role == "rank"]
    over = {id(process) for process in stepped} - {id(process) for process in ray.of_one_attempt(stepped)}
    if not over:
        return list(recordings)
    return [
        (owner, replace(recording, processes=tuple(one for one in recording.processes if id(one) not in over)))
        for owner, recording in recordings
    ]


def _read(directory: RunDirectory) -> list[Node]:
    """One node, or several where processes on other machines wrote into the same directory."""
    recording = read(directory)
    facts = recording.facts
    if facts.end == "unknown" and is_growing(directory):
        recording = replace(recording, facts=replace(facts, end="running"))
    here: list[ProcessRecording] = []
    elsewhere: defaultdict[tuple[str, str], list[ProcessRecording]] = defaultdict(list)
    for process in recording.processes:
        header = process.header
        # In a container it has the launcher's kernel and clock under another name.
        is_here = header.boot in ("", facts.boot) or not facts.boot
        (here if is_here else elsewhere[header.host, header.boot]).append(process)
    machine, host = read_machine_file(directory.machine_file), read_host_file(directory.host_file)
    found = [Node(replace(recording, processes=tuple(here)), machine, host)] if here or not elsewhere else []
    # When the launcher saw the job's end is another clock's time there.
    facts = replace(recording.facts, ended_ns=0)
    for processes in elsewhere.values():
        there = Recording(facts, tuple(processes), () if found else recording.problems)
        found.append(Node(there, _unknown_machine(processes), NOT_WATCHED))
    return found


def _unknown_machine(processes: Sequence[ProcessRecording]) -> Machine:
    """As far as the processes themselves know theirs."""
    cpus = max(process.header.cpus for process in processes)
    return Machine(
        cpu_model="",
        logical_cpus=cpus,
        physical_cores=None,
        affinity_cpus=cpus,
        quota_cpus=None,
        memory_bytes=0,
        kernel="",
        page_fault_ns=None,
    )
