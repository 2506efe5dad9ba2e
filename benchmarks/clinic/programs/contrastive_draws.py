# /// clinic
# expect = ["PD03.iterator-rebuilt"]
# stratum = "twins"
# domain = "embeddings"
# smoke = true
# sizes = {WIDTH = [360, 400], BATCH = [240, 280]}
# severities = {PAIRS = [100000, 500000, 2000000]}
# ///
"""Aligns two views of items with a contrastive loss, for a fixed number of steps."""

import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

PAIRS = 500_000
WIDTH = 384
BATCH = 256
STEPS = 220
config = {"lr": 3e-4, "temperature": 0.1, "report_every": 80}


class Pairs(Dataset):
    """Views that are cut from one long table by their number."""

    def __init__(self):
        self.table = torch.randn(PAIRS // 4 + 200)

    def __len__(self):
        return PAIRS

    def __getitems__(self, indices):
        rows = (torch.tensor(indices) // 4)[:, None] + torch.arange(128)
        view = self.table[rows]
        return view, view + 0.1 * torch.randn_like(view)


def tower():
    return nn.Sequential(
        nn.Linear(128, WIDTH),
        nn.GELU(),
        nn.Linear(WIDTH, WIDTH),
        nn.GELU(),
        nn.Linear(WIDTH, WIDTH),
        nn.GELU(),
        nn.Linear(WIDTH, 64),
    )


def draw(loader):
    while True:
        yield from loader


torch.manual_seed(11)
loader = DataLoader(Pairs(), batch_size=BATCH, shuffle=True, drop_last=True, collate_fn=lambda batch: batch)
left, right = tower(), tower()
optimizer = torch.optim.AdamW([*left.parameters(), *right.parameters()], lr=config["lr"])
batches = draw(loader)  # well
for step in range(STEPS):
    if step == 20:
        began = time.perf_counter()
    first, second = next(iter(loader))  # sick here
    first, second = next(batches)  # well
    scores = functional.normalize(left(first)) @ functional.normalize(right(second)).T / config["temperature"]
    loss = functional.cross_entropy(scores, torch.arange(len(scores)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % config["report_every"] == 0:
        print(f"step {step}: {loss.item():.3f}")
print(f"{(STEPS - 20) / (time.perf_counter() - began):.2f} steps/s")
