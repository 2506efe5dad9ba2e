"""Lines that name what grows, or what keeps it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe.windows.growing_lines import GrowingLines

SOURCE = """
class Punctuality:
    def __init__(self):
        self.train_ap = AveragePrecision()
        self.outputs = []

    def training_step(self, logits, late):
        self.train_ap.update(logits, late)
        self.outputs.append(logits)

    def on_train_epoch_end(self):
        self.log("train_ap", self.train_ap.compute())
"""


@pytest.mark.parametrize(
    ("path", "word", "uses"),
    [
        ("model.outputs", ".outputs", [5, 9]),
        ("model.train_ap.preds", ".preds", [4, 8, 12]),  # which the metric keeps
        ('model._modules["train_ap"].preds', ".preds", [4, 8, 12]),
        ("preds", "preds", []),
    ],
)
def test_a_container_that_no_line_names_is_used_where_its_keeper_is_named(
    tmp_path: Path, path: str, word: str, uses: list[int]
) -> None:
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    held = SimpleNamespace(path=path, word=word, files=(str(file),))
    assert GrowingLines(UsersFile(str(file))).uses(held)[0] == uses


@pytest.mark.parametrize(
    ("statement", "picks"),
    [
        ("return random.sample(self.memory, 32)", True),
        ("return sample(self.memory, k=32)", True),
        ("return [self.memory[i] for i in places]", True),
        ("return self.memory[-1]", False),
        ("return sum(self.memory)", False),
        ("return len(self.memory)", False),
    ],
)
def test_a_line_that_picks_elements_by_their_places_is_known_by_its_words(
    tmp_path: Path, statement: str, picks: bool
) -> None:
    file = tmp_path / "train.py"
    file.write_text(f"class Replay:\n    def some(self, places):\n        {statement}\n")
    held = SimpleNamespace(path="replay.memory", word=".memory", files=(str(file),))
    assert GrowingLines(UsersFile(str(file))).picks(held) == (3 if picks else -1)
