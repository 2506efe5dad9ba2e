"""Which parameters get gradients that no optimizer uses, whether anybody reads them, and what freezing them changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import passes as microbenchmark
from perfdoctor.injected._perfdoctor_probe.microbenchmarks.passes import PassMicrobenchmark, always
from perfdoctor.injected._perfdoctor_probe.remedies import freezing
from perfdoctor.injected._perfdoctor_probe.remedies.base import UnsuitableError
from perfdoctor.injected._perfdoctor_probe.remedies.freezing import FreezeUnused
from perfdoctor.injected._perfdoctor_probe.windows.gradients import GradientsWindow, UnusedGradients, updated
from perfdoctor.injected._perfdoctor_probe.windows.layers import Layers


class Sites:
    def stack(self, frame: object) -> list[tuple[str, int, str]]:
        return []

    def here(self, depth: int = 1) -> int:
        return 7

    def made_at(self, made: object) -> int:
        return 9

    def is_library(self, filename: str) -> bool:
        return filename != __file__


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(x))


class Loss(nn.Module):
    """As a loss holds its network, made of torch's parts."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Net()


def test_of_a_module_that_only_holds_another_that_one_is_named() -> None:
    model = nn.ModuleDict({"loss": Loss(), "head": nn.Linear(2, 2)})
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    ((name, module),) = UnusedGradients([model], {id(one) for one in model["head"].parameters()}).modules
    assert name == "loss.network" and isinstance(module, Net)


class Job:
    """Its optimizer has the head alone."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = Net()
        self.optimizer = torch.optim.SGD(self.model.head.parameters(), 0.1)
        self.step()

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.ones(3, 4)).sum().backward()
        self.optimizer.step()

    def unused(self) -> UnusedGradients:
        return UnusedGradients([self.model], {id(p) for p in self.model.head.parameters()})


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the smallest pass may take its time."""
    monkeypatch.setattr(microbenchmark, "_LIMIT_NS", 1 << 60)


@pytest.fixture
def job() -> Iterator[Job]:
    yield Job()


def test_parameters_of_no_optimizer_that_have_gradients_are_named_by_their_module(job: Job) -> None:
    found = job.unused()
    assert (len(found.parameters), found.of, [name for name, _ in found.modules]) == (4, 6, ["backbone"])


class Held(Job):
    """Its optimizer has the backbone too, at a learning rate of 0."""

    def __init__(self) -> None:
        super().__init__()
        groups = [
            {"params": list(self.model.backbone.parameters()), "lr": 0.0},
            {"params": list(self.model.head.parameters())},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=0.1)
        self.step()

    def unused(self) -> UnusedGradients:
        return UnusedGradients([self.model], updated([self.optimizer]))


def test_parameters_at_a_learning_rate_of_zero_are_some() -> None:
    held = Held()
    found = held.unused()
    assert (len(found.parameters), found.held([held.optimizer])) == (4, 4)
    assert [name for name, _ in found.modules] == ["backbone"]
    job = Job()
    assert job.unused().held([job.optimizer]) == 0


def test_their_optimizer_and_a_scaler_read_these_gradients_to_no_use() -> None:
    held = Held()
    found = _watched(held, held.step)
    assert (found["reads_per_step"], found["updated"]) == (0.0, False)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)

    def by_scaler() -> None:
        held.optimizer.zero_grad()
        scaler.scale(held.model(torch.ones(3, 4)).sum()).backward()
        scaler.step(held.optimizer)
        scaler.update()

    assert _watched(held, by_scaler)["reads_per_step"] == 0.0


def test_one_that_moves_all_the_same_is_updated() -> None:
    held = Held()

    def moves() -> None:
        with torch.no_grad():
            for parameter in held.model.backbone.parameters():
                parameter.sub_(parameter.grad)

    assert _watched(held, moves)["updated"]


def test_frozen_they_stay_where_they_are_and_the_rest_learns_the_same() -> None:
    job, other = Held(), Held()
    remedy = FreezeUnused(SimpleNamespace())
    remedy.apply()
    try:
        assert not any(p.requires_grad for one in (job, other) for p in one.model.backbone.parameters())
        job.step()
    finally:
        remedy.withdraw()
    other.step()
    pairs = zip(job.model.parameters(), other.model.parameters(), strict=True)
    assert all(torch.equal(one, two) and one.requires_grad for one, two in pairs)


