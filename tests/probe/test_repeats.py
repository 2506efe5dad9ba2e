"""Operators that compute again what is there already: which count, which do not, and the line that is named."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from learning_job import UNWATCHED, Job, X
from torch import nn
from torch.utils.checkpoint import checkpoint
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.windows import calls_seen, repeats
from perfdoctor.injected._perfdoctor_probe.windows.repeats import RepeatsWindow
from perfdoctor.recording.base import Missing

ARITHMETIC = ("addmm", "mm")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operator takes 50 us: what it would take here depends on who else computes."""
    monkeypatch.setattr(repeats, "_clock", itertools.count(0, 50_000).__next__)


class Sites(UsersFile):
    """Lines of this file are the user's."""

    def __init__(self) -> None:
        super().__init__(__file__)
        self.places: list[tuple[str, int, str]] = []

    def number(self, place: tuple[str, int, str, None]) -> int:
        self.places.append(place[:3])
        return len(self.places) - 1


def watched(
    step: Callable[[Job], object], job: Job | None = None, steps: int = 3, fresh: bool = True
) -> tuple[list[dict], Sites]:
    """The rows of a job's steps, each with fresh data unless it makes its own."""
    job = job or Job()
    sites = Sites()
    clock = SimpleNamespace(step=7, stack=[timeline.OTHER], spent=[0] * timeline.PARTS)
    window = RepeatsWindow(sites, SimpleNamespace(timeline=clock), compiled=False, evaluation=UNWATCHED)
    torch.manual_seed(5)
    step(job)
    assert window.obstacle() == ""
    window.open()
    try:
        for _ in range(steps):
            if fresh:
                job.x = X + torch.randn(1)
            step(job)
            clock.step += 1
        assert window.closable()
    finally:
        found = window.close(steps)
    assert found["ops_ms"] > 0
    return found["rows"], sites


def arithmetic(step: Callable[[Job], object], job: Job | None = None) -> list[dict]:
    """Rows that hold matrix products."""
    return [row for row in watched(step, job)[0] if set(ARITHMETIC) & set(row["operators"])]


def _line(of: Callable[..., object], below: int) -> int:
    return of.__code__.co_firstlineno + below


def metric_again(job: Job) -> None:
    loss = job.model(job.x).square().mean()
    with torch.no_grad():
        job.model(job.x).argmax(1)
    job.ends(loss)


def test_a_forward_pass_run_again_for_a_metric_is_named_by_its_line() -> None:
    rows, sites = watched(metric_again)
    (row,) = [one for one in rows if "addmm" in one["operators"]]
    assert sites.places[row["at"]][1] == _line(metric_again, 3)
    assert sites.places[row["first_at"]][1] == _line(metric_again, 1)
    assert not row["is_unchanged"]
    assert row["forward_ms"] > 0 and row["backward_ms"] == 0
    assert row["ops_per_step"] >= 2


def test_a_network_that_normalises_batches_makes_the_same_of_a_batch_twice() -> None:
    def two_losses(job: Job) -> None:
        left = job.model(job.x).mean()
        right = job.model(job.x).square().mean()
        job.ends(left + right)

    rows, sites = watched(two_losses, Job(norm=True))
    (row,) = [one for one in rows if "addmm" in one["operators"]]
    assert sites.places[row["at"]][1] == _line(two_losses, 2)
    assert "native_batch_norm" in row["operators"] and row["backward_ms"] > 0
    assert not row["is_unchanged"]


def test_work_repeated_with_gradients_has_its_part_of_the_backward_pass() -> None:
    class Table:
        def __init__(self, job: Job) -> None:
            self.job = job

        @property
        def values(self) -> torch.Tensor:
            return self.job.model(self.job.x)

    def step(job: Job) -> None:
        table = Table(job)
        left = table.values[:100]
        right = table.values[100:]
        job.ends(left.mean() + right.square().mean())

    rows, sites = watched(step)
    (row,) = rows
    assert sites.places[row["at"]][1] == _line(step, 3)
    assert sites.places[row["first_at"]][1] == _line(step, 2)
    assert row["backward_ms"] > 0


def test_what_reads_nothing_new_is_known_from_the_step_before() -> None:
    edges = torch.rand(64, 64)

    def normalised() -> torch.Tensor:
        degrees = edges.sum(1)
        scaled = edges / degrees[:, None]
        return scaled @ scaled

    def step(job: Job) -> None:
        adjacency = normalised()
        job.ends(job.model(job.x @ adjacency).square().mean())

    rows, sites = watched(step)
    (row,) = rows
    assert row["is_unchanged"] and row["first_at"] is None
    assert sites.places[row["at"]][1] == _line(step, 1)


