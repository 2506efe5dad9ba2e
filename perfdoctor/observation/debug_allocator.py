"""What Python's debugging allocator costs: a loop of plain Python with the job's settings and without them.

An interpreter chooses its allocator as it starts, so this takes two. They are the job's own, run after it has ended,
for a tenth of a second each, and take turns.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from ..recording.directory import RunDirectory
from ..recording.model import ProcessRecording
from ..recording.reader import read
from ..recording.settings import AllocatorTiming

_VARIABLES = ("PYTHONMALLOC", "PYTHONDEVMODE")
_DEBUG = ("debug", "malloc_debug", "pymalloc_debug")
_ROUNDS = 3
_PATIENCE_S = 20.0
_PROGRAM = """
import json, time

class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y

def add(one, other):
    return (one + other) & 127  # small numbers are there already

def allocating():
    for number in range(1000, 21_000):
        point = Point(number, (number, [number]))
        named = {"x": point.x, "y": point.y + (number,)}

def calling():
    total = 0
    for _ in range(300):
        for number in range(100):
            total = add(total, number)

def best(work):
    took = []
    for _ in range(5):
        began = time.thread_time_ns()
        work()
        took.append(time.thread_time_ns() - began)
    return min(took)

print(json.dumps([best(allocating), best(calling)]))
"""


def time_debug_allocator(directory: RunDirectory, base: Mapping[str, str]) -> None:
    """Write python.json when the job ran under Python's debugging allocator; do nothing otherwise.

    `base` is the environment that the job was started with. Raises nothing but KeyboardInterrupt: without the file the
    cost is not told.
    """
    try:
        lead = next(iter(read(directory).ranks), None)
    except Exception:  # a damaged recording is the reader's to complain about, when it is judged
        return
    switches = ({}, ()) if lead is None else _switches(lead)
    if lead is None or not any(switches):
        return
    # Neither the probe nor the user's own start-up code: this is about the interpreter alone.
    plain = {k: v for k, v in base.items() if k not in _VARIABLES and k != "PYTHONPATH" and k[:10] != "PERFDOCTOR"}
    try:
        timing = _timed(lead.header.executable, plain, *switches)
        directory.python_file.touch(mode=0o600)
        directory.python_file.write_text(json.dumps(asdict(timing)) + "\n")
    except (OSError, ValueError, subprocess.SubprocessError):
        with contextlib.suppress(OSError):
            directory.python_file.unlink(missing_ok=True)


def _switches(process: ProcessRecording) -> tuple[dict[str, str], tuple[str, ...]]:
    """Variables and options of the interpreter that switch the allocator on; empty where none does."""
    settings = process.settings
    if settings is None:
        return {}, ()
    asked = {name: settings.environment[name] for name in _VARIABLES if settings.environment.get(name)}
    allocator = asked.get("PYTHONMALLOC", "")
    develops = "dev" in settings.python_options or asked.get("PYTHONDEVMODE", "")
    if allocator not in _DEBUG and (allocator or not develops):
        return {}, ()
    return asked, ("-X", "dev") if "dev" in settings.python_options else ()


def _timed(
    executable: str, plain: Mapping[str, str], variables: Mapping[str, str], options: tuple[str, ...]
) -> AllocatorTiming:
    """Ratios of the fastest of some rounds; in turns a neighbour disturbs both alike."""
    ways = (({**plain, **variables}, options), (plain, ()))
    rounds = [[_once(executable, environment, words) for environment, words in ways] for _ in range(_ROUNDS)]
    debugged, usual = ([min(times) for times in zip(*way, strict=True)] for way in zip(*rounds, strict=True))
    return AllocatorTiming(*(one / other for one, other in zip(debugged, usual, strict=True)))


def _once(executable: str, environment: Mapping[str, str], options: tuple[str, ...]) -> list[float]:
    done = subprocess.run(
        [executable, *options, "-S", "-c", _PROGRAM],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(environment),
        cwd=Path(executable).parent,
        timeout=_PATIENCE_S,
        check=True,
    )
    allocating, calling = json.loads(done.stdout)
    return [float(allocating), float(calling)]
