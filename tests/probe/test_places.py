"""Lines of whole jobs: of a program, of an installed package, and of one whose loop runs on a thread."""

from __future__ import annotations

import linecache
import mmap
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from observing import JOBS, Observed, Observer

from perfdoctor.injected._perfdoctor_probe import procfs
from perfdoctor.recording.base import Missing, Site
from perfdoctor.recording.layers import Layer, LayerProfile
from perfdoctor.recording.lines import CallSite, Line, SitesWindow
from perfdoctor.recording.model import ProcessRecording
from perfdoctor.recording.operators import OpsWindow

Run = Callable[[str], Observed]


@pytest.fixture
def program(observe: Observer) -> Run:
    return lambda style: observe("places.py", style)


@pytest.fixture
def package(observe: Observer, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same job, installed and started with `python -m`."""

    def run(style: str) -> Observed:
        folder = tmp_path_factory.getbasetemp() / "site-packages"
        inside = folder / "pondlab"
        inside.mkdir(parents=True, exist_ok=True)
        (inside / "__init__.py").touch()
        (inside / "places.py").write_text((JOBS / "places.py").read_text())
        command = [sys.executable, "-m", "pondlab.places", style]
        return observe("", command=command, env={"PYTHONPATH": str(folder)})

    return run


@pytest.fixture(params=["program", "package"])
def run(request: pytest.FixtureRequest) -> Run:
    return request.getfixturevalue(request.param)


def text(site: Site | Missing | None) -> str:
    """What the comment on a line says; "" without one."""
    if not isinstance(site, Site):
        return ""
    return linecache.getline(str(JOBS / Path(site.file).name), site.line).rpartition("# ")[2].strip()


def calls(process: ProcessRecording, kind: str) -> list[CallSite]:
    assert isinstance(process.call_sites, SitesWindow)
    return [call for call in process.call_sites.calls if call.kind == kind]


def lines(process: ProcessRecording) -> tuple[Line, ...]:
    assert isinstance(process.call_sites, SitesWindow)
    return process.call_sites.lines


def layers(process: ProcessRecording) -> dict[str, Layer]:
    assert isinstance(process.ops, OpsWindow) and isinstance(process.ops.layers, LayerProfile)
    return {layer.name or layer.kind: layer for layer in process.ops.layers.layers}


@pytest.mark.slow
def test_layers_know_what_calls_and_what_makes_them(run: Run) -> None:
    seen = run("train")
    seen.same()
    seen.healthy()
    found = layers(seen.rank)
    assert text(found["mix.project"].called_at) == "calls project"
    assert (text(found["head"].called_at), text(found["head"].made_at)) == ("calls head", "makes head")
    assert text(found["body.1"].made_at) == "makes norm"
    assert isinstance(seen.rank.ops, OpsWindow)
    assert text(seen.rank.ops.profile.optimizer_at) == "makes optimizer"


@pytest.mark.slow
@pytest.mark.parametrize("style", ["train", "thread"])
def test_lines_of_what_is_computed(run: Run, style: str) -> None:
    seen = run(style)
    seen.same()
    seen.healthy()
    assert {text(call.site) for call in calls(seen.rank, "softmax")} == {"softmax"}
    (making,) = [line for line in lines(seen.rank) if (4, 16, 8) in line.shapes]
    assert text(making.site) == "batch"
    assert seen.rank.settings is not None
    assert text(seen.rank.settings.threads.set_at) == "threads"
    assert {Path(line.site.file).name for line in lines(seen.rank)} == {"places.py"}


def test_memory_that_is_touched_for_the_first_time_is_faulted_in() -> None:
    faults = procfs.PageFaults()
    before = faults.read()
    with mmap.mmap(-1, 64 * mmap.PAGESIZE) as memory:
        for page in range(64):
            memory[page * mmap.PAGESIZE] = 1
    assert faults.read() - before >= 64
