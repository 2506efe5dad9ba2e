"""Which models make gradients that no optimizer uses."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from perfdoctor.injected._perfdoctor_probe.windows.layers import Layers


class Sites:
    def stack(self, frame: object) -> list[tuple[str, int, str]]:
        return []

    def here(self) -> int:
        return 7

    def made_at(self, made: object) -> int:
        return 9

    def is_library(self, filename: str) -> bool:
        return filename != __file__


def summary(calls, optimizer=None) -> dict[str, dict]:
    """The window's rows by class, while `calls` run."""
    layers = Layers(Sites(), optimizer)
    layers.open()
    try:
        for model, batch in calls:
            model(batch)
    finally:
        layers.close()
    return {row["kind"]: row for row in layers.summary([], [], lambda *_: 0, 1, 0.0)["layers"]}


class Teacher(nn.Linear):
    pass


@pytest.fixture
def models():
    student, teacher = nn.Linear(4, 2), Teacher(4, 2)
    return student, teacher, torch.optim.SGD(student.parameters(), 0.1)


def test_a_teacher_in_training_mode_that_nobody_updates_is_idle(models):
    student, teacher, optimizer = models
    rows = summary([(teacher, torch.ones(1, 4)), (student, torch.ones(1, 4))], optimizer)
    assert (rows["Teacher"]["idle"], rows["Teacher"]["aside"], rows["Teacher"]["called_at"]) == (True, False, 7)
    assert not rows["Linear"]["idle"]


def test_a_copy_that_is_made_with_an_optimizer_of_its_own_while_one_looks_learns(models):
    """As for each home of a federated round, or each fold."""
    student, *_ = models
    kept = []

    def fitted():
        yield student, torch.ones(1, 4)
        for _ in range(6):
            copy = Teacher(4, 2)
            kept.append((copy, torch.optim.SGD(copy.parameters(), 0.1)))
            yield copy, torch.ones(1, 4)

    assert not summary(fitted())["Teacher"]["idle"]


def test_a_model_of_another_optimizer_learns(models):
    student, teacher, optimizer = models
    other = torch.optim.Adam(teacher.parameters(), 0.1)
    assert not summary([(teacher, torch.ones(1, 4)), (student, torch.ones(1, 4))], optimizer)["Teacher"]["idle"]
    del other
    gc.collect()


def test_a_layer_is_the_users_own_by_where_its_forward_is(models):
    class Doubled(nn.Module):
        def forward(self, x):
            return 2 * x

    student, teacher, optimizer = models
    rows = summary([(Doubled(), torch.ones(1, 4)), (student, torch.ones(1, 4)), (teacher, torch.ones(1, 4))], optimizer)
    assert {kind: row["own"] for kind, row in rows.items()} == {"Doubled": True, "Linear": False, "Teacher": False}


@pytest.mark.parametrize("how", ["frozen", "evaluated", "through"])
def test_what_makes_no_needless_gradients_is_not_idle(models, how):
    student, teacher, optimizer = models
    batch = torch.ones(1, 4)
    if how == "frozen":
        teacher.requires_grad_(False)
    elif how == "evaluated":
        teacher.eval()
    else:  # a loss that goes through it to what enters
        batch.requires_grad_(True)
    row = summary([(teacher, batch), (student, torch.ones(1, 4))], optimizer)["Teacher"]
    assert not row["idle"]
    assert row["aside"] == (how == "evaluated")


def test_a_model_that_is_evaluated_and_trained_in_one_step_stands_aside_in_neither(models):
    student, teacher, optimizer = models
    calls = [(teacher.eval(), torch.ones(1, 4)), (student, torch.ones(1, 4))]
    assert summary(calls, optimizer)["Teacher"]["aside"]
    seen = Layers(Sites(), optimizer)
    seen.open()
    teacher.eval()(torch.ones(1, 4))
    teacher.train()(torch.ones(1, 4))
    seen.close()
    (row,) = seen.summary([], [], lambda *_: 0, 1, 0.0)["layers"]
    assert not row["aside"] and not row["idle"]


def test_where_copies_of_all_parameters_are_updated_nothing_is_idle():
    student = nn.Linear(4, 2)
    optimizer = torch.optim.SGD([parameter.detach().clone() for parameter in student.parameters()], 0.1)
    assert not summary([(student, torch.ones(1, 4))], optimizer)["Linear"]["idle"]