def _frozen(job: Job) -> None:
    job.model.backbone.requires_grad_(False)


def _hooked(job: Job) -> None:
    for parameter in job.model.backbone.parameters():
        parameter.register_hook(lambda gradient: gradient)


def _without_gradients(job: Job) -> None:
    job.model.zero_grad()


@pytest.mark.parametrize("change", [_frozen, _hooked, _without_gradients])
def test_what_is_frozen_hooked_or_has_no_gradient_is_none(job: Job, change: Callable[[Job], None]) -> None:
    change(job)
    assert job.unused().parameters == []


def _watched(job: Job, during: Callable[[], object]) -> dict[str, Any]:
    window, engine = GradientsWindow(job.unused(), Sites(), compiled=False), torch.autograd._engine_run_backward
    window.open()
    try:
        during()
    finally:
        found = window.close(1)
    assert "grad" not in vars(nn.Parameter) and torch.autograd._engine_run_backward is engine
    return found


def test_a_step_and_zeroing_read_no_gradient_of_theirs(job: Job) -> None:
    def ordinary() -> None:
        job.model.zero_grad()
        job.step()

    found = _watched(job, ordinary)
    assert (found["reads_per_step"], found["updated"], found["discarded"]) == (0.0, False, [])


@pytest.mark.parametrize(
    "use",
    [
        lambda job: [p.grad.norm() for p in job.model.backbone.parameters()],
        lambda job: torch.autograd.grad(job.model(torch.ones(1, 4)).sum(), list(job.model.backbone.parameters())),
    ],
    ids=["norms", "asked for"],
)
def test_whoever_reads_a_gradient_uses_it(job: Job, use: Callable[[Job], object]) -> None:
    assert _watched(job, lambda: use(job))["reads_per_step"] > 0


def test_the_norm_of_all_gradients_uses_none_of_theirs(job: Job) -> None:
    found = _watched(job, lambda: torch.nn.utils.clip_grad_norm_(job.model.parameters(), 1.0))
    assert found["reads_per_step"] == 0 and found["norms_per_step"] >= 4


def test_parameters_that_change_without_an_optimizer_are_updated(job: Job) -> None:
    def by_hand() -> None:
        for parameter in job.model.backbone.parameters():
            parameter.data += 1.0

    assert _watched(job, by_hand)["updated"]


def test_reading_while_it_is_watched_gives_what_it_gives_otherwise(job: Job) -> None:
    weight = job.model.backbone[0].weight
    before = weight.grad

    def touch() -> None:
        assert weight.grad is before
        weight.grad = None
        assert weight.grad is None
        weight.grad = before
        del weight.grad

    _watched(job, touch)
    assert weight.grad is None


def test_a_job_that_compiles_is_not_watched(job: Job) -> None:
    assert "torch.compile" in GradientsWindow(job.unused(), Sites(), compiled=True).obstacle()


# ---------------------------------------------------------------------------------------------------------
# Layers, and the passes run again


