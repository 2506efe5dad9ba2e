"""What is cut off of padded sequences, and what is not."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import passes as microbenchmark
from perfdoctor.injected._perfdoctor_probe.microbenchmarks import ways
from perfdoctor.injected._perfdoctor_probe.microbenchmarks.padding import cut, typical
from perfdoctor.injected._perfdoctor_probe.microbenchmarks.passes import PassMicrobenchmark

ROWS, LENGTH, LONGEST = 8, 64, 20


def _tokens(longest: int = LONGEST, left: bool = False) -> torch.Tensor:
    """Rows that begin with 2, have other numbers after it and end in zeros."""
    tokens = torch.randint(3, 90, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))
    tokens[:, 0] = 2
    for row in range(ROWS):
        tokens[row, longest - row :] = 0
    return tokens.flip(1) if left else tokens


TOKENS = _tokens()
MASK = (TOKENS != 0).long()
POSITIONS = torch.arange(LENGTH).expand(ROWS, LENGTH)


@pytest.mark.parametrize(
    "inputs",
    [
        [TOKENS],
        [TOKENS, MASK],
        [TOKENS, MASK.bool(), torch.zeros_like(TOKENS)],
        [TOKENS, POSITIONS],
        [TOKENS, torch.where(TOKENS == 0, -100, TOKENS), torch.arange(ROWS)],
        [TOKENS, torch.zeros(ROWS, 1, LENGTH, LENGTH)],
        [TOKENS, torch.randn(ROWS, LENGTH, 12)],
    ],
    ids=["tokens", "mask", "types of tokens", "positions", "labels", "mask of each by each", "features"],
)
def test_the_end_that_no_row_needs_is_cut_off_everywhere(inputs: list[torch.Tensor]) -> None:
    found = cut(inputs)
    assert found is not None and (found.length, found.needed) == (LENGTH, LONGEST)
    assert torch.equal(found.of(TOKENS), TOKENS[:, :LONGEST])
    for one in inputs:
        shape = [LONGEST if size == LENGTH else size for size in one.shape]
        assert list(found.of(one).shape) == shape


def test_padding_ahead_of_the_rows_is_cut_off_too() -> None:
    tokens = _tokens(left=True)
    found = cut([tokens])
    assert found is not None and torch.equal(found.of(tokens), tokens[:, -LONGEST:])


@pytest.mark.parametrize(
    "inputs",
    [
        [],
        [_tokens(LENGTH)],
        [_tokens(LENGTH - 3)],
        [MASK],
        [TOKENS[:1]],
        [TOKENS[:, :12]],
        [torch.zeros_like(TOKENS)],
        [POSITIONS],
        [TOKENS, TOKENS[:, :32]],
        [TOKENS, torch.randn(ROWS, 10, LENGTH)],
    ],
    ids=[
        "nothing",
        "as long as there is room",
        "a few at the end",
        "a mask alone",
        "a single row",
        "short rows",
        "a constant",
        "positions",
        "two lengths",
        "a width like the length",
    ],
)
def test_what_may_be_needed_is_left(inputs: list[torch.Tensor]) -> None:
    assert cut(inputs) is None


def test_where_only_one_of_two_inputs_is_padded_it_alone_is_cut() -> None:
    """Questions padded as long as the texts that they are matched with. A model that takes both alike fails, and is
    left alone."""
    texts = torch.randint(1, 90, TOKENS.shape, generator=torch.Generator().manual_seed(1))
    found = cut([TOKENS, texts])
    assert found is not None and (found.length, found.needed) == (LENGTH, LONGEST)
    assert torch.equal(found.of(TOKENS), TOKENS[:, :LONGEST]) and found.of(texts) is texts


def _frames(longest: int = LONGEST) -> torch.Tensor:
    """Recordings of 12 features a step that end in zeros, each one step earlier than the one before."""
    frames = torch.randn(ROWS, LENGTH, 12, generator=torch.Generator().manual_seed(0))
    for row in range(ROWS):
        frames[row, longest - row :] = 0
    return frames


LENGTHS = torch.arange(LONGEST, LONGEST - ROWS, -1)


@pytest.mark.parametrize(
    "inputs",
    [
        [_frames()],
        [_frames().transpose(1, 2)],
        [_frames()[..., 0]],
        [_frames(), LENGTHS],
        [_frames(), MASK.bool()],
        [torch.where(_frames() == 0, -80.0, _frames())],
    ],
    ids=["time first", "features first", "a signal", "lengths", "a mask", "another number"],
)
def test_recordings_are_cut_where_the_longest_ends(inputs: list[torch.Tensor]) -> None:
    found = cut(inputs)
    assert found is not None and (found.length, found.needed) == (LENGTH, LONGEST)
    for one in inputs:
        assert list(found.of(one).shape) == [LONGEST if size == LENGTH else size for size in one.shape]
    assert torch.equal(found.of(LENGTHS), LENGTHS)


@pytest.mark.parametrize(
    "frames",
    [
        _frames(LENGTH),
        _frames()[:2],
        _frames()[:, :LONGEST],
        torch.cat([torch.randn(ROWS, 20, 12), torch.zeros(ROWS, 44, 12)], 1),
        torch.randn(ROWS, LENGTH, LENGTH).tril(),
        torch.zeros(ROWS, 3, LENGTH, 32),
        torch.zeros(ROWS, LENGTH, 12),
    ],
    ids=["full", "two rows", "cut", "a margin", "as wide as long", "images", "nothing in it"],
)
def test_what_may_be_no_padding_of_recordings_is_left(frames: torch.Tensor) -> None:
    assert cut([frames]) is None


def test_recordings_are_cut_to_their_mean_length_and_told_so() -> None:
    frames = _frames(LENGTH)
    frames[1:, 20:] = 0
    lengths = torch.tensor([LENGTH] + [20] * (ROWS - 2) + [15])
    frames[-1, 15:] = 0
    found = typical([frames, lengths])
    assert found is not None and (found.length, found.needed) == (LENGTH, 25)
    assert found.of(lengths).tolist() == [25] + [20] * (ROWS - 2) + [15]
    assert typical([_frames()]) is None


class Tagger(nn.Module):
    """Takes sequences of any length, or only of one."""

    lengths: ClassVar[set[int]] = set()
    """Of all calls: what a module has itself is as it was after passes."""

    def __init__(self, length: int = 0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(90, 32)
        self.layers = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 32))
        self.places = nn.Parameter(torch.zeros(length or 1, 32))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        self.lengths.add(tokens.shape[1])
        return self.layers(self.embedding(tokens) + self.places)


def _passes(model: nn.Module, tokens: torch.Tensor) -> PassMicrobenchmark:
    passes = PassMicrobenchmark()
    passes.note(model, (tokens,), {})
    passes.keep(1.0)
    return passes


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a pass may take its time."""
    monkeypatch.setattr(ways, "_BESIDE_NS", 1 << 60)
    monkeypatch.setattr(microbenchmark, "_LIMIT_NS", 1 << 60)


