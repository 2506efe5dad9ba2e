# /// clinic
# expect = ["PD10.needless-copy"]
# stratum = "twins"
# domain = "point clouds"
# ///
"""Classifies synthetic point clouds (boulders, slabs, rods, rings) with a grouped set-abstraction network."""

import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES = ("boulder", "slab", "rod", "ring", "bowl")
N_POINTS, N_CENTRES, N_NEAR = 160, 48, 16
BATCH, EPOCHS = 32, 4


def make_cloud(kind, n, gen):
    u = torch.rand(n, 3, generator=gen)
    if kind == "boulder":
        p = torch.randn(n, 3, generator=gen)
        p = p / p.norm(dim=1, keepdim=True)
    elif kind == "slab":
        p = (u - 0.5) * torch.tensor([2.0, 2.0, 0.3])
    elif kind == "rod":
        p = (u - 0.5) * torch.tensor([0.3, 0.3, 2.4])
    elif kind == "ring":
        a, b = u[:, 0] * 2 * math.pi, u[:, 1] * 2 * math.pi
        r = 0.8 + 0.25 * torch.cos(b)
        p = torch.stack([r * a.cos(), r * a.sin(), 0.25 * b.sin()], 1)
    else:
        p = torch.randn(n, 3, generator=gen)
        p = p / p.norm(dim=1, keepdim=True)
        p[:, 2] = -p[:, 2].abs()
    return p + 0.06 * torch.randn(n, 3, generator=gen)


def make_data(count, gen):
    labels = torch.randint(len(CLASSES), (count,), generator=gen)
    clouds = torch.stack([make_cloud(CLASSES[c], N_POINTS, gen) for c in labels.tolist()])
    return clouds, labels


def group(clouds, chunk=256):
    """Neighbourhoods in local coordinates, found once: rotations of a cloud do not change who is near whom."""
    centres = clouds[:, :N_CENTRES]
    parts = []
    for pts, mid in zip(clouds.split(chunk), centres.split(chunk)):
        near = torch.cdist(mid, pts).topk(N_NEAR, dim=2, largest=False).indices
        rows = torch.arange(pts.shape[0])[:, None, None]
        parts.append(pts[rows, near] - mid[:, :, None])
    return torch.cat(parts), centres.clone()


class ChannelNorm(nn.Module):
    """Batch statistics for every channel of a (batch, ..., channels) tensor."""

    def __init__(self, channels, momentum=0.1, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))
        self.momentum, self.eps = momentum, eps

    def _norm(self, x):
        return F.batch_norm(x, self.mean, self.var, self.weight, self.bias, self.training, self.momentum, self.eps)

    def forward(self, x):
        y = self._norm(x.movedim(-1, 1).contiguous())  # sick here
        return y.movedim(1, -1).contiguous()  # sick here
        return self._norm(x.flatten(0, -2)).view_as(x)  # well


class SharedMLP(nn.Sequential):
    def __init__(self, *widths):
        layers = []
        for a, b in zip(widths, widths[1:]):
            layers += [nn.Linear(a, b, bias=False), ChannelNorm(b), nn.ReLU(inplace=True)]
        super().__init__(*layers)


class GroupNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.local = SharedMLP(3, 32, 32, 64)
        self.wide = SharedMLP(64 + 3, 128, 256)
        self.head = nn.Sequential(nn.Linear(256, 128), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(128, classes))

    def forward(self, groups, centres):
        feats = self.local(groups).amax(dim=2)
        feats = self.wide(torch.cat([feats, centres], dim=-1)).amax(dim=1)
        return self.head(feats)


def random_turn(count):
    """Rotation matrices about the vertical axis with a little scale."""
    a = torch.rand(count) * 2 * math.pi
    c, s, z, o = a.cos(), a.sin(), torch.zeros(count), torch.ones(count)
    turn = torch.stack([c, -s, z, s, c, z, z, z, o], 1).view(count, 3, 3)
    return turn * (0.9 + 0.2 * torch.rand(count, 1, 1))


@torch.no_grad()
def accuracy(model, groups, centres, labels):
    model.eval()
    hits = 0
    for g, c, y in zip(groups.split(128), centres.split(128), labels.split(128)):
        hits += (model(g, c).argmax(1) == y).sum().item()
    model.train()
    return hits / len(labels)


def main():
    torch.manual_seed(11)
    gen = torch.Generator().manual_seed(12)
    clouds, labels = make_data(2560, gen)
    groups, centres = group(clouds)
    n_train = 2304
    model = GroupNet(len(CLASSES))
    steps = EPOCHS * (n_train // BATCH)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 4e-3, total_steps=steps)

    seen, began = 0, time.perf_counter()
    for epoch in range(EPOCHS):
        total = torch.zeros(())
        for idx in torch.randperm(n_train).split(BATCH):
            turn = random_turn(len(idx))
            g = (groups[idx].view(len(idx), -1, 3) @ turn).view(len(idx), N_CENTRES, N_NEAR, 3)
            c = centres[idx] @ turn
            loss = F.cross_entropy(model(g, c), labels[idx], label_smoothing=0.05)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            total += loss.detach()
            seen += len(idx)
        print(f"epoch {epoch}: loss {total.item() / (n_train // BATCH):.3f}")
    took = time.perf_counter() - began

    acc = accuracy(model, groups[n_train:], centres[n_train:], labels[n_train:])
    print(f"held-out accuracy {acc:.3f}")
    print(f"{seen / took:.1f} samples/s")


if __name__ == "__main__":
    main()
