"""How many steps a loop is going to take is told by its own numbers, or not at all."""

from __future__ import annotations

import itertools
import threading
import timeit
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm, trange

from perfdoctor.injected._perfdoctor_probe.windows import trainer_plans
from perfdoctor.injected._perfdoctor_probe.windows.holdings import variables
from perfdoctor.injected._perfdoctor_probe.windows.planned import planned


class Sites:
    """The functions of this file are the user's."""

    def is_library(self, filename: str) -> bool:
        return filename != __file__


class Loading:
    """Knows loaders and the iterators that run."""

    def __init__(self, *loaders: Any) -> None:
        self.ids = {id(loader): number for number, loader in enumerate(loaders)}
        self.running: dict[Any, tuple[int, None]] = {}

    def over(self, loader: Any) -> Iterator[Any]:
        iterator = iter(loader)
        self.running[iterator] = self.ids[id(loader)], None
        return iterator


class Told:
    """What each step of a loop was told."""

    def __init__(self, loading: Loading | None = None, each: int = 1) -> None:
        self.loading = loading
        self.each = each
        self.rounds = 0
        self.plans: list[Any] = []

    def step(self) -> None:
        self.rounds += 1
        if self.rounds % self.each == 0:
            self.plans.append(planned(Sites(), self.rounds // self.each, self.loading))

    @property
    def lengths(self) -> set[Any]:
        return {plan and (plan["steps"], plan["epoch"]) for plan in self.plans}


def alone(loop: Callable[[Told], None], told: Told | None = None) -> Told:
    """In a thread, outside the loops of whoever runs the tests."""
    told = told or Told()
    thread = threading.Thread(target=loop, args=(told,))
    thread.start()
    thread.join()
    assert told.plans
    return told


def test_the_length_of_loops_over_ranges_is_known() -> None:
    def loop(told: Told) -> None:
        for _epoch in range(3):
            for _step in range(1, 11):
                told.step()

    assert alone(loop).lengths == {(30, 10)}


def test_numbers_are_read_from_arguments_configurations_and_sums() -> None:
    class Config:
        epochs = 3

    def loop(told: Told) -> None:
        args = types.SimpleNamespace(start=1)
        sizes = {"steps": 5}
        for _epoch in range(args.start, Config.epochs + 1):
            for _step in range(2 * sizes["steps"]):
                told.step()

    assert alone(loop).lengths == {(30, 10)}


def test_the_length_of_what_is_in_memory_is_known() -> None:
    data, batches = torch.zeros(43, 2), [torch.zeros(4, 2)] * 5

    def loop(told: Told) -> None:
        for _epoch in range(3):
            for _start in range(0, len(data), 8):
                told.step()

    def counted(told: Told) -> None:
        for _epoch in range(3):
            for _number, _batch in enumerate(batches):
                told.step()

    assert alone(loop).lengths == {(18, 6)}
    assert alone(counted).lengths == {(15, 5)}


def test_a_loop_over_several_at_once_ends_with_the_shortest() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(80, 1)), batch_size=4)
    loading = Loading(loader)

    def zipped(told: Told) -> None:
        iterator = loading.over(loader)
        for _step, _batch in zip(range(12), loader):  # noqa: B905
            next(iterator)
            told.step()

    def sliced(told: Told) -> None:
        iterator = loading.over(loader)
        for _step, _batch in enumerate(itertools.islice(loader, 7)):
            next(iterator)
            told.step()

    assert alone(zipped, Told(loading)).lengths == {(12, 0)}
    loading.running.clear()
    assert alone(sliced, Told(loading)).lengths == {(7, 0)}


def test_progress_bars_are_looked_through() -> None:
    def loop(told: Told) -> None:
        for _epoch in trange(3, disable=True):
            for _step in tqdm(range(10), disable=True):
                told.step()

    assert alone(loop).lengths == {(30, 10)}


