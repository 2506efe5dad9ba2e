# /// clinic
# expect = ["PD04"]
# stratum = "twins"
# domain = "tabular fraud detection"
# ///
"""Trains a fraud classifier on card transactions with Accelerate."""

import random
import time
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import release_memory  # sick
from torch import nn
from torch.utils.data import DataLoader, Dataset

MERCHANTS = 500
COUNTRIES = 40
NUMERIC = 6
WIDTH = 640
BATCH = 1024
ACCUMULATE = 5
TRANSACTIONS = 40000
STEPS = 300
WARMUP = 20


@dataclass
class Transaction:
    merchant: int
    country: int
    amounts: list
    fraud: float


def simulate(count, seed):
    rng = random.Random(seed)
    out = []
    for _ in range(count):
        amounts = [rng.gauss(0, 1) for _ in range(NUMERIC)]
        merchant, country = rng.randrange(MERCHANTS), rng.randrange(COUNTRIES)
        risk = amounts[0] * amounts[1] + 0.05 * (country - 20) + (merchant % 17 == 0)
        out.append(Transaction(merchant, country, amounts, float(risk > 1.5)))
    return out


class Ledger(Dataset):
    def __init__(self, transactions):
        self.transactions = transactions

    def __len__(self):
        return len(self.transactions)

    def __getitem__(self, i):
        return self.transactions[i]


def to_tensors(rows):
    return (
        torch.tensor([[r.merchant, r.country] for r in rows]),
        torch.tensor([r.amounts for r in rows]),
        torch.tensor([r.fraud for r in rows]),
    )


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.merchant = nn.Embedding(MERCHANTS, 16)
        self.country = nn.Embedding(COUNTRIES, 8)
        self.net = nn.Sequential(
            nn.Linear(16 + 8 + NUMERIC, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, 1),
        )

    def forward(self, codes, amounts):
        x = torch.cat([self.merchant(codes[:, 0]), self.country(codes[:, 1]), amounts], dim=1)
        return self.net(x).squeeze(1)


def batches(loader):
    while True:
        yield from loader


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATE)
    model = Scorer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    loader = DataLoader(
        Ledger(simulate(TRANSACTIONS, 9)), batch_size=BATCH, shuffle=True, collate_fn=to_tensors, drop_last=True
    )
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(4.0))
    source = batches(loader)
    for step in range(STEPS):
        if step == WARMUP:
            start = time.perf_counter()
        codes, amounts, fraud = next(source)
        with accelerator.accumulate(model):
            logits = model(codes, amounts)
            loss = criterion(logits, fraud)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:  # sick
            logits, loss = release_memory(logits, loss)  # sick here
        del logits, loss  # well
    rate = (STEPS - WARMUP) / (time.perf_counter() - start)
    print(f"{rate:.1f} steps/s")


if __name__ == "__main__":
    main()
