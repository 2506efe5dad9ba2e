"""Modules that a loop gives longer and longer beginnings of a sequence: which of them could be called once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import passes
from perfdoctor.injected._perfdoctor_probe.microbenchmarks.by_prefix import Prefixes
from perfdoctor.injected._perfdoctor_probe.windows.layers import Layers

LENGTH = 7


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the smallest pass may take its time."""
    monkeypatch.setattr(passes, "_LIMIT_NS", 1 << 60)


class Writer(nn.Module):
    """A transformer of tokens, which sees those before each, or all."""

    def __init__(self, is_causal: bool = True) -> None:
        super().__init__()
        self.embed, self.out, self.is_causal = nn.Embedding(11, 8), nn.Linear(8, 11), is_causal
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if mask is None and self.is_causal:
            mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.out(self.layer(self.embed(tokens), mask))


Job = Callable[[nn.Module, torch.Tensor], torch.Tensor]


def taught(writer: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    loss = torch.zeros(())
    for t in range(1, LENGTH):
        loss = loss + writer(tokens[:, :t])[:, -1].logsumexp(-1).sum()
    return loss


def masked(writer: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    loss, mask = torch.zeros(()), nn.Transformer.generate_square_subsequent_mask(LENGTH)
    for t in range(1, LENGTH):
        loss = loss + writer(tokens[:, :t], mask=mask[:t, :t])[:, -1].logsumexp(-1).sum()
    return loss


def its_own(writer: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Each token is what the call before found best."""
    loss, written = torch.zeros(()), tokens[:, :1]
    for _ in range(1, LENGTH):
        scores = writer(written)[:, -1]
        written = torch.cat([written, scores.argmax(-1, keepdim=True)], 1)
        loss = loss + scores.logsumexp(-1).sum()
    return loss


def windows(writer: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    loss = torch.zeros(())
    for t in range(1, LENGTH - 2):
        loss = loss + writer(tokens[:, t : t + 2])[:, -1].logsumexp(-1).sum()
    return loss


def _rows(writer: nn.Module, job: Job) -> list[tuple[dict[str, Any], Any]]:
    """Of two training steps."""
    layers = Layers(UsersFile(__file__), torch.optim.SGD(writer.parameters()))
    layers.open()
    for _ in range(2):
        job(writer, torch.randint(0, 11, (4, LENGTH))).backward()
    layers.close()
    assert layers.prefixes is not None
    return layers.prefixes.rows(lambda module: ({"kind": type(module).__name__}, 1.0))


@pytest.mark.parametrize("job", [taught, masked])
def test_one_that_sees_what_came_before_is_told_with_what_one_call_takes(job: Job) -> None:
    writer = Writer()
    ((facts, (prefixes, found)),) = _rows(writer, job)
    line = job.__code__.co_firstlineno + 2
    assert facts == {"kind": "Writer", "loop": "for t in range(1, LENGTH)", "loop_line": line, "by_prefix": True}
    found.keep(1.0, batched=False)
    before = [one.clone() for one in writer.state_dict().values()]
    timed = prefixes.timings(found)
    assert (timed["calls"], timed["together"]) == (LENGTH - 1, LENGTH - 1)
    assert timed["now_ms"] > 0 and timed["once_ms"] > 0
    assert all(map(torch.equal, writer.state_dict().values(), before))
    assert all(one.training for one in writer.modules())


@pytest.mark.parametrize("job", [its_own, windows])
def test_what_each_call_gives_the_next_is_for_others(job: Job) -> None:
    assert _rows(Writer(), job) == []


def test_one_that_sees_all_makes_other_numbers_at_once() -> None:
    writer = Writer(is_causal=False)
    ((_, (prefixes, found)),) = _rows(writer, taught)
    found.keep(1.0, batched=False)
    assert "depends on those that follow" in prefixes.timings(found)["missing"]


def test_one_that_gives_the_last_position_alone_does_not_give_the_others_at_once() -> None:
    class Last(Writer):
        def forward(self, tokens: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
            return super().forward(tokens, mask)[:, -1:]

    writer = Last()
    ((_, (prefixes, found)),) = _rows(writer, taught)
    found.keep(1.0, batched=False)
    assert "depends on those that follow" in prefixes.timings(found)["missing"]


def test_the_call_in_the_middle_is_timed_beside_the_last() -> None:
    class Passes:
        def without(self, ways: dict[str, Any]) -> dict[str, float]:
            (name,) = ways
            return {"now_ms": 8.0, f"{name}_ms": 5.0}

    timed = Prefixes({0: (1,)}, 12).timings(Passes())  # type: ignore[arg-type]
    assert timed == {"now_ms": 5.0, "once_ms": 8.0, "calls": 12, "together": 12}
