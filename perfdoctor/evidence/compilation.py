"""What torch.compile did, from Dynamo's own record of compilations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..recording.base import Site
from ..recording.model import Columns, ProcessRecording
from ..recording.process import Compiled
from ..recording.settings import Settings
from .model import FORGOTTEN, Compilation, CompiledAgain, GraphBreak, Missing, Recompiled
from .steady import MIN_STEADY, Mask, Selection, compiling, leaves_compiling_out

_NOTHING = Missing("the job compiles nothing")
_WARM = 2
"""First steps of a loop that are slow whatever runs them."""


def build(process: ProcessRecording, selection: Selection) -> Compilation | Missing:
    """Of a job that called torch.compile."""
    settings, compiled = process.settings, process.compiled
    if settings is None or not settings.compiled:
        return _NOTHING
    compiled = _with_reasons([one for one in compiled if one.t <= selection.end_ns])  # a trial compiles, too
    rows = selection.rows
    late, within = compiled_late(compiled, selection)
    return Compilation(
        count=len(compiled),
        seconds=sum(one.us for one in compiled) / 1e6,
        late_steps=int(late.sum()),
        late_wall_ms=float(rows["wall_us"][late].sum()) / 1000,
        late_ms=sum(one.us for one in within) / 1000,
        recompiled=_by_function(within, compiled),
        again=_again(process, selection, compiled),
        eager_ms=_eager_ms(rows, compiled, settings),
        compiled_ms=_median_ms(rows, _quiet(process, rows) & (rows["end_ns"] >= _first(compiled))),
        irregular=leaves_compiling_out(process, rows),
        breaks=_breaks(compiled),
        given_up=_by_function([one for one in compiled if one.failed and one.reason], compiled),
        called_at=settings.compiled_at,
        never_ran=never_ran(process),
    )


def _with_reasons(compiled: Sequence[Compiled]) -> tuple[Compiled, ...]:
    """In order; a function that Dynamo has given the same number before, and for which it has no reason, was
    forgotten."""
    known: set[tuple[str, Site]] = set()
    found = []
    for one in sorted(compiled, key=lambda one: one.t):
        if one.site is not None and not one.resumed and not one.reason:
            anew = (one.frame, one.site) in known
            known.add((one.frame, one.site))
            one = replace(one, reason=FORGOTTEN) if anew else one
        found.append(one)
    return tuple(found)


def never_ran(process: ProcessRecording) -> bool:
    """Whether torch.compile was called, and in the end nothing had been compiled."""
    called = process.settings is not None and process.settings.compiled
    return called and process.end is not None and process.end.compiled == 0


def compiled_late(compiled: Sequence[Compiled], selection: Selection) -> tuple[Mask, list[Compiled]]:
    """The steps of the late half of the steady span, and what was compiled in them."""
    rows = selection.rows
    late = np.asarray(rows["step"] >= (selection.first + selection.last) // 2, np.bool_)
    ends = rows["end_ns"][late]
    since = int(ends[0] - 1000 * rows["wall_us"][late][0])
    return late, [one for one in compiled if since <= one.t <= ends[-1]]


def _again(process: ProcessRecording, selection: Selection, compiled: Sequence[Compiled]) -> CompiledAgain:
    """A function's first compilation is not among them."""
    known: set[str] = set()
    again, reasons = [], 0
    for one in sorted(compiled, key=lambda one: one.t):
        if one.reason:
            known.add(one.frame)
        if one.frame in known:
            again.append(one)
            reasons += bool(one.reason)
    rows = selection.rows
    after = rows["step"] >= selection.first
    since = selection.start_ns
    late = [one for one in again if one.t >= since]
    quiet = _median_ms(rows, after & _quiet(process, rows))
    held = after & compiling(late, rows) & (rows["marked"] == 0)
    beyond = 0.0 if isinstance(quiet, Missing) else float((rows["wall_us"][held] / 1000 - quiet).clip(min=0).sum())
    return CompiledAgain(
        count=sum(1 for one in late if one.reason),
        steps=int(after.sum()),
        ms=sum(one.us for one in late) / 1000,
        beyond_ms=beyond,
        whole_count=reasons,
        whole_ms=sum(one.us for one in again) / 1000,
        most=max(Counter(one.frame for one in late if one.reason).values(), default=0),
    )


def _first(compiled: Sequence[Compiled]) -> int:
    return min((one.t for one in compiled), default=0)


def _quiet(process: ProcessRecording, rows: Columns) -> Mask:
    """Steps in which nothing was compiled and nothing of ours looked on."""
    return np.asarray(~compiling(process.compiled, rows) & (rows["marked"] == 0), np.bool_)


def _eager_ms(rows: Columns, compiled: Sequence[Compiled], settings: Settings) -> float | Missing:
    eager, now = settings.eager_elements, settings.compiled_elements
    if eager and now and eager != now:
        return Missing("the batches before were of another size")
    before = (rows["end_ns"] < _first(compiled)) & (rows["marked"] == 0) & (rows["step"] >= _WARM)
    return _median_ms(rows, before)


def _median_ms(rows: Columns, some: Mask) -> float | Missing:
    if some.sum() < MIN_STEADY:
        return Missing("fewer than five such steps were seen")
    return float(np.median(rows["wall_us"][some])) / 1000


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
    """What follows a break is compiled next after what it is in, which says what broke. A function that breaks inside a
    loop goes on nowhere: it is not compiled at all."""
    found: dict[tuple[str, int], GraphBreak] = {}
    before = ""
    for one in sorted(compiled, key=lambda one: one.t):
        if one.resumed and one.site is not None:
            found.setdefault((one.site.file, one.site.line), GraphBreak(one.site, before))
        elif one.failed and not one.reason and one.site is not None:
            found.setdefault((one.site.file, one.site.line), GraphBreak(one.site, one.failed))
        before = one.broke
    return tuple(found[place] for place in sorted(found))
