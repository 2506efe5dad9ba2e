"""Functions that torch has in one operator, made of several."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from rewriting import watched

X = torch.randn(16, 64, 256, generator=torch.Generator().manual_seed(3)).requires_grad_()
OTHER = torch.randn(16, 64, 256, generator=torch.Generator().manual_seed(4))
WEIGHT, BIAS = (torch.nn.Parameter(torch.full((256,), number)) for number in (1.5, 0.1))
KEPT: list[torch.Tensor] = []


def normalised() -> torch.Tensor:
    mean = X.mean(-1, keepdim=True)
    spread = ((X - mean) ** 2).mean(-1, keepdim=True)
    return (X - mean) / torch.sqrt(spread + 1e-5)


def with_weights() -> torch.Tensor:
    mean = X.mean(-1, keepdim=True)
    spread = X.std(-1, keepdim=True)
    return WEIGHT * (X - mean) / (spread + 1e-6) + BIAS


def with_weights_afterwards() -> torch.Tensor:
    mean, spread = X.mean(-1, keepdim=True), X.var(-1, keepdim=True, unbiased=False)
    return (X - mean) * torch.rsqrt(spread + 1e-5) * WEIGHT + BIAS


def along_two_dimensions() -> torch.Tensor:
    mean = X.mean((1, 2), keepdim=True)
    return (X - mean) / (X.var((1, 2), keepdim=True, unbiased=False) + 1e-5).sqrt()


def gelu_by_tanh() -> torch.Tensor:
    return 0.5 * X * (1 + torch.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * torch.pow(X, 3))))


def gelu_by_erf() -> torch.Tensor:
    return X * 0.5 * (1.0 + torch.erf(X / math.sqrt(2.0)))


def silu() -> torch.Tensor:
    return X * torch.sigmoid(X)


def softmax() -> torch.Tensor:
    powers = torch.exp(X - X.max(-1, keepdim=True).values)
    return powers / powers.sum(-1, keepdim=True)


def plain_softmax() -> torch.Tensor:
    powers = X.exp()
    return powers / powers.sum(dim=1, keepdim=True)


def logarithm_of_softmax() -> torch.Tensor:
    return torch.log(torch.softmax(X, -1) + 1e-9)


FUNCTIONS: dict[Callable[[], torch.Tensor], tuple[str, int]] = {
    normalised: ("layer-norm", 1),
    with_weights: ("layer-norm", 1),
    with_weights_afterwards: ("layer-norm", 1),
    along_two_dimensions: ("layer-norm", 1),
    gelu_by_tanh: ("gelu", 1),
    gelu_by_erf: ("gelu", 1),
    silu: ("silu", 1),
    softmax: ("softmax", 1),
    plain_softmax: ("softmax", 1),
    logarithm_of_softmax: ("log-softmax", 1),
}
"""With what it is told as, and the line that begins it."""


@pytest.fixture(autouse=True)
def each_way_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what a machine under load times, nothing hangs: which numbers come out decides."""
    from perfdoctor.injected._perfdoctor_probe.windows import equivalents

    def timed(other: Any, now_ns: float, result: Any) -> Any:
        if not equivalents.agree(other.make(), result):
            return None
        if other.backward is not None:
            assert other.backward(result).shape == result.shape
        return equivalents._Tried(0.1 * now_ns, 0.1 * now_ns)

    monkeypatch.setattr(equivalents, "_timed", timed)
    monkeypatch.setattr(equivalents, "_LEAST_NS", 0)


@pytest.mark.parametrize("step", FUNCTIONS, ids=lambda step: step.__name__)
def test_a_function_that_is_made_by_hand_is_told_once_at_its_first_line(step: Callable[[], torch.Tensor]) -> None:
    kind, line = FUNCTIONS[step]
    (row,) = watched(step)
    assert (row["kind"], row["times_per_step"], row["shape"]) == (kind, 1.0, [16, 64, 256])
    assert row["at"] == step.__code__.co_firstlineno + line
    assert row["forward_ms"] > 0 and row["backward_ms"] > 0


def test_without_a_graph_nothing_goes_back() -> None:
    def step() -> torch.Tensor:
        with torch.no_grad():
            features = silu()
        return features * WEIGHT

    (row,) = watched(step)
    assert row["backward_ms"] == row["other_backward_ms"] == 0


def by_its_length() -> torch.Tensor:
    return X * torch.rsqrt(X.pow(2).mean(-1, keepdim=True) + 1e-6)


def steeper() -> torch.Tensor:
    return X * torch.sigmoid(2 * X)


def gated_by_another() -> torch.Tensor:
    return OTHER * torch.sigmoid(X)


def spread_of_another() -> torch.Tensor:
    return (X - X.mean(-1, keepdim=True)) / (OTHER.std(-1, keepdim=True) + 1e-6)


def mean_of_the_batch() -> torch.Tensor:
    return (X - X.mean(0, keepdim=True)) / (X.std(0, keepdim=True) + 1e-6)


def whose_spread_is_kept() -> torch.Tensor:
    mean, spread = X.mean(-1, keepdim=True), X.std(-1, keepdim=True)
    KEPT[:] = [spread.square()]
    return (X - mean) / (spread + 1e-6)


def sum_of_others() -> torch.Tensor:
    powers = X.exp()
    return powers / OTHER.exp().sum(-1, keepdim=True)


def in_a_longer_chain() -> torch.Tensor:
    x = X
    for _ in range(20):
        x = x * 0.99 + 0.01
    return x * torch.tanh(x)


@pytest.mark.parametrize(
    "step",
    [
        by_its_length,
        steeper,
        gated_by_another,
        spread_of_another,
        mean_of_the_batch,
        whose_spread_is_kept,
        sum_of_others,
        in_a_longer_chain,
    ],
)
def test_another_function_and_one_of_which_a_part_is_used_elsewhere_are_left_alone(
    step: Callable[[], torch.Tensor],
) -> None:
    assert watched(step) == []


def test_arguments_of_a_chain_are_let_go_a_few_operators_later() -> None:
    import weakref

    from perfdoctor.injected._perfdoctor_probe.windows import equivalents

    alive: list[int] = []

    def step() -> torch.Tensor:
        references = []
        x = X.detach()
        for _ in range(3 * equivalents._PASSING):
            x = x + 1.0
            references.append(weakref.ref(x))
        alive.append(sum(one() is not None for one in references))
        return X * x

    watched(step)
    assert max(alive) <= equivalents._PASSING + 1
