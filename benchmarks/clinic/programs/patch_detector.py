# /// clinic
# expect = ["PD02.attention-by-hand"]
# stratum = "twins"
# domain = "detection"
# ///
"""A one-stage detector over image patches: a transformer body, a box and an objectness for each patch."""

import time

import torch
import torch.nn.functional as F
from torch import nn


def synth(batch, grid, patch, gen):
    """Noise images with one bright rectangle each; returns patches, boxes, and the cell of the box's centre."""
    side = grid * patch
    img = torch.rand(batch, 3, side, side, generator=gen) * 0.2
    wh = torch.randint(side // 8, side // 3, (batch, 2), generator=gen)
    xy = (torch.rand(batch, 2, generator=gen) * (side - wh)).long()
    for i in range(batch):
        (x, y), (w, h) = xy[i].tolist(), wh[i].tolist()
        img[i, :, y : y + h, x : x + w] += 0.7
    boxes = torch.cat([xy, wh], 1).float() / side
    centre = ((boxes[:, :2] + boxes[:, 2:] / 2) * grid).long().clamp(max=grid - 1)
    return F.unfold(img, patch, stride=patch).transpose(1, 2), boxes, centre[:, 1] * grid + centre[:, 0]


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * (d // self.heads) ** -0.5  # sick here
        y = scores.softmax(dim=-1) @ v  # sick here
        y = F.scaled_dot_product_attention(q, k, v)  # well
        return self.proj(y.transpose(1, 2).reshape(b, n, d))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.mlp(self.n2(x))


class PatchDetector(nn.Module):
    def __init__(self, grid, patch, dim=96, heads=6, depth=2):
        super().__init__()
        self.embed = nn.Linear(3 * patch * patch, dim)
        self.pos = nn.Parameter(torch.randn(grid * grid, dim) * 0.02)
        self.layers = nn.Sequential(*[Layer(dim, heads) for _ in range(depth)])
        self.box = nn.Linear(dim, 4)
        self.obj = nn.Linear(dim, 1)

    def forward(self, patches):
        h = self.layers(self.embed(patches) + self.pos)
        return self.box(h).sigmoid(), self.obj(h).squeeze(-1)


def evaluate(model, held_out):
    model.eval()
    with torch.no_grad():
        patches, boxes, cell = held_out
        _, obj = model(patches)
        hit = (obj.argmax(1) == cell).sum() / len(cell)
    model.train()
    return hit.item()


def main(batch=4, grid=20, patch=6, steps=130, warm=5):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    pool = [synth(batch, grid, patch, gen) for _ in range(20)]
    held_out = synth(batch, grid, patch, gen)
    model = PatchDetector(grid, patch)
    opt = torch.optim.AdamW(model.parameters(), lr=4e-4)
    for step in range(steps):
        if step == warm:
            t0 = time.perf_counter()
        patches, boxes, cell = pool[step % len(pool)]
        pred, obj = model(patches)
        chosen = pred[torch.arange(batch), cell]
        loss = F.cross_entropy(obj, cell) + 5 * F.l1_loss(chosen, boxes)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 45 == 44:
            print(f"step {step + 1} loss {loss.item():.3f} hits {evaluate(model, held_out):.2f}")
    print(f"{(steps - warm) * batch / (time.perf_counter() - t0):.2f} images/s")


main()
