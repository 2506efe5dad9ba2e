"""Operators whose results somebody needs as they are: no others could stand for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from operands import (
    GRAPH,
    GRID,
    HIDDEN,
    KEYS,
    LABELS,
    MANY,
    MEMBERS,
    MIXING,
    NODES,
    ONE,
    ORIGIN,
    OTHER,
    PICKED,
    PICTURES,
    PLACES,
    QUERIES,
    QUEUES,
    SCORES,
    STD,
    TABLE,
    TARGETS,
    TO,
    VALUES,
    WAVES,
    WHOLE,
    drawn,
)
from rewriting import watched
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence


def picked_without_gradients() -> torch.Tensor:
    return WHOLE[0].detach()[MANY] * HIDDEN.mean()


def picked_by_mask() -> torch.Tensor:
    return WHOLE[0][torch.arange(200) % 2 == 0] * 2


LAYER = torch.nn.LSTM(64, 8)


def by_a_layer() -> torch.Tensor:
    """Of torch's, which reads packed sequences a step of time after the other."""
    return LAYER(pack_padded_sequence(WHOLE.transpose(0, 1) * 2, torch.full((16,), 200)))[0].data


def with_softmax() -> torch.Tensor:
    return (QUERIES @ KEYS.transpose(-2, -1)).softmax(-1) @ VALUES


def masked() -> torch.Tensor:
    return (QUERIES @ KEYS.transpose(-2, -1)).tril() @ VALUES


def weights_are_used() -> torch.Tensor:
    weights = QUERIES @ KEYS.transpose(-2, -1)
    return (weights @ VALUES).sum() + weights.square().sum()


def small_first() -> torch.Tensor:
    return QUERIES @ (KEYS.transpose(-2, -1) @ VALUES)


def differences_are_used() -> torch.Tensor:
    apart = ONE - OTHER
    return apart / ((apart * apart).sum(-1, keepdim=True) + 1)


def pooled_by_mask() -> torch.Tensor:
    return (ONE.expand(256, 64, 64) * (OTHER[:, :64] > 0)).sum(1)


def all_of_a_sort() -> torch.Tensor:
    return SCORES.sort(dim=1)[0].cumsum(1)


def half_of_a_sort() -> torch.Tensor:
    return SCORES.sort(dim=1)[0][:, :10_000]


def places_and_more() -> torch.Tensor:
    values, order = SCORES.detach().sort(dim=1, descending=True)
    (order == TARGETS[:, None]).nonzero()
    return SCORES * values


def dense() -> torch.Tensor:
    return functional.relu(VALUES[0, 0].detach().repeat(1, 16)) @ TABLE[:512]


def grown_and_read() -> torch.Tensor:
    whole, total = VALUES[0, 0, :, :1].expand(512, 300), torch.zeros(())
    for _ in range(20):
        whole = torch.cat([whole, QUERIES[0, 0]], dim=1)
        total = total + whole.mean()
    return total


def joined_once() -> torch.Tensor:
    return torch.cat([torch.cat([QUERIES[0, 0], KEYS[0, 0]], dim=1)] * 2, dim=0)


def beside_its_diagonal() -> torch.Tensor:
    scores = VALUES[0, 0] @ KEYS[0, 0].T
    return scores.logsumexp(1) - scores.diagonal() * 2


def all_scores_are_read() -> torch.Tensor:
    scores = functional.linear(TABLE[:512], TABLE)
    return functional.cross_entropy(scores, LABELS) + scores.detach().argmax(1).sum()


def few_are_ignored() -> torch.Tensor:
    scores = functional.linear(TABLE[:512], TABLE)
    return functional.cross_entropy(scores, torch.where(torch.arange(512) % 8 == 0, -100, torch.arange(512)))


def correlated() -> torch.Tensor:
    covariance = torch.diag_embed(STD.square()) + 0.01
    return torch.linalg.cholesky(covariance)


def solved_with_all() -> torch.Tensor:
    factor = torch.diag_embed(STD) + torch.ones(12, 12).tril(-1) * 0.01
    return torch.linalg.solve_triangular(factor, STD.unsqueeze(-1), upper=False)


def written_once() -> torch.Tensor:
    whole = torch.zeros(16, 200, 64)
    whole[:, 0] = HIDDEN
    return whole.square()


def taken_apart_at_once() -> torch.Tensor:
    return torch.stack([part * 0.5 for part in (WHOLE * 2).unbind(1)]).square()


def taken_apart_without_gradients() -> torch.Tensor:
    whole, total = (WHOLE * 2).detach(), HIDDEN
    for place in range(200):
        total = total + whole[:, place]
    return total


def pairs_of_others() -> torch.Tensor:
    return (MEMBERS.unsqueeze(-1) - (MEMBERS + 1).unsqueeze(-2)).abs().mean(dim=(-2, -1))


def pairs_by_rows() -> torch.Tensor:
    return (MEMBERS.unsqueeze(-1) - MEMBERS.unsqueeze(-2)).abs().mean(-1)


def rows_of_a_table() -> torch.Tensor:
    return TABLE[PICKED].square()


def along_other_edges() -> torch.Tensor:
    sent = NODES[ORIGIN]
    return torch.zeros(1000, 64).index_add(0, torch.randint(0, 1000, (20_000,)), sent)


