"""The optimizer's update is timed on tensors of ours, each way, and the job's optimizer knows nothing of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import parameters, replay, update
from perfdoctor.injected._perfdoctor_probe.microbenchmarks.update import UpdateMicrobenchmark


def updated(kind: Any, model: nn.Module | None = None, **options: Any) -> torch.optim.Optimizer:
    """An optimizer right after its first update."""
    model = model or nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = kind(model.parameters(), **options)
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    return optimizer


def numbers(optimizer: torch.optim.Optimizer) -> list[Any]:
    tensors = [p for group in optimizer.param_groups for p in group["params"]]
    tensors += [v for state in optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor)]
    options = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    return [options, [(id(t), t.tolist()) for t in tensors]]


@pytest.mark.parametrize(
    ("kind", "options", "made", "ways"),
    [
        (torch.optim.Adam, {}, "loop", {"foreach_ms", "fused_ms"}),
        (torch.optim.AdamW, {"foreach": True}, "foreach", {"fused_ms"}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, "loop", {"foreach_ms", "fused_ms"}),
        (torch.optim.Adam, {"fused": True}, "fused", {"foreach_ms"}),
        (torch.optim.RMSprop, {}, "loop", {"foreach_ms"}),
    ],
)
def test_every_way_that_an_optimizer_knows_is_timed(kind: Any, options: dict, made: str, ways: set[str]) -> None:
    optimizer = updated(kind, **options)
    before, random = numbers(optimizer), torch.get_rng_state()
    found = UpdateMicrobenchmark(optimizer).timings()
    assert (found["optimizer"], found["made"], found["tensors"], found["part"]) == (kind.__name__, made, 4, 1.0)
    assert {name for name in found if name.endswith("_ms")} == ways | {"now_ms"}
    assert all(found[name] > 0 for name in (*ways, "now_ms"))
    assert numbers(optimizer) == before and torch.equal(torch.get_rng_state(), random)


def test_the_hooks_that_count_the_jobs_steps_do_not_hear_of_it() -> None:
    heard: list[object] = []
    handle = register_optimizer_step_post_hook(lambda *_: heard.append(1))
    try:
        optimizer = updated(torch.optim.Adam)
        assert "now_ms" in UpdateMicrobenchmark(optimizer).timings() and heard == [1]
    finally:
        handle.remove()


def test_parameters_without_a_gradient_are_not_updated() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
    model[0].requires_grad_(False)
    assert UpdateMicrobenchmark(updated(torch.optim.Adam, model)).timings()["tensors"] == 2


def grouped(kind: Any, groups: int, options: int) -> torch.optim.Optimizer:
    """An optimizer after its first update, with so many groups of one parameter and so many sets of options."""
    layers = nn.Sequential(*[nn.Linear(4, 4, bias=False) for _ in range(groups)])
    own = [{"params": [p], "weight_decay": 0.1 * (n % options)} for n, p in enumerate(layers.parameters())]
    optimizer = kind(own)
    layers(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return optimizer


def test_groups_of_the_same_options_are_timed_as_one_too() -> None:
    optimizer = grouped(torch.optim.Adam, groups=6, options=2)
    before = numbers(optimizer)
    found = UpdateMicrobenchmark(optimizer).timings()
    assert (found["groups"], found["groups_needed"], found["tensors"]) == (6, 2, 6)
    ways = {"now_together_ms", "foreach_together_ms", "fused_together_ms"}
    assert {name for name in found if name.endswith("_together_ms")} == ways and all(found[name] > 0 for name in ways)
    assert numbers(optimizer) == before


def test_groups_of_different_options_are_not_timed_together() -> None:
    found = UpdateMicrobenchmark(grouped(torch.optim.Adam, groups=3, options=3)).timings()
    assert (found["groups"], found["groups_needed"]) == (3, 3) and "now_together_ms" not in found


class Own(torch.optim.Adam):
    """The job's own."""


@pytest.mark.parametrize(
    ("kind", "options", "why"),
    [
        (Own, {}, "Own is not one of torch's own"),
        (torch.optim.Adam, {"differentiable": True}, "differentiable"),
    ],
)
def test_what_cannot_be_copied_says_why(kind: Any, options: dict, why: str) -> None:
    model = nn.Sequential(nn.Linear(8, 2))
    optimizer = kind(model.parameters(), **options)
    model(torch.ones(2, 8)).sum().backward()
    assert why in UpdateMicrobenchmark(optimizer).timings()["missing"]


def test_before_an_update_there_is_nothing_to_time() -> None:
    optimizer = torch.optim.Adam(nn.Linear(8, 2).parameters())
    assert "no parameter had a gradient" in UpdateMicrobenchmark(optimizer).timings()["missing"]


def test_an_optimizer_that_cannot_even_be_looked_at_is_no_failure() -> None:
    assert "AttributeError" in UpdateMicrobenchmark(object()).timings()["missing"]


def test_of_a_large_model_as_many_tensors_as_fit_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = updated(torch.optim.Adam)
    monkeypatch.setattr(update, "_ELEMENTS", 80)
    found = UpdateMicrobenchmark(optimizer).timings()
    assert found["part"] == pytest.approx((8 * 8 + 8 + 2) / (8 * 8 + 8 + 8 * 2 + 2), rel=1e-4)
    monkeypatch.setattr(update, "_ELEMENTS", 20)
    assert "too large" in UpdateMicrobenchmark(optimizer).timings()["missing"]


# ---------------------------------------------------------------------------------------------------------
# What goes through all parameters


def test_parameters_are_timed_one_by_one_and_together_on_tensors_of_ours() -> None:
    optimizer = updated(torch.optim.SGD, nn.Sequential(*[nn.Linear(8, 8) for _ in range(100)]), lr=0.1)
    before, random = numbers(optimizer), torch.get_rng_state()
    found = parameters.timings(UpdateMicrobenchmark(optimizer))
    assert set(found) == {
        *(
            "norms_ms",
            "norms_together_ms",
            "averages_ms",
            "averages_together_ms",
            "zeroed_ms",
            "released_ms",
            "part",
            "tensors",
        ),
    }
    assert all(took > 0 for took in found.values())
    assert numbers(optimizer) == before and torch.equal(torch.get_rng_state(), random)


class ByOperators(TorchDispatchMode):
    """A clock that stands still but for a microsecond in each operator."""

    now_ns = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.now_ns += 1000
        return func(*args, **(kwargs or {}))


def test_together_they_take_one_operator_where_one_by_one_they_take_two_each(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = UpdateMicrobenchmark(
        updated(torch.optim.SGD, nn.Sequential(*[nn.Linear(8, 8) for _ in range(100)]), lr=0.1)
    )
    with ByOperators() as clock:
        clocks = dict.fromkeys(("perf_counter_ns", "thread_time_ns"), lambda: clock.now_ns)
        monkeypatch.setattr(replay, "time", SimpleNamespace(**clocks))
        found = parameters.timings(noted)
    assert (found["averages_ms"], found["averages_together_ms"]) == (0.4, 0.001)
    assert found["norms_ms"] > 10 * found["norms_together_ms"]


def test_an_optimizer_of_the_jobs_own_has_parameters_too() -> None:
    found = parameters.timings(UpdateMicrobenchmark(updated(Own)))
    assert "missing" not in found and found["part"] == 1.0


def test_parameters_that_cannot_be_stood_in_for_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "_ELEMENTS", 8)
    found = parameters.timings(UpdateMicrobenchmark(updated(torch.optim.Adam)))
    assert "too large" in found["missing"]
