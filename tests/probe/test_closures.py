"""What an optimizer is given to call is none of its own work."""

from __future__ import annotations

import itertools
from _thread import get_ident
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.guard import Guard
from perfdoctor.injected._perfdoctor_probe.hooks import closures


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Any:
    """In the update of an optimizer; each look at the clock is one nanosecond later."""
    monkeypatch.setattr(timeline, "_clock", itertools.count().__next__)
    line = timeline.Timeline()
    line.enter(timeline.OPTIMIZER)
    return SimpleNamespace(timeline=line, thread=get_ident())


def _given(loop: Any, *args: Any, **kwargs: Any) -> Any:
    return closures.apart(loop, Guard(lambda hook, error: pytest.fail(f"{hook}: {error}")))(args, kwargs)


def test_it_is_other_work_of_the_loop(loop: Any) -> None:
    def closure() -> list[int]:
        timeline._clock(), timeline._clock()
        return list(loop.timeline.stack)

    (_, named) = _given(loop, "optimizer", closure=closure)
    ((_, first), _) = _given(loop, "optimizer", closure)
    for called in (named["closure"], first):
        before = loop.timeline.spent[timeline.OTHER]
        assert called() == [timeline.OTHER, timeline.OPTIMIZER, timeline.OTHER]
        assert loop.timeline.stack == [timeline.OTHER, timeline.OPTIMIZER]
        assert loop.timeline.spent[timeline.OTHER] - before == 3


def test_one_that_raises_is_over(loop: Any) -> None:
    def closure() -> None:
        raise ValueError("the job's")

    (_, given) = _given(loop, "optimizer", closure=closure)
    with pytest.raises(ValueError, match="the job's"):
        given["closure"]()
    assert loop.timeline.stack == [timeline.OTHER, timeline.OPTIMIZER]


def test_without_one_and_on_another_thread_nothing_changes(loop: Any) -> None:
    assert _given(loop, "optimizer") is None
    assert _given(loop, "optimizer", None) is None
    loop.thread = -1
    (_, given) = _given(loop, "optimizer", closure=lambda: list(loop.timeline.stack))
    assert given["closure"]() == [timeline.OTHER, timeline.OPTIMIZER]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.LBFGS])
def test_torch_takes_it_for_the_one_that_it_was_given(loop: Any, kind: type[torch.optim.Optimizer]) -> None:
    model = nn.Linear(3, 1)
    seen = []

    def closure() -> torch.Tensor:
        seen.append(loop.timeline.stack[-1])
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).square().mean()
        loss.backward()
        return loss

    optimizer = kind(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda _, args, kwargs: _given(loop, *args, **kwargs))
    loss = optimizer.step(closure)  # type: ignore[arg-type]
    assert isinstance(loss, torch.Tensor) and set(seen) == {timeline.OTHER}
