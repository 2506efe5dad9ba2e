# /// clinic
# expect = ["PD04.explicit-collect"]
# stratum = "twins"
# domain = "text"
# smoke = true
# sizes = {TOKENS = [28, 36], HIDDEN = [60, 72]}
# severities = {EVERY = [20, 6, 1]}
# ///
"""Tags entities in sentences with a bidirectional GRU."""

import gc
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TOKENS = 32
HIDDEN = 64
EVERY = 6
TAGS = 9


class Tagger(nn.Module):
    def __init__(self, words=8000):
        super().__init__()
        self.words = nn.Embedding(words, 96)
        self.encoder = nn.GRU(96, HIDDEN, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * HIDDEN, TAGS)

    def forward(self, sentences):
        return self.out(self.encoder(self.words(sentences))[0])


class Run:
    def __init__(self, sentences, tags, epochs):
        self.loader = DataLoader(TensorDataset(sentences, tags), batch_size=64, shuffle=True)
        self.model, self.epochs, self.steps = Tagger(), epochs, 0
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)

    def step(self, sentences, tags):
        scores = self.model(sentences)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), tags.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.steps += 1
        self.tidy()
        return loss.detach()

    def tidy(self):
        if self.steps % EVERY == 0:
            gc.collect()  # sick here
            self.last_tidy = self.steps

    def train(self):
        seen, began = 0, 0.0
        for epoch in range(self.epochs):
            if epoch == 1:
                seen, began = 0, time.perf_counter()
            for sentences, tags in self.loader:
                loss = self.step(sentences, tags)
                seen += len(sentences)
            print(f"epoch {epoch}: {loss.item():.4f}")
        return seen / (time.perf_counter() - began)


if __name__ == "__main__":
    torch.manual_seed(4)
    sentences = torch.randint(0, 8000, (50 * 64, TOKENS))
    print(f"{Run(sentences, sentences % TAGS, epochs=5).train():.1f} sentences/s")
