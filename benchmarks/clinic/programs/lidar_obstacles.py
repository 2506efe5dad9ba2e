# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "robotics perception"
# ///
"""Obstacle classification from LiDAR clusters for a warehouse robot: a PointNet with an input alignment network."""

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


KINDS = ["pallet", "person", "pillar", "forklift", "shelf"]
EXTENTS = np.array([[1.2, 0.8, 0.3], [0.4, 0.5, 1.8], [0.4, 0.4, 3.0], [2.2, 1.1, 2.0], [3.0, 0.6, 2.4]])


def rotation(roll, pitch, yaw):
    cr, sr, cp, sp, cy, sy = np.cos(roll), np.sin(roll), np.cos(pitch), np.sin(pitch), np.cos(yaw), np.sin(yaw)
    rx = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
    ry = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
    rz = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
    return rz @ ry @ rx


class Mount:
    """Where the sensor sits on the robot, from the calibration."""

    def __init__(self, xyz=(0.21, 0.0, 0.87), rpy=(0.004, -0.031, 0.012)):
        self.transform = np.eye(4)
        self.transform[:3, :3] = rotation(*rpy)
        self.transform[:3, 3] = xyz

    def to_base(self, points):
        return points @ self.transform[:3, :3].T + self.transform[:3, 3]


def scan_cluster(rng, kind, count):
    """Points on the faces of a box of the obstacle's size, as the sensor returns them."""
    points = rng.uniform(-0.5, 0.5, (count, 3))
    face = rng.integers(0, 3, count)
    points[np.arange(count), face] = np.sign(points[np.arange(count), face]) * 0.5
    points = points * EXTENTS[kind] * rng.uniform(0.85, 1.15, 3)
    points = points @ rotation(0, 0, rng.uniform(0, 2 * np.pi)).T + rng.normal(0, 0.02, (count, 3))
    return points.astype(np.float32) + np.float32([rng.uniform(2, 6), rng.uniform(-2, 2), 0])


class ClusterDataset(Dataset):
    def __init__(self, clusters, points_per_cluster, mount, seed=0):
        rng = np.random.default_rng(seed)
        self.kinds = torch.from_numpy(rng.integers(0, len(KINDS), clusters))
        frames = []
        for kind in self.kinds.tolist():
            cloud = mount.to_base(scan_cluster(rng, kind, points_per_cluster))
            frames.append(cloud - cloud.mean(0))
        self.clouds = torch.from_numpy(np.stack(frames))  # sick here
        self.clouds = torch.from_numpy(np.stack(frames)).float()  # well

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        return self.clouds[index], self.kinds[index]


class SharedMLP(nn.Sequential):
    def __init__(self, *sizes):
        layers = []
        for a, b in zip(sizes, sizes[1:]):
            layers += [nn.Linear(a, b), nn.LayerNorm(b), nn.ReLU(inplace=True)]
        super().__init__(*layers)


class Alignment(nn.Module):
    """Predicts a 3x3 matrix that brings the cloud into a common pose."""

    def __init__(self):
        super().__init__()
        self.points = SharedMLP(3, 32, 96)
        self.matrix = nn.Linear(96, 9)
        nn.init.zeros_(self.matrix.weight)
        with torch.no_grad():
            self.matrix.bias.copy_(torch.eye(3).flatten())

    def forward(self, clouds):
        return self.matrix(self.points(clouds).amax(1)).view(-1, 3, 3)


class PointNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.align = Alignment()
        self.local = SharedMLP(3, 64, 64)
        self.wide = SharedMLP(64, 128, 256)
        self.head = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, classes))

    def forward(self, clouds):
        matrix = self.align(clouds)
        features = self.wide(self.local(torch.bmm(clouds, matrix)))
        return self.head(features.amax(1)), matrix


def jitter(clouds, sigma=0.01):
    """A turn about the vertical for the whole batch and a little noise for each point."""
    angle = torch.rand(()).item() * 2 * np.pi
    turn = clouds.new_tensor(rotation(0, 0, angle))
    return clouds @ turn.T + torch.randn_like(clouds) * sigma


def orthogonality(matrix):
    identity = torch.eye(3, dtype=matrix.dtype)
    return (torch.bmm(matrix, matrix.transpose(1, 2)) - identity).square().sum((1, 2)).mean()


def main(args):
    torch.manual_seed(args.seed)
    dataset = ClusterDataset(args.clusters, args.points, Mount())
    loader = DataLoader(dataset, batch_size=args.batch, shuffle=True, drop_last=True)
    model = PointNet(len(KINDS)).to(dataset.clouds.dtype)  # here
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr * 3, total_steps=args.epochs * len(loader))
    started = time.time()
    for epoch in range(args.epochs):
        running, hits = 0.0, 0
        for clouds, kinds in loader:
            logits, matrix = model(jitter(clouds))
            loss = F.cross_entropy(logits, kinds) + 0.001 * orthogonality(matrix)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            running += loss.item()
            hits += (logits.argmax(1) == kinds).sum().item()
        print(
            f"epoch {epoch}: loss {running / len(loader):.4f}, accuracy {hits / (len(loader) * args.batch):.3f}, "
            f"{time.time() - started:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--clusters", type=int, default=960)
    parser.add_argument("--points", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
