# /// clinic
# expect = ["PD10.product-order"]
# stratum = "twins"
# domain = "particle physics"
# sizes = {CELLS = [400, 500], DIM = [120, 136]}
# ///
# Regress the energy and axis of a shower from its calorimeter hits.
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CELLS = 448
DIM = 128
HEADS = 4
BLOCKS = 2
B = 6
EPOCHS, PER_EPOCH = 5, 50


def shower(n, g):
    e = 1 + 9 * torch.rand(n, 1, generator=g)
    axis = F.normalize(torch.randn(n, 3, generator=g), dim=-1)
    depth = torch.rand(n, CELLS, 1, generator=g) * e[:, None].log1p()
    pos = depth * axis[:, None] + 0.1 * torch.randn(n, CELLS, 3, generator=g)
    dep = e[:, None] * torch.exp(-depth) * torch.rand(n, CELLS, 1, generator=g)
    return torch.cat([pos, dep], -1), torch.cat([e / 10, axis], -1)


class Mix(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.qkv = nn.Linear(d, 3 * d)
        self.o = nn.Linear(d, d)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        w = q @ k.transpose(-2, -1)  # sick here
        y = (w @ v) / w.sum(-1, keepdim=True)  # sick
        kv = k.transpose(-2, -1) @ v  # well
        y = (q @ kv) / (q @ k.sum(-2).unsqueeze(-1))  # well
        return self.o(y.transpose(1, 2).reshape(b, n, d))


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.mix = Mix(d, h)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        x = x + self.mix(self.n1(x))
        return x + self.ff(self.n2(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        d = DIM - DIM % HEADS
        self.inp = nn.Linear(4, d)
        self.blocks = nn.Sequential(*[Block(d, HEADS) for _ in range(BLOCKS)])
        self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4))

    def forward(self, hits):
        return self.head(self.blocks(self.inp(hits)).mean(1))


def main():
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(5)
    hits, target = shower(B * PER_EPOCH, g)
    vh, vt = shower(16, g)
    net = Net()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS * PER_EPOCH)
    t0, n = 0.0, 0
    for ep in range(EPOCHS):
        if ep == 1:
            t0, n = time.time(), 0
        for ix in torch.randperm(len(hits), generator=g).split(B):
            loss = F.smooth_l1_loss(net(hits[ix]), target[ix])
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            n += len(ix)
        with torch.no_grad():
            print(f"ep {ep} train {loss.item():.4f} val {F.smooth_l1_loss(net(vh), vt).item():.4f}", flush=True)
    print(f"{n / (time.time() - t0):.1f} showers/s")


main()
