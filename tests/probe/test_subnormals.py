"""What subnormal numbers cost: which operators are computed again, how, and that the job notices nothing."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.windows import subnormals
from perfdoctor.injected._perfdoctor_probe.windows.subnormals import SubnormalsWindow, Suspicion, share

FADED = 1e-39
SITES = SimpleNamespace(here=lambda depth: 3)


def flushes() -> bool:
    """Whether this thread takes subnormal numbers for 0."""
    return not bool((torch.full((1,), FADED) * 0.5).view(torch.int32).item())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Says that flushing takes a quarter of the time; on which threads operators are computed again."""
    ran: list[bool] = []

    def took(func: Any, args: Any, kwargs: Any) -> int:
        ran.append(flushes())
        return 25 if ran[-1] else 100

    monkeypatch.setattr(subnormals, "_took_ns", took)
    return ran


def watched(step: Callable[[], object], steps: int = 1, stack: list[int] | None = None) -> dict[str, Any]:
    loop = SimpleNamespace(timeline=SimpleNamespace(stack=stack or [timeline.OTHER]))
    window = SubnormalsWindow(SITES, loop, compiled=False)
    assert window.obstacle() == ""
    window.open()
    try:
        for _ in range(steps):
            step()
        assert window.closable()
    finally:
        found = window.close(steps)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_between_0_and_the_smallest_normal_one_are_counted(dtype: torch.dtype) -> None:
    tiny = torch.finfo(dtype).tiny
    assert share(torch.full((512,), -tiny / 8, dtype=dtype)) == 1.0
    assert share(torch.full((512,), tiny, dtype=dtype)) == 0.0
    assert share(torch.zeros(512, dtype=dtype)) == 0.0
    half = torch.ones(512, dtype=dtype)
    half[::2] = tiny / 8
    assert share(half) == 0.5


def test_a_dead_column_is_not_missed() -> None:
    weights = torch.ones(512, 1024)
    weights[:, 7::16] = FADED
    assert share(weights) == pytest.approx(1 / 16, rel=0.5)


@pytest.mark.parametrize(
    "tensor",
    [torch.full((100,), FADED), torch.zeros(512, dtype=torch.int64), torch.full((512,), 1e-7, dtype=torch.float16)],
    ids=["small", "integers", "float16"],
)
def test_of_others_nothing_is_said(tensor: torch.Tensor) -> None:
    assert share(tensor) == 0.0


def test_an_operator_that_meets_some_is_computed_again_with_and_without_flushing(clock: list[bool]) -> None:
    faded, ones = torch.full((64, 64), FADED), torch.ones(64, 64)
    found = watched(lambda: (faded @ ones, ones @ ones))
    assert found["forward_ms"] == pytest.approx(0.75 * found["met_ms"], rel=0.01)
    assert 0 < found["met_ms"] < found["ops_ms"]
    assert (found["operators"], found["share"], found["at"]) == (["mm"], 1.0, 3)
    assert clock[0] is False and clock[1] is True and len(clock) % 2 == 0
    assert not flushes()


def test_products_of_normal_numbers_count_too(clock: list[bool]) -> None:
    small = torch.full((64, 64), 1e-20)
    assert watched(lambda: small * small)["operators"] == ["mul"]


def test_ordinary_numbers_are_not_computed_again(clock: list[bool]) -> None:
    ones = torch.ones(64, 64)
    found = watched(lambda: (ones @ ones).relu())
    assert (found["met_ms"], found["at"], clock) == (0.0, -1, [])


def test_what_a_batch_is_made_of_is_not_either(clock: list[bool]) -> None:
    faded = torch.full((64, 64), FADED)
    assert watched(lambda: faded @ faded, stack=[timeline.INPUT])["met_ms"] == 0.0


def test_each_pass_has_its_own_part(clock: list[bool]) -> None:
    weight = torch.ones(64, 64, requires_grad=True)
    found = watched(lambda: (weight * FADED).sum().backward())
    assert found["forward_ms"] > 0 and found["backward_ms"] > 0 and found["optimizer_ms"] == 0
    found = watched(lambda: weight.detach() * FADED, stack=[timeline.OPTIMIZER])
    assert found["optimizer_ms"] > 0 and found["forward_ms"] == 0


def _trained(watch: Callable[[Callable[[], object]], object]) -> list[torch.Tensor]:
    """All that two steps of a job leave, whose gradients are subnormal; dropout draws random numbers."""
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        hidden = torch.nn.functional.dropout(model(torch.full((32, 64), FADED)), 0.5)
        (hidden * FADED).sum().backward()
        optimizer.step()

    for _ in range(2):
        watch(step)
    state = [value for one in optimizer.state.values() for value in one.values()]
    return [*model.parameters(), *state, torch.get_rng_state()]


def test_the_job_computes_what_it_would_have() -> None:
    alone = _trained(lambda step: step())
    seen = _trained(lambda step: watched(step))
    assert all(torch.equal(one, other) for one, other in zip(alone, seen, strict=True))


def test_copies_have_an_end(clock: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subnormals, "_MOST_BYTES", 64 * 64 * 4)
    faded, larger = torch.full((64, 64), FADED), torch.full((64, 65), FADED)
    found = watched(lambda: (faded * 2, larger * 2))
    assert len(set(clock)) == 2
    assert found["met_ms"] < found["ops_ms"]


def test_where_the_cpu_cannot_flush_nothing_would_be_saved(clock: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "set_flush_denormal", lambda mode: False)
    faded = torch.full((64, 64), FADED)
    found = watched(lambda: faded @ faded)
    assert (found["forward_ms"], found["operators"], clock) == (0.0, [], [])


@pytest.mark.parametrize(("met_ns", "asks"), [(40_000, ()), (60_000, ("subnormals",))])
def test_a_twentieth_of_the_operators_time_is_worth_a_closer_look(met_ns: int, asks: tuple[str, ...]) -> None:
    seen = Suspicion()
    seen.ended((), torch.ones(512), 1_000_000 - met_ns)
    seen.ended((), torch.full((512,), FADED), met_ns)
    assert seen.asks == asks


def test_what_is_written_in_place_is_looked_at_too() -> None:
    seen = Suspicion()
    seen.ended(([torch.ones(512)], [torch.full((512,), FADED)], 0.9), None, 50_000)
    assert seen.asks == ("subnormals",)
