"""Where the job's script decides what a trainer does by itself."""

from __future__ import annotations

import functools
import sys
import types
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfdoctor.injected._perfdoctor_probe import script
from perfdoctor.injected._perfdoctor_probe.windows import origins

JOB = """
from transformers import Trainer, TrainingArguments

def arguments(size):
    return TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=size,
        gradient_accumulation_steps=8,
        group_by_length=False,
    )

Trainer(args=arguments(2)).train()
"""


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__=str(path)))  # type: ignore[arg-type]
    return path


def test_a_trainers_keywords_are_found_with_their_function(main: Path) -> None:
    assert script.options("transformers") == {
        "per_device_train_batch_size": (str(main), 7, "arguments", None),
        "gradient_accumulation_steps": (str(main), 8, "arguments", None),
    }
    assert script.options("accelerate") == {"gradient_accumulation_steps": (str(main), 8, "arguments", None)}


def test_without_a_trainer_or_its_words_nothing_is_decided(main: Path) -> None:
    assert script.options("") == script.options("lightning") == {}


@pytest.mark.parametrize("text", ["def (", "\0", "x = 1\n" * 300_000], ids=["no Python", "no text", "too large"])
def test_a_script_that_cannot_be_read_decides_nothing(main: Path, text: str) -> None:
    main.write_text(text)
    assert script.options("transformers") == {}
    main.unlink()
    assert script.options("transformers") == {}


def test_options_that_are_given_otherwise_have_their_lines_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = tmp_path / "train.py"
    main.write_text(
        "def arguments(found):\n"
        '    options = {"save_steps": 10, "seed": 1}\n'
        '    options["debug"] = "underflow_overflow"\n'
        "    found.eval_steps = 5\n"
        '    options["gradient_checkpointing"] = False\n'
        "    return TrainingArguments(**options)\n"
    )
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(main), raising=False)
    found = {name: place[1:3] for name, place in script.options("transformers").items()}
    assert found == {"save_steps": (2, "arguments"), "debug": (3, "arguments"), "eval_steps": (4, "arguments")}


def test_defaults_of_a_class_are_given_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = tmp_path / "train.py"
    main.write_text(
        "@dataclass\n"
        "class Arguments(TrainingArguments):\n"
        "    save_steps: int\n"
        '    debug: str = "underflow_overflow"\n'
        "    dataloader_num_workers: int = 2\n"
    )
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(main), raising=False)
    found = {name: place[1] for name, place in script.options("transformers").items()}
    assert found == {"debug": 4, "dataloader_num_workers": 5}


@pytest.mark.parametrize(
    ("strategy", "steps", "lines"),
    [
        ("epoch", 500, {"save_strategy": 2}),
        (SimpleNamespace(value="steps"), 100, {"save_strategy": 4, "save_steps": 4}),
    ],
)
def test_a_branch_that_was_not_taken_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: object, steps: int, lines: dict[str, int]
) -> None:
    main = tmp_path / "train.py"
    main.write_text(
        "if rarely:\n"
        '    keep = dict(save_strategy="epoch", eval_steps=often)\n'
        "else:\n"
        '    keep = dict(save_strategy="steps", save_steps=100)\n'
    )
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(main), raising=False)
    found = script.options("transformers", SimpleNamespace(save_strategy=strategy, save_steps=steps, eval_steps=10))
    assert {name: place[1] for name, place in found.items()} == {**lines, "eval_steps": 2}


@pytest.mark.parametrize(
    ("strategy", "names"), [("epoch", {"save_strategy"}), ("steps", {"save_strategy", "save_steps"})]
)
def test_how_many_steps_lie_between_two_checkpoints_decides_nothing_where_epochs_do(
    main: Path, strategy: str, names: set[str]
) -> None:
    main.write_text(f'TrainingArguments(save_strategy="{strategy}", save_steps=150)\n')
    assert set(script.options("transformers", SimpleNamespace(save_strategy=strategy, save_steps=150))) == names


def _settled(
    main: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: object = None
) -> dict[str, tuple[int, str]]:
    """The lines of a script's options, with their functions, where names are followed to their constants."""
    main.write_text(text)
    module = types.ModuleType("__main__")
    module.__file__ = str(main)
    monkeypatch.setitem(sys.modules, "__main__", module)
    sources = origins.Sources(lambda file: file != str(main))
    options = script.options("transformers", found, functools.partial(origins.settled, sources))
    return {name: (place[1], place[2]) for name, place in options.items()}


def test_a_keyword_that_is_given_a_constant_by_name_is_found_where_the_constant_is(
    main: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "EVAL_EVERY = 10\n"
        "SAVE_EVERY = 20\n"
        "if quick: SAVE_EVERY = 5\n"
        "TrainingArguments(\n    eval_steps=EVAL_EVERY,\n    save_steps=SAVE_EVERY,\n    debug=UNKNOWN,\n)\n"
    )
    found = _settled(main, monkeypatch, text)
    assert found == {"eval_steps": (1, "<module>"), "save_steps": (6, "<module>"), "debug": (7, "<module>")}


def test_one_that_is_given_a_local_name_or_a_field_is_followed_too(main: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "class Recipe:\n    accumulation: int = 4\n    size: int = 8\n"
        "def main(recipe):\n"
        '    debug = "underflow_overflow"\n'
        "    return TrainingArguments(\n        debug=debug,\n"
        "        gradient_accumulation_steps=recipe.accumulation,\n"
        "        per_device_train_batch_size=recipe.size,\n    )\n"
    )
    as_they_are = SimpleNamespace(per_device_train_batch_size=16)
    found = _settled(main, monkeypatch, text, as_they_are)
    assert found == {
        "debug": (5, "main"),
        "gradient_accumulation_steps": (2, "<module>"),
        "per_device_train_batch_size": (9, "main"),
    }


def test_what_is_switched_off_by_name_decides_nothing(main: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "DEBUG = None\nTrainingArguments(\n    debug=DEBUG,\n    save_steps=5,\n)\n"
    assert _settled(main, monkeypatch, text) == {"save_steps": (4, "<module>")}
