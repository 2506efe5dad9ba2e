"""Gradients that are zeroed before anybody reads them: which passes fill them, and what in those need not run."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from perfdoctor.injected._perfdoctor_probe.windows import discarded
from perfdoctor.injected._perfdoctor_probe.windows.discarded import Discards
from perfdoctor.injected._perfdoctor_probe.windows.gradients import (
    GradientsWindow,
    UnusedGradients,
    bare_leaves,
    updated,
)

SITES = SimpleNamespace(
    here=lambda depth=1: 7,
    is_library=lambda filename: filename != __file__,
    made_at=lambda one: 9,
    number=lambda place: place[1:3],
)


@pytest.fixture(autouse=True)
def a_millisecond_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.count(0, 1_000_000)
    monkeypatch.setattr(discarded, "time", SimpleNamespace(thread_time_ns=lambda: next(now)))


class Gan:
    """A generator and a critic, each with an optimizer."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.generator = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 4))
        self.critic = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
        self.of_generator = torch.optim.SGD(self.generator.parameters(), 0.1)
        self.of_critic = torch.optim.SGD(self.critic.parameters(), 0.1)

    def teach_critic(self, detached: bool) -> None:
        fake = self.generator(torch.ones(2, 3))
        self.of_critic.zero_grad()
        self.critic(fake.detach() if detached else fake).sum().backward()
        self.of_critic.step()

    def teach_generator(self, named: bool = False) -> None:
        loss = self.critic(self.generator(torch.ones(2, 3))).sum()
        self.of_generator.zero_grad()
        loss.backward(inputs=list(self.generator.parameters()) if named else None)
        self.of_generator.step()

    def window(self, sites: Any = SITES) -> GradientsWindow:
        every = [*self.generator.parameters(), *self.critic.parameters()]
        unused = UnusedGradients([self.generator, self.critic], {id(one) for one in every})
        return GradientsWindow(unused, sites, compiled=False, hooks=True)


def _watched(window: GradientsWindow, *steps: Callable[[], object], judged: int = 0) -> dict[str, Any]:
    """`judged`: steps after which no other pass is followed; 0 for all."""
    window.open()
    try:
        for number, step in enumerate(steps, 1):
            step()
            if number == judged:
                window.stays(judged)
    finally:
        found = window.close(len(steps))
    assert not any(vars(one)["_forward_pre_hooks"] for one in (nn.Module(),))
    assert "grad" not in vars(nn.Parameter)
    return found


def test_a_critics_loss_that_reaches_the_generator_is_seen_once_that_is_zeroed() -> None:
    gan = Gan()
    found = _watched(gan.window(), lambda: gan.teach_critic(False), gan.teach_generator, lambda: gan.teach_critic(True))
    first, second = found["discarded"]
    assert (first["module"], first["parameters"], first["called_at"]) == ("Sequential", 4, 7)
    assert first["whole_ms"] == pytest.approx(5 / 3) and not first["useless"], "the generator's whole graph"
    # The critic's gradients of the generator's loss: the pass must come through its two layers.
    assert second["parameters"] == 4
    assert (second["part_ms"], second["whole_ms"]) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert found["passes_ms"] == pytest.approx((11 + 11 + 6) / 3)


def test_a_graph_that_another_pass_needs_is_cut_off_where_its_result_is_handed_on() -> None:
    """The generator is called at line 7, the critic at line 9 with samples and at line 11 with the generator's."""
    gan, lines = Gan(), itertools.cycle((7, 9, 11, 20, 13, 21))
    sites = SimpleNamespace(**{**vars(SITES), "here": lambda depth=1: next(lines)})

    def step() -> None:
        fake = gan.generator(torch.ones(2, 3))
        loss = gan.critic(torch.ones(2, 4)).sum() - gan.critic(fake).sum()
        gan.of_critic.zero_grad()
        loss.backward(retain_graph=True)
        loss = gan.critic(fake).sum()
        gan.of_generator.zero_grad()
        loss.backward(inputs=list(gan.generator.parameters()))
        gan.of_generator.step()

    (found,) = _watched(gan.window(sites), step, step)["discarded"]
    assert (found["at"], found["called_at"], found["handed_at"]) == (20, 7, 11)


