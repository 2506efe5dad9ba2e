"""What torch.compile did, from Dynamo's own record of compilations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..recording.model import ProcessRecording
from ..recording.process import Compiled
from .model import Compilation, GraphBreak, Missing, Recompiled
from .steady import Selection, leaves_compiling_out

_NOTHING = Missing("the job compiles nothing")


def build(process: ProcessRecording, selection: Selection) -> Compilation | Missing:
    """Of a job that called torch.compile."""
    settings, compiled = process.settings, process.compiled
    if settings is None or not settings.compiled:
        return _NOTHING
    compiled = tuple(one for one in compiled if one.t <= selection.end_ns)  # a trial compiles, too
    rows = selection.rows
    late = rows["step"] >= (selection.first + selection.last) // 2
    ends = rows["end_ns"][late]
    since = int(ends[0] - 1000 * rows["wall_us"][late][0])
    within = [one for one in compiled if since <= one.t <= ends[-1]]
    return Compilation(
        count=len(compiled),
        seconds=sum(one.us for one in compiled) / 1e6,
        late_steps=int(late.sum()),
        late_wall_ms=float(rows["wall_us"][late].sum()) / 1000,
        late_ms=sum(one.us for one in within) / 1000,
        recompiled=_by_function(within, compiled),
        irregular=leaves_compiling_out(process, rows),
        breaks=_breaks(compiled),
        given_up=_by_function([one for one in compiled if one.failed and one.reason], compiled),
        called_at=settings.compiled_at,
    )


def _by_function(some: Sequence[Compiled], compiled: Sequence[Compiled]) -> tuple[Recompiled, ...]:
    """By Dynamo's number of the function; a backward pass counts to the function, and only with a reason is it new."""
    sites = {one.frame: one.site for one in reversed(compiled) if one.site is not None}
    frames: dict[str, list[Compiled]] = {}
    for one in some:
        frames.setdefault(one.frame, []).append(one)
    found = [
        Recompiled(
            sites.get(frame),
            sum(1 for one in ones if one.reason),
            sum(one.us for one in ones) / 1000,
            tuple(reason for reason, _ in Counter(one.reason for one in ones if one.reason).most_common(3)),
        )
        for frame, ones in frames.items()
    ]
    return tuple(sorted((one for one in found if one.count), key=lambda one: -one.ms))


def _breaks(compiled: Sequence[Compiled]) -> tuple[GraphBreak, ...]:
    """What follows a break is compiled next after what it is in, which says what broke."""
    found: dict[tuple[str, int], GraphBreak] = {}
    before = ""
    for one in sorted(compiled, key=lambda one: one.t):
        if one.resumed and one.site is not None:
            found.setdefault((one.site.file, one.site.line), GraphBreak(one.site, before))
        before = one.broke
    return tuple(found[place] for place in sorted(found))
