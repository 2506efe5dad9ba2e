"""Lines that step a learning-rate schedule are counted, and the schedule does as it would."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from perfdoctor.injected._perfdoctor_probe.changes import Changes
from perfdoctor.injected._perfdoctor_probe.guard import Guard
from perfdoctor.injected._perfdoctor_probe.hooks import patches
from perfdoctor.injected._perfdoctor_probe.hooks.calls import Calls
from perfdoctor.injected._perfdoctor_probe.timeline import OTHER


@pytest.fixture
def counted() -> Any:
    timeline = SimpleNamespace(step=3, stack=[OTHER])
    loop = SimpleNamespace(timeline=timeline, on_training_thread=lambda: True)
    calls = Calls(None, loop, SimpleNamespace(here=lambda depth: 4), Guard(lambda hook, error: None))
    changes = Changes()
    patches._schedules(SimpleNamespace(calls=calls, changes=changes))
    patches._averages(SimpleNamespace(calls=calls, changes=changes))
    yield calls
    changes.take_back()


def _rates(kind: Any, *words: Any, **options: Any) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    scheduler = kind(optimizer, *words, **options)
    found = []
    for _ in range(4):
        optimizer.step()
        scheduler.step(*([1.0] if kind is lr_scheduler.ReduceLROnPlateau else []))
        found.append(optimizer.param_groups[0]["lr"])
    return found


@pytest.mark.parametrize(
    ("kind", "words", "expected"),
    [
        (lr_scheduler.StepLR, (2, 0.5), [1.0, 0.5, 0.5, 0.25]),
        (lr_scheduler.CosineAnnealingWarmRestarts, (2,), [0.5, 1.0, 0.5, 1.0]),
        (lr_scheduler.ReduceLROnPlateau, ("min", 0.5, 1), [1.0, 1.0, 0.5, 0.5]),
    ],
)
def test_each_call_is_counted_and_the_rates_are_as_without(
    counted: Any, kind: Any, words: tuple[Any, ...], expected: list[float]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rates = _rates(kind, *words)
    ((name, site), (count, took_ns, _)) = next(iter(counted.totals.items()))
    assert (name, site) == ("schedule", 4) and count in (4, 5) and took_ns > 0
    assert rates == expected


def test_everything_is_put_back() -> None:
    originals = [vars(kind)["step"] for kind in (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau)]
    changes = Changes()
    calls = SimpleNamespace(wrap=lambda kind, original, began: lambda self: None, began_in_loop=None)
    patches._schedules(SimpleNamespace(calls=calls, changes=changes))
    patches._averages(SimpleNamespace(calls=calls, changes=changes))
    assert vars(lr_scheduler.LRScheduler)["step"] is not originals[0]
    changes.take_back()
    assert [vars(kind)["step"] for kind in (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau)] == originals


def test_passes_for_the_statistics_of_an_average_are_counted_and_make_them(counted: Any) -> None:
    average = torch.optim.swa_utils.AveragedModel(torch.nn.BatchNorm1d(2))
    torch.optim.swa_utils.update_bn([torch.full((4, 2), 3.0), torch.full((4, 2), 5.0)], average)
    assert average.module.running_mean.tolist() == [4.0, 4.0]
    ((name, (count, took_ns, _)),) = counted.totals.items()
    assert name == ("update_bn", 4) and count == 1 and took_ns > 0
