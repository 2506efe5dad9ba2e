"""`perfdoctor run`: the job to its end with remedies in place, and otherwise unchanged."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import PerfdoctorError, nearest
from ..injected._perfdoctor_probe.remedies import catalogue
from ..launch.command import Command
from ..launch.environment import changed, found_library, job_environment, preloading
from ..launch.job import cannot_start
from ..recording.reader import ProcessFile
from ..recording.trials import Applied
from .progress import say

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Remedies:
    """What to apply, and where."""

    environment: Mapping[str, str]
    """Variables of the launch; "" unsets one."""
    in_job: tuple[str, ...]
    """What the probe does once the job trains."""


def known(name: str) -> str:
    """`name`, if it is a remedy's. Raises PerfdoctorError with the nearest one that is."""
    try:
        catalogue.parse(name)
    except catalogue.UnknownRemedyError:
        base, equals, value = name.partition("=")
        if base in catalogue.BY_NAME:
            argument = catalogue.BY_NAME[base].argument
            wanted = base if argument is None else f"{base}={argument}"
        else:
            close = nearest(base, catalogue.BY_NAME)
            wanted = f"{close}{equals}{value}" if close else ""
        advice = f"did you mean {wanted}?" if wanted else "perfdoctor explain --remedies lists them all"
        raise PerfdoctorError(f"unknown remedy {name}", slug="unknown-remedy", advice=advice) from None
    return name


def parse(words: str) -> Remedies:
    """`memory.malloc,threads=1`. Raises PerfdoctorError for a remedy that is none."""
    environment: dict[str, str] = {}
    in_job = []
    for name in filter(None, (word.strip() for word in words.split(","))):
        entry, _ = catalogue.parse(known(name))
        if entry.preload:
            library = found_library(entry.preload)
            if not library:
                raise PerfdoctorError(
                    f"{entry.name}: this machine has no lib{entry.preload[0]}",
                    slug="no-library",
                    advice=f"install it, for example: {entry.install}",
                )
            environment |= preloading(library, {**os.environ, **environment})
        elif entry.launches:
            environment |= entry.environment
        elif not entry.keep:
            raise PerfdoctorError(
                f"{entry.name} cannot be applied to a job: {entry.text}",
                slug="remedy-not-applicable",
                advice="it is an upper bound only, for trials",
            )
        else:
            in_job.append(name)
    if not environment and not in_job:
        raise PerfdoctorError(
            "no remedy to apply",
            slug="no-remedy",
            advice="perfdoctor run --apply memory.malloc,threads=1 -- python train.py",
        )
    return Remedies(environment, tuple(in_job))


def run(command: Command, words: str) -> int:
    """Run the job to its end; what the shell gets is what the job gives."""
    remedies = parse(words)
    directory = Path(tempfile.mkdtemp(prefix="perfdoctor-run-"))
    try:
        base = changed(os.environ, remedies.environment)
        if remedies.in_job:
            base = job_environment(base, directory, ()) | {"PERFDOCTOR_APPLY": ",".join(remedies.in_job)}
        status = _run(command, base)
        for line in _what_failed(directory, remedies.in_job):
            say(line)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 128 - status if status < 0 else status


def _run(command: Command, environment: Mapping[str, str]) -> int:
    try:
        process = subprocess.Popen(command.argv, env=environment)
    except OSError as error:
        raise cannot_start(command, error) from error
    with _passing_on(process):
        return process.wait()


@contextmanager
def _passing_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Signals are the job's. One typed at the terminal has reached it already."""

    def pass_on(number: int, frame: object) -> None:
        if number != signal.SIGINT:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _what_failed(directory: Path, wanted: Sequence[str]) -> list[str]:
    if not wanted:
        return []
    applied: list[Applied] = []
    for path in sorted(directory.glob("process-*.jsonl")):
        file = ProcessFile(path)
        file.refresh()
        process = file.recording()
        applied.extend(process.applied if process is not None else ())
    if not applied:
        return ["the job took no training step that could be seen, so no remedy was applied"]
    failed = dict.fromkeys((one.remedy, one.error) for one in applied if one.error)
    return [f"{remedy} was not applied: {error}" for remedy, error in failed]
