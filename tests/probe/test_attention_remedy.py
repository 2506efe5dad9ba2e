"""Attention made by hand becomes one operator, and what looks like it but is not stays what it is."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from perfdoctor.injected._perfdoctor_probe import remedies

T = torch.Tensor
SEEN = torch.tril(torch.ones(5, 5, dtype=torch.bool))
INFINITE = float("-inf")


def written_out(q: T, k: T, v: T) -> T:
    scores = (q @ k.transpose(-2, -1)) / math.sqrt(8)
    return functional.dropout(torch.softmax(scores.masked_fill(~SEEN, INFINITE), dim=-1), 0.0) @ v


def added_mask(q: T, k: T, v: T) -> T:
    mask = torch.zeros(5, 5).masked_fill(~SEEN, INFINITE)
    return torch.matmul((torch.matmul(q, k.transpose(2, 3)) * 8**-0.5 + mask).softmax(-1), v)


def heads_as_batch(q: T, k: T, v: T) -> T:
    q, k, v = (t.reshape(-1, 5, 8) for t in (q, k, v))
    return torch.bmm(nn.Softmax(dim=-1)(0.5 * torch.bmm(q, k.transpose(1, 2))), v).view(3, 2, 5, 8)


def summed(q: T, k: T, v: T) -> T:
    weights = (torch.einsum("b h i d, b h j d -> b h i j", q, k) * 8**-0.5).masked_fill(~SEEN, INFINITE).softmax(-1)
    return torch.einsum("bhij,bhjd->bhid", weights, v)


def summed_heads_last(q: T, k: T, v: T) -> T:
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    weights = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(8), dim=-1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v).transpose(1, 2)


def summed_by_ellipsis(q: T, k: T, v: T) -> T:
    return torch.einsum("...ij,...jd->...id", torch.einsum("...id,...jd->...ij", q, k).softmax(dim=-1), v)


def summed_and_looked_at(q: T, k: T, v: T) -> T:
    scores = torch.einsum("bhid,bhjd->bhij", q, k)
    return torch.einsum("bhij,bhjd->bhid", functional.softmax(scores - scores.max(), -1), v)


def summed_to_queries(q: T, k: T, v: T) -> T:
    return torch.einsum("bhji,bhid->bhjd", torch.einsum("bhjd,bhid->bhij", k, q).softmax(-1), v)


def in_place(q: T, k: T, v: T) -> T:
    scores = q @ k.transpose(-2, -1)
    scores.mul_(0.5)
    scores[..., ~SEEN] = INFINITE
    return scores.softmax(-1) @ v


def along_queries(q: T, k: T, v: T) -> T:
    return torch.softmax(q @ k.transpose(-2, -1), dim=-2) @ v


def looked_at(q: T, k: T, v: T) -> T:
    scores = q @ k.transpose(-2, -1)
    return functional.softmax(scores - scores.max(), -1) @ v + scores.shape[-1]


class Model(nn.Module):
    def __init__(self, attend: Callable[[T, T, T], T]) -> None:
        super().__init__()
        self.project = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.attend = attend

    def forward(self, x: T) -> T:
        q, k, v = (layer(x).view(3, 5, 2, 8).transpose(1, 2) for layer in self.project)
        return self.attend(q, k, v)


def probe_of(model: nn.Module) -> SimpleNamespace:
    found = {type(model): SimpleNamespace(has_parameters=True)}
    return SimpleNamespace(discovery=SimpleNamespace(compiled=False, found=found), facts=SimpleNamespace(autocast=""))


@pytest.mark.parametrize(
    ("attend", "fused"),
    [
        (written_out, 1),
        (added_mask, 1),
        (heads_as_batch, 1),
        (summed, 1),
        (summed_heads_last, 1),
        (summed_by_ellipsis, 1),
        (summed_and_looked_at, 0),
        (summed_to_queries, 0),
        (in_place, 0),
        (along_queries, 0),
        (looked_at, 0),
    ],
)
def test_the_result_is_the_models_own_whether_or_not_it_is_fused(attend: Callable[[T, T, T], T], fused: int) -> None:
    torch.manual_seed(0)
    model, x = Model(attend), torch.randn(3, 5, 16)
    before = model(x)
    before.sum().backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    remedy = remedies.make("attention.sdpa", probe_of(model))
    remedy.apply()
    during = model(x)
    during.sum().backward()
    assert remedy.found == fused and bool(remedy.lost()) == (not fused)
    remedy.withdraw()
    torch.testing.assert_close(during, before)
    torch.testing.assert_close([p.grad for p in model.parameters() if p.grad is not None], gradients)
    assert torch.equal(model(x), before)


def test_a_copy_of_the_model_can_be_made_meanwhile() -> None:
    model, x = Model(written_out), torch.randn(3, 5, 16)
    remedy = remedies.make("attention.sdpa", probe_of(model))
    remedy.apply()
    average = copy.deepcopy(model)
    torch.testing.assert_close(average(x), model(x))
    assert remedy.found == 2
    remedy.withdraw()
    # The copy's hooks go on, and change no result.
    torch.testing.assert_close(average(x), model(x))


class Recomputing(nn.Module):
    """Keeps no activations of its blocks: they are computed again in the backward pass."""

    def __init__(self, whole: bool, reentrant: bool) -> None:
        super().__init__()
        self.block = Model(written_out)
        self.head = nn.Linear(8, 1)
        self.whole, self.reentrant = whole, reentrant

    def forward(self, x: T) -> T:
        inside = self.block if self.whole else self.attend
        return self.head(checkpoint(inside, x, use_reentrant=self.reentrant))

    def attend(self, x: T) -> T:
        q, k, v = (layer(x).view(3, 5, 2, 8).transpose(1, 2) for layer in self.block.project)
        return written_out(q, k, v)


@pytest.mark.parametrize(
    ("whole", "reentrant", "fused", "why"),
    [
        (True, False, 2, ""),
        (True, True, 2, ""),
        (False, True, 1, ""),
        (False, False, 0, "inside a `checkpoint` of a function"),
    ],
)
def test_what_is_computed_again_is_computed_in_the_same_way(whole: bool, reentrant: bool, fused: int, why: str) -> None:
    torch.manual_seed(0)
    model, x = Recomputing(whole, reentrant), torch.randn(3, 5, 16, requires_grad=True)
    model(x).sum().backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    remedy = remedies.make("attention.sdpa", probe_of(model))
    remedy.apply()
    model(x).sum().backward()
    assert remedy.found == fused and why in remedy.lost() and bool(remedy.lost()) == bool(why)
    remedy.withdraw()
    torch.testing.assert_close([p.grad for p in model.parameters() if p.grad is not None], gradients)
    assert remedy.depth == 0 and remedy.inside == []
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_layers_are_not_asked_for_their_weights_and_are_again_afterwards() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x: T, positional: bool) -> tuple[T, T | None]:
            return self.attention(x, x, x, None, True) if positional else self.attention(x, x, x)

    model, x = Layer(), torch.randn(3, 5, 16)
    remedy = remedies.make("attention.sdpa", probe_of(model))
    remedy.apply()
    assert model(x, False)[1] is None and model(x, True)[1] is None and remedy.lost() == ""
    remedy.withdraw()
    assert model(x, False)[1] is not None


def test_kernels_that_are_switched_off_are_on_meanwhile() -> None:
    model = Model(written_out)
    torch.backends.cuda.enable_flash_sdp(False)
    try:
        remedy = remedies.make("attention.sdpa", probe_of(model))
        remedy.apply()
        assert torch.backends.cuda.flash_sdp_enabled()
        remedy.withdraw()
        assert not torch.backends.cuda.flash_sdp_enabled()
    finally:
        torch.backends.cuda.enable_flash_sdp(True)