def test_a_function_that_calls_model_eval_tells_its_numbers() -> None:
    def loop(told: Told) -> None:
        model = torch.nn.Linear(1, 1)
        for _step in range(10):
            model.eval()
            told.step()

    assert alone(loop).lengths == {(10, 0)}


def test_a_function_that_asks_for_all_its_variables_is_left_alone() -> None:
    def loop(told: Told) -> None:
        for _step in range(10):
            locals()
            told.step()

    assert alone(loop).lengths == {None}
    assert variables(types.SimpleNamespace(f_code=loop.__code__, f_globals={}, f_locals={"told": 1}), {"told"}) == {}


def test_several_steps_in_each_round_are_believed_after_many_rounds() -> None:
    """Of few rounds, steps that other loops took before make a multiple by chance."""
    before, found = 8, {}

    def loop(told: Told) -> None:
        told.rounds = before
        for number in range(100):
            told.rounds += 1
            found[number + 1] = planned(Sites(), told.rounds)
            told.plans.append(found[number + 1])

    def twice(told: Told) -> None:
        for number in range(100):
            found[number + 1] = planned(Sites(), 2 * (number + 1))
            told.plans.append(found[number + 1])

    alone(loop)
    assert not any(plan for done, plan in found.items() if done <= 4), "five in each after 2, three after 4"
    alone(twice)
    assert found[39] is None and found[40] is not None and found[40]["steps"] == 200


