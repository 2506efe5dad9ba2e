"""Reads of scalars that do not wait, with the CPU in the place of a device."""

from __future__ import annotations

import pytest
import torch
from remedy_job import Job

from perfdoctor.injected._perfdoctor_probe.remedies.base import UnsuitableError
from perfdoctor.injected._perfdoctor_probe.remedies.reads import Deferred


def remedy_of(job: Job) -> Deferred:
    remedy = Deferred(job)
    remedy.devices = ("cpu",)
    return remedy


def read(values: list[float]) -> list[float]:
    return [torch.tensor(value).item() for value in values]


def test_a_line_gets_what_it_read_before() -> None:
    remedy = remedy_of(Job())
    remedy.apply()
    assert remedy.lost()
    assert read([1.0, 2.0, 3.0]) == [1.0, 1.0, 2.0]
    assert [int(torch.tensor(number)) for number in (4, 5)] == [4, 4], "each line has its own"
    assert [bool(torch.tensor(number)) for number in (1, 0)] == [True, False], "an `if` keeps its answer"
    assert remedy.lost() == ""
    remedy.withdraw()
    assert read([1.0, 2.0, 3.0]) == [1.0, 2.0, 3.0]


def test_a_model_on_the_cpu_has_nothing_to_wait_for() -> None:
    remedy = Deferred(Job())
    with pytest.raises(UnsuitableError, match="not on a GPU"):
        remedy.apply()
    remedy.withdraw()
    assert "item" not in vars(torch.Tensor)
