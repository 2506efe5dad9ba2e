"""Lines that make tensors of NumPy's numbers in float64, and what is computed with those."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.guard import Guard
from perfdoctor.injected._perfdoctor_probe.hooks import doubles as module
from perfdoctor.injected._perfdoctor_probe.hooks.anomaly import Anomaly
from perfdoctor.injected._perfdoctor_probe.hooks.doubles import Doubles
from perfdoctor.injected._perfdoctor_probe.windows.call_sites import SitesWindow

FROM_NUMPY = torch.from_numpy


class Sites:
    """Counts the places that it is asked for."""

    asked = 0

    def place(self, depth: int) -> tuple[str, int]:
        self.asked += 1
        return "train.py", self.asked

    def number(self, place: tuple[str, int]) -> int:
        return 100 + place[1]

    def stack(self, frame: object, packages: bool = False) -> list[tuple[str, int, str]]:
        return []

    def is_library(self, file: str) -> bool:
        return False

    def call(self, depth: int, thread: int) -> tuple[int, tuple[int, int], None]:
        return 9, (1, 2), None

    def here(self, depth: int = 1) -> int:
        return 9


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return function


@pytest.fixture
def noted() -> Doubles:
    return Doubles(Sites())


def test_the_line_is_known_as_long_as_the_memory_is_shared(noted: Doubles) -> None:
    from_numpy = noted.following(FROM_NUMPY, _guarded)
    table = from_numpy(np.zeros((40, 8)))
    assert noted.origin(table) == noted.origin(table[3:].T) == 101
    assert noted.origin(table.float()) == -1
    assert from_numpy.__name__ == "from_numpy"


def test_what_is_computed_of_one_tells_the_only_line_that_made_so_many_numbers(noted: Doubles) -> None:
    from_numpy = noted.following(FROM_NUMPY, _guarded)
    spectrum = torch.fft.fft2(from_numpy(np.zeros((40, 8))))
    assert noted.origin(spectrum) == 101 and noted.origin(spectrum[:, :2]) == -1
    other = from_numpy(np.zeros(320))
    assert noted.origin(other) == 102 and noted.origin(spectrum) == -1, "two lines may have"


@pytest.mark.parametrize("of_all", [True, False], ids=["of a data set's", "of one"])
def test_a_batch_tells_the_only_line_that_made_such_samples(noted: Doubles, of_all: bool) -> None:
    from_numpy = noted.following(FROM_NUMPY, _guarded)
    samples = from_numpy(np.zeros((40, 6, 8) if of_all else (6, 8)))
    batch = torch.stack([samples[0] if of_all else samples] * 4)
    assert noted.origin(batch) == noted.origin(batch.unsqueeze(1)) == 101
    assert noted.origin(torch.stack([batch[0, :, :4]] * 4)) == -1, "of another shape"
    from_numpy(np.zeros((12, 6, 8)))
    assert noted.origin(batch) == -1, "one of two"


def test_others_and_single_numbers_are_not_looked_up(noted: Doubles) -> None:
    from_numpy = noted.following(FROM_NUMPY, _guarded)
    assert noted.origin(from_numpy(np.zeros(1000, np.float32))) == noted.origin(from_numpy(np.zeros(1))) == -1
    assert noted.origin(from_numpy(np.zeros(5))) == 101, "a few frequencies make all else float64"


def test_so_many_are_known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 2)
    noted = Doubles(Sites())
    from_numpy = noted.following(FROM_NUMPY, _guarded)
    made = [from_numpy(np.zeros(100)) for _ in range(5)]
    assert [noted.origin(one) for one in made] == [101, 102, -1, -1, -1]


def test_those_that_are_gone_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    noted = Doubles(Sites())
    from_numpy = noted.following(FROM_NUMPY, _guarded)
    for _ in range(10):
        from_numpy(np.zeros(100))
    kept = from_numpy(np.zeros(100))
    assert noted.origin(kept) == 111 and len(noted.made) <= 3


@pytest.mark.parametrize(
    ("meets", "numbers"), [(torch.float32, np.float64), (torch.float64, np.float64), (torch.complex64, np.complex128)]
)
def test_what_is_computed_with_them_tells_their_line(noted: Doubles, meets: torch.dtype, numbers: type) -> None:
    weight = noted.following(FROM_NUMPY, _guarded)(np.ones((8, 8), numbers))
    loop = SimpleNamespace(timeline=SimpleNamespace(stack=[timeline.OTHER], step=0), optimizer_steps=0)
    anomaly = Anomaly(SimpleNamespace(here=lambda: 5), Guard(lambda hook, error: None))
    window = SitesWindow(Sites(), loop, anomaly, compiled=False, doubles=noted)
    x = torch.ones(8, 8, dtype=meets)
    window.open()
    made = x @ weight if meets is torch.float64 else x * weight
    calls = window.close(1)["calls"]
    assert made.dtype is weight.dtype
    assert [call["site"] for call in calls if call["kind"] == "from_numpy"] == [101]
