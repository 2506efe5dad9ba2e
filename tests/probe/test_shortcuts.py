"""The hooks of an ordinary step, in one frame each, record what the methods of the loop would."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.guard import Guard
from perfdoctor.injected._perfdoctor_probe.hooks import concurrency, discovery, loading, shortcuts
from perfdoctor.injected._perfdoctor_probe.loop import Loop

STEPS = 60


class JobError(Exception):
    """What the job itself raises."""


class Optimizer:
    """One that is known by what it is."""


class Observed:
    """A loop with its hooks, under a clock that only moves when it is read; `quick=False` keeps it on its methods."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, quick: bool) -> None:
        clock = itertools.count(1000, 7).__next__
        for module in (timeline, shortcuts, discovery, concurrency):
            monkeypatch.setattr(module, "_clock", clock)
        self.lines: list[dict[str, Any]] = []
        recorder = SimpleNamespace(record=lambda kind, /, **fields: self.lines.append({"k": kind, **fields}))
        sites = SimpleNamespace(here=lambda depth=1: 1, is_library=lambda file: True)
        self.guard = Guard(lambda hook, error: None)
        self.loop = Loop(
            recorder,
            lambda line: None,
            lambda optimizer, number: None,
            sites,
            concurrency.Concurrency(recorder, sites),
            self.guard,
        )
        if not quick:
            self.loop.faults = {"held back"}
        self.was_quick = 0
        self.loading = loading.Loading(recorder, self.loop, sites, self.guard)
        self.roots = discovery.Discovery(self.loop, self.guard, lambda: None)
        self.body: Callable[[], Any] = lambda: None
        above = SimpleNamespace(__call__=lambda module: self.body())
        self.call = discovery._stand_in(above, self.roots.clock)
        self.backward = shortcuts.backward(self.loop, self.guard, lambda *_, **__: self.body())
        self.began, self.ended = shortcuts.optimizer_hooks(self.loop, self.guard)
        self.following = shortcuts.following(self.loop, self.loading, self.guard, lambda _: self.body(), type(None))
        self.model, self.criterion = nn.Linear(2, 2), nn.Identity()
        self.optimizers = [Optimizer(), Optimizer()]
        self.iterator = SimpleNamespace()

    def inside(self, hook: Callable[[], Any], body: Callable[[], Any] = lambda: None) -> None:
        """`hook` around `body`; a `JobError` reaches us as it would reach the job."""
        before, self.body = self.body, body
        try:
            hook()
        except JobError:
            pass
        finally:
            self.body = before

    # -- what a job may do --------------------------------------------------------------------------------

    def batch(self, body: Callable[[], Any] = lambda: None) -> None:
        self.inside(lambda: self.following(self.iterator), body)

    def forward(self, body: Callable[[], Any] = lambda: None) -> None:
        self.inside(lambda: self.call(self.model), body)

    def loss(self) -> None:
        self.inside(lambda: self.call(self.criterion))

    def back(self, body: Callable[[], Any] = lambda: None) -> None:
        self.inside(lambda: self.backward((self.model.weight,), None, False, False, (), accumulate_grad=True), body)

    def step(self, which: int = 0, body: Callable[[], Any] = lambda: None) -> None:
        self.began(self.optimizers[which], (), {})
        body()
        self.ended(self.optimizers[which], (), {})
        self.was_quick += self.loop.quick != 0

    def collection(self) -> None:
        self.loop.timeline.enter(timeline.GC)
        self.loop.timeline.leave(timeline.GC)

    def fail(self) -> None:
        raise JobError

    def nested(self) -> None:
        self.inside(lambda: self.call(self.model))
        self.collection()

    def evaluation(self) -> None:
        self.model.eval()
        self.forward(lambda: self.model.weight)  # an output with a graph that no backward pass uses
        self.model.train()

    def closure(self) -> None:
        optimizer = self.optimizers[0]
        given = self.began(optimizer, (optimizer, lambda: (self.forward(), self.loss(), self.back())), {})
        given[0][1]()
        self.ended(optimizer, given[0], {})
        self.was_quick += self.loop.quick != 0

    def training(self, before_step: Callable[[], None] = lambda: None) -> None:
        self.batch()
        self.forward()
        self.loss()
        self.back()
        before_step()
        self.step()

    def recorded(self) -> tuple[Any, ...]:
        line = self.loop.timeline
        root = self.roots.found[nn.Linear]
        counts = (line.step, line.events, line.micro, line.mark, line.boundary_ns, self.loop.samples, root.calls)
        eval_with_grad = dict(self.loop.eval_with_grad)
        return line.rows, line.stack, line.spent, counts, eval_with_grad, root.spent_ns, self.loading.rows, self.lines


