"""What steps compute aside: metrics, what nobody reads, and what training needs after all."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from learning_job import UNWATCHED, Job
from torch import nn
from torch.utils.checkpoint import checkpoint
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.windows import by_line, repeats
from perfdoctor.injected._perfdoctor_probe.windows.repeats import RepeatsWindow

LABELS = torch.arange(256) % 8
PARTS = [timeline.OTHER]
"""Of the step, the one that runs last."""
METRIC = "sort"
"""An operator that only the metrics below call."""


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operator takes 50 us, and all are named."""
    monkeypatch.setattr(repeats, "_clock", itertools.count(0, 50_000).__next__)
    monkeypatch.setattr(by_line, "_NAMES", 20)


def watched(step: Callable[[Job], object], job: Job | None = None, batches: bool = True) -> dict[str, list[str]]:
    """Operators of the metrics, and those of what nobody reads."""
    return {
        kind: [name for row in found for name in row["operators"]] for kind, found in rows(step, job, batches).items()
    }


def rows(
    step: Callable[[Job], object], job: Job | None = None, batches: bool = True
) -> dict[str, list[dict[str, Any]]]:
    """Both, by line, in steps that a loader gives `batches`."""
    job = job or Job()
    spent = [0] * timeline.PARTS
    spent[timeline.INPUT] = int(batches)
    clock = SimpleNamespace(step=7, stack=PARTS, spent=spent)
    sites = UsersFile(__file__)
    window = RepeatsWindow(sites, SimpleNamespace(timeline=clock), compiled=False, evaluation=UNWATCHED)
    step(job)
    window.open()
    try:
        for _ in range(3):
            job.x = torch.from_numpy(np.random.default_rng(clock.step).normal(size=(256, 64)).astype(np.float32))
            step(job)
            clock.step += 1
    finally:
        found = window.close(3)
    return {kind: found[kind] for kind in ("metrics", "unused")}


def ranking(scores: torch.Tensor) -> torch.Tensor:
    """How far down the right class is, on average."""
    order = scores.sort(dim=1, descending=True).indices
    return (order == LABELS[:, None]).float().mul(torch.arange(8.0)).sum(1).mean()


def _trains(aside: Callable[[Job, torch.Tensor], object]) -> Callable[[Job], None]:
    """A step that computes something aside from its outputs."""

    def step(job: Job) -> None:
        scores = job.model(job.x)
        aside(job, scores)
        job.ends(nn.functional.cross_entropy(scores, LABELS))

    return step


def _logs(job: Job, scores: torch.Tensor) -> None:
    """As `LightningModule.log` does: it keeps a copy."""
    quality = ranking(scores.detach())
    PARTS.append(timeline.LOGGING)
    quality.clone()
    PARTS.pop()


METRICS: dict[str, Callable[[Job, torch.Tensor], object]] = {
    "read as a number": lambda job, scores: ranking(scores.detach()).item(),
    "printed": lambda job, scores: f"{ranking(scores.detach())}",
    "counted": lambda job, scores: int((scores.detach().sort().indices[:, 0] == LABELS).sum()),
    "kept": lambda job, scores: setattr(job, "kept", ranking(scores.detach())),
    "with gradients": lambda job, scores: (ranking(scores) + scores.sort().values.square().mean()).item(),
    "with a part that nobody reads": lambda job, scores: (scores.detach() * 2, ranking(scores.detach()).item()),
    "logged": _logs,
    "handed over as a number": lambda job, scores: ranking(scores.detach()).numpy(),
    "of all batches so far": lambda job, scores: ranking(torch.cat([scores.detach()] * 4)[-256:]).item(),
}


@pytest.mark.parametrize("name", METRICS)
def test_what_ends_in_numbers_that_are_read_is_a_metric(name: str) -> None:
    assert METRIC in watched(_trains(METRICS[name]))["metrics"]


def test_what_one_of_the_steps_does_is_not_done_in_each() -> None:
    """An evaluation at the end of an epoch, which is there in the middle of the window."""

    steps = itertools.count()

    def evaluates(job: Job, scores: torch.Tensor) -> None:
        # One step comes before the window, and one before those that are judged.
        if next(steps) == 2:
            ranking(job.model(job.x).detach()).item()

    assert watched(_trains(evaluates))["metrics"] == [] and next(steps) == 4


def test_what_is_made_of_more_numbers_in_each_step_grows() -> None:
    seen: list[torch.Tensor] = []

    def so_far(job: Job, scores: torch.Tensor) -> None:
        seen.append(scores.detach().sort().values)
        torch.cat(seen).mean().item()

    assert {row["grows"] for row in rows(_trains(so_far))["metrics"]} == {True}
    assert not any(row["grows"] for row in rows(_trains(METRICS["read as a number"]))["metrics"])


def test_what_has_a_graph_that_nobody_goes_through_and_is_not_read_is_of_no_use() -> None:
    found = watched(_trains(lambda job, scores: job.model[0](job.x).softmax(1)))
    assert not found["metrics"] and set(found["unused"]) == {"_softmax", "addmm"}


