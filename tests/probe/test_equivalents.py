"""Operators that others could stand for: what is tried, on what, and what is left alone."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import pytest
import torch
from rewriting import watched
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

from perfdoctor.injected._perfdoctor_probe.windows import equivalents


def _drawn(*shape: int, learns: bool = True) -> torch.Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
    return made.requires_grad_(learns)


QUERIES, KEYS, VALUES = (_drawn(2, 2, 512, 32) for _ in range(3))
ONE, OTHER = _drawn(256, 1, 64), _drawn(1, 256, 64)
SCORES = _drawn(32, 20_000)
TARGETS = torch.arange(32)
TABLE = _drawn(1500, 64)
PICKED = torch.arange(512) * 2
EDGES = (torch.rand(1500, 1500, generator=torch.Generator().manual_seed(3)) < 0.002).float()


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


NODES = _drawn(1000, 64)
ORIGIN, TO = torch.randint(0, 1000, (2, 20_000), generator=torch.Generator().manual_seed(3))
WEIGHTS = torch.rand(20_000, 1, generator=torch.Generator().manual_seed(4))


def added_up() -> torch.Tensor:
    sent = NODES[ORIGIN]
    return torch.zeros(1000, 64).index_add(0, TO, sent)


def added_up_by_weight() -> torch.Tensor:
    sent = WEIGHTS * NODES.index_select(0, ORIGIN)
    return torch.zeros(1000, 64).scatter_add(0, TO[:, None].expand(-1, 64), sent)


def added_up_in_place() -> torch.Tensor:
    sent = functional.embedding(ORIGIN, NODES)
    return torch.zeros(1000, 64).index_add_(0, TO, sent)


PATCHED = _drawn(4, 8, 32, 32)
KERNELS = _drawn(16, 8, 3, 3)


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


STD = (torch.rand(2000, 12, generator=torch.Generator().manual_seed(5)) + 0.5).requires_grad_()


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


LABELS = torch.where(torch.arange(512) % 8 == 0, torch.arange(512), -100)


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


PLACES = torch.randint(0, 1500, (2, 20_000), generator=torch.Generator().manual_seed(6))
GRAPH = torch.sparse_coo_tensor(PLACES, torch.ones(20_000), (1500, 1500), check_invariants=True).coalesce()


def by_coordinates() -> torch.Tensor:
    return torch.sparse.mm(GRAPH, TABLE)


def by_coordinates_too() -> torch.Tensor:
    return GRAPH @ TABLE


WAVES = torch.randn(64, 601, generator=torch.Generator().manual_seed(3)).requires_grad_()


def of_a_prime() -> torch.Tensor:
    return torch.fft.rfft(WAVES).abs()


def of_two_primes() -> torch.Tensor:
    return torch.fft.fft2(WAVES.view(1, 64, 601)).abs()


def back_of_a_prime() -> torch.Tensor:
    return torch.fft.irfft(torch.complex(WAVES[:, :301], WAVES[:, 300:]), n=601)


def short_time() -> torch.Tensor:
    return torch.stft(WAVES, 241, hop_length=60, window=torch.hann_window(241), return_complex=True).abs()


HIDDEN = _drawn(16, 64)


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


WHOLE = _drawn(16, 200, 64)


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


MEMBERS = _drawn(32, 24, 64)


def all_pairs() -> torch.Tensor:
    return (MEMBERS.unsqueeze(-1) - MEMBERS.unsqueeze(-2)).abs().mean(dim=(-2, -1))


def all_pairs_the_other_way() -> torch.Tensor:
    return (MEMBERS[:, :, None, :] - MEMBERS[:, :, :, None]).abs().sum((-1, -2))


MANY = torch.randint(200, (8000,), generator=torch.Generator().manual_seed(5))


def picked_by_index() -> torch.Tensor:
    return WHOLE[0][MANY] * 2


def picked_by_a_table() -> torch.Tensor:
    return WHOLE[0][MANY.view(80, 100)] * 2


GRID = _drawn(32, 128, 128)
PLACES = torch.randint(128, (2, 4096), generator=torch.Generator().manual_seed(5))


def columns_of_a_grid() -> torch.Tensor:
    return GRID[:, PLACES[0], PLACES[1]].square()


QUEUES = {name: torch.zeros(100_000, 64) for name in ("rows", "age", "both")}


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


PICTURES, MIXING = _drawn(2, 32, 40, 40), _drawn(3, 32, 1, 1)


def mixed_when_larger() -> torch.Tensor:
    larger = functional.interpolate(PICTURES, scale_factor=4.0, mode="bilinear")
    return functional.conv2d(larger, MIXING, MIXING[:, 0, 0, 0])


def mixed_when_nearest() -> torch.Tensor:
    larger = functional.interpolate(PICTURES, scale_factor=4.0)
    return functional.conv2d(larger, MIXING)


FOUND = {
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
    "diagonal-factor": [factored],
    "diagonal-solve": [solved],
    "top": [first_few, last_few],
    "rank": [place],
    "second-sort": [ranks],
}


@pytest.mark.parametrize(("kind", "step"), [(kind, step) for kind, steps in FOUND.items() for step in steps])
def test_it_is_found_where_it_begins_with_what_both_ways_take(
    kind: str, step: Callable[[], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each other way takes 10 us, by the clock: what it would take here depends on who else computes."""
    monkeypatch.setattr(equivalents, "_clock", itertools.count(0, 10_000).__next__)
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


def test_what_need_not_be_made_has_its_shape_and_its_lines() -> None:
    (row,) = watched(associated)
    assert row["shape"] == [4, 512, 512] and row["times_per_step"] == 1.0
    assert (row["at"], row["then_at"]) == tuple(associated.__code__.co_firstlineno + line for line in (1, 2))


# ---------------------------------------------------------------------------------------------------------
# Left alone


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


LEARNED = _drawn(20_000, 1)


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
