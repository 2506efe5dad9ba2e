"""Checkpoints that a trainer writes: what it does before and after `torch.save` is part of them."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perfdoctor.injected._perfdoctor_probe import timeline as clocks
from perfdoctor.injected._perfdoctor_probe.changes import Changes
from perfdoctor.injected._perfdoctor_probe.hooks import checkpoints
from perfdoctor.injected._perfdoctor_probe.hooks.calls import Calls
from perfdoctor.injected._perfdoctor_probe.timeline import CHECKPOINT, OTHER, Timeline


class Clock:
    """Goes on only when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        monkeypatch.setattr(clocks, "_clock", lambda: self.now_ns)

    def work(self) -> None:
        self.now_ns += 1_000


def _calls(timeline: Timeline, on_training_thread: bool = True) -> Calls:
    return Calls(
        SimpleNamespace(record=lambda kind, /, **fields: None),
        SimpleNamespace(on_training_thread=lambda: on_training_thread, timeline=timeline),
        SimpleNamespace(here=lambda depth: 7),
        lambda hook, function: function,
    )


def test_what_surrounds_a_save_is_the_checkpoints_and_the_save_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    timeline = Timeline()
    calls = _calls(timeline)
    part = calls.wrap("save", clock.work, CHECKPOINT)
    save = calls.wrap("save", lambda: part(), CHECKPOINT)

    def write() -> None:
        clock.work()
        save()
        clock.work()

    assert calls.in_whole(lambda: calls.in_whole(write)())() is None
    assert timeline.spent[CHECKPOINT] == 3_000 and timeline.stack == [OTHER]
    assert calls.totals["save", 7][0] == 1
    save()
    assert calls.totals["save", 7][0] == 2, "a save of the loop's own counts as before"


def test_what_is_done_with_a_checkpoint_is_its_own_only_in_a_step_that_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    timeline = Timeline()
    calls = _calls(timeline)
    save = calls.wrap("save", clock.work, CHECKPOINT)
    compress = calls.wrap("save.with", clock.work, CHECKPOINT, calls.began_after_save)
    compress()
    assert timeline.spent[CHECKPOINT] == 0 and not calls.totals
    save()
    compress()
    assert timeline.spent[CHECKPOINT] == 2_000
    timeline.step += 1
    compress()
    assert timeline.spent[CHECKPOINT] == 2_000 and calls.totals["save.with", 7][0] == 1


def test_numpy_is_known_to_compress_by_the_function_that_is_called(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls, changes = _calls(Timeline()), Changes()
    monkeypatch.setattr(calls, "saved", lambda *_: 0)
    monkeypatch.setattr(checkpoints, "_LATER", {("numpy", "savez"), ("numpy", "savez_compressed")})
    checkpoints.watch_later(changes, calls)
    try:
        np.savez(tmp_path / "plain.npz", values=np.arange(4))
        np.savez_compressed(tmp_path / "small.npz", values=np.arange(4))
    finally:
        changes.take_back(set())
    assert [kind for kind, _ in calls.totals] == ["save", "save.compressed"]


def test_of_numpys_functions_the_file_comes_first(tmp_path: Path) -> None:
    written: list[dict[str, Any]] = []
    recorder = SimpleNamespace(record=lambda kind, /, **fields: written.append(fields))
    seen = checkpoints.Checkpoints(recorder, SimpleNamespace(asked_in=lambda *_: None, number=lambda place: -1))
    path, weights = tmp_path / "weights.npz", np.zeros(1_000, dtype=np.float32)
    for save, args, kwargs in ((np.savez, (path,), {"weights": weights}), (np.save, (path, weights), {})):
        save(*args, **kwargs)
        assert seen.saved(7, args, kwargs, save.__module__, 1_000, 1_000) == path.stat().st_size >= 4_000
    assert all(one["tensor_bytes"] == one["storage_bytes"] == 4_000 for one in written)


def test_a_checkpoint_that_fails_or_is_written_by_another_thread_leaves_nothing_open() -> None:
    timeline = Timeline()

    def fail() -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        _calls(timeline).in_whole(fail)()
    assert timeline.stack == [OTHER]
    before = timeline.spent[CHECKPOINT]
    _calls(timeline, on_training_thread=False).in_whole(lambda: None)()
    assert timeline.spent[CHECKPOINT] == before


@pytest.mark.parametrize(
    ("module", "owner", "method"),
    [
        ("lightning.pytorch.trainer.trainer", "Trainer", "save_checkpoint"),
        ("transformers.trainer", "Trainer", "_save_checkpoint"),
        ("accelerate.accelerator", "Accelerator", "save_state"),
    ],
)
def test_the_methods_of_trainers_are_found_and_given_back(
    module: str, owner: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = getattr(importlib.import_module(module), owner)
    original = vars(kind)[method]
    monkeypatch.setattr(checkpoints, "_TRAINERS", {(module, owner, method)})
    monkeypatch.setattr(checkpoints, "_LATER", set())
    changes, calls = Changes(), _calls(Timeline())
    checkpoints.watch_later(changes, calls)
    assert vars(kind)[method] is not original and vars(kind)[method].__wrapped__ is original
    changes.take_back()
    assert vars(kind)[method] is original
