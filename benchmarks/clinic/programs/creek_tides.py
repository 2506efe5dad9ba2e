# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "salt marsh creek networks"
# ///
"""Water level forecasts at the junctions of a salt marsh creek network with a Chebyshev graph network.

The marsh is a random branching tree of creeks plus overmarsh links which carry water at spring tides. Levels are
made by a damped linear storage model that the tide at the inlet drives.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from scipy import sparse
from scipy.sparse import csgraph
from scipy.spatial import cKDTree
from torch import nn


@dataclass
class Config:
    junctions: int = 420
    history: int = 16
    horizon: int = 6
    width: int = 32
    order: int = 4
    blocks: int = 2
    hours: int = 1500
    batch: int = 16
    epochs: int = 6
    steps_per_epoch: int = 55
    lr: float = 2e-3
    seed: int = 5


def grow_marsh(cfg, rng):
    """Junction positions, a tree of creeks from the inlet, and short overmarsh links."""
    points = rng.random((cfg.junctions, 2)) * np.array([2.0, 1.0])
    points[0] = (0.0, 0.5)
    order = np.argsort(np.linalg.norm(points - points[0], axis=1))
    points = points[order]
    rows, cols, conductance = [], [], []
    for i in range(1, cfg.junctions):
        near = np.linalg.norm(points[:i] - points[i], axis=1)
        j = int(np.argmin(near + 0.05 * rng.random(i)))
        rows.append(i)
        cols.append(j)
        conductance.append(1.0 / (0.02 + near[j]))
    for i, j in cKDTree(points).query_pairs(0.06):
        rows.append(i)
        cols.append(j)
        conductance.append(4.0)
    graph = sparse.coo_matrix((conductance, (rows, cols)), shape=(cfg.junctions,) * 2).tocsr()
    graph = graph.maximum(graph.T)
    return points, graph


def scaled_laplacian(graph):
    lap = csgraph.laplacian(graph, normed=True)
    return np.asarray((lap - sparse.identity(graph.shape[0])).todense())


def flood(cfg, graph, rng):
    """Hourly stage at every junction: M2, S2 and K1 tides at the inlet, storage behind it."""
    hours = np.arange(cfg.hours)
    tide = np.sin(2 * np.pi * hours / 12.42) + 0.35 * np.sin(2 * np.pi * hours / 12.0 + 0.4)
    tide += 0.2 * np.sin(2 * np.pi * hours / 23.93 + 1.1)
    surge = np.cumsum(rng.normal(0, 0.03, cfg.hours))
    tide += surge - np.convolve(surge, np.ones(48) / 48, mode="same")
    walk = sparse.diags(1.0 / np.asarray(graph.sum(1)).ravel()) @ graph
    lag = 0.25 + 0.3 * rng.random(cfg.junctions)
    stage = np.zeros((cfg.hours, cfg.junctions))
    for t in range(1, cfg.hours):
        now = stage[t - 1]
        for _ in range(6):
            now = now + lag * (walk @ now - now)
            now[0] = tide[t]
        stage[t] = np.maximum(now, -0.7) + rng.normal(0, 0.01, cfg.junctions)
    return ((stage - stage.mean(0)) / (stage.std(0) + 1e-3)).astype(np.float32)


class ChebConv(nn.Module):
    def __init__(self, lap, width, order):
        super().__init__()
        self.order = order
        self.register_buffer("lap", torch.from_numpy(lap))  # sick here
        self.register_buffer("lap", torch.from_numpy(lap).float())  # well
        self.mix = nn.Linear(width * order, width)

    def spread(self, x):
        return torch.matmul(self.lap, x.to(self.lap.dtype)).to(x.dtype)  # here

    def forward(self, x):
        terms = [x, self.spread(x)]
        for _ in range(2, self.order):
            terms.append(2 * self.spread(terms[-1]) - terms[-2])
        return self.mix(torch.cat(terms, dim=-1))


class CreekNet(nn.Module):
    def __init__(self, cfg, lap, points):
        super().__init__()
        self.register_buffer("points", torch.tensor(points, dtype=torch.float32))
        self.enter = nn.Linear(cfg.history + 2, cfg.width)
        self.convs = nn.ModuleList(ChebConv(lap, cfg.width, cfg.order) for _ in range(cfg.blocks))
        self.norms = nn.ModuleList(nn.LayerNorm(cfg.width) for _ in range(cfg.blocks))
        self.mlps = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(cfg.width),
                nn.Linear(cfg.width, 4 * cfg.width),
                nn.GELU(),
                nn.Linear(4 * cfg.width, cfg.width),
            )
            for _ in range(cfg.blocks)
        )
        self.leave = nn.Linear(cfg.width, cfg.horizon)

    def forward(self, past):
        where = self.points.expand(past.shape[0], -1, -1)
        h = F.gelu(self.enter(torch.cat([past, where], dim=-1)))
        for conv, norm, mlp in zip(self.convs, self.norms, self.mlps):
            h = h + F.gelu(conv(norm(h)))
            h = h + mlp(h)
        return past[..., -1:] + self.leave(h)


def draw(stage, starts, cfg):
    past = torch.stack([stage[s : s + cfg.history].T for s in starts])
    future = torch.stack([stage[s + cfg.history : s + cfg.history + cfg.horizon].T for s in starts])
    return past, future


@torch.no_grad()
def evaluate(model, stage, starts, cfg):
    model.eval()
    errors = []
    for chunk in starts.split(cfg.batch):
        past, future = draw(stage, chunk.tolist(), cfg)
        errors.append((model(past) - future).abs().mean(dim=(0, 1)))
    model.train()
    return torch.stack(errors).mean(0)


def main():
    cfg = Config()
    rng = np.random.default_rng(cfg.seed)
    torch.manual_seed(cfg.seed)
    points, graph = grow_marsh(cfg, rng)
    stage = torch.from_numpy(flood(cfg, graph, rng))
    model = CreekNet(cfg, scaled_laplacian(graph), points)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-4)
    total = cfg.epochs * cfg.steps_per_epoch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=cfg.lr, total_steps=total)

    split = int(0.85 * cfg.hours)
    last = split - cfg.history - cfg.horizon
    held_out = torch.arange(split, cfg.hours - cfg.history - cfg.horizon, 2)
    print(f"{cfg.junctions} junctions, {graph.nnz // 2} links, {sum(p.numel() for p in model.parameters())} weights")

    began = time.perf_counter()
    windows = 0
    for epoch in range(cfg.epochs):
        running = 0.0
        for _ in range(cfg.steps_per_epoch):
            starts = torch.randint(0, last, (cfg.batch,)).tolist()
            past, future = draw(stage, starts, cfg)
            loss = F.smooth_l1_loss(model(past), future, beta=0.2)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            running += loss.item()
            windows += len(starts)
        mae = evaluate(model, stage, held_out, cfg)
        hours = " ".join(f"{m:.3f}" for m in mae.tolist())
        print(f"epoch {epoch + 1}: loss {running / cfg.steps_per_epoch:.4f}, held-out MAE by hour {hours}")
    rate = windows / (time.perf_counter() - began)
    torch.save(model.state_dict(), "creek_net.pt")
    print(f"{rate:.1f} windows/s")


if __name__ == "__main__":
    main()
