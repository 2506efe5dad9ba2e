# /// clinic
# expect = ["PD10"]
# stratum = "twins"
# domain = "text"
# smoke = true
# sizes = {BATCH = [28, 36], LENGTH = [28, 36]}
# severities = {WIDTH = [384, 192, 64]}
# ///
"""Part-of-speech tagging with a convolutional encoder."""

import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional

cfg = {"tags": 18, "vocabulary": 3000, "steps": 300, "warm": 20, "lr": 1e-3}
BATCH = 32
LENGTH = 32
WIDTH = 192


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(cfg["vocabulary"], 64)
        self.first = nn.Conv1d(64, WIDTH, 3, padding=1)
        self.second = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.out = nn.Linear(WIDTH, cfg["tags"])

    def forward(self, sentences):
        hidden = self.words(sentences).transpose(1, 2)
        hidden = functional.relu(self.first(hidden))
        hidden = functional.relu(self.second(hidden))
        return self.out(hidden.transpose(1, 2))


def batches(rng):
    tag_of = rng.integers(0, cfg["tags"], cfg["vocabulary"])
    for _ in range(cfg["steps"]):
        words = rng.zipf(1.4, (BATCH, LENGTH)) % cfg["vocabulary"]
        yield torch.from_numpy(words), torch.from_numpy(tag_of[words])


torch.manual_seed(0)
tagger = Tagger()
optimizer = torch.optim.SGD(tagger.parameters(), lr=0.1)
correct = total = 0
for step, (words, tags) in enumerate(batches(np.random.default_rng(0))):
    if step == cfg["warm"]:
        began = time.time()
    scores = tagger(words)
    loss = functional.cross_entropy(scores.flatten(0, 1), tags.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    best = scores.argmax(-1)
    for guess, tag in zip(best.flatten(), tags.flatten(), strict=True):  # sick here
        correct += int(guess == tag)  # sick here
    correct += (best == tags).sum().item()  # well
    total += tags.numel()
    if step % 100 == 99:
        print(f"{step + 1}: loss {loss.item():.3f} accuracy {correct / total:.3f}")
        correct = total = 0
print(f"{(cfg['steps'] - cfg['warm']) * BATCH / (time.time() - began):.1f} samples/s")
