"""Which of the loaders that a job has made count as one, and whose batches were made where."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from ..recording.loading import LoaderGiven, LoaderMade
from ..recording.model import Columns, ProcessRecording
from .model import Site
from .steady import Selection


def alike(process: ProcessRecording, selection: Selection) -> list[list[LoaderMade]]:
    """The loaders that the steady steps drew from; those that one line has made alike, one for each epoch or fold,
    count as one.

    So do those that differ in the length of their data sets, where the loop drew from one after the other: folds, or a
    buffer that grows. Those that it drew from by turns are several: a function may make all of a job's loaders.
    """
    steady = process.batches.where(np.isin(process.batches["step"], selection.column("step")))
    groups: dict[LoaderMade, list[LoaderMade]] = {}
    for made in process.loaders:
        groups.setdefault(replace(made, id=0) if isinstance(made.site, Site) else made, []).append(made)
    joined: dict[LoaderMade, list[list[LoaderMade]]] = {}
    for key, group in groups.items():
        if np.isin(steady["loader"], [made.id for made in group]).any():
            joined.setdefault(replace(key, length=None), []).append(group)
    return [one for groups_of_line in joined.values() for one in _in_turn(groups_of_line, steady)]


def _in_turn(groups: list[list[LoaderMade]], steady: Columns) -> list[list[LoaderMade]]:
    """One group of several, where the batches of one end before those of the next begin."""
    spans = []
    for group in groups:
        steps = steady["step"][np.isin(steady["loader"], [made.id for made in group])]
        spans.append((int(steps[0]), int(steps[-1])))
    ordered = sorted(range(len(groups)), key=spans.__getitem__)
    if any(spans[later][0] < spans[earlier][1] for earlier, later in pairwise(ordered)):
        return groups
    return [[made for place in ordered for made in groups[place]]]


def given_to(process: ProcessRecording, ids: Collection[int]) -> LoaderGiven:
    """Where it was decided what the first of these loaders was given of which that is known."""
    return next((given for given in process.given if given.loader in ids), LoaderGiven(-1))


def started_by(
    process: ProcessRecording, workers: Sequence[ProcessRecording], ids: Collection[int]
) -> list[ProcessRecording]:
    """The workers of these loaders; where none is known to be theirs, those of which nothing is known."""
    loaders = {pid: made.loader for made in process.iterators for pid in made.workers}
    theirs = [worker for worker in workers if loaders.get(worker.header.pid) in ids]
    return theirs or [worker for worker in workers if worker.header.pid not in loaders]


def made_for(fetches: Columns, ids: Collection[int]) -> Columns:
    """Batches of these loaders; where none is known to be theirs, those of which nothing is known."""
    theirs = np.isin(fetches["loader"], list(ids))
    return fetches.where(theirs if theirs.any() else fetches["loader"] < 0)


def are_told_apart(process: ProcessRecording) -> bool:
    """Whether it is known of any batch which loader it was made for: older recordings do not say."""
    return bool((process.fetches["loader"] >= 0).any()) or any(made.workers for made in process.iterators)
