# /// clinic
# expect = ["PD10"]
# endless = true
# stratum = "twins"
# domain = "3D point clouds"
# ///
"""Part labels for simulated lidar sweeps of machine tools, with edge convolutions on a fixed neighbourhood graph."""

import argparse
import math
import time
from functools import cached_property

import torch
import torch.nn as nn
import torch.nn.functional as F

PARTS = 6


def synth_sweep(n_clouds, n_points, generator):
    """Each cloud is a handful of displaced primitives; the primitive is the label."""
    clouds, labels = [], []
    for _ in range(n_clouds):
        part = torch.randint(0, PARTS, (n_points,), generator=generator)
        centre = torch.randn(PARTS, 3, generator=generator)
        stretch = 0.15 + 0.5 * torch.rand(PARTS, 3, generator=generator)
        direction = F.normalize(torch.randn(n_points, 3, generator=generator), dim=-1)
        clouds.append(centre[part] + stretch[part] * direction)
        labels.append(part)
    return torch.stack(clouds), torch.stack(labels)


def jitter(points, generator):
    """Random yaw and a little sensor noise."""
    yaw = torch.rand(len(points), generator=generator) * 2 * math.pi
    c, s, o, i = yaw.cos(), yaw.sin(), torch.zeros_like(yaw), torch.ones_like(yaw)
    rot = torch.stack([c, -s, o, s, c, o, o, o, i], dim=-1).view(-1, 3, 3)
    return points @ rot + 0.01 * torch.randn(points.shape, generator=generator)


class Neighbourhood:
    """Local geometry of one batch of clouds, shared by the layers of the network."""

    def __init__(self, points, k):
        self.points, self.k = points, k

    @property  # sick here
    @cached_property  # well
    def index(self):
        gap = torch.cdist(self.points, self.points)
        return gap.topk(self.k, dim=-1, largest=False).indices  # here

    def gather(self, values):
        b, n, c = values.shape
        flat = (self.index + torch.arange(b).view(b, 1, 1) * n).reshape(-1)
        return values.reshape(b * n, c).index_select(0, flat).view(b, n, self.k, c)

    def edges(self, values):
        near = self.gather(values)
        return near - values.unsqueeze(2)

    def offsets(self):
        return self.edges(self.points)


class EdgeMix(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.edge = nn.Linear(c_in + 3, c_out)
        self.centre = nn.Linear(c_in, c_out)

    def forward(self, x, geo):
        e = torch.cat([geo.edges(x), geo.offsets()], dim=-1)
        return F.gelu(self.centre(x) + self.edge(e).amax(dim=2))


class PartNet(nn.Module):
    def __init__(self, width, depth, k):
        super().__init__()
        self.k = k
        self.stem = nn.Linear(3, width)
        self.blocks = nn.ModuleList(EdgeMix(width, width) for _ in range(depth))
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, PARTS))

    def forward(self, points):
        geo = Neighbourhood(points, self.k)
        x = self.stem(points)
        for block in self.blocks:
            x = x + block(x, geo)
        pooled = x.amax(dim=1, keepdim=True).expand_as(x)
        return self.head(torch.cat([x, pooled], dim=-1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--clouds", type=int, default=96)
    ap.add_argument("--points", type=int, default=768)
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--k", type=int, default=16)
    ap.add_argument("--width", type=int, default=40)
    ap.add_argument("--depth", type=int, default=3)
    ap.add_argument("--epochs", type=int, default=400)
    ap.add_argument("--seed", type=int, default=3)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    points, labels = synth_sweep(args.clouds, args.points, gen)
    net = PartNet(args.width, args.depth, args.k)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-4)

    step, since, running = 0, time.time(), torch.zeros(())
    for epoch in range(args.epochs):
        for rows in torch.randperm(args.clouds, generator=gen).split(args.batch):
            cloud = jitter(points[rows], gen)
            logits = net(cloud)
            loss = F.cross_entropy(logits.flatten(0, 1), labels[rows].flatten())
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            running += loss.detach()
            step += 1
            if step % 20 == 0:
                rate = 20 / (time.time() - since)
                print(f"epoch {epoch} step {step} loss {running.item() / 20:.4f} {rate:.2f} steps/s", flush=True)
                since, running = time.time(), torch.zeros(())


if __name__ == "__main__":
    main()
