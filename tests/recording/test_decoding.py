from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from perfdoctor.recording.base import NO_LINE, Missing, Site
from perfdoctor.recording.decoding import Decoder, Undecodable


def _found(file: str, cwd: str = "/home/ann/job", via: str = "") -> Site:
    decoder = Decoder(cwd)
    decoder.add_site({"id": 1, "file": file, "line": 12, "function": "main", "via": via})
    return decoder.decode(Site, 1)


@pytest.mark.parametrize(
    ("file", "cwd", "shown"),
    [
        ("/home/ann/job/train.py", "/home/ann/job", "train.py"),
        ("/home/ann/job/src/train.py", "/home/ann/job/", "src/train.py"),
        ("/home/ann/lib/data.py", "/home/ann/job", "/home/ann/lib/data.py"),
        ("/home/ann/job2/train.py", "/home/ann/job", "/home/ann/job2/train.py"),
        ("/train.py", "/", "train.py"),
        ("/home/ann/job/train.py", "", "/home/ann/job/train.py"),
        ("<stdin>", "/home/ann/job", "<stdin>"),
    ],
)
def test_a_file_below_the_working_directory_is_relative_to_it(file: str, cwd: str, shown: str) -> None:
    assert _found(file, cwd).file == shown


def test_the_line_and_the_function_are_kept() -> None:
    assert _found("/home/ann/job/train.py") == Site("train.py", 12, "main")


@pytest.mark.parametrize(
    ("via", "shown"),
    [
        ("/opt/venv/lib/python3.11/site-packages/lightning/loops/fit.py:advance", "lightning/loops/fit.py:advance"),
        ("/usr/lib/python3/dist-packages/torch/optim/adam.py:step", "torch/optim/adam.py:step"),
        ("/home/ann/framework/loop.py:run", "/home/ann/framework/loop.py:run"),
        ("", ""),
    ],
)
def test_a_library_is_named_from_its_package_on(via: str, shown: str) -> None:
    assert _found("/home/ann/job/train.py", via=via).via == shown


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    ms: float = 0.0
    count: int | None = None
    at: Site | None = None
    seen: Site | Missing = NO_LINE
    rate: float | Missing = NO_LINE


def test_a_number_without_a_place_is_none_or_missing() -> None:
    for number in (-1, 7):
        row = Decoder().decode(Row, {"name": "", "at": number, "seen": number})
        assert (row.at, row.seen) == (None, NO_LINE)
        with pytest.raises(Undecodable):
            Decoder().decode(Site, number)


def test_a_quantity_is_a_value_or_says_why_there_is_none() -> None:
    row = Decoder().decode(Row, {"name": "a", "rate": {"missing": "nobody looked", "remedy": "look"}})
    assert row.rate == Missing("nobody looked", "look")
    assert Decoder().decode(Row, {"name": "a", "rate": 3}).rate == 3.0
    assert Decoder().decode(Row | Missing, {"missing": "no row"}) == Missing("no row")  # type: ignore[arg-type]


def test_what_is_not_a_number_was_written_as_null() -> None:
    row = Decoder().decode(Row, {"name": "a", "ms": None, "count": None})
    assert math.isnan(row.ms) and row.count is None


@pytest.mark.parametrize(
    "record", [{}, {"name": 3}, {"name": "a", "ms": "3"}, {"name": "a", "ms": True}, {"name": "a", "count": 1.5}, [], 3]
)
def test_nothing_is_converted(record: object) -> None:
    with pytest.raises(Undecodable):
        Decoder().decode(Row, record)
