# /// clinic
# expect = ["PD18.recompiles"]
# allow = ["PD05"]
# stratum = "twins"
# smoke = true
# domain = "text"
# sizes = {WORDS = [200, 400]}
# severities = {LONGEST = [60, 120, 240]}
# ///
"""Is it a rumour? Compiled, over messages that are padded to the longest of each batch."""

import random
import time

import torch
from torch import nn

WORDS = 300
LONGEST = 120
BATCH = 16


class Reader(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.mix = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.out = nn.Linear(width, 2)

    def forward(self, messages):
        return self.out(self.mix(self.words(messages)).amax(1))


def run(steps=260, warm=40):
    torch.manual_seed(5)
    lengths = random.Random(5)
    torch._dynamo.config.recompile_limit = 1000
    torch._dynamo.config.accumulated_recompile_limit = 1000
    reader = Reader()
    read = torch.compile(reader, backend="aot_eager", dynamic=False)  # sick
    read = torch.compile(reader, backend="aot_eager", dynamic=True)  # well
    optimizer = torch.optim.SGD(reader.parameters(), lr=0.05)
    for step in range(steps):
        if step == warm:
            start = time.perf_counter()
        messages = torch.randint(0, WORDS, (BATCH, lengths.randint(10, LONGEST)))
        loss = nn.functional.cross_entropy(read(messages), messages[:, 0] % 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"{(steps - warm) * BATCH / (time.perf_counter() - start):.1f} messages/s")


if __name__ == "__main__":
    run()
