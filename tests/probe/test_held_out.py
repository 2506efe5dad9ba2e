"""Held-out data: which forward passes are on a tensor of earlier steps, and what becomes of their outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.hooks import held_out
from perfdoctor.injected._perfdoctor_probe.hooks.held_out import HeldOut
from perfdoctor.injected._perfdoctor_probe.windows.repeats import RepeatsWindow


class Bench:
    """A model that an optimizer updates, and the lines that were told."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        recorder = SimpleNamespace(record=lambda kind, /, **fields: self.told.append({"k": kind, **fields}))
        self.held_out = HeldOut(recorder, SimpleNamespace(here=lambda depth=1: 7))
        self.model = nn.Linear(8, 2)
        self.held_out.optimizer_stepped(torch.optim.SGD(self.model.parameters()))

    def met(self, step: int, *args: object, model: nn.Module | None = None, **kwargs: object) -> bool:
        with torch.no_grad():
            return self.held_out.met(model or self.model, (args, kwargs), step)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(64, 8)


def test_a_tensor_of_two_earlier_steps_is_held_out_and_its_line_is_told_once(bench: Bench, x: torch.Tensor) -> None:
    assert [bench.met(step, x) for step in (3, 3, 4, 9, 9, 10)] == [False, False, False, True, True, True]
    assert bench.told == [{"k": "held_out", "site": 7}]


def test_the_last_state_that_an_agent_acts_on_again_is_none(bench: Bench) -> None:
    state = torch.randn(64, 8)
    for step in range(10):
        bench.met(step, state)
        state = torch.randn(64, 8)
        assert not bench.met(step, state)


def test_parts_of_it_are_held_out_too(bench: Bench, x: torch.Tensor) -> None:
    parts = [[bench.met(step, part) for part in x.split(16)] for step in (1, 2, 3)]
    assert parts == [[False] * 4, [False] * 4, [True] * 4]


def test_it_is_found_among_named_arguments_and_in_batches(bench: Bench, x: torch.Tensor) -> None:
    assert not bench.met(1, [{"mask": None, "x": x}])
    assert not bench.met(2, [{"x": x}])
    assert bench.met(3, [{"x": x}])
    assert bench.met(4, x=x)


def test_what_has_been_written_to_since_is_another_one(bench: Bench, x: torch.Tensor) -> None:
    for step in range(6):
        assert not bench.met(step, x)
        x.add_(1)


@pytest.mark.parametrize("at", [0, 32, 63], ids=["the beginning", "the middle", "the end"])
def test_what_numpy_writes_counts_too(bench: Bench, x: torch.Tensor, at: int) -> None:
    array = x.numpy()
    for step in range(6):
        assert not bench.met(step, x)
        array[at, 0] += 1


def test_a_new_tensor_in_each_step_is_none(bench: Bench) -> None:
    assert not any(bench.met(step, torch.ones(64, 8)) for step in range(20))


def test_a_model_that_no_optimizer_updates_is_not_evaluated(bench: Bench, x: torch.Tensor) -> None:
    teacher = copy.deepcopy(bench.model)
    assert not any(bench.met(step, x, model=teacher) for step in range(6))
    assert bench.told == []


def test_with_gradients_it_may_train(bench: Bench, x: torch.Tensor) -> None:
    assert not any(bench.held_out.met(bench.model, ((x,), {}), step) for step in range(6))


def test_in_inference_mode_it_is_known_by_what_it_holds(bench: Bench) -> None:
    with torch.inference_mode():
        x = torch.randn(64, 8)
        assert [bench.met(step, x) for step in (1, 2, 3)] == [False, False, True]
        x[0] += 1
        assert not bench.met(4, x)


@pytest.mark.parametrize(
    "other",
    [torch.empty(0), torch.ones(4, device="meta"), torch.eye(4).to_sparse(), "text", {}],
    ids=["empty", "meta", "sparse", "text", "nothing"],
)
def test_other_arguments_do_no_harm(bench: Bench, other: object) -> None:
    assert bench.met(1, other) is False
    torch.func.vmap(lambda one: one + bench.met(2, one))(torch.ones(2, 3))


def test_only_the_latest_are_known(bench: Bench, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_out, "_MOST", 4)
    assert [bench.met(step, x) for step in (1, 2, 3)] == [False, False, True]
    for _ in range(4):
        bench.met(4, torch.randn(3))
    assert len(bench.held_out.given) == 4
    assert [bench.met(step, x) for step in (5, 6, 7)] == [False, False, True]


# ---------------------------------------------------------------------------------------------------------
# What becomes of the outputs

X, VALIDATION = torch.randn(64, 8), torch.randn(256, 8)


def followed(step: Callable[[nn.Module, Callable[[torch.Tensor], torch.Tensor]], torch.Tensor]) -> dict[str, Any]:
    """What the window tells of three steps, with a loss each; `step` gets the model and what evaluates it."""
    torch.manual_seed(0)
    model, evaluation = nn.Linear(8, 2), SimpleNamespace(on_scores=None)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def evaluate(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            output: torch.Tensor = model(x)
        evaluation.on_scores(((x,), {}), output)
        return output

    clock = SimpleNamespace(step=0, stack=[timeline.OTHER], spent=[0] * timeline.PARTS)
    sites = SimpleNamespace(stack=lambda *_, **__: [], is_library=lambda name: True, number=lambda place: 0)
    window = RepeatsWindow(sites, SimpleNamespace(timeline=clock), compiled=False, evaluation=evaluation)
    window.open()
    try:
        for _ in range(3):
            loss = step(model, evaluate)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.step += 1
    finally:
        found = window.close(3)
    assert evaluation.on_scores is None
    return found


def test_a_score_is_timed_and_not_used() -> None:
    def step(model: nn.Module, evaluate: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = model(X + torch.randn(1)).square().mean()
        right = (evaluate(VALIDATION).argmax(1) == 0).float()
        right.mean().item()
        return loss

    found = followed(step)
    assert found["followed"] == 3 and found["scores_ms"] > 0
    assert not found["scores_used"] and not found["trained_on"]


def test_without_an_evaluation_nothing_is_followed() -> None:
    found = followed(lambda model, evaluate: model(X).square().mean())
    assert (found["followed"], found["scores_ms"], found["scores_used"]) == (0, 0.0, False)


@pytest.mark.parametrize("use", ["labels", "weights", "chosen"])
def test_what_training_needs_is_no_score(use: str) -> None:
    def step(model: nn.Module, evaluate: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        output = evaluate(VALIDATION)
        if use == "labels":
            return nn.functional.cross_entropy(model(VALIDATION + torch.randn(1)), output.argmax(1))
        if use == "weights":
            return (model(X).sum(1) * output.softmax(0)[:64, 0]).mean()
        hardest: torch.Tensor = model(VALIDATION[output[:, 0].topk(16).indices]).square().mean()
        return hardest

    assert followed(step)["scores_used"]


def test_data_that_is_trained_on_is_told() -> None:
    def step(model: nn.Module, evaluate: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        evaluate(X).mean().item()
        loss: torch.Tensor = model(X).square().mean()
        return loss

    found = followed(step)
    assert found["trained_on"] and not found["scores_used"]
