"""The memory of a step for a terminal: a bar of what it consists of, and the lines that need most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..evidence.model import Job
from ..profiles.memory import MAPPED, REST, MemoryProfile
from ..profiles.objects import ObjectsProfile
from . import wording
from .source import source_line
from .terminal import Line, Page, heading

MOST = 10
"""Lines that are shown."""
_BAR = 20
"""Columns of the longest bar."""
WORDS = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer_state": "optimizer state",
    "buffers": "buffers",
    "activations": "activations",
    "batch": "batch",
    "backward": "intermediate results of the backward pass",
    "update": "intermediate results of the update",
    "other": "other tensors of the step",
    "held": "other tensors, held from before the step",
    MAPPED: "libraries, other files, shared memory",
    REST: "the rest: Python, torch itself, what allocators keep",
}
_REST_OF_GPU = "the rest: what torch's allocator keeps, and operators need inside"
_PARTS = {"input_wait": "while data is loaded", "forward": "in the forward pass", "backward": "in the backward pass"}
_PARTS["optimizer"] = "in the update of parameters"


def render(profiles: Sequence[MemoryProfile], held: Sequence[ObjectsProfile], job: Job) -> RenderableType:
    """Every rank and device, then what Python holds in each rank."""
    blocks = [block for profile in profiles for block in _profile(profile, job)]
    return Page(Group(*blocks, *(block for objects in held for block in _objects(objects, job))))


def _objects(objects: ObjectsProfile, job: Job) -> Iterator[RenderableType]:
    yield heading(f"{objects.name}: the objects that it holds, by type")
    yield _types(objects)
    if objects.is_cut:
        yield Text("There are more, and what grows is not known: counting them all takes more than 2 s.", style="dim")
    yield Text()
    if not objects.by_line:
        yield Text("Lines are not known: the job runs tracemalloc itself.", style="dim")
        return
    yield Text(f"Made in {wording.plural(objects.steps, 'step')} and still held after them, by line:")
    yield _lines_held(objects, job)
    if objects.slower is not None:
        factor = wording.ratio(max(1.0, objects.slower))
        yield Text(f"Noting the lines made these steps {factor} as long; no other step has it.", style="dim")
    yield Text()


def _types(objects: ObjectsProfile) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(3):
        table.add_column(no_wrap=True, justify="right")
    table.add_column()
    for one in objects.types[:MOST]:
        gained = (one.bytes - one.bytes_before) / max(1, objects.steps)
        growth = f"+{wording.size(gained)} per step" if gained >= 1 and not objects.is_cut else ""
        count = wording.plural(one.count, "object")
        table.add_row(wording.size(one.bytes), count, growth, Line(Text(wording.clean(one.name), style="bold")))
    return table


def _lines_held(objects: ObjectsProfile, job: Job) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(no_wrap=True, justify="right")
    table.add_column()
    for one in objects.lines[:MOST]:
        kind = f"  mostly {wording.clean(one.type)}" if one.type else ""
        place = str(one.site) if one.site is not None else "no line of the job's"
        count = wording.plural(one.count, "object")
        table.add_row(wording.size(one.bytes), count, Line(Text.assemble((place, "bold"), (kind, "dim"))))
        code = source_line(one.site, job)
        if code:
            table.add_row("", "", Line(Text(code, style="cyan")))
    return table


def _profile(profile: MemoryProfile, job: Job) -> Iterator[RenderableType]:
    what = "memory between two steps" if profile.unwatched else "the peak of memory in a steady step"
    yield heading(f"{_name(profile)}: {what} is {wording.size(profile.total_bytes)}")
    yield _pieces(profile)
    yield Text(_moment(profile), style="dim")
    if profile.made_by:
        yield Text()
        yield Text("The lines and layers of the step that have most of it:")
        yield _lines(profile, job)
    yield Text()


def _name(profile: MemoryProfile) -> str:
    return profile.name.replace("cpu", "CPU", 1)


def _pieces(profile: MemoryProfile) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(no_wrap=True, justify="right")
    table.add_column(width=_BAR, no_wrap=True)
    table.add_column()
    largest = max((piece.bytes for piece in profile.pieces), default=1)
    for piece in profile.pieces:
        share = piece.bytes / profile.total_bytes if profile.total_bytes else 0.0
        word = _REST_OF_GPU if piece.what == REST and profile.device != "cpu" else WORDS[piece.what]
        bar = "█" * round(_BAR * piece.bytes / max(1, largest)) or "▏"
        count = f" ({wording.plural(piece.count, 'tensor')})" if piece.count else ""
        table.add_row(wording.size(piece.bytes), wording.share(share), Text(bar, style="cyan"), Text(word + count))
    return table


def _moment(profile: MemoryProfile) -> str:
    if profile.unwatched:
        return f"The step itself was not watched: {profile.unwatched}. Activations are not in these numbers."
    where = f", at {profile.site}" if profile.site is not None else ""
    text = f"It is reached {_PARTS.get(profile.part, 'between the passes')}{where}."
    return text if profile.is_whole else f"{text} Of tensors alone: what the process has besides is not known."


def _lines(profile: MemoryProfile, job: Job) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(no_wrap=True, justify="right")
    table.add_column()
    for number, made in enumerate(profile.made_by[:MOST], 1):
        layer = " ".join(word for word in (made.layer, f"({made.layer_kind})" if made.layer_kind else "") if word)
        place = f"{made.site}" if made.site is not None else "no line of the job's"
        what = ", ".join(word for word in (WORDS[made.what], layer, wording.plural(made.count, "tensor")) if word)
        number_text = Text(str(number), style="dim")
        table.add_row(number_text, wording.size(made.bytes), Line(Text.assemble((place, "bold"), (f"  {what}", "dim"))))
        code = source_line(made.site, job)
        if code:
            table.add_row("", "", Line(Text(code, style="cyan")))
    return table
