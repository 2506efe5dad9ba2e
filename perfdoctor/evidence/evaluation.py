"""Evaluations: which forward passes without training are one, and what one is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..recording.lines import CodeLine, LinesWindow
from ..recording.model import Columns, Ints, ProcessRecording
from ..recording.repeats import BetweenWindow, RepeatsWindow
from .model import NO_LINE, CollectedOutputs, Decoding, Evaluations, JobAnatomy, Missing, Site, UnloadedPasses
from .same_loaders import given_to
from .steady import REGULAR_SHARE, Mask, awaited

_MANY = 8
"""Passes of one evaluation, at least."""
_AFTER = ("other", "forward")
"""Parts in which outputs are worked on: with gradients on, what follows a forward pass may be its loss."""
_WATCHED = 4.0
"""Lines that run once take so much longer when watched, as they call Python of libraries; measured: 3.7 with a loader's
next batch and a softmax. Those that call operators take no longer."""


@dataclass(frozen=True, slots=True)
class Held:
    """Forward passes without training, by the number of the step that held them."""

    evaluations: Columns
    """On batches of a loader, or on held-out tensors; columns as recorded."""
    inference: Columns
    """Without a loader, on other tensors each time."""
    training_loaders: Ints


def held(process: ProcessRecording) -> Held:
    """Those that are no part of an ordinary step.

    A forward pass on the batch that the step then trains with (a teacher, a frozen encoder) belongs to the step. So
    does one without a loader that is found in more than a fifth of the steps, or in each of its cycles: that is how the
    loop works. On held-out tensors a model that trains is evaluated, however often, unless training needs the outputs.
    """
    seen, batches = process.evaluations, process.batches
    last = np.ones(len(batches), dtype=bool)
    last[:-1] = batches["step"][1:] != batches["step"][:-1]
    ended = batches["step"] < (process.steps["step"][-1] + 1 if len(process.steps) else 0)
    training = np.unique(batches["loader"][last & ended])
    loader = seen["loader"]
    own = (loader >= 0) & ~np.isin(loader, training)
    window = process.repeats
    used = isinstance(window, RepeatsWindow) and window.scores_used
    held_out = (seen["held_out"] == 1) & (not used)
    rare = int((~held_out).sum()) <= REGULAR_SHARE * len(process.steps)
    if not process.trains:
        own, held_out, rare = np.zeros(len(seen), dtype=bool), np.zeros(len(seen), dtype=bool), False
    apart = rare and process.cycle is None
    evaluates = own | held_out | ((loader >= 0) & rare)
    return Held(seen.where(evaluates), seen.where((loader < 0) & ~held_out & apart), training)


def by_row(rows: Columns, found: Columns) -> Ints:
    """Microseconds in each of the steps; what came after the last is left out."""
    us = np.zeros(len(rows), np.int64)
    place = np.searchsorted(rows["step"], found["step"])
    inside = place < len(rows)
    np.add.at(us, place[inside], found["us"][inside])
    return us


def starts_us(process: ProcessRecording, rows: Columns, loaders: Ints) -> tuple[Ints, Mask]:
    """In each step, what starting and ending iterators of these loaders took and waiting longer for their first batch;
    and in which steps one started."""
    us, starts = np.zeros(len(rows), np.int64), np.zeros(len(rows), dtype=bool)
    batches = process.batches.where(np.isin(process.batches["loader"], loaders))
    later = batches["wait_us"][batches["first"] == 0]
    usual = int(np.median(later)) if later.size else 0
    first = batches.where(batches["first"] == 1)
    events = [(int(step), max(0, int(us) - usual)) for step, us in zip(first["step"], first["wait_us"], strict=True)]
    known = set(loaders.tolist())
    events += _starts_and_ends(process, known)
    for step, took in events:
        place = int(np.searchsorted(rows["step"], step))
        if place < len(rows):
            us[place] += took
    started = [iterator.step for iterator in process.iterators if iterator.loader in known]
    starts |= np.isin(rows["step"], started)
    return us, starts


def build(process: ProcessRecording, anatomy: JobAnatomy | Missing) -> Evaluations | Missing:
    """What one of them costs, from those between two steps; the first one, which warms up, is left out where there are
    others."""
    if isinstance(anatomy, Missing):
        return anatomy
    found = held(process)
    steps = process.steps
    between = (found.evaluations["step"] > steps["step"][0]) & (found.evaluations["step"] <= steps["step"][-1])
    seen = found.evaluations.where(between)
    if not len(seen):
        return Missing("the job was not seen to evaluate between two steps", "let it run longer (--steps, --to-end)")
    us_of = np.bincount(seen["held_out"], seen["us"], 2)
    held_out = bool(us_of[1] > us_of[0])
    part = float(us_of[int(held_out)] / us_of.sum()) if us_of.sum() > 0 else 1.0
    seen = seen.where(seen["held_out"] == held_out)
    parts = anatomy.parts
    loop_ms = anatomy.wall_ms - parts.start - parts.imports - parts.set_up - parts.after - parts.observing
    numbers, count = seen["step"], len(seen)
    gaps = np.diff(np.concatenate([steps["step"][:1], numbers]))
    every = float(np.median(gaps))
    typical = seen.where(slice(1, None)) if count > 1 else seen
    watched = np.isin(typical["step"], steps["step"][steps["marked"] == 1])  # which takes time of its own
    if not watched.all():
        typical = typical.where(~watched)
    loader = -1 if held_out else _mostly(process, typical, found.training_loaders)
    used = process.batches.where(
        np.isin(process.batches["step"], typical["step"]) & (process.batches["loader"] == loader)
    )
    later = used["wait_us"][used["first"] == 0]
    made = next((one for one in process.loaders if one.id == loader), None)
    batch_at = given_to(process, [loader]).batch_size
    within = set(typical["step"].tolist())
    sites = [iterator.site for iterator in process.iterators if iterator.loader == loader]
    start_us = sum(us for step, us in _starts_and_ends(process, {loader}) if step in within) + int(
        used["wait_us"][used["first"] == 1].sum()
    )
    timed_ms = float(typical["us"].mean()) / 1000
    followed = process.repeats if isinstance(process.repeats, RepeatsWindow) and process.repeats.followed else None
    # What follows the last forward pass is told by operators, which are those of one pass's output.
    ms = timed_ms + (followed.scores_ms if held_out and followed is not None else 0.0)
    share = part * parts.evaluation / loop_ms if loop_ms > 0 else 0.0
    if held_out:
        sites = [line.site for line in process.held_out]
    iterated_at = sites[-1] if sites else NO_LINE
    return Evaluations(
        count=count,
        every_steps=every,
        ms=ms,
        share=min(1.0, share * ms / timed_ms) if timed_ms > 0 else share,
        training_ms=every * parts.steady / max(1, anatomy.steps),
        # A model that is asked by other methods than its forward pass has several of those for a batch.
        batches=len(used) / len(typical) if len(used) else float(typical["forwards"].mean()),
        forward_ms=float(typical["forward_us"].mean()) / 1000,
        wait_ms=float(later.sum()) / 1000 / len(typical),
        start_ms=start_us / 1000 / len(typical),
        samples=_samples(process, [loader]),
        training_samples=_samples(process, [one for one in found.training_loaders.tolist() if one != loader]),
        num_workers=made.num_workers if made else 0,
        persistent_workers=bool(made and made.persistent_workers),
        batch_at=made.site if made and isinstance(batch_at, Missing) else batch_at,
        iterated_at=iterated_at,
        asked_at=(None if held_out else _asked_at(process, loader, found.training_loaders)) or iterated_at,
        regular=count > REGULAR_SHARE * len(steps) or (held_out and process.cycle is not None),
        held_out=held_out,
        is_sure=not held_out or (followed is not None and not followed.trained_on),
        by_sample=by_sample(process, _samples(process, [loader])),
        collected=None if held_out else collected(process, found.evaluations["step"], typical["step"]),
    )


def collected(process: ProcessRecording, evaluations: Ints, typical: Ints) -> CollectedOutputs | None:
    """What a trainer keeps of the outputs in each of the `typical` evaluations, by their steps and those of all; None
    where none is known to."""
    calls = [
        call
        for call in process.calls
        # It is written after the step that it was in.
        if call.kind == "collected" and np.isin(evaluations[evaluations < call.step][-1:], typical).any()
    ]
    ms = sum(call.us for call in calls) / 1000
    if not calls or ms <= 0:
        return None
    dearest = max(calls, key=lambda call: call.us)
    return CollectedOutputs(
        at=dearest.site or NO_LINE,
        ms=ms / len(typical),
        bytes=sum(call.bytes for call in calls) / len(typical),
    )


def _asked_at(process: ProcessRecording, loader: int, training: Ints) -> Site | None:
    """The line that asks for evaluations on this loader, in the function in which the loop over batches of training is,
    or else one that leads to both; None where it is the same line that leads to both, as of a trainer."""
    evaluates = [one.stack for one in process.iterators if one.loader == loader]
    trains = [one.stack for one in process.iterators if one.loader in training]
    if not evaluates or not trains:
        return None
    lines = {(site.file, site.function): site.line for site in trains[-1]}
    common = next((site for site in evaluates[-1] if (site.file, site.function) in lines), None)
    return None if common is None or common.line == lines[common.file, common.function] else common


def _mostly(process: ProcessRecording, seen: Columns, training: Ints) -> int:
    """The loader that most batches of these evaluations are of: between two steps there may be several, one after the
    other."""
    within = np.isin(process.batches["step"], seen["step"]) & ~np.isin(process.batches["loader"], training)
    drawn = process.batches["loader"][within]
    return int(np.bincount(drawn if drawn.size else seen["loader"]).argmax())


def decoding(process: ProcessRecording) -> Decoding | None:
    """Sequences written without a cache, in steps that were seen to begin and end."""
    steps = process.steps
    if not len(steps):
        return None
    seen = [one for one in process.decoded if steps["step"][0] <= one.step <= steps["step"][-1]]
    holding = len({one.step for one in seen})
    if not holding:
        return None
    return Decoding(
        ms_per_step=sum(one.us for one in seen) / 1000 / len(steps),
        passes=sum(one.passes for one in seen) / holding,
        every_steps=len(steps) / holding,
        regular=holding > REGULAR_SHARE * len(steps),
        at=seen[0].site,
    )


def unloaded(process: ProcessRecording) -> UnloadedPasses | None:
    """Those of steps that were seen to begin and end."""
    steps = process.steps
    if not len(steps):
        return None
    seen = held(process).inference
    between = (seen["step"] > steps["step"][0]) & (seen["step"] <= steps["step"][-1])
    seen = seen.where(between & (seen["evaluating"] == seen["forwards"]) & (seen["forwards"] >= _MANY))
    if not len(seen):
        return _by_parts(process)
    return UnloadedPasses(
        ms=float(seen["forward_us"].mean()) / 1000,
        passes=float(seen["forwards"].mean()),
        samples=float(seen["samples"].sum() / seen["forwards"].sum()),
        every_steps=len(steps) / len(seen),
        at=process.evaluated[0].site if process.evaluated else NO_LINE,
    )


def _by_parts(process: ProcessRecording) -> UnloadedPasses | None:
    """The same of a model's own method, by the one step that was looked at closely, and as long as such steps are when
    nobody does."""
    window, long = process.between, process.long_steps
    seen = window.parts_called if isinstance(window, BetweenWindow) else None
    if seen is None or long is None:
        return None
    rows = process.steps.where(awaited(process, process.steps["step"]))
    watched, others = (rows["wall_us"][rows["marked"] == marked] for marked in (1, 0))
    longer = float(watched.mean() / others.mean()) if len(watched) and len(others) else 1.0
    return UnloadedPasses(
        ms=seen.us / 1000 / max(1.0, longer),
        passes=float(seen.calls),
        samples=seen.rows / seen.calls,
        every_steps=float(long.length),
        at=seen.site or NO_LINE,
        of_parts=True,
    )


def by_sample(process: ProcessRecording, samples: int) -> tuple[CodeLine, ...] | Missing:
    """Lines that run for each of the samples of a batch after its forward pass; empty where none runs as often as
    there are samples."""
    window = process.evaluation_lines
    if not isinstance(window, LinesWindow):
        return window or Missing("no second batch of an evaluation was seen", "let it run longer (--steps, --to-end)")
    often = [line for line in window.lines if line.part in _AFTER and line.runs_per_step >= samples - 1]
    # The line of a `for` runs once more.
    if not any(line.runs_per_step <= samples + 1 for line in often):
        return ()
    often_ms = sum(line.ms_per_step for line in often)
    once_ms = sum(line.ms_per_step for line in window.lines if line.part == "other" and line not in often)
    total_ms = often_ms + once_ms / _WATCHED
    found = [replace(line, share=line.ms_per_step / total_ms) for line in often]
    return tuple(sorted(found, key=lambda line: (line.site.file, line.site.line)))


def _starts_and_ends(process: ProcessRecording, loaders: set[int]) -> list[tuple[int, int]]:
    """Of the iterators of these loaders: step, and microseconds."""
    return [
        *((made.step, made.us) for made in process.iterators if made.loader in loaders),
        *((ended.step, ended.us) for ended in process.iterators_ended if ended.loader in loaders),
    ]


def _samples(process: ProcessRecording, loaders: Sequence[int]) -> int:
    return max((seen.samples for seen in process.batches_seen if seen.loader in loaders), default=0)
