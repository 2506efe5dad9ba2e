"""Steps in which operators do what others would do for less, each by itself; `FOUND` has those by kind of which
each call is one."""

from __future__ import annotations

import itertools

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


def all_pairs_of_nodes() -> torch.Tensor:
    nodes = NODES[:96].view(2, 48, -1)
    mine, theirs = nodes[:, :, None].expand(-1, -1, 48, -1), nodes[:, None].expand(-1, 48, -1, -1)
    return functional.linear(torch.cat([mine, theirs], -1), ENDS, ENDS[:, 0])


def shuffled_and_cut() -> torch.Tensor:
    return BETWEEN.index_select(0, torch.arange(20_000).flip(0))[:500].relu()


SIZES = itertools.cycle(range(60, 120))


def graphs_of_other_sizes_in_each_step() -> torch.Tensor:
    size = next(SIZES)
    return torch.block_diag(*torch.rand(12, size, size)) @ TABLE[: 12 * size]


FOUND = {
    "edges": [both_ends, ends_and_what_lies_between, all_pairs_of_nodes],
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
    "top": [last_few],
    "rank": [place],
    "second-sort": [ranks],
}
