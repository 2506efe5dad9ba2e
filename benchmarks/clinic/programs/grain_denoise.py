# /// clinic
# expect = ["PD18"]
# endless = true
# stratum = "twins"
# domain = "diffusion models"
# ///
"""Denoising diffusion on tiny micrographs of metal grains, with a ramped velocity objective."""

import math
import os
import tempfile
import time
from dataclasses import dataclass

os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="grains-"))  # home is read-only on the nodes

import torch
import torch._dynamo
import torch.nn as nn
import torch.nn.functional as F

torch._dynamo.config.recompile_limit = 256
torch._dynamo.config.accumulated_recompile_limit = 4096


@dataclass
class Plan:
    side: int = 24
    width: int = 32
    blocks: int = 3
    batch: int = 32
    steps: int = 60_000
    rampup: int = 20_000
    stride: int = 100
    lr: float = 1e-3
    report: int = 40


def grains(n, side, generator):
    """Voronoi cells with a grey level each; the condition is the number of seeds."""
    seeds = torch.randint(4, 12, (n,), generator=generator)
    axis = torch.linspace(0, 1, side)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    pixel = torch.stack([yy, xx], -1).view(1, -1, 2)
    where = torch.rand(n, 12, 2, generator=generator)
    gap = torch.cdist(pixel.expand(n, -1, -1), where)
    gap = gap.masked_fill(torch.arange(12) >= seeds.view(n, 1, 1), 9.0)
    grey = torch.randn(n, 12, generator=generator)
    return grey.gather(1, gap.argmin(-1)).view(n, 1, side, side), seeds.float() / 12


class Film(nn.Module):
    """Scale and shift by the embedding."""

    def __init__(self, c, c_emb):
        super().__init__()
        self.proj = nn.Linear(c_emb, 2 * c)

    def forward(self, x, emb):
        scale, shift = self.proj(emb)[..., None, None].chunk(2, dim=1)
        return x + x * scale + shift


class Block(nn.Module):
    def __init__(self, c, c_emb):
        super().__init__()
        self.norm = nn.GroupNorm(4, c)
        self.film = Film(c, c_emb)
        self.conv = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x, emb):
        return x + self.conv(F.silu(self.film(self.norm(x), emb)))


class Denoiser(nn.Module):
    def __init__(self, plan, c_emb=64):
        super().__init__()
        c = plan.width
        self.embed = nn.Sequential(nn.Linear(17, c_emb), nn.SiLU(), nn.Linear(c_emb, c_emb))
        self.stem = nn.Conv2d(1, c, 3, padding=1)
        self.body = nn.ModuleList(Block(c, c_emb) for _ in range(plan.blocks))
        self.head = nn.Conv2d(c, 1, 3, padding=1)
        self.register_buffer("octaves", 2.0 ** torch.arange(8))

    def forward(self, x, t, cond):
        phase = t[:, None] * self.octaves * math.pi
        emb = self.embed(torch.cat([phase.sin(), phase.cos(), cond[:, None]], dim=-1))
        x = self.stem(x)
        for block in self.body:
            x = block(x, emb)
        return self.head(x)


class VelocityLoss(nn.Module):
    """Error of the velocity; the weight of the noisy end fades in over the ramp-up."""

    def __init__(self, rampup, floor=0.1):
        super().__init__()
        self.rampup, self.floor = rampup, floor
        self.progress = 0  # sick
        self.register_buffer("progress", torch.tensor(0), persistent=False)  # well

    def advance(self, step):
        value = min(step, self.rampup)
        self.progress = value  # sick here
        self.progress.fill_(value)  # well

    def forward(self, guess, image, noise, a, s):
        fade = self.progress / self.rampup
        weight = a.square() + (self.floor + (1 - self.floor) * fade) * s.square()
        return (weight * (guess - (a * noise - s * image)).square()).mean()


def noised(image, generator):
    t = torch.rand(len(image), generator=generator)
    noise = torch.randn(image.shape, generator=generator)
    angle = t.view(-1, 1, 1, 1) * math.pi / 2
    return t, noise, angle.cos(), angle.sin()


def main(plan=None):
    plan = plan or Plan()
    torch.manual_seed(4)
    generator = torch.Generator().manual_seed(4)
    image, cond = grains(1024, plan.side, generator)
    denoiser = Denoiser(plan)
    criterion = VelocityLoss(plan.rampup)
    objective = torch.compile(criterion)
    opt = torch.optim.AdamW(denoiser.parameters(), lr=plan.lr)
    since = time.time()
    for step in range(plan.steps):
        if step % plan.stride == 0:
            criterion.advance(step)
        rows = torch.randint(len(image), (plan.batch,), generator=generator)
        t, noise, a, s = noised(image[rows], generator)
        loss = objective(denoiser(a * image[rows] + s * noise, t, cond[rows]), image[rows], noise, a, s)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % plan.report == 0:
            rate = plan.report / (time.time() - since)
            print(f"step {step + 1} loss {loss.item():.4f} {rate:.2f} steps/s", flush=True)
            since = time.time()


if __name__ == "__main__":
    main()
