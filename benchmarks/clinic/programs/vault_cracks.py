# /// clinic
# expect = ["PD10.block-diagonal"]
# stratum = "twins"
# domain = "cathedral vault cracks"
# ///
"""Crack opening on the ribs and webs of a cathedral vault, predicted stone by stone from a survey.

Each survey is one bay: its voussoirs are the nodes of a graph, two stones that share a mortar joint are neighbours.
The network sees loads, joint age and moisture of every stone and regresses the opening of the crack (log mm).
"""

import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    surveys: int = 480
    held_out: int = 48
    features: int = 12
    width: int = 112
    rounds: int = 4
    batch: int = 24
    epochs: int = 22
    lr: float = 2e-3
    weight_decay: float = 1e-4
    clip: float = 1.0
    seed: int = 5


@dataclass
class Survey:
    stones: torch.Tensor  # (n, features)
    joints: torch.Tensor  # (2, m): from, to
    weight: torch.Tensor  # (m,)
    opening: torch.Tensor  # (n,)


def bay(rng, features):
    """One quadripartite bay: a bent grid of stones with diagonal ribs."""
    rows, cols = int(rng.integers(6, 10)), int(rng.integers(7, 12))
    n = rows * cols
    index = np.arange(n).reshape(rows, cols)
    pairs = [
        np.stack([index[:, :-1].ravel(), index[:, 1:].ravel()]),
        np.stack([index[:-1].ravel(), index[1:].ravel()]),
        np.stack([index[:-1, :-1].ravel(), index[1:, 1:].ravel()]),
    ]
    joints = np.concatenate(pairs, axis=1)
    joints = joints[:, rng.random(joints.shape[1]) > 0.08]
    joints = np.concatenate([joints, joints[::-1], np.stack([np.arange(n)] * 2)], axis=1)
    degree = np.bincount(joints[1], minlength=n)
    weight = 1.0 / np.sqrt(degree[joints[0]] * degree[joints[1]])

    stones = rng.standard_normal((n, features)).astype(np.float32)
    height = np.sin(np.pi * np.arange(rows) / (rows - 1))[:, None] * np.sin(np.pi * np.arange(cols) / (cols - 1))
    stones[:, 0] = height.ravel() + 0.05 * rng.standard_normal(n)
    stress = stones[:, 0] * 1.5 + stones[:, 1] * stones[:, 2] - 0.4 * stones[:, 3]
    for _ in range(3):
        spread = np.zeros(n)
        np.add.at(spread, joints[1], weight * stress[joints[0]])
        stress = 0.5 * stress + 0.5 * np.tanh(spread)
    opening = stress + 0.05 * rng.standard_normal(n)
    return Survey(
        torch.from_numpy(stones),
        torch.from_numpy(joints),
        torch.from_numpy(weight).float(),
        torch.from_numpy(opening).float(),
    )


def join(surveys):
    """Puts the surveys of a batch side by side as one graph."""
    stones = torch.cat([s.stones for s in surveys])
    opening = torch.cat([s.opening for s in surveys])
    weight = torch.cat([s.weight for s in surveys])
    sizes = [len(s.stones) for s in surveys]
    starts = np.cumsum([0, *sizes[:-1]])
    source, target = torch.cat([s.joints + int(start) for s, start in zip(surveys, starts)], dim=1)
    graph = torch.zeros(len(stones), len(stones))  # sick here
    graph[target, source] = weight  # sick
    graph = (source, target, weight[:, None])  # well
    return stones, graph, opening


class JointRound(nn.Module):
    """One exchange of messages across the mortar joints."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.send = nn.Linear(width, width)
        self.update = nn.Sequential(nn.Linear(2 * width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def forward(self, h, graph):
        x = self.norm(h)
        message = self.send(x)
        heard = graph @ message  # sick here
        source, target, weight = graph  # well
        heard = torch.zeros_like(message).index_add(0, target, message.index_select(0, source) * weight)  # well
        return h + self.update(torch.cat([x, heard], dim=-1))


class VaultNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.stone = nn.Sequential(nn.Linear(cfg.features, cfg.width), nn.SiLU(), nn.Linear(cfg.width, cfg.width))
        self.rounds = nn.ModuleList(JointRound(cfg.width) for _ in range(cfg.rounds))
        self.head = nn.Sequential(nn.LayerNorm(cfg.width), nn.Linear(cfg.width, 64), nn.SiLU(), nn.Linear(64, 1))

    def forward(self, stones, graph):
        h = self.stone(stones)
        for exchange in self.rounds:
            h = exchange(h, graph)
        return self.head(h).squeeze(-1)


@torch.no_grad()
def error(model, surveys, batch):
    model.eval()
    total, count = 0.0, 0
    for start in range(0, len(surveys), batch):
        stones, graph, opening = join(surveys[start : start + batch])
        total += (model(stones, graph) - opening).abs().sum().item()
        count += len(opening)
    model.train()
    return total / count


def main(cfg):
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    surveys = [bay(rng, cfg.features) for _ in range(cfg.surveys + cfg.held_out)]
    training, held_out = surveys[: cfg.surveys], surveys[cfg.surveys :]

    model = VaultNet(cfg)
    steps = cfg.epochs * (cfg.surveys // cfg.batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.lr, total_steps=steps)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {steps} steps")

    seen = 0
    began = time.perf_counter()
    for epoch in range(cfg.epochs):
        order = rng.permutation(cfg.surveys)
        losses = []
        for start in range(0, cfg.surveys - cfg.batch + 1, cfg.batch):
            stones, graph, opening = join([training[i] for i in order[start : start + cfg.batch]])
            loss = F.huber_loss(model(stones, graph), opening, delta=0.5)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
            seen += cfg.batch
        mae = error(model, held_out, cfg.batch)
        print(f"epoch {epoch:3d}  loss {torch.stack(losses).mean():.4f}  held-out error {mae:.4f}", flush=True)
    rate = seen / (time.perf_counter() - began)

    print(f"{rate:.1f} graphs/s")


if __name__ == "__main__":
    main(Config())