def test_one_that_is_made_for_the_critic_is_cut_off_where_it_is_made() -> None:
    gan = Gan()
    (found,) = _watched(gan.window(), lambda: gan.teach_critic(False), gan.teach_generator)["discarded"]
    assert (found["called_at"], found["handed_at"]) == (7, None)


def test_a_detached_generator_and_named_parameters_throw_nothing_away() -> None:
    gan = Gan()
    steps = (lambda: gan.teach_critic(True), lambda: gan.teach_generator(True)) * 2
    assert _watched(gan.window(), *steps)["discarded"] == []


def test_the_window_stays_open_until_it_is_known_what_became_of_them() -> None:
    gan, window = Gan(), None
    window = gan.window()
    window.open()
    gan.teach_critic(False)
    assert window.stays(1), "the generator's gradients are neither read nor zeroed"
    gan.teach_critic(False)
    assert window.stays(2)
    gan.teach_generator()
    assert not window.stays(3)
    (found,) = window.close(3)["discarded"]
    assert found["passes_per_step"] == 1.0, "of the one step whose passes were followed"


def _accumulated(gan: Gan) -> None:
    gan.of_critic.zero_grad()
    for _ in range(3):
        gan.critic(torch.ones(2, 4)).sum().backward()
    nn.utils.clip_grad_norm_(gan.critic.parameters(), 1.0)
    gan.of_critic.step()


def _saliency(gan: Gan) -> None:
    gan.of_critic.zero_grad()
    gan.critic(torch.ones(2, 4)).sum().backward()
    assert gan.critic[0].weight.grad.norm() >= 0
    for parameter in gan.critic.parameters():
        parameter.grad.clone()
    gan.of_critic.zero_grad()


def _by_hand(gan: Gan) -> None:
    gan.critic(torch.ones(2, 4)).sum().backward()
    for parameter in gan.critic.parameters():
        parameter.data -= 0.1 * parameter.grad
        parameter.grad = None


def _penalty(gan: Gan) -> None:
    gan.of_critic.zero_grad()
    batch = torch.ones(2, 4, requires_grad=True)
    (slope,) = torch.autograd.grad(gan.critic(batch).sum(), batch, create_graph=True)
    (slope.norm() + gan.critic(batch).sum()).backward()
    gan.of_critic.step()


def _asked_for(gan: Gan) -> None:
    """Adversarial examples, by the gradient of the input alone."""
    batch = torch.ones(2, 4, requires_grad=True)
    (slope,) = torch.autograd.grad(gan.critic(batch).sum(), batch)
    gan.of_critic.zero_grad()
    gan.critic(batch.detach() + slope.sign()).sum().backward()
    gan.of_critic.step()


@pytest.mark.parametrize("step", [_accumulated, _saliency, _by_hand, _penalty, _asked_for])
def test_gradients_that_are_read_are_none_of_these(step: Callable[[Gan], None]) -> None:
    gan = Gan()
    found = _watched(gan.window(), lambda: step(gan), lambda: step(gan))
    assert found["discarded"] == []


def _zeroed_by_hand(gan: Gan) -> None:
    for parameter in gan.critic.parameters():
        if parameter.grad is not None:
            parameter.grad.detach_()
            parameter.grad.zero_()


def _let_go_by_hand(gan: Gan) -> None:
    for parameter in gan.critic.parameters():
        if parameter.grad is not None:
            parameter.grad = None


@pytest.mark.parametrize("let_go", [_zeroed_by_hand, _let_go_by_hand, lambda gan: gan.critic.zero_grad()])
def test_an_attack_by_backward_fills_gradients_of_the_model_too_however_they_are_let_go(
    let_go: Callable[[Gan], object],
) -> None:
    gan = Gan()

    def attack() -> None:
        batch = torch.ones(2, 4, requires_grad=True)
        gan.critic(batch).sum().backward()
        assert batch.grad is not None
        let_go(gan)

    (found,) = _watched(gan.window(), attack)["discarded"]
    assert found["part_ms"] > 0 and not found["useless"], "the input's gradient is of use"


