"""Which module of a step is its model, and the lines that make and call it."""

from __future__ import annotations

import pytest
from perfdoctor.checks._shared.lines import model_call, model_place
from samples import healthy, with_

from perfdoctor.recording.base import Missing, Site
from perfdoctor.recording.layers import Layer

MADE, CALLED, ELSEWHERE = Site("train.py", 10, "main"), Site("train.py", 30, "main"), Site("train.py", 5, "main")


def layer(name: str, order: int, ms: float, made_at: Site | None = None, called_at: Site | None = None) -> Layer:
    return Layer(
        name, name or "Net", order, True, 1.0, ms, 0.0, 0.1, 0.0, 0.0, 0, 0, made_at=made_at, called_at=called_at
    )


MODEL = (layer("", 2, 0.0, MADE, CALLED), layer("conv", 3, 9.0), layer("head", 4, 1.0))
METRIC = layer("", 0, 2.0, ELSEWHERE, ELSEWHERE)
TWIN = layer("", 1, 6.0, ELSEWHERE, ELSEWHERE)


@pytest.mark.parametrize(
    ("layers", "made"),
    [
        (MODEL, MADE),
        ((*MODEL, METRIC), MADE),
        ((METRIC, *reversed(MODEL)), MADE),
        ((TWIN, *MODEL), ELSEWHERE),
        ((), None),
        (MODEL[1:], None),
    ],
)
def test_the_model_is_the_first_module_of_a_step_that_takes_about_as_long_as_any(
    layers: tuple[Layer, ...], made: Site | None
) -> None:
    evidence = with_(healthy(), layers__layers=layers)
    assert model_place(evidence) == made
    assert model_call(evidence) == (CALLED if made == MADE else made)


def test_without_layers_there_is_none() -> None:
    assert model_place(with_(healthy(), layers=Missing("not profiled"))) is None