UNUSUAL: tuple[Callable[[Observed], None], ...] = (
    lambda job: job.batch(job.fail),
    lambda job: job.batch(job.collection),
    lambda job: job.forward(job.fail),
    lambda job: job.forward(job.nested),
    lambda job: job.back(job.fail),
    lambda job: job.back(job.forward),
    lambda job: job.step(1),
    lambda job: job.step(body=job.collection),
    lambda job: job.training(job.evaluation),
    Observed.closure,
    Observed.evaluation,
    Observed.forward,
    Observed.back,
    Observed.collection,
    lambda job: job.began(job.optimizers[0], (), {}),
)


def played(monkeypatch: pytest.MonkeyPatch, seed: int, quick: bool) -> Observed:
    job = Observed(monkeypatch, quick)
    chance = random.Random(seed)
    for _ in range(STEPS):
        job.training()
        if chance.random() < 0.5:
            chance.choice(UNUSUAL)(job)
    return job


@pytest.mark.parametrize("seed", range(40))
def test_both_ways_record_the_same(monkeypatch, seed):
    quick, slow = played(monkeypatch, seed, True), played(monkeypatch, seed, False)
    assert quick.was_quick > STEPS // 4
    assert slow.was_quick == 0
    assert [line | {"t": 0} for line in quick.lines] == [line | {"t": 0} for line in slow.lines]
    assert quick.recorded()[:-1] == slow.recorded()[:-1]
    assert not quick.guard.off


def test_a_second_optimizer_never_takes_the_place_of_one_that_steps(monkeypatch):
    job = Observed(monkeypatch, True)
    for _ in range(120):
        job.training()
        job.step(1)
    assert job.loop.anchor == id(job.optimizers[0])
    assert job.loop.timeline.step == 120


def test_an_optimizer_that_is_gone_is_followed_by_the_next(monkeypatch):
    """As in a loop that makes one for each fold or day, which is let go as the next one is made, or later."""
    job = Observed(monkeypatch, True)
    for _ in range(3):
        job.optimizers[0] = Optimizer()
        for _ in range(6):
            job.training()
    assert job.loop.timeline.step == 18


def test_optimizers_of_which_each_makes_some_steps_follow_one_another_after_a_while(monkeypatch):
    job = Observed(monkeypatch, True)
    kept = []
    for _ in range(9):
        kept.append(job.optimizers[0])
        job.optimizers[0] = Optimizer()
        for _ in range(12):
            job.training()
    # The first one's steps, and those of the one that is at it after fifty of others.
    assert job.loop.timeline.step == 12 + 10


def test_of_many_optimizers_that_step_by_turns_the_first_ends_the_step(monkeypatch):
    job = Observed(monkeypatch, True)
    job.optimizers += [Optimizer() for _ in range(68)]
    for _ in range(4):
        job.training()
        for which in range(1, 70):
            job.step(which)
    assert job.loop.timeline.step == 4


def test_an_ordinary_step_needs_none_of_the_methods(monkeypatch):
    job = played(monkeypatch, 0, True)
    for _ in range(4):
        job.training()
    called = []
    for kind in (Loop, timeline.Timeline):
        for name in (
            "enter",
            "leave",
            "boundary",
            "optimizer_began",
            "forward_began",
            "backward_began",
            "batch_wanted",
        ):
            if hasattr(kind, name):
                monkeypatch.setattr(kind, name, lambda *_, name=name: called.append(name))
    job.loop.due_ns = 1 << 62
    step = job.loop.timeline.step
    job.training()
    assert called == []
    assert job.loop.timeline.step == step + 1


@pytest.mark.parametrize("part", ["batch", "forward", "back", "step"])
def test_a_hook_that_fails_is_switched_off_and_the_job_goes_on(monkeypatch, part):
    job = played(monkeypatch, 1, True)
    for _ in range(4):
        job.training()
    assert job.loop.quick != 0
    job.loop.timeline.spent = None
    reached = []

    def body() -> None:
        reached.append(1)

    if part == "step":
        job.step(body=body)
    else:
        getattr(job, part)(body)
    assert reached == [1]
    assert job.guard.off == {{"batch": "batch", "forward": "forward", "back": "backward", "step": "optimizer"}[part]}


def test_after_a_failure_no_step_is_ordinary(monkeypatch):
    job = played(monkeypatch, 2, True)
    job.guard.fault("anything", ValueError())
    job.training()
    assert job.loop.quick == 0
