"""A profile for a terminal: the lines that cost most, with the code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..evidence.model import Job
from ..profiles.model import Below, HotLine, Profile
from . import wording
from .source import source_line
from .terminal import Line, Page, heading

MOST = 10
"""Lines of the training thread that are shown ..."""
_MOST_BESIDE = 3
"""... and of workers and other threads."""
_LEAST = 0.005
"""Of a step: a line below that is chance."""
_WORDS = {"input_wait": "data", "gc": "collection"}
"""Parts whose name in recordings says less."""


def render(profiles: Sequence[Profile], job: Job, files: Sequence[str] = ()) -> RenderableType:
    """Every profile; `files` are sentences about what was written beside."""
    blocks: list[RenderableType] = []
    for number, profile in enumerate(profiles):
        blocks += _profile(profile, job, MOST if _trains(profile) else _MOST_BESIDE, number)
    blocks += [Text(text) for text in files]
    return Page(Group(*blocks))


def _trains(profile: Profile) -> bool:
    return profile.unit == "step" and not profile.name.startswith("thread ")


def _profile(profile: Profile, job: Job, most: int, number: int) -> Iterator[RenderableType]:
    lines = [line for line in profile.lines if line.share >= _LEAST][:most]
    if not lines and number and profile.unit == "step":
        return  # a thread that only waits
    yield heading(_title(profile))
    if not lines:
        yield Text("No line of the job's own was on the stack.")
    yield _table(lines, job)
    shown = sum(line.share for line in lines)
    nobody = 1 - sum(line.share for line in profile.lines)
    if _trains(profile):
        yield Text(
            f"These lines are {wording.share(shown)} of the step; {wording.share(max(0.0, nobody))} is in no line "
            f"of the job's own. From {wording.plural(profile.samples, 'sample')} of the stack.",
            style="dim",
        )
    yield Text()


def _title(profile: Profile) -> str:
    ms = wording.duration(profile.total_ms)
    if profile.unit == "batch":
        return f"{profile.name}: the lines that make a batch ({ms} each)"
    what = "the lines that cost most" if _trains(profile) else "its lines"
    name = "" if profile.name == "training thread" else f"{profile.name}: "
    text = f"{name}{what} (a steady step takes {ms})"
    return text[0].upper() + text[1:]


def _table(lines: Sequence[HotLine], job: Job) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(3):
        table.add_column(no_wrap=True, justify="right")
    table.add_column()
    for number, line in enumerate(lines, 1):
        place = Line(Text.assemble((str(line.site), "bold"), (f"  {_WORDS.get(line.part, line.part)}", "dim")))
        table.add_row(Text(str(number), style="dim"), wording.share(line.share), wording.duration(line.ms), place)
        code = source_line(line.site, job)
        if code:
            table.add_row("", "", "", Line(Text(code, style="cyan")))
        inside = _inside(line)
        if inside:
            table.add_row("", "", "", Line(Text(inside, style="dim")))
    return table


def _inside(line: HotLine) -> str:
    """`operators: mm 61 %, add 12 %; in _engine_run_backward 98 %`."""
    told = []
    if line.operators:
        told.append(f"operators: {_listed(line.operators)}")
    if line.functions:
        told.append(f"in {_listed(line.functions)}")
    return wording.clean("; ".join(told))


def _listed(below: Sequence[Below]) -> str:
    return ", ".join(f"{one.name} {wording.share(one.share)}" for one in below)
