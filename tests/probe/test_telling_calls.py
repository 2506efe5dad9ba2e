"""What the call-site window counts: anomaly detection, lists made into tensors, and where types meet. A trace of
anomaly detection reads as without the probe."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.fx.traceback
from torch import nn

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.guard import Guard
from perfdoctor.injected._perfdoctor_probe.hooks.anomaly import Anomaly, AnomalyWatch
from perfdoctor.injected._perfdoctor_probe.windows.call_sites import SitesWindow


def anomaly(site: int = -1) -> Anomaly:
    found = Anomaly(SimpleNamespace(here=lambda: 5), Guard(lambda hook, error: None))
    found.site = site
    return found


@pytest.fixture
def on() -> Any:
    torch.autograd.set_detect_anomaly(True)
    yield
    torch.autograd.set_detect_anomaly(False)


def train(model: nn.Module) -> None:
    model(torch.ones(2, 4)).sum().backward()


def watched(site: int = -1, step: Callable[[nn.Module], None] = train) -> list[dict[str, Any]]:
    """The telling calls of one training step under the call-site window."""
    here = SimpleNamespace(
        is_library=lambda file: False,
        stack=lambda *_, **__: [],
        call=lambda depth, thread: (9, (1, 2), True),
        here=lambda: 9,
    )
    loop = SimpleNamespace(timeline=SimpleNamespace(stack=[timeline.OTHER], step=0), optimizer_steps=0)
    window = SitesWindow(here, loop, anomaly(site), compiled=False)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    step(model)
    window.open()
    step(model)
    return window.close(1)["calls"]


@pytest.mark.parametrize(("site", "line", "detail"), [(3, 3, "switch"), (-1, 5, "")])
def test_traces_and_searches_are_counted_apart_from_scalar_reads(on: None, site: int, line: int, detail: str) -> None:
    calls = {call["kind"]: call for call in watched(site)}
    # A product, a relu, a product and a sum; leaves take their traces when they are first used.
    assert min(calls[kind]["calls_per_step"] for kind in ("anomaly_trace", "anomaly_check")) >= 4
    assert calls["anomaly_trace"]["ms_per_step"] > 0
    assert {(call["site"], call["detail"]) for call in calls.values()} == {(line, detail)}
    assert "scalar_read" not in calls


def test_where_it_is_off_there_is_nothing_to_count() -> None:
    assert watched() == []


def through_lists(model: nn.Module) -> None:
    rows = model(torch.ones(2, 4)).tolist()
    torch.tensor(rows), torch.as_tensor(data=rows), torch.tensor(1.0), torch.as_tensor(torch.ones(2))


def test_tensors_made_of_lists_are_counted_and_those_of_other_things_are_not() -> None:
    calls = {call["kind"]: call for call in watched(step=through_lists)}
    assert {kind: call["calls_per_step"] for kind, call in calls.items()} == {"from_list": 2, "to_list": 1}
    assert all(call["site"] == 9 and call["detail"] == "other" and call["ms_per_step"] > 0 for call in calls.values())
    assert "tensor" in vars(torch) and torch.tensor.__module__ == "torch" and "tolist" not in vars(torch.Tensor)


def test_a_search_of_the_jobs_own_is_none_of_anomaly_detection() -> None:
    watch = AnomalyWatch(anomaly())
    assert not watch.is_search("aten::isnan", True, 10)  # the mode is off
    assert not watch.is_search("aten::_local_scalar_dense", True, 10)
    torch.autograd.set_detect_anomaly(True)
    try:
        assert not watch.is_search("aten::isnan", False, 10)  # in the forward pass
        assert watch.is_search("aten::isnan", True, 10) and watch.is_search("aten::_is_any_true", True, 10)
        assert watch.is_search("aten::_local_scalar_dense", True, 10)
        assert not watch.is_search("aten::_local_scalar_dense", True, 10), "a second read is the job's"
    finally:
        torch.autograd.set_detect_anomaly(False)
    assert watch.checks == [1, 30]


def test_a_trace_has_the_lines_that_it_has_without_us() -> None:
    original = torch.fx.traceback.format_stack
    watch = AnomalyWatch(anomaly())
    watch.open()
    try:
        assert torch.fx.traceback.format_stack is not original
        ours = torch.fx.traceback.format_stack()
        theirs = traceback.format_list(traceback.extract_stack())
    finally:
        watch.close()
    assert torch.fx.traceback.format_stack is original
    assert ours[:-1] == theirs[:-1] and "ours = " in ours[-1]


def test_the_line_that_switches_it_on_is_noted_and_the_one_that_switches_it_off_is_not() -> None:
    found = anomaly()
    found.switched()
    assert found.site == -1
    torch.autograd.set_detect_anomaly(True)
    try:
        found.switched()
    finally:
        torch.autograd.set_detect_anomaly(False)
    found.switched()
    assert found.site == 5


@pytest.mark.parametrize(
    ("mask", "found"),
    [
        (torch.ones(5, 5).triu(1).bool(), ["causal_mask"]),
        (torch.ones(5, 5).tril() == 0, ["causal_mask"]),
        (torch.ones(5, 5).triu(1).bool().expand(2, 5, 5), ["causal_mask"]),
        (torch.ones(5, 5).triu(0).bool(), []),
        (torch.zeros(5, 5).bool(), []),
        (torch.zeros(1, 5).bool(), []),
    ],
    ids=["above the diagonal", "not below", "for each sample", "with the diagonal", "none", "of keys"],
)
def test_masks_that_hide_what_follows_are_known(mask: torch.Tensor, found: list[str]) -> None:
    def step(model: nn.Module) -> None:
        torch.zeros(2, 5, 5).masked_fill(mask, 1.0)

    calls = watched(step=step)
    assert [call["kind"] for call in calls] == found
    assert {call["detail"] for call in calls} <= {"5x5"}


def met(wide: torch.Tensor) -> Callable[[nn.Module], None]:
    return lambda model: (model(torch.ones(2, 4)) * wide, torch.cat([wide, wide]), wide + 1.0)


@pytest.mark.parametrize(
    ("wide", "detail"),
    [
        (torch.ones(2, 1, dtype=torch.float64), "float64"),
        (torch.ones(2, 1, dtype=torch.complex128), "complex128"),
        (torch.ones((), dtype=torch.float64), ""),  # one number changes no type
        (torch.ones(2, 1), ""),
    ],
)
def test_where_float32_meets_float64_is_noted(wide: torch.Tensor, detail: str) -> None:
    calls = watched(step=met(wide) if wide.dim() else lambda model: model(torch.ones(2, 4)) * wide)
    assert [(call["kind"], call["detail"], call["calls_per_step"]) for call in calls] == (
        [("promotes", detail, 1.0)] if detail else []
    )
