from __future__ import annotations

import pytest

from perfdoctor.evidence.model import Missing, Site
from perfdoctor.evidence.places import Places
from perfdoctor.recording.model import CodeSite


def _found(file: str, cwd: str = "/home/ann/job", via: str = "") -> Site:
    site = Places({1: CodeSite(1, file, 12, "main", via)}, cwd).find(1)
    assert site is not None
    return site


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


def test_a_number_without_a_place_is_none_or_missing() -> None:
    places = Places({}, "/home/ann/job")
    assert places.find(-1) is None
    assert isinstance(places.site(-1), Missing)
