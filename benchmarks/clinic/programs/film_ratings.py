# /// clinic
# expect = ["PD03.per-sample-indexing", "PD03.too-few-workers"]
# stratum = "twins"
# domain = "recommender"
# sizes = {BATCH = [900, 1100], FILMS = [3000, 6000]}
# severities = {HIDDEN = [512, 192, 32]}
# ///
"""Predicts ratings of films from who rated which film and when."""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

BATCH = 1024
FILMS = 4000
HIDDEN = 192
USERS = 5000
EPOCHS = 5


class Ratings(Dataset):
    def __init__(self, count):
        generator = np.random.default_rng(2)
        self.users = generator.integers(0, USERS, count)
        self.films = generator.integers(0, FILMS, count)
        self.context = generator.normal(size=(count, 16)).astype(np.float32)
        self.stars = generator.integers(1, 6, count).astype(np.float32)

    def __len__(self):
        return len(self.users)

    def __getitem__(self, index):
        return self.users[index], self.films[index], self.context[index], self.stars[index]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.film = nn.Embedding(USERS, 48), nn.Embedding(FILMS, 48)
        self.mlp = nn.Sequential(
            nn.Linear(112, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
        )

    def forward(self, users, films, context):
        return self.mlp(torch.cat([self.user(users), self.film(films), context], 1)).squeeze(1)


def fit():
    torch.manual_seed(0)
    ratings = Ratings(60 * BATCH)
    loader = DataLoader(ratings, batch_size=BATCH, shuffle=True)  # sick here
    order = BatchSampler(RandomSampler(ratings), BATCH, drop_last=False)  # well
    loader = DataLoader(ratings, batch_size=None, sampler=order)  # well
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    seen, began = 0, 0.0
    for epoch in range(EPOCHS):
        if epoch == 1:
            seen, began = 0, time.perf_counter()
        for users, films, context, stars in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(users, films, context), stars)
            loss.backward()
            optimizer.step()
            seen += len(stars)
        print(f"epoch {epoch}: {loss.item():.4f}")
    print(f"{seen / (time.perf_counter() - began):.0f} ratings/s")


fit()
