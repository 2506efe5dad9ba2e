"""The charts of a page: what of a run is drawn, and the scripts that draw it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ....diagnosis.diagnoses import Diagnosis
from ....evidence.model import Missing
from ....evidence.steady import measure, select, untouched
from ....evidence.windows import trace as kept_trace
from ....profiles.build import build as profiles_of
from ....profiles.tree import tree
from ....recording.directory import RunDirectory
from ....recording.model import ProcessRecording, Recording
from ....recording.nodes import ranks as ranks_of
from ....recording.nodes import read_recordings
from ....traces.reader import read as read_trace
from ....traces.source import find
from ... import wording
from .distributions import distributions_chart
from .flame import flame_chart
from .lanes import lanes_of_run, lanes_of_trace
from .model import Chart
from .ranks import MOST_ROWS, ranks_chart
from .steps import steps_chart


def build(diagnosis: Diagnosis, recorded: Sequence[Path]) -> dict[str, Chart]:
    """The charts by name, in their order on the page; `recorded` is the run's directory, or the files of a trace."""
    if not recorded:
        return {}
    made = _of_traces(diagnosis, recorded) if diagnosis.evidence.job.traced else _of_run(diagnosis, recorded[0])
    return {name: chart for name, chart in made if chart is not None}


def _of_run(diagnosis: Diagnosis, path: Path) -> Iterator[tuple[str, Chart | None]]:
    found = read_recordings(RunDirectory(path))
    told = [one for _, recording in found for one in recording.ranks if one.rank == diagnosis.evidence.rank]
    ranks = ranks_of((pair, pair[1]) for pair in ((where, recording.in_full(told)) for where, recording in found))
    own = next((pair for pair in ranks if pair[1].rank == diagnosis.evidence.rank), None)
    if own is None:
        return
    (directory, recording), process = own
    selection = select(untouched(process))
    yield "steps", steps_chart(process, selection)
    yield "distributions", None if isinstance(selection, Missing) else distributions_chart(selection)
    yield "ranks", _ranks(diagnosis, [process for _, process in ranks])
    yield "lanes", _lanes(directory, process)
    yield "flame", _flame(recording, process.rank)


def _of_traces(diagnosis: Diagnosis, paths: Sequence[Path]) -> Iterator[tuple[str, Chart | None]]:
    yield "ranks", _ranks(diagnosis, ())
    files = [file for path in paths for file in find(path).paths]
    traces = (read_trace(file) for file in files)
    of_rank = next((one for one in traces if len(files) == 1 or one.rank == diagnosis.evidence.rank), None)
    yield "lanes", None if of_rank is None else lanes_of_trace(of_rank)


def _ranks(diagnosis: Diagnosis, ranks: Sequence[ProcessRecording]) -> Chart | None:
    """In the steps that are steady on all of them where they wait for each other, else each in its own."""
    together = diagnosis.evidence.communication
    if not isinstance(together, Missing):
        return ranks_chart({times.rank: times.parts for times in together.ranks}, together)
    parts = {}
    for process in map(untouched, ranks[:: -(-len(ranks) // MOST_ROWS) or 1]):
        selection = select(process)
        if not isinstance(selection, Missing):
            parts[process.rank] = measure(process, selection).parts
    return ranks_chart(parts, together)


def _flame(recording: Recording, rank: int) -> Chart | None:
    """Of the rank's training thread; None of a run that was not made by `perfdoctor profile`."""
    profiles = profiles_of(recording.read_wholly())
    if isinstance(profiles, Missing):
        return None
    profile = next((one for one in profiles if one.name == f"rank {rank}"), profiles[0])
    caption = (
        f"{wording.count(profile.samples)} samples in {wording.count(profile.count)} steady steps of "
        f"{wording.duration(profile.total_ms)}: by part of the step, then by what calls what."
    )
    return flame_chart(tree(profile), caption)


def _lanes(directory: RunDirectory, process: ProcessRecording) -> Chart | None:
    """None where no trace was kept, and where it is no more what torch wrote."""
    kept = kept_trace(process)
    if isinstance(kept, Missing):
        return None
    try:
        return lanes_of_run((directory.path / Path(kept.file).name).read_bytes(), kept)
    except (OSError, ValueError):
        return None
