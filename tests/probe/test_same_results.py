"""Functions that return again what they have returned, on a clock that only moves when the code under test says so."""

from __future__ import annotations

import random
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from following import MS, NOW, spend
from following import followed as followed_by_a_window
from observing import line_of
from users_file import IdleLoop, UsersFile

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.windows.same_results import FollowedBatches, SameResultsWindow

GENERATOR = np.random.default_rng(0)
pytestmark = pytest.mark.usefixtures("standing_clock")


def table(size: int = 8) -> np.ndarray:
    spend()
    return np.arange(size, dtype=np.float32)


def seen(step: Callable[[], object], steps: int = 2, part: int = timeline.OTHER) -> list[dict[str, Any]]:
    """Rows of a window over so many steps."""
    return followed_by_a_window(step, __file__, steps, part)


def test_calls_for_batches_of_two_loaders_are_told_apart() -> None:
    loop = IdleLoop()
    window = SameResultsWindow(UsersFile(__file__), loop, compiled=False)
    window.open()
    try:
        for step in range(4):
            loop.drawing = [step % 2, 0, 0]
            loop.timeline.enter(timeline.INPUT)
            table()
            loop.timeline.leave(timeline.INPUT)
            loop.timeline.boundary()
        table()
    finally:
        record = window.close(4)
    assert sorted((row["loader"], row["part"]) for row in record["rows"]) == [
        (-1, "other"),
        (0, "input_wait"),
        (1, "input_wait"),
    ]


def names(step: Callable[[], object], **options: Any) -> list[str]:
    return [row["function"] for row in seen(step, **options)]


def test_a_function_that_returns_the_same_is_told_with_what_it_takes_and_its_share() -> None:
    def step() -> None:
        table()
        spend(3.0)

    (row,) = seen(step)
    assert row["function"] == "table"
    assert (row["calls_per_step"], row["arguments"], row["ms_per_step"]) == (1.0, 1, 1.0)
    assert (row["at"], row["defined_at"]) == (("step", 1), ("table", 0))


@pytest.mark.parametrize(("rest_ms", "count"), [(98.0, 1), (101.0, 0)])
def test_less_than_a_hundredth_of_its_part_is_not_told(rest_ms: float, count: int) -> None:
    rows = seen(lambda: (table(), spend(rest_ms)), part=timeline.INPUT)
    assert [row["part"] for row in rows] == ["input_wait"] * count


@pytest.mark.parametrize(("steps", "took_ms"), [(2, 2.0), (3, 1.0)])
def test_a_third_call_is_timed_with_nobody_listening(steps: int, took_ms: float) -> None:
    """Python takes twice as long while it tells."""

    def slower() -> np.ndarray:
        spend(1.0 if sys.getprofile() is None else 2.0)
        return np.arange(8.0)

    (row,) = seen(slower, steps=steps)
    assert row["ms_per_step"] == pytest.approx(took_ms)


def test_what_a_call_that_nobody_listened_to_calls_is_its_own() -> None:
    def outer() -> np.ndarray:
        spend()
        return table() + 1

    (row,) = seen(outer, steps=6)
    assert (row["function"], row["calls_per_step"], row["ms_per_step"]) == ("outer", 1.0, 2.0)


def test_a_call_that_raises_with_nobody_listening_is_none_that_returned() -> None:
    calls = iter(range(100))

    def flaky() -> np.ndarray:
        spend()
        if next(calls) == 2:
            raise ValueError
        return np.arange(8.0)

    def around() -> None:
        spend()
        flaky()

    def step() -> None:
        try:
            around()
        except ValueError:
            spend(50.0)
        table()

    # Its frame lives as long as the error does, 50 ms longer.
    rows = {row["function"]: row["ms_per_step"] for row in seen(step, steps=8)}
    assert rows["table"] == 1.0
    assert rows["flaky"] <= 1.0


