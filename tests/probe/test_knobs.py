"""Lines that set the number of threads, switch oneDNN off or make a model float64 are noted, and do what they did."""

from __future__ import annotations

import pytest
from observing import Observed, Observer, line_of

from perfdoctor.recording.base import Site

pytestmark = pytest.mark.slow

DOUBLE = ("double_by_type", "double_by_name", "double_by_tensor")


@pytest.fixture
def seen(observe: Observer) -> Observed:
    styles = ("assigned", "configured", "called", "enclosed", "untouched", "traced", "tracing")
    return observe("knobs.py", *styles, *DOUBLE)


def test_the_job_does_the_same(seen: Observed) -> None:
    seen.same()
    seen.healthy()
    assert seen.bare.stdout.count("knobs 1 False") == 3 and seen.bare.stdout.count("knobs 1 True") == 4
    assert seen.bare.stdout.count("type torch.float64") == len(DOUBLE)


@pytest.mark.parametrize(
    ("style", "threads", "onednn"),
    [
        ("assigned", "torch.set_num_threads(1)", "torch.backends.mkldnn.enabled = False"),
        ("configured", 'CONFIG = {"threads": 1}', ""),
        ("called", "", "torch.backends.mkldnn.set_flags(False)"),
        ("enclosed", "", "flags = torch.backends.mkldnn.flags(deterministic=False)"),
        ("untouched", "", ""),
    ],
)
def test_the_line_is_noted(seen: Observed, style: str, threads: str, onednn: str) -> None:
    settings = seen.named(style).settings
    assert settings is not None
    assert line_of(settings.threads.set_at) == threads
    assert line_of(settings.backend.onednn_off_at) == onednn


@pytest.mark.parametrize(("style", "tracer"), [("untouched", ""), ("traced", "knobs")])
def test_who_traces_every_line_is_noted(seen: Observed, style: str, tracer: str) -> None:
    settings = seen.named(style).settings
    assert settings is not None
    assert settings.tracer in (tracer, "traced.<locals>.<lambda>" if tracer else "")


@pytest.mark.parametrize(("style", "frames"), [("untouched", 0), ("tracing", 3)])
def test_how_deep_allocations_are_traced_is_noted(seen: Observed, style: str, frames: int) -> None:
    settings = seen.named(style).settings
    assert settings is not None
    assert settings.traced_frames == frames
    assert line_of(settings.traced_at) == ("tracemalloc.start(3)" if frames else "")


@pytest.mark.parametrize("style", DOUBLE)
def test_the_line_that_makes_a_model_float64_is_noted(seen: Observed, style: str) -> None:
    settings = seen.named(style).settings
    assert settings is not None
    assert line_of(settings.precision.double_site).endswith("# here")
    assert isinstance(settings.precision.double_site, Site)
    assert settings.precision.double_site.function == style
