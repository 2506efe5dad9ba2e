"""Loops around the calls of a function whose own iterations need one another: one call could do for all of theirs."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.injected._perfdoctor_probe.windows.loops import Loops

WRITER = """
class Writer:
    def ring(self, peals):
        state, last, rung = self.read(peals), start(peals), []
        for _ in range(LENGTH):
            out, state = self.cell(last, state)
            last = out.argmax(1)
            rung.append(last)
        return torch.cat(rung)
"""
LINE, HEADER = 6, "for _ in range(LENGTH)"

ACROSS = {
    "a comprehension": "answers = torch.cat([model.ring(peals) for _ in range(8)])  # calls",
    "a loop": """
    answers = []
    for peal in peals:
        answers.append(model.ring(peal))  # calls
    """,
    "a loop that adds up": """
    total = 0.0
    for _ in range(8):
        total = total + reward(model.ring(peals))  # calls
    """,
}
ALONE = {
    "no loop": "answers = model.ring(peals)  # calls",
    "the one before": """
    answers = peals
    for _ in range(8):
        answers = model.ring(answers)  # calls
    """,
    "batches": """
    for batch in batches:
        answers.append(model.ring(batch))  # calls
    """,
    "until it is good": """
    while reward(answers) < 1:
        answers = better(answers, model.ring(peals))  # calls
    """,
}


def _around(directory: Path, writer: str, script: str, function: str = "train") -> dict[str, Any]:
    file = directory / "train.py"
    body = textwrap.indent(textwrap.dedent(script).strip(), " " * 8)
    text = f"{writer}\ndef train():\n    for step in range(STEPS):\n{body}\n        optimizer.step()\n"
    file.write_text(text)
    lines = text.splitlines()
    calls = 1 + next(number for number, line in enumerate(lines) if "# calls" in line)
    frames = [(str(file), LINE, "ring"), (str(file), calls, "train")]
    if "[model.ring" in lines[calls - 1]:
        frames.insert(1, (str(file), calls, "<listcomp>"))
    found = Loops([(str(file), len(lines), "train")]).around(frames)
    assert found is not None and found["header"] == HEADER
    text = lines[found["across_at"][1] - 1].strip() if "across_at" in found else ""
    heads = [number for number, line in enumerate(lines, 1) if text and found["across"] in line]
    return {**found, "text": text, "heads": heads}


@pytest.mark.parametrize("script", ACROSS.values(), ids=ACROSS)
def test_calls_that_do_not_need_one_another_could_be_one(tmp_path: Path, script: str) -> None:
    found = _around(tmp_path, WRITER, script)
    assert found["across"].startswith("for ") and found["across"] in found["text"]
    file, line, _ = found["across_at"]
    assert (file, [line]) == (str(tmp_path / "train.py"), found["heads"])


@pytest.mark.parametrize("script", ALONE.values(), ids=ALONE)
def test_calls_that_do_are_left_alone_and_so_are_those_for_batches(tmp_path: Path, script: str) -> None:
    assert "across" not in _around(tmp_path, WRITER, script)


@pytest.mark.parametrize(
    "keeps",
    [
        WRITER.replace("last = out.argmax(1)", "last = self.last = out.argmax(1) + self.last"),
        WRITER.replace("out, state = self.cell(last, state)", "out = peals.step(last)"),
    ],
    ids=["in its object", "in what it is given"],
)
def test_a_function_that_leaves_something_for_the_next_call_is_called_by_turns(tmp_path: Path, keeps: str) -> None:
    assert "across" not in _around(tmp_path, keeps, ACROSS["a loop"])
