# /// clinic
# expect = ["PD03"]
# stratum = "twins"
# domain = "point clouds of stones"
# ///
"""Sorts quarry stones by kind from laser scans.

A scan is a cloud of points on the surface of a simulated stone. A small graph network passes
messages between each point and its nearest neighbours and names the kind of stone. In training the
stones are turned at random, as they lie on the belt in any position.
"""

import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

SCANS, HELD_OUT, POINTS, KINDS = 1280, 256, 512, 6
NEIGHBOURS, BATCH, EPOCHS = 8, 16, 11


def scan_stones(count, generator):
    kinds = torch.randint(0, KINDS, (count,), generator=generator)
    points = F.normalize(torch.randn(count, POINTS, 3, generator=generator), dim=2)
    axes = torch.tensor([[1, 1, 1], [1, 1, 0.5], [1, 0.5, 0.5]])[kinds % 3]
    rough = torch.where(kinds < 3, 0.05, 0.2).view(-1, 1, 1)
    waves = torch.randn(count, 3, 4, generator=generator) * 3
    bumps = torch.sin(points @ waves).sum(2, keepdim=True)
    clouds = points * axes[:, None] * (1 + rough * bumps)
    return clouds + 0.01 * torch.randn(count, POINTS, 3, generator=generator), kinds


def random_turn():
    turn, _ = torch.linalg.qr(torch.randn(3, 3))
    return turn


def nearest(cloud, count):
    """Indices of the `count` nearest other points of each point."""
    return torch.cdist(cloud, cloud).topk(count + 1, largest=False).indices[:, 1:]


class StoneScans(Dataset):
    def __init__(self, clouds, kinds, neighbours=NEIGHBOURS, turned=False):
        self.clouds, self.kinds = clouds, kinds
        self.neighbours, self.turned = neighbours, turned
        self.links = [nearest(cloud, neighbours) for cloud in clouds]  # well

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        cloud = self.clouds[index]
        if self.turned:
            cloud = cloud @ random_turn()
        links = nearest(cloud, self.neighbours)  # sick here
        links = self.links[index]  # well
        return cloud, links, self.kinds[index]


def merge(scans):
    clouds, links, kinds = zip(*scans)
    links = torch.stack(links) + POINTS * torch.arange(len(links)).view(-1, 1, 1)
    return torch.cat(clouds), links.flatten(0, 1), torch.stack(kinds)


class Pass(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.near = nn.Linear(inputs, outputs, bias=False)

    def forward(self, features, links):
        near = self.near(features).index_select(0, links.flatten())
        near = near.view(*links.shape, -1).mean(1)
        return F.relu(self.own(features) + near)


class StoneNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.passes = nn.ModuleList([Pass(4, width), Pass(width, width), Pass(width, width)])
        self.lift = nn.Linear(width, width * 2)
        self.head = nn.Sequential(nn.Linear(width * 4, width), nn.ReLU(), nn.Linear(width, KINDS))

    def forward(self, points, links):
        features = torch.cat([points, points.norm(dim=1, keepdim=True)], 1)
        for layer in self.passes:
            features = layer(features, links)
        features = self.lift(features).view(-1, POINTS, self.lift.out_features)
        return self.head(torch.cat([features.amax(1), features.mean(1)], 1))


@torch.no_grad()
def accuracy(model, loader):
    right = sum((model(points, links).argmax(1) == kinds).sum() for points, links, kinds in loader)
    return right.item() / len(loader.dataset)


def main():
    torch.manual_seed(9)
    clouds, kinds = scan_stones(SCANS + HELD_OUT, torch.Generator().manual_seed(2))
    scans = StoneScans(clouds[:SCANS], kinds[:SCANS], turned=True)
    held_out = StoneScans(clouds[SCANS:], kinds[SCANS:])
    loader = DataLoader(scans, BATCH, shuffle=True, drop_last=True, collate_fn=merge)

    model = StoneNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    steps = 0
    start = time.perf_counter()
    for _ in range(EPOCHS):
        for points, links, names in loader:
            loss = F.cross_entropy(model(points, links), names)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
    seconds = time.perf_counter() - start

    print(f"accuracy {accuracy(model, DataLoader(held_out, 32, collate_fn=merge)):.3f}")
    print(f"{steps * BATCH / seconds:.1f} samples/s")


if __name__ == "__main__":
    main()
