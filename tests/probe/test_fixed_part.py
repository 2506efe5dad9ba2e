"""What comes first in a sample that differs each time, and is the same: followed in data sets of several styles."""

from __future__ import annotations

import itertools
import random
import sys
from types import CodeType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import fixed_part as module
from perfdoctor.injected._perfdoctor_probe.microbenchmarks.fixed_part import fixed_part, made_at
from perfdoctor.injected._perfdoctor_probe.windows import draws

WAVES = np.random.default_rng(0).normal(size=(4, 256))
COINS = np.random.default_rng(1)


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock that `prepared` moves."""
    passed = [0]
    monkeypatch.setattr(module, "_clock", lambda: passed[0])
    monkeypatch.setitem(globals(), "PASSED", passed)
    return passed


PASSED = [0]


def spends(ms: int) -> None:
    PASSED[0] += ms * 1_000_000


def prepared(wave: np.ndarray) -> np.ndarray:
    spends(30)
    return np.abs(np.fft.rfft(wave))


class Waves(Dataset[Any]):
    def __len__(self) -> int:
        return 4


class Rolled(Waves):
    def __getitem__(self, index: int) -> torch.Tensor:
        image = torch.from_numpy(prepared(WAVES[index]))
        image = image.roll(int(torch.randint(0, 6, ())), 0)
        spends(10)
        return image


class Inline(Waves):
    def __getitem__(self, index: int) -> np.ndarray:
        wave = WAVES[index] - WAVES[index].mean()
        spends(60)
        if random.random() < 0.5:
            wave = wave[::-1]
        spends(20)
        return wave


class Composed(Waves):
    def __init__(self) -> None:
        self.steps = [prepared, self.noisy]
        self.rng = np.random.default_rng(0)

    def noisy(self, wave: np.ndarray) -> np.ndarray:
        spends(10)
        return wave + self.rng.normal(size=wave.shape)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.transformed(WAVES[index])

    def transformed(self, wave: np.ndarray) -> np.ndarray:
        for step in self.steps:
            wave = step(wave)
        return wave


class Pictures(Waves):
    def __getitem__(self, index: int) -> np.ndarray:
        picture = Image.fromarray((255 * np.abs(WAVES[index])).astype(np.uint8).reshape(16, 16)).resize((32, 32))
        spends(40)
        left = random.randint(0, 16)
        return np.asarray(picture)[:, left : left + 16]


STYLES: dict[str, tuple[Dataset[Any], float, tuple[str, int], tuple[str, int]]] = {
    "a function": (Rolled(), 0.75, ("__getitem__", 1), ("__getitem__", 2)),
    "in line": (Inline(), 0.75, ("__getitem__", 2), ("__getitem__", 3)),
    "composed": (Composed(), 1.0, ("prepared", 1), ("noisy", 2)),
    "a picture": (Pictures(), 1.0, ("__getitem__", 2), ("__getitem__", 3)),
    "a subset": (Subset(Rolled(), [2, 1]), 0.75, ("__getitem__", 1), ("__getitem__", 2)),
}


def followed(dataset: Dataset[Any], index: int = 1) -> dict[str, Any] | None:
    kept = draws.kept_by(dataset, 4)
    return fixed_part(
        dataset, index, UsersFile(__file__), lambda: (draws.state(), draws.of_python(), draws.state_of(kept))
    )


@pytest.mark.parametrize(("dataset", "share", "at", "drawn_at"), STYLES.values(), ids=STYLES)
def test_what_comes_before_anything_random_is_told_with_its_dearest_line(
    dataset: Dataset[Any], share: float, at: tuple[str, int], drawn_at: tuple[str, int]
) -> None:
    found = followed(dataset)
    assert found is not None
    assert (found["share"], found["at"], found["drawn_at"]) == (pytest.approx(share), at, drawn_at)
    assert found["bytes"] > 16 * 16


class RandomFirst(Waves):
    def __getitem__(self, index: int) -> np.ndarray:
        shift = random.randint(0, 5)
        return np.roll(prepared(WAVES[index]), shift)


class Fresh(Waves):
    """A generator of its own for each sample, which nobody can look at beforehand."""

    def __getitem__(self, index: int) -> np.ndarray:
        spends(30)
        rng = np.random.default_rng()
        return prepared(WAVES[index]) + rng.normal(size=129)


class Counting(Waves):
    """Which time it is asked decides what it holds."""

    def __init__(self) -> None:
        self.asked = itertools.count()

    def __getitem__(self, index: int) -> np.ndarray:
        wave = prepared(WAVES[index] * next(self.asked))
        return wave + np.random.rand()


class Elements(Waves):
    def __getitem__(self, index: int) -> float:
        total = 0.0
        for _ in range(module._MOST):
            total += index
        return total + random.random()


@pytest.mark.parametrize(
    "dataset", [RandomFirst(), Fresh(), Counting(), Elements()], ids=lambda one: type(one).__name__
)
def test_nothing_is_told_of_what_is_random_from_the_start_or_not_known(dataset: Dataset[Any]) -> None:
    assert followed(dataset) is None


def test_what_raises_leaves_nothing_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails(Waves):
        def __getitem__(self, index: int) -> Any:
            raise LookupError(index)

    with pytest.raises(LookupError):
        followed(Fails())
    import sys

    assert sys.gettrace() is None


# ---------------------------------------------------------------------------------------------------------
# Samples that are the same each time


class Prepared(Waves):
    def __getitem__(self, index: int) -> np.ndarray:
        wave = WAVES[index] - WAVES[index].mean()
        return prepared(wave)


class Around(Waves):
    def __init__(self, inner: Dataset[Any]) -> None:
        self.inner = inner

    def __getitem__(self, index: int) -> np.ndarray:
        wave = self.inner[index]
        return wave[:8]


class Costly(Around):
    def __getitem__(self, index: int) -> np.ndarray:
        wave = self.inner[index]
        spends(60)
        return wave


class InClasses(UsersFile):
    def at(self, code: CodeType, line: int) -> tuple[str, int]:
        """The method with its class, and the line within it."""
        return code.co_qualname, line - code.co_firstlineno


@pytest.mark.parametrize(
    ("dataset", "at"),
    [
        (Prepared(), ("Prepared.__getitem__", 2)),
        (Subset(Prepared(), [2, 1]), ("Prepared.__getitem__", 2)),
        (Around(Prepared()), ("Prepared.__getitem__", 2)),
        (Costly(Prepared()), ("Costly.__getitem__", 2)),
    ],
    ids=["a helper", "a subset", "one around another", "a costly one around another"],
)
def test_where_a_data_set_makes_the_same_again_is_its_own_line(dataset: Dataset[Any], at: tuple[str, int]) -> None:
    assert made_at(dataset, 1, InClasses(__file__)) == at


def test_a_librarys_data_set_has_no_line() -> None:
    assert made_at(torch.utils.data.TensorDataset(torch.ones(4)), 1, UsersFile(__file__)) == -1


def test_nobody_is_traced_who_is_traced_already() -> None:
    sys.settrace(lambda *_: None)
    try:
        assert made_at(Prepared(), 1, UsersFile(__file__)) == -1
    finally:
        sys.settrace(None)
