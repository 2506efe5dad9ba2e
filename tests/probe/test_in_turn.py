"""Modules that a loop calls for one position after the other: which of them could be called once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import passes
from perfdoctor.injected._perfdoctor_probe.microbenchmarks.in_turn import Turns
from perfdoctor.injected._perfdoctor_probe.windows.layers import Layers

Job = Callable[["Decoder", torch.Tensor, torch.Tensor], torch.Tensor]
LENGTH = 6


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the smallest pass may take its time."""
    monkeypatch.setattr(passes, "_LIMIT_NS", 1 << 60)


class Decoder(nn.Module):
    """Looks at the rows of a memory after its recurrent layer, or before it."""

    def __init__(self, kind: type[nn.RNNBase] = nn.GRU, before: bool = False) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(11, 8), nn.Linear(16, 11)
        self.drop, self.before = nn.Dropout(0.5), before
        self.rnn = kind(16 if before else 8, 8, num_layers=2, batch_first=True)

    def forward(self, tokens: torch.Tensor, state: Any, memory: torch.Tensor) -> tuple[torch.Tensor, Any]:
        x = self.drop(self.embed(tokens))
        if self.before:
            last = state[-1].unsqueeze(1)
            x = torch.cat([x, self._looked(last, memory).expand(-1, x.shape[1], -1)], -1)
        x, state = self.rnn(x, state)
        return self.out(torch.cat([x, self._looked(x, memory)], -1)), state

    @staticmethod
    def _looked(x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        return (x @ memory.transpose(1, 2)).softmax(-1) @ memory


def taught(decoder: Decoder, tokens: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    loss, state = torch.zeros(()), first_state(decoder, tokens)
    for t in range(tokens.shape[1]):
        scores, state = decoder(tokens[:, t : t + 1], state, memory)
        loss = loss + scores.logsumexp(-1).sum()
    return loss


def named(decoder: Decoder, tokens: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    loss, (hidden, cell) = torch.zeros(()), first_state(decoder, tokens)
    for token in tokens.split(1, 1):
        scores, (hidden, cell) = decoder(token, memory=memory, state=(hidden, cell))
        loss = loss + scores.logsumexp(-1).sum()
    return loss


def its_own(decoder: Decoder, tokens: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    """Each token is what the call before found best."""
    loss, state, token = torch.zeros(()), first_state(decoder, tokens), tokens[:, :1]
    for _ in range(tokens.shape[1]):
        scores, state = decoder(token, state, memory)
        token = scores.argmax(-1)
        loss = loss + scores.logsumexp(-1).sum()
    return loss


def beginning(decoder: Decoder, tokens: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    """No call needs another one."""
    loss = torch.zeros(())
    for t in range(tokens.shape[1]):
        scores, _ = decoder(tokens[:, t : t + 1], first_state(decoder, tokens), memory)
        loss = loss + scores.logsumexp(-1).sum()
    return loss


def first_state(decoder: Decoder, tokens: torch.Tensor) -> Any:
    zeros = torch.zeros(2, len(tokens), 8)
    return (zeros, zeros.clone()) if isinstance(decoder.rnn, nn.LSTM) else zeros


def _rows(decoder: Decoder, job: Job) -> list[tuple[dict[str, Any], tuple[Turns, passes.PassMicrobenchmark]]]:
    """Of two training steps."""
    layers = Layers(UsersFile(__file__), torch.optim.SGD(decoder.parameters()))
    for _ in range(2):
        if not layers.handles:
            layers.open()
        job(decoder, torch.randint(0, 11, (4, LENGTH)), torch.randn(4, 5, 8)).backward()
    layers.close()
    assert layers.turns is not None
    return layers.turns.rows(lambda module: ({"kind": type(module).__name__}, 1.0))


@pytest.mark.parametrize(
    ("kind", "job", "loop"),
    [
        (nn.GRU, taught, "for t in range(tokens.shape[1])"),
        (nn.LSTM, taught, "for t in range(tokens.shape[1])"),
        (nn.LSTM, named, "for token in tokens.split(1, 1)"),
    ],
)
def test_a_decoder_that_is_taught_is_told_with_what_one_call_takes(kind: type[nn.RNNBase], job: Job, loop: str) -> None:
    decoder = Decoder(kind)
    ((facts, (turns, found)),) = _rows(decoder, job)
    assert facts == {"kind": "Decoder", "loop": loop, "loop_line": job.__code__.co_firstlineno + 2}
    found.keep(1.0, batched=False)
    before = [one.clone() for one in decoder.state_dict().values()]
    timed = turns.timings(found)
    assert (timed["calls"], timed["together"]) == (LENGTH, LENGTH)
    assert timed["now_ms"] > 0 and timed["once_ms"] > 0
    assert all(map(torch.equal, decoder.state_dict().values(), before))
    assert all(one.training for one in decoder.modules())


@pytest.mark.parametrize("job", [its_own, beginning])
def test_what_needs_more_than_the_state_or_nothing_is_for_others(job: Job) -> None:
    assert _rows(Decoder(), job) == []


def test_a_decoder_that_looks_first_makes_other_numbers_at_once() -> None:
    decoder = Decoder(before=True)
    ((_, (turns, found)),) = _rows(decoder, taught)
    found.keep(1.0, batched=False)
    assert "all positions at once make other numbers" in turns.timings(found)["missing"]
