"""Backward passes that one line asks for, counted from one optimizer's update to the next."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.guard import Guard
from perfdoctor.injected._perfdoctor_probe.hooks.anomaly import Anomaly
from perfdoctor.injected._perfdoctor_probe.windows.call_sites import SitesWindow

STEPS = 2


@pytest.mark.parametrize(
    ("networks", "batches", "told"),
    [(1, 1, 1.0), (1, 4, 4.0), (3, 1, 1.0), (3, 2, 2.0)],  # plain, accumulated, an actor and its critics, both
)
def test_networks_that_learn_in_turn_have_passes_of_their_own(networks: int, batches: int, told: float) -> None:
    here = SimpleNamespace(
        is_library=lambda file: False,
        stack=lambda *_, **__: [],
        call=lambda depth, thread: (9, (1, 2), True),
        here=lambda: 9,
    )
    loop = SimpleNamespace(timeline=SimpleNamespace(stack=[timeline.OTHER], step=0), optimizer_steps=0)
    anomaly = Anomaly(SimpleNamespace(here=lambda: 5), Guard(lambda hook, error: None))
    window = SitesWindow(here, loop, anomaly, compiled=False)
    models = [nn.Linear(4, 1) for _ in range(networks)]
    models[0](torch.ones(2, 4)).sum().backward()
    window.open()
    for _ in range(STEPS):
        for model in models:
            for _ in range(batches):
                model(torch.ones(2, 4)).sum().backward()
            loop.optimizer_steps += 1
        loop.timeline.step += 1
    (line,) = [line for line in window.close(STEPS)["lines"] if line["part"] == "backward"]
    assert line["passes_per_update"] == told
