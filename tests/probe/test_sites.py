"""From a stack to the line of the user's, by files that lie where libraries, packages and programs do."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from perfdoctor.injected._perfdoctor_probe.sites import Sites, is_package

PACKAGES = "/usr/lib/python3/site-packages/"
SCRIPT = str(Path(sys.executable).parent / "pondlab")
THREADING = threading.__file__

Place = tuple[str, int, str]


class Written:
    """What the recording would hold: the places by their number."""

    def __init__(self) -> None:
        self.places: dict[int, Place] = {}
        self.via: list[str] = []

    def record(self, kind: str, *, id: int, file: str, line: int, function: str, via: str = "", **_: Any) -> None:
        self.places[id] = file, line, function
        self.via.append(via)


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture
def sites(written: Written) -> Sites:
    return Sites(written)


def calling(file: str, inner: Callable[[], Any], name: str = "run") -> Callable[[], Any]:
    """A function of that file, which calls `inner` in its second line."""
    namespace: dict[str, Any] = {"inner": inner}
    exec(compile(f"def {name}():\n    return inner()\n", file, "exec"), namespace)
    return namespace[name]


def found(sites: Sites, written: Written, *files: str) -> str | None:
    """The file of the place that is found on a thread with these, the outermost first."""
    call: Callable[[], Any] = sites.here
    for number, file in reversed(list(enumerate(files))):
        call = calling(file, call, f"f{number}")
    result: list[int] = []
    thread = threading.Thread(target=lambda: result.append(call()))
    # The line above would be a user's: the thread must not run it under this file's name.
    code = thread._target.__code__  # type: ignore[attr-defined]
    thread._target.__code__ = code.replace(co_filename=THREADING)  # type: ignore[attr-defined]
    thread.start()
    thread.join()
    return written.places[result[0]][0] if result[0] >= 0 else None


TORCH, LIGHTNING, RAY, CLICK = (f"{PACKAGES}{name}/engine.py" for name in ("torch", "lightning", "ray", "click"))
APP, LAYERS, TIMM = (f"{PACKAGES}{name}" for name in ("pondlab/train.py", "pondlab/nn/layers.py", "timm/blocks.py"))


@pytest.mark.parametrize(
    ("stack", "file"),
    [
        (["/home/ann/train.py", TORCH], "/home/ann/train.py"),
        (["/home/ann/train.py", LIGHTNING, "/home/ann/model.py", TORCH], "/home/ann/model.py"),
        (["/home/ann/train.py", LIGHTNING, TORCH], "/home/ann/train.py"),
        (["/home/ann/my-site-packages/train.py", TORCH], "/home/ann/my-site-packages/train.py"),
        ([RAY, "/home/ann/train.py", RAY, TORCH], "/home/ann/train.py"),
        ([APP, TORCH], APP),
        ([APP, LAYERS, TORCH], LAYERS),
        ([APP, LIGHTNING, LAYERS, TORCH], LAYERS),
        ([APP, LAYERS, TIMM, TORCH], LAYERS),
        ([RAY, APP, RAY, LAYERS, TORCH], LAYERS),
        ([SCRIPT, CLICK, APP, TIMM, TORCH], APP),
        ([LIGHTNING, TORCH], LIGHTNING),
        (["<string>", TORCH, TORCH], TORCH),
        ([THREADING], None),
        (["<string>"], None),
    ],
)
def test_the_innermost_line_of_the_users(sites: Sites, written: Written, stack: list[str], file: str | None) -> None:
    assert found(sites, written, *stack) == file


@pytest.mark.parametrize(
    ("file", "is_written"),
    [
        ("/tmp/torch.nn.conv.gcn_conv_propagate_0agscagq.py", True),
        ("/tmp/torchinductor_ann/x3/cx3f.py", True),
        ("/home/ann/torch.py", False),
        ("/home/ann/train.v2.final.py", False),  # no package
        ("/home/ann/sys.v2.final.py", False),  # none that is installed
    ],
)
def test_what_an_installed_package_writes_while_it_runs_is_its_own(sites: Sites, file: str, is_written: bool) -> None:
    assert sites.is_library(file) == is_written


@pytest.mark.parametrize(
    ("file", "is_somebodys"),
    [(f"{PACKAGES}torchdiffeq/solvers.py", True), (f"{PACKAGES}torch/nn/module.py", False), ("/home/ann/a.py", False)],
)
def test_packages_are_neither_torch_nor_the_users(file: str, is_somebodys: bool) -> None:
    assert is_package(file) == is_somebodys


def test_a_package_is_the_users_only_where_nothing_else_is(sites: Sites, written: Written) -> None:
    assert found(sites, written, "/home/ann/train.py", TORCH) == "/home/ann/train.py"
    assert found(sites, written, APP, LAYERS, TORCH) == APP  # a thread of some library's
    assert sites.is_library(LAYERS)


def test_the_package_that_was_run_counts_as_the_users_from_then_on(sites: Sites, written: Written) -> None:
    assert sites.is_library(APP)
    assert found(sites, written, APP, TORCH) == APP
    assert not sites.is_library(LAYERS)
    assert sites.is_library(TIMM)


class Base(torch.nn.Module):
    def __init__(self, sites: Sites) -> None:
        sites.note_made(self)
        super().__init__()


class Net(Base):
    def __init__(self, sites: Sites, inner: bool = False) -> None:
        super().__init__(sites)
        self.inner = Net(sites) if inner else None


def test_what_makes_a_module_is_not_its_own_init(sites: Sites, written: Written) -> None:
    net = Net(sites, inner=True)
    assert net.inner is not None
    here, inside = (written.places[sites.made_at(made)] for made in (net, net.inner))
    assert (here[2], inside[2]) == ("test_what_makes_a_module_is_not_its_own_init", "__init__")


def test_a_copy_was_made_by_no_line(sites: Sites) -> None:
    net = Net(sites)
    other = copy.deepcopy(net)
    sites.makers[id(other)] = sites.makers[id(net)]  # as if it had the place of one that is gone
    assert sites.made_at(net) >= 0
    assert sites.made_at(other) == -1


def test_a_place_can_be_told_after_a_fork(sites: Sites, written: Written) -> None:
    place = sites.place(0)
    sites.ids.clear()
    assert written.places[sites.number(place)][2] == "test_a_place_can_be_told_after_a_fork"


def test_a_library_that_is_first_seen_later_under_a_line_is_written_once_more(sites: Sites, written: Written) -> None:
    place, via = ("/home/ann/train.py", 7, "main"), (LIGHTNING, "fit")
    numbers = [sites.number((*place, by)) for by in (None, None, via, None, via, (TORCH, "backward"))]
    assert set(numbers) == {0}
    assert written.via == ["", f"{LIGHTNING}:fit"]
    assert sites.number(("/home/ann/train.py", 8, "main", via)) == 1
    assert written.via == ["", f"{LIGHTNING}:fit", f"{LIGHTNING}:fit"]