def test_one_step_is_not_enough_for_what_is_called_once_in_it() -> None:
    loop = IdleLoop()
    window = SameResultsWindow(UsersFile(__file__), loop, compiled=False)
    window.open()
    assert window.stays(1) and window.stays(2) and not window.stays(3)
    window.abandon()
    assert sys.getprofile() is None


def test_the_samples_of_a_batch_are_compared_with_one_another() -> None:
    batches = FollowedBatches(UsersFile(__file__), IdleLoop())
    for number in range(2):
        batches.begin()
        for sample in range(4):
            table()
            table(100 * number + sample + 10)
        batches.end()
    (row,) = batches.summary()["rows"]
    assert (row["part"], row["calls_per_step"], row["arguments"]) == ("other", 4.0, 1)
    assert row["ms_per_step"] == pytest.approx(4.0)


def test_of_several_arguments_those_count_that_came_again() -> None:
    def step() -> None:
        for size in (4, 8, 16):
            table(size)
        table(10_000 + NOW[0] // MS)

    (row,) = seen(step)
    assert (row["arguments"], row["calls_per_step"], row["ms_per_step"]) == (3, 3.0, 3.0)


ARGUMENTS: dict[str, Callable[[], object]] = {
    "number": lambda: 1.5,
    "text": lambda: "mel",
    "tuple": lambda: (1, "a", None, True),
    "dictionary": lambda: {"rate": 16_000, "bands": [20, 40]},
    "array": lambda: np.linspace(0, 1, 50),
    "tensor": lambda: torch.linspace(0, 1, 50),
    "transposed": lambda: torch.arange(12.0).reshape(3, 4).t(),
    "type": lambda: torch.float32,
}


@pytest.mark.parametrize("make", ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_are_compared_by_what_they_hold(make: Callable[[], object]) -> None:
    def looked_up(value: object) -> np.ndarray:
        spend()
        return np.arange(8.0)

    assert names(lambda: looked_up(make())) == ["looked_up"]


def test_other_arguments_are_no_repetition() -> None:
    def features(wave: np.ndarray) -> np.ndarray:
        spend()
        return np.arange(8.0)

    waves = iter(np.random.default_rng(0).normal(size=(4, 10)))
    assert names(lambda: features(next(waves))) == []


class Drawing:
    """Holds generators of its own."""

    def __init__(self) -> None:
        self.numpys = np.random.default_rng(0)
        self.torchs = torch.Generator()

    def by_numpy(self) -> np.ndarray:
        spend()
        self.numpys.normal(size=3)
        return np.arange(8.0)

    def by_torch(self) -> np.ndarray:
        spend()
        torch.rand(3, generator=self.torchs)
        return np.arange(8.0)


def _drawn(draw: Callable[[], object]) -> Callable[[], np.ndarray]:
    """A function whose result is the same, though it draws."""

    def drawing() -> np.ndarray:
        spend()
        draw()
        return np.arange(8.0)

    return drawing


DRAWS: dict[str, Callable[[], object]] = {
    "python": _drawn(random.random),
    "python's shuffle": _drawn(lambda: random.shuffle([1, 2, 3])),
    "numpy": _drawn(lambda: np.random.rand(3)),
    "torch": _drawn(lambda: torch.rand(3)),
    "dropout": _drawn(lambda: torch.nn.functional.dropout(torch.ones(8))),
    "a generator that it keeps": Drawing().by_numpy,
    "one of torch's": Drawing().by_torch,
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_who_draws_random_numbers_does_not_count_nor_who_calls_it(draw: Callable[[], np.ndarray]) -> None:
    def around() -> np.ndarray:
        return draw() + 1

    assert names(around) == []


def test_a_generator_that_is_made_anew_each_time_gives_the_same_each_time() -> None:
    def projection() -> np.ndarray:
        spend()
        return np.random.default_rng(7).normal(size=16)

    assert len(names(projection)) == 1


class Counts(torch.nn.Module):
    """As a metric does."""

    __module__ = "torchmetrics.aggregation"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin()


@pytest.mark.parametrize(
    ("net", "training", "gradients", "is_told"),
    [
        (torch.nn.Linear(8, 8), False, False, True),
        (torch.nn.Linear(8, 8), True, False, False),
        (torch.nn.Linear(8, 8), False, True, False),
        (torch.nn.Sequential(Counts()), False, False, False),
    ],
    ids=["evaluates", "in training mode", "with gradients", "a metric"],
)
def test_a_network_that_only_evaluates_computes_the_same_of_the_same(
    net: torch.nn.Module, training: bool, gradients: bool, is_told: bool
) -> None:
    net.train(training)
    data = torch.randn(4, 8)

    def features(given: torch.Tensor) -> torch.Tensor:
        spend()
        return net(given).detach()

    def step() -> None:
        with torch.set_grad_enabled(gradients):
            features(data)

    assert bool(names(step)) is is_told


@pytest.mark.parametrize("learns", [False, True])
def test_a_network_that_has_learned_meanwhile_has_not_computed_the_same(learns: bool) -> None:
    """Captions of a network that has converged are the same after each epoch, and are to be asked for all the same."""
    net = torch.nn.Sequential(torch.nn.Linear(8, 8)).eval()
    data = torch.randn(4, 8)

    def looked_up() -> torch.Tensor:
        return net(data) > 1e9

    def captions() -> list[int]:
        spend()
        return [*looked_up().long().flatten().tolist(), *range(32)]

    def step() -> None:
        with torch.no_grad():
            captions()
            if learns:
                net[0].weight.add_(1e-3)

    assert names(step) == ([] if learns else ["captions"])


def test_a_lazy_network_that_has_no_shape_yet_is_called_as_if_nobody_listened() -> None:
    """Its parameters raise where they are asked for anything."""
    given: list[list[float]] = []

    def answers(net: torch.nn.Module) -> list[float]:
        spend()
        return net(torch.ones(2, 8)).flatten().tolist()

    def step() -> None:
        with torch.no_grad():
            given.append(answers(torch.nn.Sequential(torch.nn.LazyLinear(4)).eval()))

    seen(step)
    assert [len(one) for one in given] == [8] * len(given) != []


def test_nothing_and_what_cannot_be_compared_do_not_count() -> None:
    def nothing() -> None:
        spend()

    def iterator() -> object:
        spend()
        return iter([1, 2, 3])

    def fails() -> None:
        spend()
        raise ValueError

    def step() -> None:
        nothing()
        iterator()
        with pytest.raises(ValueError):
            fails()

    assert names(step, steps=3) == []


def test_another_result_does_not_count() -> None:
    counted = iter(range(100))

    def different() -> np.ndarray:
        spend()
        return np.arange(8.0) + next(counted) // 3

    assert names(different, steps=5) == []


@pytest.mark.parametrize(
    "result",
    [True, 0.5, 3, "checkpoints/last.pt", np.zeros(100), [None]],
    ids=["flag", "half", "count", "path", "zeros", "none"],
)
def test_a_result_that_says_little_is_often_the_same(result: object) -> None:
    def saved() -> object:
        spend()
        return result

    assert names(saved) == []


@pytest.mark.parametrize("result", [(0.1307, 0.3081), list(range(20)), {"a": np.arange(3)}, "word " * 100])
def test_a_result_that_says_much_is_the_same_for_a_reason(result: object) -> None:
    def statistics() -> object:
        spend()
        return result

    assert len(names(statistics)) == 1


def test_who_takes_next_to_no_time_is_let_go() -> None:
    def short() -> np.ndarray:
        spend(0.01)
        return np.arange(8.0)

    loop = IdleLoop()
    window = SameResultsWindow(UsersFile(__file__), loop, compiled=False)
    window.open()
    for _ in range(100):
        short()
    loop.timeline.boundary()
    window.close(1)
    assert sum(call.function.code is short.__code__ for call in window.follower.calls) == 8


def test_generators_and_exceptions_leave_the_right_function_behind() -> None:
    def numbers() -> Iterator[int]:
        spend()
        yield 1
        spend()

    def fails() -> None:
        raise ValueError

    def step() -> None:
        for _ in numbers():
            table()
        with pytest.raises(ValueError):
            fails()
        spend(7.0)

    (row,) = seen(step)
    assert (row["function"], row["ms_per_step"]) == ("table", 1.0)


class Awkward:
    """Nobody may ask it anything."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError

    def __hash__(self) -> int:
        raise AssertionError

    def __repr__(self) -> str:
        raise AssertionError

    def __len__(self) -> int:
        raise AssertionError

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError


class OddList(list):  # type: ignore[type-arg]
    __eq__ = __iter__ = __len__ = __hash__ = Awkward.__len__  # type: ignore[assignment]


def test_none_of_the_jobs_own_comparisons_run() -> None:
    def given(one: object, two: object) -> object:
        spend()
        return two

    one, two = Awkward(), OddList(range(20))
    assert len(names(lambda: given(one, two))) == 1


def test_nothing_of_the_job_is_kept() -> None:
    kept: list[weakref.ref[Any]] = []

    def made() -> np.ndarray:
        spend()
        result = np.arange(8.0)
        kept.append(weakref.ref(result))
        return result

    loop = IdleLoop()
    window = SameResultsWindow(UsersFile(__file__), loop, compiled=False)
    window.open()
    for _ in range(2):
        made()
        assert kept[-1]() is None
    window.close(2)


def test_a_profiler_of_the_jobs_own_stays() -> None:
    def theirs(frame: object, event: str, arg: object) -> None:
        return None

    window = SameResultsWindow(UsersFile(__file__), IdleLoop(), compiled=False)
    window.open()
    sys.setprofile(theirs)
    window.close(1)
    assert sys.getprofile() is theirs
    assert "profiles" in window.obstacle()
    sys.setprofile(None)
    assert "torch.compile" in SameResultsWindow(UsersFile(__file__), IdleLoop(), compiled=True).obstacle()


def _worked(watch: Callable[[Callable[[], object]], object]) -> list[Any]:
    """All that two steps of a job leave."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.Adam(model.parameters())

    def augmented(values: np.ndarray) -> torch.Tensor:
        spend()
        return torch.from_numpy((values * np.random.rand() + random.random()).astype(np.float32)) + torch.rand(8)

    def step() -> None:
        optimizer.zero_grad()
        model(augmented(table())).sum().backward()
        optimizer.step()

    for _ in range(2):
        watch(step)
    states = torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    return [*(parameter.tolist() for parameter in model.parameters()), *states]


def test_the_job_computes_and_draws_what_it_would_have() -> None:
    assert _worked(lambda step: step()) == _worked(lambda step: seen(step, steps=1))


@pytest.mark.timeout(450)
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_real_job_does_not_notice(observe: Any, workers: str) -> None:
    job = observe("again.py", workers, windows="same")
    job.same()
    job.healthy()
    assert "None" in job.bare.stdout, job.bare.stderr
    window = job.rank.same_results
    of_step = {row.function: (line_of(row.at), row.part) for row in window.rows}
    assert of_step["positions"] == ("criterion(model(x + positions(4)), y).backward()", "other")
    made = "return torch.from_numpy(bank(8) @ self.augmented(index)), index % 2"
    assert of_step.get("bank") == ((made, "input_wait") if workers == "0" else None)
    assert len(job.workers) == int(workers)
    for worker in job.workers:
        (row,) = worker.same_making.rows
        assert (row.function, row.calls_per_step, row.arguments) == ("bank", 4.0, 1)
        assert worker.making is not None