LEARNED = drawn(20_000, 1)


def along_learned_edges() -> torch.Tensor:
    sent = NODES[ORIGIN] * LEARNED
    return torch.zeros(1000, 64).index_add(0, TO, sent)


def along_edges_and_kept() -> torch.Tensor:
    sent = NODES[ORIGIN]
    return torch.zeros(1000, 64).index_add(0, TO, sent).sum() + sent.exp().sum()


def columns_of_what_is_computed() -> torch.Tensor:
    return (GRID * 2)[:, PLACES[0], PLACES[1]].square()


def cut_in_three() -> torch.Tensor:
    whole = WHOLE * 2
    return whole[..., :20].sum() + whole[..., 20:40].sum() + whole[..., 40:].sum()


def joined() -> torch.Tensor:
    return torch.stack([HIDDEN * 0.5 for _ in range(200)], dim=1).square()


def written_without_gradients() -> torch.Tensor:
    whole = torch.zeros(16, 200, 64)
    for place in range(200):
        whole[:, place] = HIDDEN.detach()
    return whole.square().sum() * HIDDEN.sum()


def mostly_new() -> torch.Tensor:
    QUEUES["age"] = torch.cat([QUEUES["age"][80_000:], HIDDEN.detach().repeat(5_000, 1)])
    return HIDDEN.sum()


def of_two_queues() -> torch.Tensor:
    both = torch.cat([QUEUES["both"][16:], HIDDEN.detach()])
    return HIDDEN.sum() + both.sum()


def by_rows() -> torch.Tensor:
    return torch.sparse.mm(GRAPH_BY_ROWS, TABLE)


with warnings.catch_warnings(action="ignore"):  # that this layout is a beta
    GRAPH_BY_ROWS = GRAPH.to_sparse_csr()


def with_other_weights_each_time() -> torch.Tensor:
    weighted = torch.sparse_coo_tensor(GRAPH.indices(), torch.rand(GRAPH.values().numel()), GRAPH.shape)
    return torch.sparse.mm(weighted.coalesce(), TABLE)


def of_small_primes() -> torch.Tensor:
    return torch.fft.rfft(WAVES[:, :600]).abs()


def most_scores_are_picked() -> torch.Tensor:
    return functional.linear(WHOLE, TABLE)[:, 1:].square()


def scores_of_each() -> torch.Tensor:
    scores = functional.linear(WHOLE.detach(), TABLE.detach())
    return HIDDEN.sum() + torch.stack([scores[:, place].logsumexp(1) for place in range(200)])


def scores_are_also_summed() -> torch.Tensor:
    scores = functional.linear(WHOLE, TABLE)
    return scores[:, -1].sum() + scores.logsumexp(-1).sum()


def activated_when_larger() -> torch.Tensor:
    larger = functional.interpolate(PICTURES, scale_factor=4.0, mode="bilinear")
    return functional.conv2d(larger.relu(), MIXING)


def smoothed_when_larger() -> torch.Tensor:
    larger = functional.interpolate(PICTURES, scale_factor=4.0, mode="bilinear")
    return functional.conv2d(larger, MIXING.expand(3, 32, 3, 3), padding=1)


def larger_is_kept() -> torch.Tensor:
    larger = functional.interpolate(PICTURES, scale_factor=4.0, mode="bilinear")
    return functional.conv2d(larger, MIXING).sum() + larger.square().sum()


def smaller_first() -> torch.Tensor:
    return functional.conv2d(functional.interpolate(PICTURES, scale_factor=0.5, mode="bilinear"), MIXING)


LEFT_ALONE = [
    most_scores_are_picked,
    scores_of_each,
    scores_are_also_summed,
    activated_when_larger,
    smoothed_when_larger,
    larger_is_kept,
    smaller_first,
    mostly_new,
    of_two_queues,
    written_once,
    taken_apart_at_once,
    taken_apart_without_gradients,
    cut_in_three,
    pairs_of_others,
    pairs_by_rows,
    rows_of_a_table,
    along_other_edges,
    along_learned_edges,
    along_edges_and_kept,
    columns_of_what_is_computed,
    joined,
    written_without_gradients,
    by_rows,
    with_other_weights_each_time,
    of_small_primes,
    correlated,
    solved_with_all,
    beside_its_diagonal,
    grown_and_read,
    joined_once,
    all_scores_are_read,
    few_are_ignored,
    by_a_layer,
    with_softmax,
    masked,
    weights_are_used,
    small_first,
    differences_are_used,
    pooled_by_mask,
    all_of_a_sort,
    half_of_a_sort,
    places_and_more,
    dense,
]


@pytest.mark.parametrize("step", LEFT_ALONE)
def test_what_somebody_needs_is_left_alone(step: Callable[[], torch.Tensor]) -> None:
    assert [row for row in watched(step) if row["kind"] != "indexed"] == []


@pytest.mark.parametrize("step", [picked_without_gradients, picked_by_mask])
def test_what_is_picked_otherwise_or_without_gradients_is_left_alone(step: Callable[[], torch.Tensor]) -> None:
    assert watched(step) == []


def test_a_matrix_that_changes_is_not_taken_for_a_sparse_one_to_keep() -> None:
    def changes() -> torch.Tensor:
        return (torch.rand(1500, 1500) < 0.002).float() @ TABLE

    assert watched(changes) == []
