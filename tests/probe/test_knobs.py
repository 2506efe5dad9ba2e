"""Lines that set the number of threads, switch oneDNN off or make a model float64 are noted, and do what they did."""

from __future__ import annotations

import linecache

import pytest
from observing import Observed, Observer

from perfdoctor.recording.model import ProcessRecording

DOUBLE = ("double_by_type", "double_by_name", "double_by_tensor")


@pytest.fixture
def seen(observe: Observer) -> Observed:
    return observe("knobs.py", "assigned", "called", "untouched", *DOUBLE)


def line(process: ProcessRecording, site: int) -> str:
    """The text of the line; nothing where none is noted."""
    place = process.sites.get(site)
    return linecache.getline(place.file, place.line).strip() if place else ""


def test_the_job_does_the_same(seen: Observed) -> None:
    seen.same()
    seen.healthy()
    assert seen.bare.stdout.count("knobs 1 False") == 2 and seen.bare.stdout.count("knobs 1 True") == 1
    assert seen.bare.stdout.count("type torch.float64") == len(DOUBLE)


@pytest.mark.parametrize(
    ("style", "threads", "onednn"),
    [
        ("assigned", "torch.set_num_threads(1)", "torch.backends.mkldnn.enabled = False"),
        ("called", "", "torch.backends.mkldnn.set_flags(False)"),
        ("untouched", "", ""),
    ],
)
def test_the_line_is_noted(seen: Observed, style: str, threads: str, onednn: str) -> None:
    process = seen.named(style)
    assert process.settings is not None
    assert line(process, process.settings.threads_site) == threads
    assert line(process, process.settings.onednn_site) == onednn


@pytest.mark.parametrize("style", DOUBLE)
def test_the_line_that_makes_a_model_float64_is_noted(seen: Observed, style: str) -> None:
    process = seen.named(style)
    assert process.settings is not None
    assert line(process, process.settings.double_site).endswith("# here")
    assert process.sites[process.settings.double_site].function == style