def test_of_a_pass_of_no_visible_use_only_the_parameters_own_part_counts() -> None:
    gan = Gan()

    def kept() -> None:
        hidden = gan.critic[0](torch.ones(2, 4))
        hidden.retain_grad()
        gan.critic[2](hidden).sum().backward()
        gan.critic.zero_grad()

    (found,) = _watched(gan.window(), kept)["discarded"]
    assert found["useless"] and found["whole_ms"] == 0.0 and found["part_ms"] > 0


def test_the_job_computes_the_same_while_it_is_watched() -> None:
    watched, alone = Gan(), Gan()
    _watched(watched.window(), lambda: watched.teach_critic(False), watched.teach_generator)
    alone.teach_critic(False)
    alone.teach_generator()
    for one, other in ((watched.generator, alone.generator), (watched.critic, alone.critic)):
        assert all(map(torch.equal, one.parameters(), other.parameters()))
        assert all(torch.equal(a.grad, b.grad) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_a_pass_inside_another_is_not_understood_and_not_told() -> None:
    gan = Gan()

    def reentrant() -> None:
        gan.of_critic.zero_grad()
        block = torch.utils.checkpoint.checkpoint
        gan.critic[2](block(gan.critic[:2], gan.generator(torch.ones(2, 3)), use_reentrant=True)).sum().backward()
        gan.of_critic.zero_grad()

    assert _watched(gan.window(), reentrant)["discarded"] == []


def test_a_pass_that_raises_is_over() -> None:
    gan = Gan()
    window = gan.window()

    def twice() -> None:
        loss = gan.critic(torch.ones(2, 4)).sum()
        loss.backward()
        with pytest.raises(RuntimeError):
            loss.backward()

    _watched(window, twice)
    assert window.discards.inside is None


def test_no_parameters_no_passes() -> None:
    discards = Discards({}, [], SITES)
    discards.open()
    assert discards.begins((torch.ones(1, requires_grad=True).sum(),), ()) == []
    discards.ended([])
    assert discards.summary(1)["discarded"] == []


class Functional:
    """A critic and its target, both of bare tensors."""

    def __init__(self, by_hand: bool = False) -> None:
        torch.manual_seed(0)
        self.mine, self.target = (
            [torch.randn(3, 8).requires_grad_(), torch.randn(8, 1).requires_grad_()] for _ in "ab"
        )
        self.optimizer = torch.optim.SGD(self.mine, 0.1)
        self.by_hand = by_hand

    def teach(self) -> None:
        aim = self.value(self.target, torch.ones(2, 3))
        loss = (self.value(self.mine, torch.ones(2, 3)) - aim).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            for target, mine in zip(self.target, self.mine, strict=True):
                if self.by_hand:
                    assert target.grad is not None
                    target -= 0.1 * target.grad
                else:
                    target.lerp_(mine, 0.01)

    @staticmethod
    def value(weights: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ weights[0]) @ weights[1]

    def window(self) -> GradientsWindow:
        bare = bare_leaves(updated([self.optimizer]))
        ours = [one for one in bare if any(one is each for each in (*self.mine, *self.target))]
        return GradientsWindow(UnusedGradients([], updated([self.optimizer]), ours), SITES, compiled=False)


def test_of_bare_tensors_what_nobody_reads_is_told_where_its_graph_is_recorded() -> None:
    job = Functional()
    job.teach()
    (row,) = _watched(job.window(), job.teach, job.teach)["discarded"]
    assert (row["bare"], row["parameters"], row["elements"], row["module"]) == (True, 2, 3 * 8 + 8, "")
    assert row["recorded_at"] == (Functional.value.__code__.co_firstlineno + 2, "value")
    assert row["whole_ms"] == pytest.approx(3.0), "two products and an activation in each step"
    assert "grad" not in vars(torch.Tensor) and not torch.is_anomaly_enabled()


def test_bare_tensors_that_are_updated_by_hand_are_read() -> None:
    job = Functional(by_hand=True)
    job.teach()
    assert _watched(job.window(), job.teach, job.teach)["discarded"] == []
