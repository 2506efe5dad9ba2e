# /// clinic
# expect = ["PD12.busy-helper"]
# stratum = "twins"
# domain = "recommender, recipes"
# ///
"""Trains a two-tower recipe recommender while a helper process publishes similar-recipe lists for the site preview."""

import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn
import torch.nn.functional as F


@dataclass
class Settings:
    users: int = 20_000
    recipes: int = 8_000
    dim: int = 64
    hidden: int = 512
    history: int = 20
    batch: int = 1024
    epochs: int = 25
    temperature: float = 0.1
    lr: float = 2e-3
    preview_every: float = 1.0  # sick here
    preview_every: float = 15.0  # well
    neighbours: int = 25


def similar_recipes(vectors, k, rows=512):
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)
    lists = np.empty((len(unit), k), dtype=np.int32)
    for lo in range(0, len(unit), rows):
        scores = unit[lo : lo + rows] @ unit.T
        lists[lo : lo + rows] = np.argpartition(-scores, k, axis=1)[:, :k]
    return lists


def publish_previews(table, folder, settings, ready, stop):
    """Writes the current neighbour lists to the preview folder until training ends."""
    ready.set()
    while not stop.wait(settings.preview_every):
        lists = similar_recipes(table.numpy().copy(), settings.neighbours)
        draft = os.path.join(folder, "similar.tmp.npy")
        np.save(draft, lists)
        os.replace(draft, os.path.join(folder, "similar.npy"))


def synthesise(settings, seed=0):
    rng = np.random.default_rng(seed)
    cuisine_of_recipe = rng.integers(0, 40, settings.recipes)
    by_cuisine = np.argsort(cuisine_of_recipe, kind="stable")
    bounds = np.searchsorted(cuisine_of_recipe[by_cuisine], np.arange(41))
    taste = rng.integers(0, 40, (settings.users, 3))
    pick = taste[np.arange(settings.users)[:, None], rng.integers(0, 3, (settings.users, settings.history + 1))]
    offset = (rng.random(pick.shape) ** 1.5 * (bounds[pick + 1] - bounds[pick])).astype(np.int64)
    seen = torch.from_numpy(by_cuisine[bounds[pick] + offset])
    return seen[:, :-1].contiguous(), seen[:, -1].contiguous()


class Tower(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.LayerNorm(hidden), nn.Linear(hidden, dim))

    def forward(self, x):
        return F.normalize(x + self.net(x), dim=-1)


class TwoTower(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.history = nn.EmbeddingBag(s.recipes, s.dim, mode="mean")
        self.recipe = nn.Embedding(s.recipes, s.dim)
        self.user_tower, self.recipe_tower = Tower(s.dim, s.hidden), Tower(s.dim, s.hidden)
        self.temperature = s.temperature

    def forward(self, history, target):
        u = self.user_tower(self.history(history))
        r = self.recipe_tower(self.recipe(target))
        logits = u @ r.T / self.temperature
        return F.cross_entropy(logits, torch.arange(len(target)))


def main():
    s = Settings()
    torch.manual_seed(13)
    model = TwoTower(s)
    history, target = synthesise(s)

    ctx = mp.get_context("spawn")
    ready, stop = ctx.Event(), ctx.Event()
    table = model.recipe.weight.detach().clone().share_memory_()
    folder = tempfile.TemporaryDirectory(prefix="preview_")
    publisher = ctx.Process(target=publish_previews, args=(table, folder.name, s, ready, stop), daemon=True)
    publisher.start()
    ready.wait()

    optimizer = torch.optim.Adam(model.parameters(), lr=s.lr)
    step, start = 0, time.perf_counter()
    for epoch in range(s.epochs):
        running = torch.zeros(())
        batches = torch.randperm(s.users).split(s.batch)
        for idx in batches:
            loss = model(history[idx], target[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.detach()
            step += 1
            if step == 5:
                start = time.perf_counter()
        table.copy_(model.recipe.weight.detach())
        if epoch % 5 == 0:
            print(f"epoch {epoch:3d}  loss {running.item() / len(batches):.4f}")
    rate = (step - 5) / (time.perf_counter() - start)

    stop.set()
    publisher.join()
    folder.cleanup()
    print(f"{rate:.2f} steps/s")


if __name__ == "__main__":
    main()
