# /// clinic
# expect = ["PD05.batch-too-small"]
# allow = ["PD09.dense-embedding-gradient"]
# stratum = "twins"
# beyond = true
# domain = "recommender"
# smoke = true
# sizes = {ITEMS = [600, 900], WIDTH = [480, 540]}
# severities = {ROWS = [48, 16, 4]}
# ///
"""Guesses whether a basket will be bought, from its items and its owner's history."""

import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

ITEMS = 800
WIDTH = 512
ROWS = 16
settings = {"lr": 1e-3, "seconds": 5.0}
settings["rows"] = ROWS  # sick
settings["rows"] = 512  # well


class Basket(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.EmbeddingBag(ITEMS, 32, mode="mean")
        self.mlp = nn.Sequential(
            nn.Linear(32 + 24, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH // 2),
            nn.ReLU(),
            nn.Linear(WIDTH // 2, 1),
        )

    def forward(self, items, history):
        return self.mlp(torch.cat([self.items(items), history], dim=1)).squeeze(1)


def data(count):
    items = torch.randint(0, ITEMS, (count, 6))
    history = torch.randn(count, 24)
    return TensorDataset(items, history, (history[:, 0] + 0.3 * torch.randn(count) > 0).float())


def main():
    torch.manual_seed(0)
    baskets = data(60_000)
    batches = BatchSampler(RandomSampler(baskets), settings["rows"], drop_last=True)
    loader = DataLoader(baskets, batch_size=None, sampler=batches)  # here
    model = Basket()
    optimizer = torch.optim.Adam(model.parameters(), lr=settings["lr"])
    seen, steps, began = 0, 0, None
    while began is None or time.perf_counter() - began < settings["seconds"]:
        for items, history, bought in loader:
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(items, history), bought)
            loss.backward()
            optimizer.step()
            steps += 1
            if began is None and steps == 20:
                seen, began = 0, time.perf_counter()
            seen += len(bought)
            if began is not None and time.perf_counter() - began > settings["seconds"]:
                break
    print(f"loss {loss.item():.4f} after {steps} steps")
    print(f"{seen / (time.perf_counter() - began):.1f} baskets/s")


if __name__ == "__main__":
    main()
