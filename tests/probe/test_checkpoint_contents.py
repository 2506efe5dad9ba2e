"""What of a checkpoint is as it was in the one before."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import lightning
import numpy as np
import pytest
import torch
from torch import nn

from perfdoctor.injected._perfdoctor_probe.hooks.checkpoints import Checkpoints
from perfdoctor.injected._perfdoctor_probe.sites import Sites


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("demos", torch.randn(1000))
        self.register_buffer("steps", torch.zeros(()))


BUFFER = Policy.__init__.__code__.co_firstlineno + 3


class Grain(lightning.LightningModule):
    def __init__(self, plates: Any) -> None:
        super().__init__()
        self.save_hyperparameters()


SAVES = Grain.__init__.__code__.co_firstlineno + 2


class Recorder(list[dict[str, Any]]):
    def record(self, kind: str, **fields: Any) -> None:
        self.append(fields)


def _checkpoints(recorder: Recorder) -> Checkpoints:
    """Of a job whose code is in this file."""
    sites = Sites(recorder)
    sites.is_library = lambda file: file != __file__  # type: ignore[method-assign]
    sites.number = lambda place: -1 if place is None else place[1]  # type: ignore[method-assign]
    return Checkpoints(recorder, sites)


def _saved(*actions: Any) -> list[dict[str, Any]]:
    """The records of a checkpoint after each of these is done to a policy."""
    recorder, policy = Recorder(), Policy()
    checkpoints = _checkpoints(recorder)
    optimizer = torch.optim.Adam(policy.parameters())
    for action in actions:
        action(policy, optimizer)
        state = {"model": policy.state_dict(), "optimizer": optimizer.state_dict()}
        checkpoints.saved(7, (state,), {}, "torch.serialization", 1000, 1000)
    return recorder


def _trains(policy: Policy, optimizer: torch.optim.Optimizer) -> None:
    policy.layer(torch.ones(4)).sum().backward()
    optimizer.step()
    policy.steps += 1


def _rests(policy: Policy, optimizer: torch.optim.Optimizer) -> None:
    pass


def _writes(policy: Policy, optimizer: torch.optim.Optimizer) -> None:
    _trains(policy, optimizer)
    policy.demos.numpy()[0] += 1.0  # no operator of torch's, so the tensor's version is as it was


def test_what_no_step_changes_is_told_with_the_line_that_registers_it() -> None:
    first, second = _saved(_trains, _trains)
    assert "unchanged_bytes" not in first
    assert (second["unchanged_bytes"], second["unchanged"], second["unchanged_at"]) == (4000, "demos", BUFFER)


def test_what_is_no_buffer_is_told_with_the_line_that_puts_it_in() -> None:
    recorder, table = Recorder(), torch.randn(1000)
    checkpoints = _checkpoints(recorder)
    for _ in range(2):
        state = {"weights": torch.randn(8)}
        state["reference"] = table[:4]
        checkpoints.saved(7, (state,), {}, "torch.serialization", 1000, 1000)
    here = test_what_is_no_buffer_is_told_with_the_line_that_puts_it_in.__code__.co_firstlineno
    assert (recorder[1]["unchanged"], recorder[1]["unchanged_at"]) == ("reference", here + 5)


def test_of_two_at_once_nothing_is_told_and_the_next_one_is_looked_at() -> None:
    _, second, third = _saved(_trains, _rests, _trains)
    assert "unchanged_bytes" not in second and third["unchanged_bytes"] == 4000


def test_what_numpy_writes_into_a_tensor_has_changed_it() -> None:
    _, second = _saved(_trains, _writes)
    assert "unchanged_bytes" not in second


def _of_plates(plates: Any, change: Callable[[Any], object]) -> Any:
    """What is told of the second checkpoint of a Lightning module that saves its hyperparameters."""
    recorder, grain = Recorder(), Grain(plates)
    checkpoints = _checkpoints(recorder)
    for _ in range(2):
        state = {"state_dict": {"weight": torch.randn(1000)}, "hyper_parameters": dict(grain.hparams)}
        checkpoints.saved(7, (state,), {}, "torch.serialization", 1000, 1000)
        change(plates)
    return recorder[1]


def test_arrays_among_the_hyperparameters_are_told_with_the_line_that_saves_them() -> None:
    told = _of_plates(np.random.default_rng(0).random(100_000), lambda plates: None)
    assert told["tensor_bytes"] == told["storage_bytes"] == 804_000
    assert (told["unchanged_bytes"], told["unchanged"], told["unchanged_at"]) == (800_000, "plates", SAVES)


@pytest.mark.parametrize("rows", [slice(0, 1), slice(40_000, 50_000), slice(99_999, None)])
def test_arrays_that_are_written_to_have_changed(rows: slice) -> None:
    def write(plates: Any) -> None:
        plates[rows] += 1.0

    assert "unchanged_bytes" not in _of_plates(np.zeros(100_000), write)


def test_what_is_no_plain_array_is_another_object() -> None:
    told = _of_plates(np.array([None, "x"], dtype=object), lambda plates: None)
    assert told["others"] == ["ndarray"] and told["tensor_bytes"] == 4_000


class Keeper:
    """Saves whatever it is offered."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.checkpoints = checkpoints

    def offer(self, state: dict[str, Any]) -> None:
        self.checkpoints.saved(7, (state,), {}, "torch.serialization", 1000, 1000)


def _asked_at(call: Callable[[Callable[[], None]], object]) -> tuple[int, int]:
    """Where a loop's function asks for what a helper saves, through `call`; and the line that does."""
    recorder = Recorder()
    keeper = Keeper(_checkpoints(recorder))

    def loop() -> None:
        keeper.checkpoints.updates(sys._getframe())
        call(lambda: keeper.offer({"model": nn.Linear(2, 2).state_dict()}))

    loop()
    (record,) = recorder
    return record["asked_at"], loop.__code__.co_firstlineno + 2


def test_a_helper_that_saves_is_told_where_the_loop_asks_for_it() -> None:
    asked, line = _asked_at(lambda save: save())
    assert asked == line


def test_a_library_that_asks_for_it_is_none_of_the_loops_functions() -> None:
    asked, _ = _asked_at(lambda save: copy.deepcopy(Copied(save)))
    assert asked == -1


class Copied:
    """Saves when the library copies it."""

    def __init__(self, save: Callable[[], None]) -> None:
        self.save = save

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        self.save()
