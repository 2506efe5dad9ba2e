"""When hooks count as piling up: one more than once, or once where a function is there several times already."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from perfdoctor.injected._perfdoctor_probe.windows import growth


def _records(found: dict[str, float]) -> Callable[..., None]:
    def record(module: Any, inputs: Any, output: Any) -> None:
        found["seen"] = 1.0

    return record


def _another(module: Any, inputs: Any, output: Any) -> None:
    pass


def _trend(rises: int) -> growth._Trend:
    trend = growth._Trend("model.act", 100, 1)
    trend.rises = rises
    return trend


@pytest.mark.parametrize(
    ("hooks", "rises", "piles_up"),
    [
        ([_records({}), _records({})], 1, True),
        ([_records({}), _records({})], 0, False),
        ([_records({}), _another], 1, False),
        ([_records({}), _another], 2, True),
        ([len, max], 1, False),
    ],
    ids=["of one function", "never one more", "of two functions", "twice one more", "none of Python's"],
)
def test_hooks_pile_up(hooks: list[Callable[..., Any]], rises: int, piles_up: bool) -> None:
    held = SimpleNamespace(one=dict(enumerate(hooks)), word="._forward_hooks", of_tensor=False)
    assert growth._piles_up(_trend(rises), held) == piles_up


def test_other_containers_do_not() -> None:
    held = SimpleNamespace(one={0: _records({}), 1: _records({})}, word=".callbacks", of_tensor=False)
    assert not growth._piles_up(_trend(5), held)