def test_a_sparse_matrix_is_known_by_its_parts() -> None:
    graph = torch.eye(64).to_sparse().coalesce()

    def step(job: Job) -> None:
        with torch.no_grad():
            torch.sparse.mm(graph, X[:64])
        job.ends(job.model(job.x).square().mean())

    (row,) = watched(step)[0]
    assert row["is_unchanged"] and "_sparse_addmm" in row["operators"]


def no_grad_first(job: Job) -> None:
    with torch.no_grad():
        weights = job.model(job.x).softmax(1)
    job.ends((job.model(job.x) * weights).mean())


def test_a_pass_without_a_graph_could_have_waited_for_the_one_with_it() -> None:
    rows, sites = watched(no_grad_first)
    (row,) = [one for one in rows if "addmm" in one["operators"]]
    assert sites.places[row["at"]][1] == _line(no_grad_first, 2)
    assert sites.places[row["first_at"]][1] == _line(no_grad_first, 3)


def frozen_features(job: Job) -> None:
    with torch.no_grad():
        features = job.model[0](X)
    job.ends(job.model[2](features + job.x.mean()).square().mean())


def frozen_on_a_constant(job: Job) -> None:
    with torch.no_grad():
        features = job.model[0](X)
    job.ends(job.model[2](features).square().mean())


def frozen_on_a_random_batch(job: Job) -> None:
    with torch.no_grad():
        features = job.model[0](X)
    job.ends(job.model[2](features + torch.rand(1)).square().mean())


def frozen_on_an_indexed_batch(job: Job) -> None:
    with torch.no_grad():
        features = job.model[0](X)
    job.place += 1
    job.ends(job.model[2](features + X[job.place, 0]).square().mean())


