"""What the memory of a step consists of at its peak, and what Python holds, told by the probe of real jobs."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from observing import Observed, Observer, line_of

from perfdoctor.injected._perfdoctor_probe.windows import census
from perfdoctor.injected._perfdoctor_probe.windows.alive import Alive
from perfdoctor.injected._perfdoctor_probe.windows.census import Census
from perfdoctor.injected._perfdoctor_probe.windows.owners import Owners
from perfdoctor.recording.memory import MemoryWindow, ObjectsWindow, PeakOfDevice

BATCH, WIDTH, DEPTH = 512, 512, 4
WEIGHTS = DEPTH * (WIDTH * WIDTH + WIDTH) * 4
"""Bytes of all parameters of the job, in float32."""
SAVED = BATCH * WIDTH * 4
"""Bytes that each of its layers saves for the backward pass."""


@pytest.fixture
def watched(observe: Observer) -> Observed:
    words = ("--batch", str(BATCH), "--zeros", "--steps", "40", "--hoard")
    return observe("memory.py", *words, windows="memory,objects")


def peak(observed: Observed) -> PeakOfDevice:
    window = observed.rank.memory
    assert isinstance(window, MemoryWindow)
    assert window.unwatched == ""
    (device,) = window.devices
    return device


def test_the_job_does_not_notice(watched: Observed) -> None:
    watched.same()
    watched.healthy()


def test_the_kinds_have_the_bytes_that_arithmetic_says(watched: Observed) -> None:
    found = {kind.what: kind.bytes for kind in peak(watched).kinds}
    assert found["parameters"] == WEIGHTS
    assert found["gradients"] == WEIGHTS
    # Two moments of Adam, and a count of steps for each parameter.
    assert found["optimizer_state"] == 2 * WEIGHTS + 2 * DEPTH * 4
    assert found["batch"] == SAVED


@pytest.mark.slow
def test_activations_are_what_was_saved(observe: Observer) -> None:
    """In a job whose backward pass needs most: all of its layers' results are alive as that begins."""
    observed = observe("memory.py", "--batch", "2048", "--zeros", "--steps", "20", windows="memory")
    observed.same()
    device = peak(observed)
    found = {kind.what: kind.bytes for kind in device.kinds}
    assert device.part == "backward"
    assert found["activations"] == pytest.approx(DEPTH * 2048 * WIDTH * 4, rel=0.02)
    layers = [made for made in device.largest if made.what == "activations"]
    assert {(made.layer, made.layer_kind) for made in layers} == {(str(2 * n + 1), "ReLU") for n in range(DEPTH)}
    assert {line_of(made.site) for made in layers} == {"loss = model(inputs).square().mean()"}


def test_the_process_has_at_least_its_tensors(watched: Observed) -> None:
    device = peak(watched)
    assert device.whole_bytes > sum(kind.bytes for kind in device.kinds) + device.mapped_bytes
    assert device.mapped_bytes > 0


def test_what_is_hoarded_grows_by_type(watched: Observed) -> None:
    window = watched.rank.objects
    assert isinstance(window, ObjectsWindow)
    types = {one.name: one for one in window.types}
    gained = {name: one.count - one.count_before for name, one in types.items()}
    assert gained["__main__.Note"] == 50 * window.steps
    tensors = types["torch.Tensor"]
    assert tensors.bytes - tensors.bytes_before >= 256 * WIDTH * 4 * window.steps


def test_what_is_hoarded_is_told_by_line(watched: Observed) -> None:
    window = watched.rank.objects
    assert isinstance(window, ObjectsWindow)
    lines = {line_of(one.site): one for one in window.lines}
    words = lines['self.words = ["kept"] * 100']
    assert words.type == "list"
    assert words.count >= 45 * window.steps  # Python keeps some lists to use again, and notes no line for these
    notes = lines["notes += [Note(step) for _ in range(50)]"]
    assert (notes.type, notes.count) == ("__main__.Note", 50 * window.steps)
    assert words.bytes >= 50 * 100 * 8 * window.steps
    clones = lines["kept.append(inputs[:256].clone())"]
    assert clones.bytes >= 256 * WIDTH * 4 * window.steps


def test_the_peak_has_what_was_alive_then() -> None:
    alive = Alive()
    before = torch.zeros(1000)
    alive.add(before, "held")
    alive.begin()
    large = torch.zeros(5000)
    alive.add(large, "activations")
    alive.add(large[10:], "other")  # a view has no storage of its own
    del large
    after = torch.zeros(3000)
    alive.add(after, "backward")
    found, last = alive.peak("cpu")
    alive.end()
    assert [(storage.what, size) for storage, size in found.values()] == [("held", 4000), ("activations", 20000)]
    assert last is not None
    assert last.what == "activations"


def test_a_storage_that_grows_in_place_counts_with_its_new_size() -> None:
    alive = Alive()
    tensor = torch.zeros(10)
    alive.add(tensor, "other")
    alive.begin()
    tensor.resize_(1000)
    alive.add(tensor, "other")
    found, _ = alive.peak("cpu")
    alive.end()
    assert [size for _, size in found.values()] == [4000]


def test_what_does_not_live_any_more_is_not_kept_alive() -> None:
    alive = Alive()
    for _ in range(3):
        alive.add(torch.zeros(100), "other")
    alive.add(torch.zeros(100).to_sparse(), "other")
    assert alive.level == {"cpu": 0}
    assert alive.storages == {}


def test_shared_parameters_have_one_owner_and_count_once() -> None:
    first, second = torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 8, bias=False)
    second.weight = first.weight
    optimizer = torch.optim.SGD([first.weight], lr=0.1, momentum=0.9)
    second(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    alive = Alive()
    gradient, momentum = first.weight.grad, optimizer.state[first.weight]["momentum_buffer"]
    for one in (first.weight, second.weight, gradient, momentum):
        alive.add(one, "other")
    Owners().claim(alive)
    found = sorted((storage.what, storage.size) for storage in alive.storages.values())
    alive.end()
    assert found == [("gradients", 256), ("optimizer_state", 256), ("parameters", 256)]


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that runs thousands of tests has more objects than a census has time for."""
    monkeypatch.setattr(census, "_LONGEST_NS", 1 << 60)


class _Awkward:
    """Whose size nobody may ask."""

    def __sizeof__(self) -> int:
        raise AssertionError

    def __init__(self) -> None:
        self.values = np.zeros(1000)
        self.views = [self.values[:10], self.values[10:]]


@pytest.mark.usefixtures("unhurried")
def test_a_census_runs_none_of_the_jobs_code_and_counts_data_once() -> None:
    gc.collect()
    before = Census()
    kept = [_Awkward() for _ in range(10)]
    after = Census()
    assert after.types[_Awkward][0] == len(kept)
    assert after.types[np.ndarray][0] - before.types.get(np.ndarray, [0])[0] == 30
    assert after.types[np.ndarray][2] - before.types.get(np.ndarray, [0, 0, 0])[2] == 10 * 8000


@pytest.mark.usefixtures("unhurried")
def test_no_type_has_more_than_there_is() -> None:
    """A generator's length is no count of anything."""
    kept = (number for number in range(3))
    next(kept)
    found = Census().types
    assert found[type(kept)][1] < 1000 * found[type(kept)][0]
    assert sum(own for _, own, _ in found.values()) < 1 << 31


@pytest.mark.usefixtures("unhurried")
def test_a_census_does_not_count_the_one_before() -> None:
    before = Census()
    after = Census(besides=before)
    assert after.types[list][0] - before.types[list][0] < len(before.types) / 2
