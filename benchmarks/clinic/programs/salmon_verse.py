# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "words of verses"
# ///
"""Tags the words of verses whose text has been cut into pieces (several pieces make up one word).

An encoder reads the pieces, a pooling layer turns pieces into words, and a head names the class of each word.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Protocol
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

log = logging.getLogger("verse")


@dataclass(frozen=True)
class CorpusConfig:
    verses: int = 6000
    held_out: int = 512
    pieces: int = 96
    words: int = 64
    vocabulary: int = 2000
    tags: int = 12
    seed: int = 23

    def __post_init__(self) -> None:
        if self.words >= self.pieces:
            raise ValueError("a verse needs more pieces than words")


@dataclass(frozen=True)
class TaggerConfig:
    width: int = 128
    heads: int = 4
    layers: int = 2
    feedforward: int = 256
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError("width must be a multiple of heads")


@dataclass(frozen=True)
class RunConfig:
    batch_size: int = 32
    steps: int = 560
    learning_rate: float = 1e-3
    log_every: int = 100
    seed: int = 3
    corpus: CorpusConfig = field(default_factory=CorpusConfig)
    tagger: TaggerConfig = field(default_factory=TaggerConfig)


@dataclass
class VerseBatch:
    pieces: Tensor
    owner: Tensor
    tags: Tensor

    def __len__(self) -> int:
        return self.pieces.shape[0]


class Corpus:
    """Verses in memory: piece numbers, the word each piece belongs to, and a tag per word."""

    def __init__(self, config: CorpusConfig) -> None:
        g = torch.Generator().manual_seed(config.seed)
        count = config.verses + config.held_out
        self.pieces = torch.randint(0, config.vocabulary, (count, config.pieces), generator=g)
        self.owner = self._owners(config, count, g)
        self.tags = self._tags(config, count, g)
        order = torch.arange(count)
        self.training, self.held_out = order[: config.verses], order[config.verses :]

    @staticmethod
    def _owners(config: CorpusConfig, count: int, g: torch.Generator) -> Tensor:
        keys = torch.rand(count, config.pieces - 1, generator=g)
        starts = keys.argsort(dim=1)[:, : config.words - 1] + 1
        opens = torch.zeros(count, config.pieces, dtype=torch.long).scatter_(1, starts, 1)
        return opens.cumsum(dim=1)

    def _tags(self, config: CorpusConfig, count: int, g: torch.Generator) -> Tensor:
        meaning = torch.randn(config.vocabulary, config.tags, generator=g)
        scores = torch.zeros(count, config.words, config.tags)
        scores.scatter_add_(1, self.owner.unsqueeze(-1).expand(-1, -1, config.tags), meaning[self.pieces])
        return scores.argmax(dim=-1)

    def take(self, rows: Tensor) -> VerseBatch:
        return VerseBatch(self.pieces[rows], self.owner[rows], self.tags[rows])


class ShuffledBatches:
    def __init__(self, corpus: Corpus, rows: Tensor, batch_size: int, seed: int) -> None:
        if batch_size > rows.numel():
            raise ValueError("batch_size exceeds the number of verses")
        self._corpus = corpus
        self._rows = rows
        self._batch_size = batch_size
        self._generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[VerseBatch]:
        while True:
            order = self._rows[torch.randperm(self._rows.numel(), generator=self._generator)]
            for part in order.split(self._batch_size):
                if part.numel() == self._batch_size:
                    yield self._corpus.take(part)


class PieceEmbedding(nn.Module):
    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.symbol = nn.Embedding(vocabulary, width)
        self.place = nn.Parameter(0.02 * torch.randn(length, width))

    def forward(self, pieces: Tensor) -> Tensor:
        return self.symbol(pieces) + self.place


class PieceEncoder(nn.Module):
    def __init__(self, config: TaggerConfig) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            config.width, config.heads, config.feedforward, config.dropout, batch_first=True, norm_first=True
        )
        self.stack = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)

    def forward(self, embedded: Tensor) -> Tensor:
        return self.stack(embedded)


class WordPooling(nn.Module):
    """Averages the hidden states of the pieces that belong to one word."""

    def __init__(self, words: int) -> None:
        super().__init__()
        if words < 1:
            raise ValueError("words must be positive")
        self.words = words

    def forward(self, hidden: Tensor, owner: Tensor) -> Tensor:
        if hidden.shape[:2] != owner.shape:
            raise ValueError("hidden and owner disagree in batch or length")
        pooled = []  # sick
        for states, ids in zip(hidden, owner):  # sick here
            sizes = torch.bincount(ids, minlength=self.words).tolist()  # sick
            pooled.append(torch.stack([part.mean(dim=0) for part in states.split(sizes)]))  # sick here
        return torch.stack(pooled)  # sick
        member = F.one_hot(owner, self.words).to(hidden.dtype).transpose(1, 2)  # well
        return torch.bmm(member, hidden) / member.sum(dim=2, keepdim=True).clamp_min(1.0)  # well


class TagHead(nn.Module):
    def __init__(self, width: int, tags: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, tags)

    def forward(self, words: Tensor) -> Tensor:
        return self.out(self.norm(words))


class VerseTagger(nn.Module):
    def __init__(self, corpus: CorpusConfig, config: TaggerConfig) -> None:
        super().__init__()
        self.embedding = PieceEmbedding(corpus.vocabulary, corpus.pieces, config.width)
        self.encoder = PieceEncoder(config)
        self.pooling = WordPooling(corpus.words)
        self.head = TagHead(config.width, corpus.tags)

    def forward(self, batch: VerseBatch) -> Tensor:
        hidden = self.encoder(self.embedding(batch.pieces))
        return self.head(self.pooling(hidden, batch.owner))


class Callback(Protocol):
    def after_step(self, step: int, loss: Tensor) -> None: ...


class LossReport:
    def __init__(self, every: int, sink: Callable[..., None] = log.info) -> None:
        self._every = every
        self._sink = sink
        self._sum = torch.zeros(())

    def after_step(self, step: int, loss: Tensor) -> None:
        self._sum += loss
        if step % self._every == 0:
            self._sink("step %d: loss %.4f", step, float(self._sum) / self._every)
            self._sum.zero_()


class Trainer:
    def __init__(self, model: VerseTagger, optimizer: torch.optim.Optimizer, callbacks: Sequence[Callback]) -> None:
        self._model = model
        self._optimizer = optimizer
        self._callbacks = list(callbacks)

    def _step(self, batch: VerseBatch) -> Tensor:
        scores = self._model(batch)
        loss = F.cross_entropy(scores.flatten(0, 1), batch.tags.flatten())
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return loss.detach()

    def fit(self, batches: ShuffledBatches, steps: int) -> tuple[int, float]:
        seen = 0
        began = time.perf_counter()
        for step, batch in zip(range(1, steps + 1), batches):
            loss = self._step(batch)
            seen += len(batch)
            for callback in self._callbacks:
                callback.after_step(step, loss)
        return seen, time.perf_counter() - began

    @torch.no_grad()
    def accuracy(self, batch: VerseBatch) -> float:
        self._model.eval()
        return float((self._model(batch).argmax(dim=-1) == batch.tags).float().mean())


def main(config: RunConfig = RunConfig()) -> None:
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    torch.manual_seed(config.seed)
    corpus = Corpus(config.corpus)
    batches = ShuffledBatches(corpus, corpus.training, config.batch_size, config.seed)
    model = VerseTagger(config.corpus, config.tagger)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, fused=True)
    trainer = Trainer(model, optimizer, [LossReport(config.log_every)])
    seen, seconds = trainer.fit(batches, config.steps)
    log.info("held-out accuracy %.3f", trainer.accuracy(corpus.take(corpus.held_out)))
    print(f"{seen / seconds:.1f} samples/s")


if __name__ == "__main__":
    main()
