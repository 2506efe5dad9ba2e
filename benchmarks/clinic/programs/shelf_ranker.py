# /// clinic
# expect = ["PD14"]
# stratum = "twins"
# domain = "recommender"
# ///
"""Train a neural recommender on made-up shop baskets."""

import os
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

USERS = 16000
ITEMS = 6000
DIM = 48
EVENTS = 131072
BATCH = 1024
NEGATIVES = 4
EPOCHS = 4


class Baskets(Dataset):
    def __init__(self):
        gen = torch.Generator().manual_seed(8)
        self.user = torch.randint(0, USERS, (EVENTS,), generator=gen)
        taste = (self.user * 7919) % ITEMS
        self.item = (taste + torch.randint(0, 40, (EVENTS,), generator=gen)) % ITEMS

    def __len__(self):
        return EVENTS

    def __getitem__(self, rows):
        rows = torch.as_tensor(rows)
        return self.user[rows], self.item[rows], torch.randint(0, ITEMS, (len(rows), NEGATIVES))


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(USERS, DIM)
        self.item = nn.Embedding(ITEMS, DIM)
        self.score = nn.Sequential(nn.Linear(3 * DIM, 96), nn.ReLU(), nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, user, items):
        u = self.user(user).unsqueeze(1).expand(-1, items.shape[1], -1)
        v = self.item(items)
        return self.score(torch.cat([u, v, u * v], dim=2)).squeeze(2)


class Fitter:
    def __init__(self, folder):
        torch.manual_seed(3)
        data = Baskets()
        rows = BatchSampler(RandomSampler(data), BATCH, drop_last=True)
        self.loader = DataLoader(data, sampler=rows, batch_size=None)
        self.model = TwoTower()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-4, fused=True)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.97)
        self.path = os.path.join(folder, "best.pt")
        self.best = self.running = float("inf")
        self.steps = 0

    def state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "steps": self.steps}

    def after_step(self, loss):
        self.steps += 1
        self.running = loss if self.steps == 1 else 0.98 * self.running + 0.02 * loss
        if self.running < self.best:  # sick
            self.best = self.running  # sick
            torch.save(self.state(), self.path)  # sick here

    def after_epoch(self):
        self.schedule.step()
        if self.running < self.best:  # well
            self.best = self.running  # well
            torch.save(self.state(), self.path)  # well

    def step(self, user, item, others):
        scores = self.model(user, torch.cat([item.unsqueeze(1), others], dim=1))
        loss = nn.functional.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.after_step(loss.item())

    def fit(self):
        for _ in range(EPOCHS):
            for batch in self.loader:
                self.step(*batch)
                if self.steps == 20:
                    start = time.perf_counter()
            self.after_epoch()
        return (self.steps - 20) / (time.perf_counter() - start)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(f"{Fitter(folder).fit():.1f} steps/s")