def test_what_is_detached_may_be_handed_to_numpy() -> None:
    found = watched(_trains(lambda job, scores: job.model[0](job.x).softmax(1).detach().numpy()))
    assert found == {"metrics": [], "unused": []}


def test_so_is_a_part_of_a_model_whose_output_is_dropped() -> None:
    class Both(Job):
        def __init__(self) -> None:
            super().__init__()
            self.decoder = nn.Linear(8, 64)

    def step(job: Job) -> None:
        scores = job.model(job.x)
        rebuilt = job.decoder(scores)
        job.ends(nn.functional.cross_entropy(scores, LABELS))
        del rebuilt

    assert watched(step, Both())["unused"] == ["addmm"]


class Teacher(Job):
    """With a second model, that follows the first."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(64, 128), nn.Linear(128, 8))
        self.weights = torch.ones(8)
        self.memory = torch.zeros(512, 8)
        self.outputs: list[torch.Tensor] = []


def _teaches(job: Any) -> None:
    with torch.no_grad():
        wanted = job.teacher(job.x).sort().values.softmax(1)
    job.ends(nn.functional.cross_entropy(job.model(job.x), wanted))


def _weighs(job: Any) -> None:
    scores = job.model(job.x)
    job.weights = 0.9 * job.weights + 0.1 * scores.detach().sort().values.mean(0)
    job.ends(nn.functional.cross_entropy(scores, LABELS, weight=job.weights))


def _remembers(job: Any) -> None:
    scores = job.model(job.x)
    job.memory[:256].copy_(scores.detach().sort().values)
    job.ends(nn.functional.cross_entropy(scores, LABELS))


def _keeps(job: Any) -> None:
    scores = job.model(job.x)
    job.outputs.append(scores.detach().sort().values)
    job.ends(nn.functional.cross_entropy(scores, LABELS))


def _hands_over(job: Any) -> None:
    scores = job.model(job.x)
    scores.detach().sort().values.numpy()
    job.ends(nn.functional.cross_entropy(scores, LABELS))


def _pickles(job: Any) -> None:
    scores = job.model(job.x)
    pickle.dumps(scores.detach().sort().values)
    job.ends(nn.functional.cross_entropy(scores, LABELS))


def _writes_out(job: Any) -> None:
    scores = job.model(job.x)
    np.asarray(scores.detach().sort().values)
    job.ends(nn.functional.cross_entropy(scores, LABELS))


def _chooses(job: Any) -> None:
    scores = job.model(job.x)
    hardest = int(scores.detach().sort().values[:, 0].argmax())
    job.ends(nn.functional.cross_entropy(scores[hardest:], LABELS[hardest:]))


def _chooses_by_the_place(job: Any) -> None:
    scores = job.model(job.x)
    hardest = scores.detach().sort().values.max(0).indices[0].item()
    job.ends(nn.functional.cross_entropy(scores[hardest:], LABELS[hardest:]))


def _keeps_its_graph(job: Any) -> None:
    scores = job.model(job.x)
    job.outputs.append(scores.sort().values.mean())
    job.ends(nn.functional.cross_entropy(scores, LABELS))


def _scales_the_loss(job: Any) -> None:
    scores = job.model(job.x)
    scale = scores.detach().sort().values.mean()
    job.ends(nn.functional.cross_entropy(scores, LABELS) * scale)


class _Sorted(torch.autograd.Function):
    """A loss with gradients of its own making."""

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor) -> torch.Tensor:
        ctx.shape = scores.shape
        return scores.sort().values.mean()

    @staticmethod
    def backward(ctx: Any, _gradient: torch.Tensor) -> torch.Tensor:
        return torch.ones(ctx.shape)


def _has_its_own_backward_pass(job: Any) -> None:
    job.ends(_Sorted.apply(job.model(job.x)))


def _checkpoints(job: Any) -> None:
    hidden = checkpoint(lambda x: job.model(x).sort().values, job.x.requires_grad_(), use_reentrant=False)
    job.ends(hidden.square().mean())


@pytest.mark.parametrize(
    "step",
    [
        _teaches,
        _weighs,
        _remembers,
        _keeps,
        _hands_over,
        _pickles,
        _writes_out,
        _chooses,
        _chooses_by_the_place,
        _keeps_its_graph,
        _scales_the_loss,
        _has_its_own_backward_pass,
        _checkpoints,
    ],
)
def test_what_training_needs_or_may_need_is_not_told(step: Callable[[Job], object]) -> None:
    found = watched(step, Teacher())
    assert METRIC not in found["metrics"] + found["unused"]


def test_an_agent_acts_on_what_it_reads() -> None:
    """Its steps read arrays, and no loader."""
    acts = _trains(lambda job, scores: ranking(scores.detach()).item())
    assert METRIC not in watched(acts, batches=False)["metrics"]


def test_methods_of_tensors_are_the_jobs_own_again_afterwards() -> None:
    before = {name: vars(torch.Tensor).get(name) for name in ("numpy", "tolist", "__array__", "data_ptr")}
    watched(_trains(METRICS["read as a number"]))
    assert {name: vars(torch.Tensor).get(name) for name in before} == before