def _summary(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> tuple[Layers, dict[str, Any]]:
    layers = Layers(Sites(), optimizer)
    layers.open()
    try:
        model(batch)
    finally:
        layers.close()
    return layers, layers.summary([], [], lambda *_: 0, 1, 0.0)


def test_the_window_tells_of_them_and_of_nothing_in_a_healthy_job(job: Job) -> None:
    layers, summary = _summary(job.model, job.optimizer, torch.ones(3, 4))
    told = summary["unused"]
    assert (told["parameters"], told["of"], told["modules"], told["made_at"]) == (4, 6, ["backbone"], 9)
    assert told["partly"], "the head learns"
    assert layers.unused is not None
    both = torch.optim.Adam(job.model.backbone.parameters())
    layers, summary = _summary(job.model, job.optimizer, torch.ones(3, 4))
    assert layers.unused is None and "unused" not in summary, "another optimizer has them, if it steps seldom"
    del both


@pytest.mark.parametrize(("needs_gradient", "ahead"), [(False, 5.0), (True, 0.0)])
def test_layers_ahead_of_all_that_learns_are_told_apart(job: Job, needs_gradient: bool, ahead: float) -> None:
    batch = torch.ones(3, 4, requires_grad=needs_gradient)
    layers, _ = _summary(job.model, job.optimizer, batch)
    # In the order of first calls: the model, the backbone, its three layers, the head.
    told = layers._unused(dict.fromkeys(range(6), (0.0, 1.0)), True, 1)["unused"]
    assert told["ahead_backward_ms"] == ahead
    assert told["behind_backward_ms"] == (2.0 if needs_gradient else 0.0)


def test_passes_are_run_again_with_them_frozen_and_leave_no_trace(job: Job) -> None:
    before = [(id(p), p.requires_grad, p.grad, p.tolist()) for p in job.model.parameters()]
    unused, passes = job.unused(), PassMicrobenchmark()
    passes.note(job.model, (torch.ones(3, 4),), {})
    passes.keep(1.0)
    found = passes.without({"frozen": always(unused.freeze, unused.thaw)})
    assert set(found) == {"now_ms", "frozen_ms"} and min(found.values()) > 0
    after = [(id(p), p.requires_grad, p.grad, p.tolist()) for p in job.model.parameters()]
    assert all(a[:2] == b[:2] and a[2] is b[2] and a[3] == b[3] for a, b in zip(before, after, strict=True))


def test_a_module_that_is_frozen_whole_has_a_forward_pass_only() -> None:
    model, passes = nn.Linear(4, 2), PassMicrobenchmark()
    passes.note(model, (torch.ones(3, 4),), {})
    passes.keep(1.0)
    found = passes.without({"frozen": always(lambda: model.requires_grad_(False), lambda: model.requires_grad_(True))})
    assert "frozen_ms" in found and model.weight.requires_grad


# ---------------------------------------------------------------------------------------------------------
# The remedy


def test_frozen_they_get_no_gradients_and_what_learns_learns_the_same(job: Job) -> None:
    other = Job()
    remedy = FreezeUnused(SimpleNamespace())
    remedy.apply()
    assert remedy.lost() == ""
    gradient = job.model.backbone[0].weight.grad
    frozen = gradient.clone()
    job.step()
    assert torch.equal(job.model.backbone[0].weight.grad, frozen), "nothing was added"
    remedy.withdraw()
    assert all(p.requires_grad for p in (*job.model.parameters(), *other.model.parameters()))
    other.step()
    assert all(map(torch.equal, job.model.parameters(), other.model.parameters()))
    job.step()
    assert not torch.equal(job.model.backbone[0].weight.grad, frozen)


def test_a_loss_of_nothing_but_frozen_parameters_breaks_no_job(job: Job) -> None:
    engine = torch.autograd._engine_run_backward
    remedy = FreezeUnused(SimpleNamespace())
    remedy.apply()
    job.model.backbone(torch.ones(3, 4)).sum().backward()
    torch.autograd.backward([job.model.backbone(torch.ones(3, 4)).sum(), job.model(torch.ones(3, 4)).sum()])
    remedy.withdraw()
    assert torch.autograd._engine_run_backward is engine


def test_what_the_job_thaws_is_lost(job: Job) -> None:
    remedy = FreezeUnused(SimpleNamespace())
    remedy.apply()
    job.model.requires_grad_(True)
    assert "again" in remedy.lost()
    remedy.withdraw()


def test_a_job_whose_parameters_all_learn_has_nothing_to_freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job()
    its_own = [*job.model.modules(), *job.model.parameters(), job.optimizer]  # not what other tests have left
    monkeypatch.setattr(freezing, "living", lambda kinds: [one for one in its_own if isinstance(one, kinds)])
    job.optimizer.add_param_group({"params": list(job.model.backbone.parameters())})
    remedy = FreezeUnused(SimpleNamespace())
    with pytest.raises(UnsuitableError, match="an optimizer updates every"):
        remedy.apply()
    remedy.withdraw()
    assert all(p.requires_grad for p in job.model.parameters())