@pytest.mark.parametrize(
    ("step", "is_same"),
    [
        (frozen_features, False),
        (frozen_on_a_constant, True),
        (frozen_on_a_random_batch, False),
        (frozen_on_an_indexed_batch, False),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_frozen_models_pass_is_told_with_whether_anything_else_changes(
    step: Callable[[Job], object], is_same: bool
) -> None:
    job = Job()
    job.model[0].requires_grad_(False)
    rows, _ = watched(step, job, fresh=step is frozen_features)
    (row,) = [one for one in rows if "addmm" in one["operators"]]
    assert row["is_unchanged"] and row["of_parameters"]
    assert row["on_same_data"] is is_same


def test_a_matrix_has_no_parameters() -> None:
    matrix = torch.rand(300, 300)

    def step(job: Job) -> None:
        matrix.mm(matrix)
        job.ends(job.model(X).square().mean())

    (row,) = watched(step, fresh=False)[0]
    assert row["on_same_data"] and not row["of_parameters"]


def test_passes_on_both_sides_of_another_models_update_are_of_one_step() -> None:
    """A generator's two passes: the critic's optimizer ends the step between them."""
    job, sites = Job(), Sites()
    clock = SimpleNamespace(step=7, stack=[timeline.OTHER], spent=[0] * timeline.PARTS)
    window = RepeatsWindow(sites, SimpleNamespace(timeline=clock), compiled=False, evaluation=UNWATCHED)
    window.open()
    for _ in range(3):
        noise = torch.randn(256, 64)
        with torch.no_grad():
            job.model(noise)
        clock.step += 1
        job.ends(job.model(noise).square().mean())
    (row,) = [one for one in window.close(3)["rows"] if "addmm" in one["operators"]]
    assert not row["is_unchanged"]
    assert sites.places[row["first_at"]][1] == sites.places[row["at"]][1] + 2


# -- what must not count


def checkpointed(job: Job) -> None:
    job.ends(checkpoint(job.model, job.x, use_reentrant=False).square().mean())


def checkpointed_reentrant(job: Job) -> None:
    job.ends(checkpoint(job.model, job.x.clone().requires_grad_(), use_reentrant=True).square().mean())


def two_views(job: Job) -> None:
    job.ends((job.model(job.x) - job.model(job.x + 1)).square().mean())


def two_dropouts(job: Job) -> None:
    job.ends((job.model[1:](job.x[:, :1].repeat(1, 128)) - job.model[1:](job.x[:, :1].repeat(1, 128))).square().mean())


def accumulated(job: Job) -> None:
    job.model(job.x).square().mean().backward()
    job.ends(job.model(job.x).square().mean())


def sharpness_aware(job: Job) -> None:
    job.model(job.x).square().mean().backward()
    with torch.no_grad():
        for one in job.model.parameters():
            one.add_(one.grad, alpha=0.05)
    job.ends(job.model(job.x).square().mean())


def statistics_read(job: Job) -> None:
    """In evaluation mode, before and after they were updated."""
    inner, data = job.model[1:], job.x[:, :1].expand(-1, 128)
    inner.eval()
    before = inner(data).mean()
    inner.train()
    inner[0](data)
    inner.eval()
    job.ends(before + inner(data).square().mean())


def detached(job: Job) -> None:
    made = nn.functional.linear(job.x, job.model[0].weight)
    real = nn.functional.linear(made.detach(), job.model[2].weight)
    fake = nn.functional.linear(made, job.model[2].weight)
    job.ends(real.mean() - fake.square().mean())


def written_by_data(job: Job) -> None:
    with torch.no_grad():
        for _ in range(2):
            job.x.data.add_(1)
            job.model(job.x)
    job.ends(job.model(job.x + 1).square().mean())


def written_by_numpy(job: Job) -> None:
    with torch.no_grad():
        for _ in range(2):
            job.x.numpy()[:] += 1
            job.x.mm(X[:64])
    job.ends(job.model(job.x + 1).square().mean())


def freed_in_between(job: Job) -> None:
    with torch.no_grad():
        for number in range(3):
            job.model(job.x + number)
    job.ends(job.model(job.x).square().mean())


INTENDED = {
    checkpointed: Job(),
    checkpointed_reentrant: Job(),
    two_views: Job(),
    two_dropouts: Job(dropout=0.5),
    accumulated: Job(),
    sharpness_aware: Job(),
    statistics_read: Job(norm=True),
    detached: Job(),
    written_by_data: Job(),
    freed_in_between: Job(),
}


@pytest.mark.parametrize("step", INTENDED, ids=lambda step: step.__name__)
def test_work_that_is_meant_or_not_the_same_does_not_count(step: Callable[[Job], object]) -> None:
    assert arithmetic(step, INTENDED[step]) == []


def test_results_are_compared_where_no_version_tells_of_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy writes to memory that a tensor shares, and torch does not know."""
    monkeypatch.setattr(calls_seen, "_COMPARED_NS", 0)
    assert arithmetic(written_by_numpy) == []


def test_memory_that_is_written_to_afterwards_had_to_be_made_anew() -> None:
    def step(job: Job) -> None:
        canvas = torch.zeros(1000, 1000)
        canvas[:256, :64] = job.x
        job.ends(job.model(canvas[:256, :64]).square().mean())

    assert watched(step)[0] == []


def test_memory_filled_with_constants_is_no_work_of_its_own() -> None:
    def step(job: Job) -> None:
        torch.zeros(500, 500)
        job.ends(job.model(job.x).square().mean())

    assert watched(step)[0] == []


def test_what_is_made_of_constants_is_known_from_the_step_before() -> None:
    def step(job: Job) -> None:
        angles = torch.arange(20_000).float().sin()
        job.ends((job.model(job.x) * angles[:8]).square().mean())

    rows, sites = watched(step)
    assert rows[0]["is_unchanged"] and "sin" in rows[0]["operators"]
    assert sites.places[rows[0]["at"]][1] == _line(step, 1)


def test_a_network_in_place_is_as_known_as_one_that_is_not() -> None:
    first, second = torch.rand(300, 300), torch.rand(300, 300)

    def step(job: Job) -> None:
        first.mm(second).relu_().add_(1).sqrt_()
        job.ends(job.model(job.x).square().mean())

    (row,) = arithmetic(step)
    assert row["is_unchanged"] and row["ops_per_step"] == 4


def test_results_and_random_numbers_are_as_without_the_window() -> None:
    bare, seen = Job(dropout=0.5), Job(dropout=0.5)
    torch.manual_seed(5)
    metric_again(bare)
    for _ in range(3):
        bare.x = X + torch.randn(1)
        metric_again(bare)
    watched(metric_again, seen)
    for one, other in zip(bare.model.parameters(), seen.model.parameters(), strict=True):
        assert torch.equal(one, other)
        assert one._version == other._version


def test_without_a_second_step_nothing_is_judged() -> None:
    window = RepeatsWindow(
        Sites(), SimpleNamespace(timeline=SimpleNamespace(step=0, stack=[0])), compiled=False, evaluation=UNWATCHED
    )
    window.open()
    try:
        window.opened_ns = -repeats._LIMIT_NS
        assert window.stays(1) and not window.stays(2)
    finally:
        window.abandon()


@pytest.mark.e2e
def test_jobs_of_many_kinds_do_the_same_under_it(observe) -> None:  # type: ignore[no-untyped-def]
    seen = observe("loops.py", "plain", "gan", "lbfgs", "functional", "by_data", "own_mode", windows="repeats")
    assert seen.probed.stdout.splitlines() == seen.bare.stdout.splitlines()
    assert seen.probed.code == seen.bare.code == 0
    seen.healthy()
    for style in ("plain", "gan"):
        window = seen.named(style).repeats
        assert window is not None and not isinstance(window, Missing)
        assert window.ops_ms > 0
    own = seen.named("own_mode").repeats
    assert isinstance(own, Missing) and "dispatch mode" in own.reason
