"""What is computed to be multiplied by 0."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from learning_job import UNWATCHED, Job
from torch import nn
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.windows import by_line, repeats
from perfdoctor.injected._perfdoctor_probe.windows.repeats import RepeatsWindow

LABELS = torch.arange(256) % 8
WEIGHTS: dict[str, Any] = {
    "a number": 0.0,
    "an integer": 0,
    "a tensor": torch.tensor(0.0),
}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operator takes 50 us, and all are named."""
    monkeypatch.setattr(repeats, "_clock", itertools.count(0, 50_000).__next__)
    monkeypatch.setattr(by_line, "_NAMES", 20)


class Both(Job):
    """A decoder beside the classes."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.Linear(8, 64)
        self.scale = nn.Parameter(torch.zeros(()))


def rows(other: Callable[[Both], torch.Tensor], each: int = 1) -> list[dict[str, Any]]:
    """Of steps of which every so many add this to their loss."""
    job = Both()
    loop = SimpleNamespace(timeline=SimpleNamespace(step=0, stack=[timeline.OTHER], spent=[1] * timeline.PARTS))
    window = RepeatsWindow(UsersFile(__file__), loop, compiled=False, evaluation=UNWATCHED)
    window.open()
    try:
        for step in range(3):
            loss = nn.functional.cross_entropy(job.model(job.x), LABELS)
            job.ends(loss + other(job) if step % each == 0 else loss)
            loop.timeline.step += 1
    finally:
        found = window.close(3)
    return found["weighted"]


def rebuilt(job: Both) -> torch.Tensor:
    return nn.functional.mse_loss(job.decoder(job.model(job.x)), job.x)


@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=list(WEIGHTS))
def test_all_that_leads_to_a_product_with_zero_is_told(weight: Any) -> None:
    (row,) = rows(lambda job: weight * rebuilt(job))
    assert {"addmm", "mse_loss"} <= set(row["operators"])
    assert row["forward_ms"] > 0 and row["backward_ms"] > row["forward_ms"]


def test_what_is_looked_at_needs_its_forward_pass() -> None:
    def told(job: Both) -> torch.Tensor:
        loss = rebuilt(job)
        assert loss.item() > 0
        return loss * 0.0

    (row,) = rows(told)
    assert row["forward_ms"] == 0 and row["backward_ms"] > 0


OTHERS: dict[str, Callable[[Both], torch.Tensor]] = {
    "that counts": lambda job: 0.1 * rebuilt(job),
    "that counts elsewhere": lambda job: (loss := rebuilt(job)) * 0.0 + loss,
    "whose weight learns": lambda job: job.scale * rebuilt(job),
    "of a mask": lambda job: (torch.zeros(256) * job.decoder(job.model(job.x)).mean(1)).sum(),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=list(OTHERS))
def test_a_loss_that_counts_is_not(other: Callable[[Both], torch.Tensor]) -> None:
    assert rows(other) == []


def test_what_one_of_the_steps_does_is_not_told() -> None:
    assert rows(lambda job: 0.0 * rebuilt(job), each=3) == []
