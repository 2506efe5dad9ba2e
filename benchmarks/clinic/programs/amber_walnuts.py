# /// clinic
# expect = ["PD05.mergeable-accumulation"]
# stratum = "twins"
# domain = "items that shoppers pick"
# ///
"""Predicts the next item a shopper picks from the last twenty, with Accelerate and a small self-attention model."""

import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

ITEMS, HISTORY = 1500, 20
BATCH_SIZE, ACCUMULATE = 16, 8  # sick here
BATCH_SIZE, ACCUMULATE = 128, 1  # well


def make_sessions(count, seed):
    """Sessions that wander among the items of a few themes; the last one is to be predicted."""
    g = torch.Generator().manual_seed(seed)
    theme = torch.randint(0, 30, (count, 1), generator=g)
    picks = theme * 50 + torch.randint(0, 50, (count, HISTORY + 1), generator=g)
    stray = torch.randint(0, ITEMS, (count, HISTORY + 1), generator=g)
    picks = torch.where(torch.rand(count, HISTORY + 1, generator=g) < 0.2, stray, picks)
    return TensorDataset(picks[:, :-1].contiguous(), picks[:, -1].contiguous())


class NextItem(nn.Module):
    def __init__(self, width=64, layers=2, heads=2):
        super().__init__()
        self.items = nn.Embedding(ITEMS, width)
        self.places = nn.Parameter(torch.zeros(HISTORY, width))
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers)
        self.out = nn.Linear(width, ITEMS)

    def forward(self, history):
        states = self.body(self.items(history) + self.places)
        return self.out(states.mean(dim=1))


def main():
    set_seed(21)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATE)
    loader = DataLoader(make_sessions(12800, 21), batch_size=BATCH_SIZE, shuffle=True, drop_last=True)
    model = NextItem()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    begin, seen = None, 0
    for epoch in range(3):
        total = torch.zeros(())
        for history, target in loader:
            if begin is None:
                begin = time.perf_counter()
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(history), target)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            total += loss.detach()
            seen += len(target)
        end = time.perf_counter()
        accelerator.print(f"epoch {epoch}: loss {total.item() / len(loader):.3f}")
    print(f"{seen / (end - begin):.1f} samples/s")


if __name__ == "__main__":
    main()
