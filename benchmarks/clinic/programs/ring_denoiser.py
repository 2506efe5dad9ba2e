# /// clinic
# expect = ["PD17"]
# stratum = "twins"
# domain = "diffusion"
# ///
"""Train a small denoising diffusion model on latent vectors."""

import time

import torch
import torch.nn.functional as F
from torch import nn

LATENT = 256
WIDTH = 896
BLOCKS = 6
NOISE_STEPS = 400
BATCH = 32
STEPS = 260
CLIP = 1.0


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(self, h, t):
        return h + self.down(F.silu(self.up(self.norm(h) + t)))


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(NOISE_STEPS, WIDTH)
        self.enter = nn.Linear(LATENT, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH) for _ in range(BLOCKS))
        self.leave = nn.Linear(WIDTH, LATENT)

    def forward(self, x, t):
        h, t = self.enter(x), self.time(t)
        for block in self.blocks:
            h = block(h, t)
        return self.leave(h)


class Diffusion:
    def __init__(self, net):
        self.net = net
        beta = torch.linspace(1e-4, 0.02, NOISE_STEPS)
        keep = torch.cumprod(1 - beta, 0)
        self.signal, self.noise = keep.sqrt(), (1 - keep).sqrt()

    def loss(self, x):
        t = torch.randint(0, NOISE_STEPS, (len(x),))
        eps = torch.randn_like(x)
        noisy = self.signal[t, None] * x + self.noise[t, None] * eps
        return F.mse_loss(self.net(noisy, t), eps)


@torch.no_grad()
def limit_gradients(params, limit):
    grads = [p.grad for p in params if p.grad is not None]
    flat = torch.cat([g.reshape(-1) for g in grads])  # sick here
    flat = flat * (limit / (flat.norm() + 1e-6)).clamp(max=1.0)  # sick
    at = 0  # sick
    for g in grads:  # sick
        g.copy_(flat[at : at + g.numel()].view_as(g))  # sick
        at += g.numel()  # sick
    norm = torch.stack(torch._foreach_norm(grads)).norm()  # well
    torch._foreach_mul_(grads, (limit / (norm + 1e-6)).clamp(max=1.0))  # well


def latents(gen):
    modes = torch.randn(32, LATENT, generator=gen)
    while True:
        pick = torch.randint(0, 32, (BATCH,), generator=gen)
        yield modes[pick] + 0.2 * torch.randn(BATCH, LATENT, generator=gen)


def main():
    torch.manual_seed(0)
    net = Denoiser()
    diffusion = Diffusion(net)
    params = list(net.parameters())
    optimizer = torch.optim.AdamW(params, lr=2e-4, weight_decay=0.01, fused=True)
    source = latents(torch.Generator().manual_seed(5))
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        diffusion.loss(next(source)).backward()
        limit_gradients(params, CLIP)
        optimizer.step()
        if step == 20:
            start = time.perf_counter()
    print(f"{(STEPS - 20) / (time.perf_counter() - start):.1f} steps/s")


if __name__ == "__main__":
    main()
