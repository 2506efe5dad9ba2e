"""Layers of one kind around one another, as a walk from the job's names meets them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe.windows.growing_lines import GrowingLines
from perfdoctor.injected._perfdoctor_probe.windows.holdings import Holdings
from perfdoctor.injected._perfdoctor_probe.windows.nesting import maker


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        return function(*values)

    return call


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        assert values
        return function(*values)

    return call


class Env:
    def __init__(self, inner: Any) -> None:
        self.inner = inner


class Patched(torch.nn.Linear):
    def __init__(self, times: int) -> None:
        super().__init__(2, 2)
        for _ in range(times):
            self.forward = timed(self.forward)  # type: ignore[method-assign]


def _layers(one: Any) -> dict[str, int]:
    found = Holdings(UsersFile(__file__)).walk(sys._getframe(), [("one", one)])
    return {maker(held.one): held.layers for held in found.nested.values()}


@pytest.mark.parametrize(
    ("one", "layers"),
    [
        (timed(timed(timed(print))), {"timed": 3}),
        (Patched(4), {"timed": 4}),
        (Env(Env([Env({"env": Env(None)})])), {"Env": 4}),
        (timed(checked(timed(checked(print)))), {"timed": 2, "checked": 2}),
        (timed(print), {}),
        ([Env(None), Env(None)], {}),
        (torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)), {}),
    ],
    ids=["functions", "a method", "objects", "two by turns", "one", "side by side", "a model"],
)
def test_layers_are_counted_by_what_makes_them(one: Any, layers: dict[str, int]) -> None:
    assert _layers(one) == layers


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def timed(f):\n    return f\nstep = timed(train)\nstep = timed(step)\nother = timed(print)\n", 4),
        ("@timed\ndef timed(f):\n    return f\nrun(timed(train))\n", 4),
        ("model.forward = timed(\n    model.forward)\n", 1),
        ("x = untimed(x)\n", -1),
    ],
)
def test_the_line_is_the_one_that_gives_it_back_to_its_name(tmp_path: Path, text: str, line: int) -> None:
    file = tmp_path / "train.py"
    file.write_text(text)
    held = SimpleNamespace(files=(str(file),))
    assert GrowingLines(UsersFile(str(file))).wraps(held, "timed") == line


@pytest.mark.parametrize(("kind", "line"), [(list, 2), (set, 4), (dict, 5)])
def test_the_line_that_adds_to_a_container_is_one_that_its_kind_has(tmp_path: Path, kind: type, line: int) -> None:
    file = tmp_path / "train.py"
    file.write_text("if LISTS:\n    seen.append(x)\nelif SETS:\n    seen.add(x)\nseen[x] = 1\n")
    held = SimpleNamespace(files=(str(file),), word="seen", one=kind(), path="seen")
    assert GrowingLines(UsersFile(str(file))).grows(held) == line
