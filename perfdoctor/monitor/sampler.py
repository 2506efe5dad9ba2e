"""Watches the job, its neighbours and the machine from outside, and appends what it sees to host.jsonl.

One line per sample, as `recording/host.py` declares it. The first time a source fails there is one line
`{"k": "fault", "source": ..., "error": ...}`; its field is null in every sample where it fails.

Measured cost, CPU time on 2 shared cores of an EPYC server: 1.8 ms a sample for a job of 2 threads (0.4 % of
a core), 8.5 ms for 400 threads (beyond which samples become rarer), and every 2 s 20 us for each process of
the machine. Reading a GPU was not measured.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from ..injected._perfdoctor_probe import records
from ..recording.host import HostFault, HostSample
from .gpu import NvmlGpus
from .sources import MOST_OWN_CPUS, Guard, Sources

INTERVAL_S = 0.5
STOP_PATIENCE_S = 5.0
"""A sample takes milliseconds, unless the machine is starved or a GPU driver hangs."""


class HostSampler:
    """A daemon thread that samples until it is stopped. Nothing it meets is raised to the caller."""

    def __init__(
        self,
        root_pid: int,
        host_file: Path,
        interval_s: float = INTERVAL_S,
        *,
        gpus: NvmlGpus | None = None,
        root: Path = Path("/"),
    ) -> None:
        """Watches the tree under `root_pid`. `gpus` stands for NVML, `root` for where /proc and /sys are."""
        self._root_pid = root_pid
        self._file = host_file
        self._interval_s = interval_s
        self._gpus = gpus
        self._root = root
        self.latest: HostSample | None = None
        """The last sample, for a live view."""
        self.others: Collection[int] = ()
        """Processes of the job that do not descend from the root: whoever knows of them says so here."""
        self._heading = _line({"k": "format", "version": records.VERSION})
        """What the file begins with, until it is written."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="perfdoctor-monitor", daemon=True)

    def start(self) -> None:
        """Starts sampling; the first sample comes after one interval."""
        self._thread.start()

    def stop(self) -> None:
        """Takes a last sample and ends the thread. May be called twice, or without `start`."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_PATIENCE_S)

    def _run(self) -> None:
        try:
            self._sample_until_stopped()
        except Exception as error:  # a fault of ours must not be printed into the job's terminal
            self._note_fault("sampler", error)

    def _sample_until_stopped(self) -> None:
        sources = Sources(self._root_pid, Guard(self._note_fault), self._root, self._gpus)
        with contextlib.closing(sources):
            stopping = False
            while not stopping:
                pause_s = max(self._interval_s, sources.cost_ns / 1e9 / MOST_OWN_CPUS)
                stopping = self._stopping.wait(pause_s)
                self.latest = sources.read(self.others)
                self._append({"k": "host", **dataclasses.asdict(self.latest)})

    def _note_fault(self, source: str, error: Exception) -> None:
        fault = HostFault(source, f"{type(error).__name__}: {error}")
        self._append({"k": "fault", **dataclasses.asdict(fault)})

    def _append(self, record: Mapping[str, object]) -> None:
        # A full disk or a directory that was taken away: the reader finds a gap, the live view goes on.
        with contextlib.suppress(OSError):
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, self._heading + _line(record))  # one call, so that no reader sees half of it
            finally:
                os.close(descriptor)
            self._heading = b""


def _line(record: Mapping[str, object]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