@pytest.mark.parametrize("each", [1, 2])
def test_loaders_have_a_length_and_a_place_in_it(each: int) -> None:
    loader = DataLoader(TensorDataset(torch.zeros(80, 1)), batch_size=4)
    loading = Loading(loader)

    def loop(told: Told) -> None:
        for _epoch in range(3):
            iterator = loading.over(loader)
            for _number, _batch in enumerate(loader):
                next(iterator)
                told.step()

    assert alone(loop, Told(loading, each)).lengths == {(60 // each, 20 // each)}


def _split(told: Told) -> None:
    for _epoch in range(3):
        for _rows in torch.randperm(38).split(4):
            told.step()


def _split_by_a_setting(told: Told) -> None:
    settings, x = types.SimpleNamespace(batch=4), torch.zeros(38, 2)
    for _epoch in range(3):
        order = torch.randperm(len(x))
        for _rows in order.split(settings.batch):
            told.step()


def _chunks(told: Told) -> None:
    x = torch.zeros(38, 2)
    for _epoch in range(3):
        for _rows in torch.chunk(x, 10):
            told.step()


def _arrays(told: Told) -> None:
    for _epoch in range(3):
        for _rows in np.array_split(np.random.permutation(38), 10):
            told.step()


def _kept(told: Told) -> None:
    parts = torch.arange(38).split(4)
    for _epoch in range(3):
        for _rows in parts:
            told.step()


@pytest.mark.parametrize("loop", [_split, _split_by_a_setting, _chunks, _arrays, _kept])
def test_parts_of_a_tensor_are_counted_and_their_place_is_that_of_the_step(loop: Callable[[Told], None]) -> None:
    """In the first epoch nothing says that each is a step."""
    assert [plan and (plan["steps"], plan["epoch"]) for plan in alone(loop).plans] == [None] * 10 + [(30, 10)] * 20


def test_parts_beside_other_steps_have_no_known_length() -> None:
    def loop(told: Told) -> None:
        told.rounds = 25
        _split(told)

    assert alone(loop).lengths == {None}


def test_steps_that_were_taken_before_make_the_length_uncertain() -> None:
    def loop(told: Told) -> None:
        told.rounds = 25
        for _step in range(40):
            told.step()

    assert None in alone(loop).lengths


def _list(told: Told) -> None:
    for _ in list(range(5)):
        told.step()


def _cycled(told: Told) -> None:
    for _step, _ in zip(range(20), itertools.cycle([1])):
        told.step()


def _cut(told: Told) -> None:
    for _ in itertools.islice(itertools.count(), 5):
        told.step()


def _broken(told: Told) -> None:
    for step in range(100):
        told.step()
        if step > 5:
            break


def _returned(told: Told) -> None:
    for _epoch in range(2):
        for step in range(100):
            told.step()
            if step > 5:
                return


def _endless(told: Told) -> None:
    while len(told.plans) < 5:
        for _ in range(2):
            told.step()


def _of_a_library(told: Told) -> None:
    timeit.repeat(told.step, number=3, repeat=2)


def _comprehension(told: Told) -> None:
    for _ in range(2):
        assert len([told.step() for _ in range(3)]) == 3


@pytest.mark.parametrize("loop", [_list, _comprehension, _cycled, _cut, _broken, _returned, _endless, _of_a_library])
def test_the_length_of_other_loops_is_not(loop: Callable[[Told], None]) -> None:
    assert alone(loop).lengths == {None}


def test_a_break_out_of_an_inner_loop_leaves_the_others_as_they_are() -> None:
    def loop(told: Told) -> None:
        for _step in range(10):
            for _ in range(3):
                break
            told.step()

    assert alone(loop).lengths == {(10, 0)}


# ---------------------------------------------------------------------------------------------------------
# Trainers


def _frame(file: str, trainer: object) -> Any:
    """Of a trainer's method."""
    code = compile("def method(self): ...", f"/lib/{file}", "exec").co_consts[0]
    return types.SimpleNamespace(f_code=code, f_globals={}, f_locals={"self": trainer})


def _trainer(callbacks: tuple[object, ...] = (), max_steps: int = -1) -> Any:
    return types.SimpleNamespace(
        state=types.SimpleNamespace(max_steps=600, global_step=1_059),
        args=types.SimpleNamespace(max_steps=max_steps, num_train_epochs=3.0),
        callback_handler=types.SimpleNamespace(callbacks=list(callbacks)),
    )


class EarlyStoppingCallback:
    """Ends a training."""


def test_a_resumed_trainer_takes_what_is_left() -> None:
    trainer = _trainer((EarlyStoppingCallback(),))
    trainer.state.max_steps = 3_000
    plan = trainer_plans.of(_frame("transformers/trainer.py", trainer), 60)
    assert plan == {"steps": 2_000, "epoch": 1_000, "by": "transformers", "at_most": True}
    trainer.args.max_steps = 3_000
    assert trainer_plans.of(_frame("transformers/trainer.py", trainer), 60)["epoch"] == 0  # type: ignore[index]
    assert trainer_plans.of(_frame("transformers/trainer.py", _trainer()), 60) is None, "it is over"


def _fit(*, epochs: int, batches: float, steps: int = -1, optimizers: int = 1, automatic: bool = True) -> Any:
    progress = types.SimpleNamespace(current=types.SimpleNamespace(ready=40, processed=2))
    trainer = types.SimpleNamespace(
        optimizers=[None] * optimizers,
        lightning_module=types.SimpleNamespace(automatic_optimization=automatic),
        accumulate_grad_batches=4,
        callbacks=[],
    )
    inner = types.SimpleNamespace(max_steps=steps, global_step=59, batch_progress=progress)
    return types.SimpleNamespace(
        trainer=trainer, epoch_loop=inner, epoch_progress=progress, max_epochs=epochs, max_batches=batches
    )


@pytest.mark.parametrize(
    ("loop", "plan"),
    [
        (_fit(epochs=5, batches=101), (60 + 2 * 26 + 16, 26)),
        (_fit(epochs=5, batches=101, steps=100), (100, 26)),
        (_fit(epochs=-1, batches=float("inf"), steps=100), (100, 0)),
        (_fit(epochs=-1, batches=float("inf"), steps=140, optimizers=2, automatic=False), (99, 0)),
        (_fit(epochs=-1, batches=101), None),
    ],
)
def test_lightning_goes_by_epochs_or_by_steps(loop: Any, plan: tuple[int, int] | None) -> None:
    found = trainer_plans.of(_frame("lightning/pytorch/loops/fit_loop.py", loop), 60)
    assert (found and (found["steps"], found["epoch"])) == plan
