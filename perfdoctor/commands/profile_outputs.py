"""Where profiles go: `--output FORMAT[:FILE]` of `perfdoctor profile`, checked before a job is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..errors import PerfdoctorError
from ..evidence.model import Job
from ..launch.masking import masked
from ..profiles import collapsed, speedscope, svg
from ..profiles.memory import MemoryProfile
from ..profiles.model import Profile
from ..profiles.objects import ObjectsProfile
from ..report import memory_console, memory_json, profile_console, profile_json
from . import outputs, traces
from .outputs import Output
from .progress import say

_WRITERS: Mapping[str, Callable[[Sequence[Profile], Job], str]] = {
    "flame": lambda profiles, job: svg.render(profiles, _name(job)),
    "speedscope": lambda profiles, job: speedscope.render(profiles, _name(job)),
    "collapsed": lambda profiles, job: collapsed.render(profiles),
    "json": profile_json.render,
}
TRACE, PAGE = "trace", "html"
OF_RUNS = (TRACE, PAGE)
"""What is made of the whole recording."""
FORMATS = ("console", *_WRITERS, *OF_RUNS)
OF_MEMORY = ("console", "json")
"""Those of what the memory consists of."""
_OPENED_WITH = {
    "flame": "open it in a browser",
    PAGE: "open it in a browser",
    "speedscope": "open it in https://www.speedscope.app, which reads it on this machine",
    "collapsed": "flamegraph.pl and inferno read it",
}


def _name(job: Job) -> str:
    return " ".join(masked(job.command))


def parse(words: Sequence[str], formats: Sequence[str] = FORMATS) -> tuple[Output, ...]:
    """The outputs asked for, console first by default. Raises PerfdoctorError for what cannot be written."""
    found = outputs.parse(words, formats)
    for output in found:
        if output.format == TRACE:
            if output.path is None:
                raise PerfdoctorError(
                    "a trace needs a file",
                    slug="trace-name",
                    advice="--output trace:trace.json, or trace:trace.json.gz",
                )
            traces.require_writable(output.path)
    return found


def write(profiles: Sequence[Profile], job: Job, where: Sequence[Output]) -> None:
    """Every output that is made of samples alone."""
    for output in where:
        if output.format in OF_RUNS:
            continue
        if output.format == "console":
            outputs.print_page(profile_console.render(profiles, job), output.path)
            continue
        write_text(output, _WRITERS[output.format](profiles, job))


def write_text(output: Output, text: str) -> None:
    """As reports are written; where it is a file to be opened by something, say by what."""
    outputs.write_text(output, text)
    if output.path is not None:
        _say_where(output.format, output.path)


def write_memory(
    profiles: Sequence[MemoryProfile], held: Sequence[ObjectsProfile], job: Job, where: Sequence[Output]
) -> None:
    """What the memory consists of, in every form asked for."""
    for output in where:
        if output.format == "console":
            outputs.print_page(memory_console.render(profiles, held, job), output.path)
        else:
            write_text(output, memory_json.render(profiles, held, job))


def _say_where(name: str, path: Path) -> None:
    if name in _OPENED_WITH:
        say(f"{path} is written: {_OPENED_WITH[name]}")
