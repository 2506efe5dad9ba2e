"""Operators that others could stand for: what is tried, and on what."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from operands import (
    BETWEEN,
    EDGES,
    ENDS,
    GRAPH,
    GRID,
    HIDDEN,
    KERNELS,
    KEYS,
    LABELS,
    MANY,
    MEMBERS,
    MIXING,
    NODES,
    ONE,
    ORIGIN,
    OTHER,
    PATCHED,
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
    WEIGHTS,
    WHOLE,
    WINDOWS,
)
from rewriting import watched
from torch.nn import functional


def associated() -> torch.Tensor:
    weights = QUERIES @ KEYS.transpose(-2, -1)
    return (weights @ VALUES) / weights.sum(-1, keepdim=True)


def scaled() -> torch.Tensor:
    weights = (QUERIES @ KEYS.transpose(-2, -1)) * 0.125
    return weights @ VALUES


def by_einsum() -> torch.Tensor:
    weights = torch.einsum("bhnd,bhmd->bhnm", QUERIES, KEYS) / 8
    return torch.einsum("bhnm,bhmd->bhnd", weights, VALUES)


def turned() -> torch.Tensor:
    weights = QUERIES @ KEYS.transpose(-2, -1)
    return weights.transpose(-2, -1) @ VALUES


def low_rank() -> torch.Tensor:
    return VALUES[0, 0, :128].repeat(1, 16) @ (KEYS[0, 0, :, :8] @ QUERIES[0, 0, :8].repeat(1, 16))


def each_by_each() -> torch.Tensor:
    return (ONE * OTHER).sum(-1)


def mean_of_each_by_each() -> torch.Tensor:
    return (ONE * OTHER).mean(-1, keepdim=True)


def cosines() -> torch.Tensor:
    return functional.cosine_similarity(ONE, OTHER, dim=-1)


def written_out() -> torch.Tensor:
    return (ONE.repeat(1, OTHER.shape[1], 1) * OTHER.repeat(ONE.shape[0], 1, 1)).sum(-1)


def cosines_written_out() -> torch.Tensor:
    both = torch.broadcast_tensors(ONE, OTHER)
    return functional.cosine_similarity(*(one.contiguous() for one in both), dim=-1)


def distances_written_out() -> torch.Tensor:
    return (ONE.repeat(1, OTHER.shape[1], 1) - OTHER.repeat(ONE.shape[0], 1, 1)).pow(2).sum(-1)


def pairwise() -> torch.Tensor:
    return functional.pairwise_distance(ONE, OTHER)


def added_up() -> torch.Tensor:
    sent = NODES[ORIGIN]
    return torch.zeros(1000, 64).index_add(0, TO, sent)


def added_up_by_weight() -> torch.Tensor:
    sent = WEIGHTS * NODES.index_select(0, ORIGIN)
    return torch.zeros(1000, 64).scatter_add(0, TO[:, None].expand(-1, 64), sent)


def added_up_in_place() -> torch.Tensor:
    sent = functional.embedding(ORIGIN, NODES)
    return torch.zeros(1000, 64).index_add_(0, TO, sent)


def unfolded() -> torch.Tensor:
    return KERNELS.flatten(1) @ functional.unfold(PATCHED, 3, padding=1)


def unfolded_by_einsum() -> torch.Tensor:
    return torch.einsum("ok,nkl->nol", KERNELS.flatten(1), functional.unfold(PATCHED, 3, dilation=2, stride=2))


def unfolded_and_turned() -> torch.Tensor:
    return functional.linear(functional.unfold(PATCHED, 3).transpose(1, 2), KERNELS.flatten(1))


def unfolded_in_batches() -> torch.Tensor:
    return torch.bmm(KERNELS.flatten(1).expand(4, -1, -1), functional.unfold(PATCHED, 3))


def squared() -> torch.Tensor:
    return ((ONE - OTHER) ** 2).sum(-1)


def multiplied() -> torch.Tensor:
    apart = ONE - OTHER
    return (apart * apart).mean(2)


def norms() -> torch.Tensor:
    return (ONE - OTHER).norm(dim=-1)


def one_hot() -> torch.Tensor:
    return functional.one_hot(PICKED, 1500).float() @ TABLE


def one_hot_linear() -> torch.Tensor:
    return functional.linear(functional.one_hot(PICKED, 1500).float(), TABLE.t(), TABLE[0])


def on_a_diagonal() -> torch.Tensor:
    return torch.diag(torch.arange(1.0, 1501.0)) @ TABLE


def sparse() -> torch.Tensor:
    return EDGES @ TABLE


def graphs_in_one() -> torch.Tensor:
    return torch.block_diag(*torch.rand(20, 75, 75).bernoulli(0.3)) @ TABLE


def graphs_of_many_sizes() -> torch.Tensor:
    sizes = (100, 40, 60, 30, 70, 100, 100, 1, 99, 400, 100, 100, 300)
    return torch.block_diag(*(torch.rand(size, size) for size in sizes)) @ TABLE


def factored() -> torch.Tensor:
    return torch.linalg.cholesky(torch.diag_embed(STD.square()))


def solved() -> torch.Tensor:
    return torch.linalg.solve_triangular(torch.diag_embed(STD), VALUES[0, 0, :12, :1].expand(2000, 12, 1), upper=False)


def first_few() -> torch.Tensor:
    return SCORES.sort(dim=1, descending=True)[0][:, :10]  # a view: the sum outside reads it


def last_few() -> torch.Tensor:
    return SCORES.gather(1, SCORES.argsort(dim=1)[:, -5:])


def place() -> torch.Tensor:
    with torch.no_grad():
        order = SCORES.argsort(dim=1, descending=True)
        (order == TARGETS[:, None]).nonzero()
    return SCORES


def ranks() -> torch.Tensor:
    return SCORES * SCORES.detach().argsort(1).argsort(1)


def ignored() -> torch.Tensor:
    scores = functional.linear(TABLE[:512], TABLE, TABLE[:, 0])
    return functional.cross_entropy(scores, LABELS)


def ignored_in_sequences() -> torch.Tensor:
    scores = functional.linear(TABLE[:512].view(8, 64, 64), TABLE)
    return functional.cross_entropy(scores.view(-1, 1500), LABELS, reduction="sum")


def grown() -> torch.Tensor:
    whole = VALUES[0, 0, :, :1].expand(512, 300)
    for _ in range(20):
        whole = torch.cat([whole, QUERIES[0, 0]], dim=1)
    return whole


def on_its_diagonal() -> torch.Tensor:
    rows = VALUES[0, 0]
    return (rows @ rows.T).diagonal().sqrt()


def in_batches() -> torch.Tensor:
    return (QUERIES @ KEYS.transpose(-2, -1)).diagonal(dim1=-2, dim2=-1) * 2


def ignored_and_not_contiguous() -> torch.Tensor:
    hidden = TABLE[:512].view(64, 8, 64).transpose(0, 1)
    scores = functional.linear(hidden, TABLE, TABLE[:, 0])
    return functional.cross_entropy(scores.reshape(-1, 1500), LABELS)


def by_coordinates() -> torch.Tensor:
    return torch.sparse.mm(GRAPH, TABLE)


def by_coordinates_too() -> torch.Tensor:
    return GRAPH @ TABLE


def of_a_prime() -> torch.Tensor:
    return torch.fft.rfft(WAVES).abs()


def of_two_primes() -> torch.Tensor:
    return torch.fft.fft2(WAVES.view(1, 64, 601)).abs()


def back_of_a_prime() -> torch.Tensor:
    return torch.fft.irfft(torch.complex(WAVES[:, :301], WAVES[:, 300:]), n=601)


def short_time() -> torch.Tensor:
    return torch.stft(WAVES, 241, hop_length=60, window=torch.hann_window(241), return_complex=True).abs()


def written() -> torch.Tensor:
    whole = torch.zeros(16, 200, 64)
    for place in range(200):
        whole[:, place] = HIDDEN * 0.5
    return whole.square()


def written_by_places() -> torch.Tensor:
    whole = torch.zeros(200, 64)
    for place in torch.arange(200).view(20, 10):
        whole[place] = HIDDEN[:10] * 0.5
    return whole.square()


def taken_apart() -> torch.Tensor:
    whole, total = WHOLE * 2, torch.zeros(16, 64)
    for place in range(200):
        total = total + whole[:, place]
    return total


def taken_in_slices() -> torch.Tensor:
    whole, total = WHOLE * 2, torch.zeros(16, 10, 64)
    for place in range(20):
        total = total + whole[:, 10 * place : 10 * place + 10]
    return total


def all_pairs() -> torch.Tensor:
    return (MEMBERS.unsqueeze(-1) - MEMBERS.unsqueeze(-2)).abs().mean(dim=(-2, -1))


def all_pairs_the_other_way() -> torch.Tensor:
    return (MEMBERS[:, :, None, :] - MEMBERS[:, :, :, None]).abs().sum((-1, -2))


def picked_by_index() -> torch.Tensor:
    return WHOLE[0][MANY] * 2


def picked_by_a_table() -> torch.Tensor:
    return WHOLE[0][MANY.view(80, 100)] * 2


def columns_of_a_grid() -> torch.Tensor:
    return GRID[:, PLACES[0], PLACES[1]].square()


def rebuilt() -> torch.Tensor:
    QUEUES["rows"] = torch.cat([QUEUES["rows"][16:], HIDDEN.detach()])
    return HIDDEN.sum()


def picked_scores() -> torch.Tensor:
    scores = functional.linear(WHOLE, TABLE[:, :64], TABLE[:, 0])
    return scores[torch.arange(16)[:, None], PICKED[:3]]


def picked_by_mask() -> torch.Tensor:
    scores = functional.linear(WHOLE, TABLE)
    return scores[torch.arange(200).expand(16, 200) % 8 == 0]


def scores_of_the_last() -> torch.Tensor:
    scores = functional.linear(WHOLE, TABLE)
    return scores[:, -1].relu()


def mixed_when_larger() -> torch.Tensor:
    larger = functional.interpolate(PICTURES, scale_factor=4.0, mode="bilinear")
    return functional.conv2d(larger, MIXING, MIXING[:, 0, 0, 0])


def mixed_when_nearest() -> torch.Tensor:
    larger = functional.interpolate(PICTURES, scale_factor=4.0)
    return functional.conv2d(larger, MIXING)


def every_fourth() -> torch.Tensor:
    return functional.conv2d(PICTURES, WINDOWS, padding=1)[:, :, ::4, ::4].relu()


def every_other_from_the_second() -> torch.Tensor:
    return functional.conv2d(PICTURES, WINDOWS, WINDOWS[:, 0, 0, 0], stride=2, padding=1)[:, :, 1::2].relu()


def both_ends() -> torch.Tensor:
    ends = torch.cat([NODES.index_select(0, ORIGIN), functional.embedding(TO, NODES)], 1)
    return functional.linear(ends, ENDS, ENDS[:, 0])


def ends_and_what_lies_between() -> torch.Tensor:
    return torch.cat([NODES.index_select(0, ORIGIN), BETWEEN], 1) @ ENDS[:, :96].t()


def shuffled_and_cut() -> torch.Tensor:
    return BETWEEN.index_select(0, torch.arange(20_000).flip(0))[:500].relu()


SIZES = itertools.cycle(range(60, 120))


def graphs_of_other_sizes_in_each_step() -> torch.Tensor:
    size = next(SIZES)
    return torch.block_diag(*torch.rand(12, size, size)) @ TABLE[: 12 * size]


FOUND = {
    "edges": [both_ends, ends_and_what_lies_between],
    "cut": [shuffled_and_cut],
    "strided": [every_fourth, every_other_from_the_second],
    "picked": [picked_scores, picked_by_mask, scores_of_the_last],
    "enlarged": [mixed_when_larger, mixed_when_nearest],
    "rebuilt": [rebuilt],
    "columns": [columns_of_a_grid],
    "pairs": [all_pairs, all_pairs_the_other_way],
    "by-rows": [by_coordinates, by_coordinates_too],
    "transform": [of_a_prime, of_two_primes, back_of_a_prime, short_time],
    "trace": [on_its_diagonal, in_batches],
    "grown": [grown],
    "ignored": [ignored, ignored_in_sequences, ignored_and_not_contiguous],
    "order": [associated, scaled, by_einsum, turned, low_rank],
    "messages": [added_up, added_up_by_weight, added_up_in_place],
    "unfolded": [unfolded, unfolded_by_einsum, unfolded_and_turned, unfolded_in_batches],
    "product": [each_by_each, mean_of_each_by_each, cosines, written_out, cosines_written_out],
    "distance": [squared, multiplied, norms, pairwise, distances_written_out],
    "one-hot": [one_hot, one_hot_linear],
    "diagonal": [on_a_diagonal],
    "sparse": [sparse],
    "blocks": [graphs_in_one, graphs_of_many_sizes, graphs_of_other_sizes_in_each_step],
    "diagonal-factor": [factored],
    "diagonal-solve": [solved],
    "top": [first_few, last_few],
    "rank": [place],
    "second-sort": [ranks],
}


@pytest.mark.parametrize(("kind", "step"), [(kind, step) for kind, steps in FOUND.items() for step in steps])
def test_it_is_found_where_it_begins_with_what_both_ways_take(kind: str, step: Callable[[], torch.Tensor]) -> None:
    (row,) = watched(step)
    assert row["kind"] == kind
    assert step.__code__.co_firstlineno < row["at"] <= row["then_at"]
    assert 0 <= row["other_forward_ms"] < row["forward_ms"]
    passes_through = kind not in ("rank", "second-sort", "rebuilt") and step is not last_few
    assert (row["backward_ms"] > 0) == passes_through == (row["other_backward_ms"] > 0) or kind == "grown"


@pytest.mark.parametrize(
    ("step", "times", "shape"), [(written, 199, [16, 200, 64]), (written_by_places, 19, [200, 64])]
)
def test_parts_that_are_written_one_by_one_cost_what_the_backward_pass_copies(
    step: Callable[[], torch.Tensor], times: int, shape: list[int]
) -> None:
    (row,) = watched(step)
    assert (row["kind"], row["times_per_step"], row["shape"]) == ("written", times, shape)
    assert row["at"] == row["then_at"] == step.__code__.co_firstlineno + 3
    assert row["other_forward_ms"] == row["forward_ms"] > 0, "parts are copied once to be joined, too"
    assert row["backward_ms"] > row["other_backward_ms"] == 0


@pytest.mark.parametrize("step", [taken_apart, taken_in_slices])
def test_parts_that_are_read_one_by_one_cost_what_the_backward_pass_fills_and_adds(
    step: Callable[[], torch.Tensor],
) -> None:
    (row,) = watched(step)
    assert (row["kind"], row["times_per_step"], row["shape"]) == ("taken-apart", 1.0, [16, 200, 64])
    assert row["at"] == row["then_at"] == step.__code__.co_firstlineno + 3
    parts = 200 if step is taken_apart else 20
    assert row["forward_ms"] == row["other_forward_ms"] == 0
    assert row["backward_ms"] == pytest.approx(parts / 2 * row["other_backward_ms"], rel=0.01)


@pytest.mark.parametrize("step", [picked_by_index, picked_by_a_table])
def test_rows_that_are_picked_by_an_index_cost_what_adding_up_their_gradients_does(
    step: Callable[[], torch.Tensor],
) -> None:
    (row,) = watched(step)
    assert (row["kind"], row["times_per_step"]) == ("indexed", 1.0)
    assert row["at"] == step.__code__.co_firstlineno + 1
    assert row["backward_ms"] > row["other_backward_ms"] > 0


def test_a_queue_that_is_joined_anew_counts_in_the_first_step_too() -> None:
    (row,) = watched(rebuilt)
    assert row["times_per_step"] == 1.0 and row["shape"] == [100_000, 64]


def test_a_memory_that_is_joined_anew_counts_while_it_is_not_full_yet() -> None:
    rows = torch.zeros(50_000, 64)

    def filling() -> torch.Tensor:
        nonlocal rows
        rows = torch.cat([rows, HIDDEN.detach()])[-60_000:]
        return HIDDEN.sum()

    (row,) = watched(filling)
    assert (row["kind"], row["times_per_step"]) == ("rebuilt", 1.0)


def test_what_is_made_twice_as_large_is_not_joined_anew_for_a_few() -> None:
    rows = torch.zeros(50_000, 64)

    def doubling() -> torch.Tensor:
        nonlocal rows
        rows = torch.cat([rows, rows + 1.0])
        return HIDDEN.sum()

    assert watched(doubling) == []


def test_a_matrix_that_is_0_in_places_is_none_of_blocks() -> None:
    def chain() -> torch.Tensor:
        near = (torch.arange(1500)[:, None] - torch.arange(1500)).abs() < 40
        return (near * torch.rand(1500, 1500)) @ TABLE

    assert watched(chain) == []


def test_a_convolution_of_which_others_read_more_keeps_its_stride() -> None:
    def read_twice() -> torch.Tensor:
        made = functional.conv2d(PICTURES, WINDOWS, padding=1)
        return made[:, :, ::4, ::4].relu().sum() + made.square().mean()

    assert watched(read_twice) == []


def test_what_need_not_be_made_has_its_shape_and_its_lines() -> None:
    (row,) = watched(associated)
    assert row["shape"] == [4, 512, 512] and row["times_per_step"] == 1.0
    assert (row["at"], row["then_at"]) == tuple(associated.__code__.co_firstlineno + line for line in (1, 2))


def test_a_product_counts_in_each_step_though_it_is_looked_at_in_the_second_one() -> None:
    (row,) = watched(sparse, steps=2)
    assert row["times_per_step"] == 1.0


def test_the_job_computes_what_it_would_have() -> None:
    def gradients() -> list[torch.Tensor]:
        for one in (QUERIES, KEYS, VALUES):
            one.grad = None
        watched(associated, steps=2)
        return [one.grad.clone() for one in (QUERIES, KEYS, VALUES) if one.grad is not None]

    seen = gradients()
    for one in (QUERIES, KEYS, VALUES):
        one.grad = None
    for _ in range(3):
        associated().sum().backward()
    assert all(torch.equal(one, other.grad) for one, other in zip(seen, (QUERIES, KEYS, VALUES), strict=True))
