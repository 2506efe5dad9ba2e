"""Backward passes that could be one: which count, what of them, and that nobody notices."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.windows.repeats import RepeatsWindow

STEPS = 3
TRUNK = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256), torch.nn.Tanh())
HEADS = torch.nn.ModuleList([torch.nn.Linear(256, 1) for _ in range(3)])
INPUTS = torch.randn(512, 64, generator=torch.Generator().manual_seed(0))


def losses() -> list[torch.Tensor]:
    shared = TRUNK(INPUTS + 0)  # made anew in each step, as batches are
    return [head(shared).square().mean() for head in HEADS]


def parameters() -> list[torch.nn.Parameter]:
    return [*TRUNK.parameters(), *HEADS.parameters()]


def one_by_one() -> None:
    for loss in losses():
        loss.backward(retain_graph=True)


def freed_by_the_last() -> None:
    first, second, third = losses()
    first.backward(retain_graph=True)
    second.backward(retain_graph=True)
    third.backward()


def together() -> None:
    torch.stack(losses()).sum().backward()


def graphs_of_their_own() -> None:
    for _ in range(3):
        losses()[0].backward(retain_graph=True)


def read_between() -> None:
    for loss in losses():
        loss.backward(retain_graph=True)
        sum(one.grad.norm() for one in TRUNK.parameters() if one.grad is not None)


def written_between() -> None:
    for loss in losses():
        loss.backward(retain_graph=True)
        torch.nn.utils.clip_grad_norm_(TRUNK.parameters(), 0.1)


def let_go_between() -> None:
    for loss in losses():
        TRUNK.zero_grad()
        loss.backward(retain_graph=True)


def derivatives_only() -> None:
    for loss in losses():
        torch.autograd.grad(loss, list(TRUNK.parameters()), retain_graph=True)


def watched(step: Callable[[], None], ends: int = 1) -> list[dict[str, Any]]:
    """What was found; a step ends after `ends` calls, with an update that lets its gradients go."""
    clock = SimpleNamespace(step=3, stack=[timeline.OTHER], spent=[0] * timeline.PARTS)
    window = RepeatsWindow(
        UsersFile(__file__), SimpleNamespace(timeline=clock), compiled=False, evaluation=SimpleNamespace(on_scores=None)
    )
    window.open()
    try:
        for _ in range(STEPS):
            for _ in range(ends):
                step()
            for one in parameters():
                one.grad = None
            clock.step += 1
    finally:
        found: list[dict[str, Any]] = window.close(STEPS)["passes_again"]
    return found


@pytest.mark.parametrize("step", [one_by_one, freed_by_the_last])
def test_what_the_second_pass_and_the_third_go_through_again_is_told_at_their_line(step: Callable[[], None]) -> None:
    found = watched(step)
    assert sum(row["ms_per_step"] for row in found) > 0
    for row in found:
        assert step.__code__.co_firstlineno < row["at"] <= step.__code__.co_firstlineno + 4
    # Twice the nodes of the trunk: two layers and two activations.
    assert sum(row["ops_per_step"] for row in found) >= 2 * 4


@pytest.mark.parametrize(
    "step",
    [together, graphs_of_their_own, read_between, written_between, let_go_between, derivatives_only],
)
def test_passes_that_share_nothing_or_whose_gradients_somebody_needs_apart_are_none(step: Callable[[], None]) -> None:
    assert watched(step) == []


def test_a_graph_that_another_step_goes_through_is_not_told_here() -> None:
    kept = losses()

    def step() -> None:
        kept[0].backward(retain_graph=True)

    assert watched(step) == []


def test_the_gradients_are_those_of_the_job() -> None:
    def gradients(run: Callable[[], None]) -> list[torch.Tensor]:
        for one in parameters():
            one.grad = None
        run()
        return [one.grad.clone() for one in parameters() if one.grad is not None]

    plain = gradients(one_by_one)
    watched(one_by_one)
    assert all(torch.equal(one, other) for one, other in zip(plain, gradients(one_by_one), strict=True))
    assert torch.autograd._engine_run_backward.__name__ == "_engine_run_backward"
