# /// clinic
# expect = ["PD18.graph-breaks"]
# allow = ["PD05", "PD18.does-not-pay-off", "PD08.allocator-churn"]
# stratum = "twins"
# domain = "text"
# sizes = {WORDS = [200, 400]}
# severities = {LAYERS = [4, 8, 16]}
# ///
"""The tone of a proverb, compiled; each layer looks whether its values have grown too large."""

import time

import torch
from torch import nn

WORDS = 300
LAYERS = 8
WIDTH = 64
BATCH, LENGTH = 16, 12


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, words):
        words = words + torch.tanh(self.mix(words))
        if words.abs().max().item() > 1e4:  # sick
            words = words / 2  # sick
        words = torch.where(words.abs().max() > 1e4, words / 2, words)  # well
        return words


class Tones(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.out = nn.Linear(WIDTH, 3)

    def forward(self, proverbs):
        words = self.words(proverbs)
        for layer in self.layers:
            words = layer(words)
        return self.out(words.mean(1))


def run(steps=600, warm=100):
    torch.manual_seed(3)
    tones = Tones()
    read = torch.compile(tones, backend="aot_eager")
    optimizer = torch.optim.SGD(tones.parameters(), lr=0.05)
    for step in range(steps):
        if step == warm:
            start = time.perf_counter()
        proverbs = torch.randint(0, WORDS, (BATCH, LENGTH))
        loss = nn.functional.cross_entropy(read(proverbs), proverbs[:, 0] % 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"{(steps - warm) * BATCH / (time.perf_counter() - start):.1f} proverbs/s")


if __name__ == "__main__":
    run()
