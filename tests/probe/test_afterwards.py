"""What trains after the loop under way is known by the source of the functions under way."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.injected._perfdoctor_probe.windows import trainer_plans
from perfdoctor.injected._perfdoctor_probe.windows.afterwards import trains_afterwards


class Sites:
    """The functions of one file are the user's, and a line is its own number."""

    def __init__(self, file: str) -> None:
        self.file = file

    def is_library(self, file: str) -> bool:
        return file != self.file

    def at(self, code: Any, line: int) -> int:
        return line


class Object:
    """Takes any call, and gives itself for any attribute."""

    def __getattr__(self, name: str) -> Object:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Object:
        return self


LOOP = """
def epoch(n):
    for _ in range(n):
        step()
"""
FINE_TUNING = """
def tune(n):
    for _ in range(n):
        loss.backward()
"""


def _told(directory: Path, source: str, called_by: str = "library.py") -> list[str]:
    """The lines that were told in the steps of a script, "" for none. `called_by`: the file of what makes a step."""
    file = directory / "train.py"
    text = textwrap.dedent(source)
    file.write_text(text)
    told: list[int] = []

    between: dict[str, Any] = {"look": lambda: told.append(trains_afterwards(Sites(str(file))))}
    exec(compile("def step():\n    look()", called_by, "exec"), between)
    step = between["step"]
    names = {"__name__": "__main__", "step": step, "loss": Object(), "trainer": Object(), "model": Object()}
    exec(compile(text, str(file), "exec"), names)
    lines = ["", *text.splitlines()]
    return [lines[number].strip() if number > 0 else "" for number in told]


@pytest.mark.parametrize(
    ("script", "line"),
    [
        (LOOP + "epoch(1)\nmodel.eval()", ""),
        (LOOP + FINE_TUNING + "epoch(1)\ntune(1)", "tune(1)"),
        ("for _ in range(1):\n    step()\nloss.backward()", "loss.backward()"),
        (LOOP + "epoch(1)\ntrainer.fit(model)", "trainer.fit(model)"),
        (LOOP + "epoch(1)\nmodel.fit(1)\ntrainer.model.train()", ""),
        (LOOP + FINE_TUNING + "epoch(1)\nif model is None:\n    tune(1)", ""),
        (LOOP + FINE_TUNING + "if __name__ == '__main__':\n    epoch(1)\n    tune(1)", "tune(1)"),
    ],
)
def test_the_first_line_that_trains_behind_the_loop_is_told(tmp_path: Path, script: str, line: str) -> None:
    assert _told(tmp_path, script) == [line]


def test_what_follows_in_the_outermost_loop_is_a_part_of_it(tmp_path: Path) -> None:
    """The update of a generator behind that of its critic, and the second half of an epoch."""
    script = """
    def turn():
        loss.backward()
        step()
        loss.backward()

    def epoch():
        for _ in range(1):
            turn()
        for _ in range(1):
            loss.backward()

    for _ in range(2):
        epoch()
    """
    assert _told(tmp_path, script) == ["", ""]


def test_a_step_without_a_loop_says_nothing(tmp_path: Path) -> None:
    assert _told(tmp_path, "step()\nloss.backward()") == [""]


def test_a_trainers_loop_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_plans, "is_loop", lambda file: file == "fit_loop.py")
    assert _told(tmp_path, "step()\ntrainer.fit(model)", "fit_loop.py") == ["trainer.fit(model)"]
