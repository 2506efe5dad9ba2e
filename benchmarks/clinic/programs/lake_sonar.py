# /// clinic
# stratum = "decoys"
# resembles = ["PD20"]
# domain = "time series"
# ///
"""Depth of a lake from echoes. It is validated once an epoch, on tensors as a whole, and says now and then how it goes."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ECHO, BATCH = 256, 128
EPOCHS = 8


class Echoes(Dataset):
    """Echoes with their depths, fetched a batch at a time."""

    def __init__(self, echoes, depths):
        self.echoes, self.depths = echoes, depths

    def __len__(self):
        return len(self.echoes)

    def __getitems__(self, rows):
        return self.echoes[rows], self.depths[rows]


def as_they_come(batch):
    return batch


class MeanError:
    """Adds up where the predictions are, and is read once."""

    def __init__(self):
        self.total = torch.zeros(())
        self.count = 0

    def update(self, said, depth):
        self.total += (said - depth).abs().sum()
        self.count += len(depth)

    def compute(self):
        return (self.total / self.count).item()


def main():
    torch.manual_seed(37)
    echoes = torch.randn(30_000, ECHO)
    depths = echoes[:, :20].sum(1, keepdim=True)
    train = DataLoader(
        Echoes(echoes[:22_000], depths[:22_000]), batch_size=BATCH, shuffle=True, collate_fn=as_they_come
    )
    held_out = DataLoader(Echoes(echoes[22_000:], depths[22_000:]), batch_size=2 * BATCH, collate_fn=as_they_come)
    net = nn.Sequential(nn.Linear(ECHO, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    steps, began, said_at = 0, None, time.perf_counter()
    for epoch in range(EPOCHS):
        for echo, depth in train:
            if steps == 20:
                began = time.perf_counter()
            loss = nn.functional.mse_loss(net(echo), depth)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if time.perf_counter() - said_at > 10:
                said_at = time.perf_counter()
                print(f"epoch {epoch}, step {steps}: loss {loss.item():.4f}")
        net.eval()
        error = MeanError()
        with torch.no_grad():
            for echo, depth in held_out:
                error.update(net(echo), depth)
        net.train()
        print(f"epoch {epoch}: off by {error.compute():.3f}")
    print(f"{(steps - 20) * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
