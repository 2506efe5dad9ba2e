"""What a variable that limits vector extensions costs: the job's own largest operators, with it and without.

ATen, oneDNN and MKL read their variables once per process, so this takes two interpreters. They are the job's
own, run after it has ended, and take turns, so that a busy neighbour disturbs both alike.
"""

from __future__ import annotations

import contextlib
import json
import queue
import statistics
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from ..injected._perfdoctor_probe import records, rows
from ..recording.base import Missing
from ..recording.directory import RunDirectory
from ..recording.limits import limiting_variables
from ..recording.model import ProcessRecording
from ..recording.operators import OpsWindow, Replay
from ..recording.reader import read
from ..recording.timings import VectorExtensionTiming, VectorExtensionTimings

_INJECTED = Path(records.__file__).resolve().parent.parent
_START_S = 20.0
"""For importing torch, 1 to 2 s from a local disk."""
_ROUNDS = 5
_ROUNDS_S = 3.0
_THREADS = 1
"""Ratios of one thread are steady beside a neighbour; teams that spin are not."""
_PROGRAM = (
    f"import sys; sys.path.append({str(_INJECTED)!r}); "
    "from _perfdoctor_probe.microbenchmarks import vector_extensions; vector_extensions.main()"
)


def time_vector_extensions(directory: RunDirectory, base: Mapping[str, str]) -> None:
    """Write timings.json when the job ran on the CPU under a limiting variable; do nothing otherwise.

    `base` is the environment that the job was started with. Raises nothing but KeyboardInterrupt: what cannot be
    timed is said in the file.
    """
    try:
        ranks = read(directory).ranks
    except Exception:  # a damaged recording is the reader's to complain about, when it is judged
        return
    lead = next(iter(ranks), None)
    variables = {} if lead is None else limiting_variables(lead)
    if lead is None or not variables or _on_device(lead):
        return
    try:
        timings = _timed(lead, variables, base)
    except (OSError, ValueError, queue.Empty) as error:
        timings = Missing(f"the interpreter that was to time it failed ({type(error).__name__}: {error})")
    record = {"missing": timings.reason} if isinstance(timings, Missing) else asdict(timings)
    with contextlib.suppress(OSError):  # a full disk: then there are no timings
        directory.timings_file.touch(mode=0o600)
        directory.timings_file.write_text(json.dumps(record, indent=1) + "\n")


def _on_device(process: ProcessRecording) -> bool:
    devices = process.settings.precision.parameter_devices if process.settings else ()
    return any(device != "cpu" for device in devices)


def _timed(
    process: ProcessRecording, variables: Mapping[str, str], base: Mapping[str, str]
) -> VectorExtensionTimings | Missing:
    if process.ops is None:
        return Missing("the operator window was not reached")
    ops = process.ops.replays if isinstance(process.ops, OpsWindow) else ()
    if not ops:
        return Missing("no operator could be replayed")
    free = {
        k: v for k, v in base.items() if k not in records.VECTOR_EXTENSION_VARIABLES and not k.startswith("PERFDOCTOR_")
    }
    free |= {"CUDA_VISIBLE_DEVICES": ""}
    with (
        _Interpreter(process.header.executable, {**free, **variables}, ops) as limited,
        _Interpreter(process.header.executable, free, ops) as full,
    ):
        starts = [interpreter.answer(_START_S) for interpreter in (limited, full)]
        rounds = _rounds(limited, full)
    capability = process.settings.backend.capability if process.settings else ""
    if capability and starts[0]["capability"] != capability:
        return Missing("the job did not compute with the instruction set that its variables ask for")
    found = []
    for index, op in enumerate(ops):
        pairs = [(with_cap[index], without[index]) for with_cap, without in rounds]
        if not pairs or any(value is None for pair in pairs for value in pair):
            continue
        limited_us, full_us = (statistics.median(values) for values in zip(*pairs, strict=True))
        name, shapes = rows.operator(op.name), rows.shown(op.shapes)
        found.append(
            VectorExtensionTiming(name, shapes, op.dtype, op.calls_per_step, limited_us / 1000, full_us / 1000)
        )
    return VectorExtensionTimings(tuple(sorted(variables.items())), tuple(found), len(rounds), starts[1]["capability"])


def _rounds(limited: _Interpreter, full: _Interpreter) -> list[tuple[Any, Any]]:
    """Turn by turn; at least one round, and no new one after the time is up."""
    began = time.monotonic()
    found: list[tuple[Any, Any]] = []
    while len(found) < _ROUNDS and (not found or time.monotonic() - began < _ROUNDS_S):
        found.append((limited.round(), full.round()))
    return found


@dataclass
class _Interpreter:
    """The job's interpreter with the operators in it."""

    executable: str
    environment: Mapping[str, str]
    ops: Sequence[Replay]

    def __enter__(self) -> _Interpreter:
        self._process = subprocess.Popen(
            [self.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(self.environment),
            # `-c` puts the working directory on the path: one without Python files.
            cwd=Path(self.executable).parent,
            text=True,
        )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._say(json.dumps({"threads": _THREADS, "ops": [asdict(op) for op in self.ops]}))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def round(self) -> Any:
        """Microseconds of each operator, None for those that cannot be called."""
        self._say("round")
        return self.answer(_START_S)

    def answer(self, patience_s: float) -> Any:
        """The next line. Raises queue.Empty when it takes too long, ValueError when it is none."""
        return json.loads(self._answers.get(timeout=patience_s))

    def _say(self, line: str) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        stream = self._process.stdout
        with contextlib.suppress(ValueError, OSError):  # closed under us
            for line in stream or ():
                self._answers.put(line)
        self._answers.put("")  # not JSON: it ended