def _cut(model: nn.Module, tokens: torch.Tensor) -> tuple[float | None, dict[str, Any]]:
    told: dict[str, Any] = {}
    return ways._without_padding(_passes(model, tokens), told), told


def test_passes_are_made_again_on_what_is_left() -> None:
    Tagger.lengths.clear()
    left, told = _cut(Tagger(), TOKENS)
    assert left is not None and left > 0
    assert Tagger.lengths == {LENGTH, LONGEST}
    assert told == {"length": LENGTH, "needed": LONGEST}


def test_a_model_that_takes_no_shorter_ones_is_left_alone() -> None:
    left, _ = _cut(Tagger(LENGTH), TOKENS)
    assert left is None


def test_without_padding_nothing_is_made_again() -> None:
    assert _cut(Tagger(), _tokens(LENGTH)) == (None, {})


def _mixed() -> torch.Tensor:
    """Rows of 60, 20, 20 ... tokens in a batch of 60 columns, and zeros after them."""
    tokens = torch.randint(3, 90, (ROWS, 60), generator=torch.Generator().manual_seed(0))
    tokens[1:, 20:] = 0
    return tokens


def test_rows_are_cut_to_their_mean_length() -> None:
    tokens = _mixed()
    for inputs in ([tokens], [tokens, (tokens != 0).long(), torch.zeros_like(tokens)]):
        found = typical(inputs)
        assert found is not None and (found.length, found.needed) == (60, 25)
        assert torch.equal(found.of(tokens), tokens[:, :25])


@pytest.mark.parametrize("tokens", [TOKENS, _tokens(LENGTH), POSITIONS, MASK], ids=["like", "full", "same", "mask"])
def test_rows_of_like_length_are_left(tokens: torch.Tensor) -> None:
    assert typical([tokens]) is None


def test_passes_are_made_again_on_rows_of_the_mean_length() -> None:
    Tagger.lengths.clear()
    told: dict[str, Any] = {}
    model = Tagger()
    left = ways._of_like_length(_passes(model, _mixed()), told)
    assert left is not None and left > 0
    assert Tagger.lengths == {60, 25}
    assert told == {"batch_length": 60, "mean_length": 25}
