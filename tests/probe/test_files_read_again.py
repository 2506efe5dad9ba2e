"""Files that the user's code reads again through functions of libraries."""

from __future__ import annotations

import itertools
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from following import followed
from PIL import Image
from scipy.io import wavfile

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.windows import followed as follower

SAMPLES = np.random.default_rng(0).normal(size=(200, 300)).astype(np.float32)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez_compressed("day.npz", wave=SAMPLES, kind=np.arange(200))
    np.save("day.npy", SAMPLES)
    torch.save({"wave": torch.from_numpy(SAMPLES)}, "day.pt")
    wavfile.write("day.wav", 8000, SAMPLES[:, 0])
    Path("day.json").write_text(json.dumps(SAMPLES.tolist()))
    Path("day.txt").write_text(str(SAMPLES.tolist()))
    Image.fromarray((SAMPLES * 50).clip(0, 255).astype(np.uint8)).save("day.png")
    with zipfile.ZipFile("day.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write("day.txt")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that moves by a millisecond whenever it is asked: what reading takes here depends on who else computes."""
    ticks = itertools.count(0, 1_000_000).__next__
    for module in (follower, timeline):
        monkeypatch.setattr(module, "_clock", ticks)
    monkeypatch.setattr(follower, "_delay", lambda: 0)


def seen(step: Callable[[], object]) -> list[dict[str, Any]]:
    """What was read again in three steps."""
    return [row for row in followed(step, __file__, 3, timeline.INPUT) if row["reads"]]


class Days:
    """A data set of one day's recordings, of which samples are parts."""

    def __init__(self) -> None:
        self.archive = np.load("day.npz")
        self.picture = Image.open("day.png")
        self.picture.load()
        self.members = zipfile.ZipFile("day.zip")

    def lazily(self, index: int) -> np.ndarray:
        return self.archive["wave"][index]

    def decoded(self, index: int) -> np.ndarray:
        picture = Image.open("day.png")
        picture = picture.convert("RGB")
        return np.asarray(picture)[index]

    def decoded_by_numpy(self, index: int) -> np.ndarray:
        picture = Image.open("day.png")
        return np.asarray(picture)[index]

    def decoded_once(self, index: int) -> np.ndarray:
        return np.asarray(self.picture.convert("L"))[index]

    def of_members(self, index: int) -> int:
        return self.members.read("day.txt")[index]

    def by_numpy(self, index: int) -> np.ndarray:
        return np.load("day.npy")[index]

    def by_torch(self, index: int) -> torch.Tensor:
        return torch.load("day.pt")["wave"][index]

    def by_scipy(self, index: int) -> float:
        return wavfile.read("day.wav")[1][index]

    def as_text(self, index: int) -> str:
        return Path("day.txt").read_text()[index : index + 8]

    def by_path(self, index: int) -> np.ndarray:
        return np.load(Path("day.npy"))[index]

    def opened(self, index: int) -> list[float]:
        """More numbers than are compared."""
        with Path("day.json").open() as file:
            samples = json.load(file)
        return samples[index]

    def written_anew(self, index: int) -> list[float]:
        Path("day.json").write_text(json.dumps(SAMPLES.tolist()))
        with Path("day.json").open() as file:
            samples = json.load(file)
        return samples[index]

    def opened_as_bytes(self, index: int) -> np.ndarray:
        with Path("day.npy").open("rb") as file:
            return np.load(file)[index]

    def another_one_opened(self, index: int) -> list[float]:
        Path(f"{index}.json").write_text(json.dumps(SAMPLES[index].tolist()))
        with Path(f"{index}.json").open() as file:
            return json.load(file)

    def another(self, index: int) -> np.ndarray:
        np.save(f"{index}.npy", SAMPLES[index])
        return np.load(f"{index}.npy")


LINES = {Days.opened: 3, **dict.fromkeys((Days.opened_as_bytes, Days.decoded, Days.decoded_by_numpy), 2)}
"""Within the function, from its first; 1 of all others."""


def _asked(read: Callable[[Days, int], object], of_each: int = 4) -> Callable[[], object]:
    days, numbers = Days(), iter(range(200))
    return lambda: [read(days, next(numbers)) for _ in range(of_each)]


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (Days.lazily, "NpzFile.__getitem__"),
        (Days.of_members, "ZipFile.read"),
        (Days.decoded, "Image.convert"),
        (Days.decoded_by_numpy, "Image.load"),
        (Days.by_numpy, "numpy.load"),
        (Days.by_path, "numpy.load"),
        (Days.by_torch, "torch.load"),
        (Days.by_scipy, "scipy.io.wavfile.read"),
        (Days.as_text, "Path.read_text"),
        (Days.opened, "json.load"),
        (Days.opened_as_bytes, "numpy.load"),
    ],
)
def test_a_file_that_is_read_for_each_sample_is_told_at_the_line_that_asks(
    read: Callable[[Days, int], object], name: str
) -> None:
    rows = {row["function"]: row for row in seen(_asked(read))}
    row = rows.pop(name)
    assert rows.keys() <= {"PIL.Image.open"}
    assert (row["calls_per_step"], row["arguments"]) == (4.0, 1)
    assert row["at"] == (read.__name__, LINES.get(read, 1)) and row["ms_per_step"] > 0


@pytest.mark.parametrize("read", [Days.another, Days.another_one_opened, Days.written_anew, Days.decoded_once])
def test_a_file_for_each_sample_is_not_nor_one_that_was_written_since(read: Callable[[Days, int], object]) -> None:
    assert seen(_asked(read)) == []


def test_a_file_that_has_changed_is_read_for_a_reason() -> None:
    numbers = iter(range(100))

    def step() -> None:
        np.save("day.npy", SAMPLES + next(numbers))
        np.load("day.npy")

    assert seen(step) == []


def test_of_two_lines_the_one_that_reads_more_often_is_told() -> None:
    def step() -> None:
        np.load("day.npy")
        for _ in range(3):
            np.load("day.npy")

    (row,) = seen(step)
    assert row["calls_per_step"] == 4.0 and row["at"] == ("step", 3)


def test_what_a_library_reads_by_itself_is_its_own() -> None:
    from numpy.lib import _npyio_impl

    code = compile("def read(): return load('day.npy')", _npyio_impl.__file__, "exec")
    names = {"load": np.load}
    exec(code, names)
    assert seen(lambda: names["read"]()) == []  # type: ignore[operator]
