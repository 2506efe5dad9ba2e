# /// clinic
# expect = ["PD18.recompiles"]
# stratum = "twins"
# domain = "generative models"
# ///
"""Discrete VAE on synthetic sprites: Gumbel-softmax codes, annealed temperature and KL weight, compiled model."""

import os
import tempfile
import time


import torch
import torch.nn as nn
import torch.nn.functional as F

SCRATCH = tempfile.TemporaryDirectory(prefix="dvae_")
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(SCRATCH.name, "inductor"))


IMAGE = 32
BATCH = 16
EPOCHS = 4
STEPS_PER_EPOCH = 110
CODES = 64
WIDTH = 32
WARMUP_EPOCHS = 3
LOG_EVERY = 55


def sprite_bank(count, seed=0):
    """Grey images with a soft ellipse and a bar."""
    gen = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, IMAGE)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")

    def uniform(low, high):
        return low + (high - low) * torch.rand(count, 1, 1, generator=gen)

    radius = ((xx - uniform(-0.5, 0.5)) / uniform(0.2, 0.6)) ** 2 + ((yy - uniform(-0.5, 0.5)) / uniform(0.2, 0.6)) ** 2
    ellipse = torch.sigmoid(6.0 * (1.0 - radius))
    angle = uniform(0.0, 3.1416)
    bar = torch.sigmoid(25.0 * (0.12 - (xx * angle.cos() + yy * angle.sin() - uniform(-0.4, 0.4)).abs()))
    return torch.maximum(ellipse * uniform(0.5, 1.0), bar * uniform(0.3, 0.9)).unsqueeze(1)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, WIDTH, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(WIDTH, 2 * WIDTH, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(2 * WIDTH, 2 * WIDTH, 3, 1, 1),
            nn.SiLU(),
            nn.Conv2d(2 * WIDTH, CODES, 1),
        )

    def forward(self, x):
        return self.net(x)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(2 * WIDTH, 2 * WIDTH, 3, 1, 1),
            nn.SiLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(2 * WIDTH, WIDTH, 3, 1, 1),
            nn.SiLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(WIDTH, 1, 3, 1, 1),
        )

    def forward(self, z):
        return self.net(z)


class DiscreteVAE(nn.Module):
    def __init__(self, warmup):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.codebook = nn.Linear(CODES, 2 * WIDTH, bias=False)
        self.warmup = warmup
        self.epoch = 0  # sick here
        self.register_buffer("epoch", torch.zeros(()))  # well

    def set_epoch(self, epoch):
        self.epoch = epoch  # sick here
        self.epoch.fill_(epoch)  # well

    def schedule(self):
        """Progress of the warm-up in [0, 1], from which temperature and KL weight follow."""
        progress = min(1.0, self.epoch / self.warmup)  # sick here
        progress = (self.epoch / self.warmup).clamp(max=1.0)  # well
        return 1.0 - 0.6 * progress, 0.01 * progress

    def forward(self, x):
        temperature, kl_weight = self.schedule()  # here
        logits = self.encoder(x).permute(0, 2, 3, 1)
        noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)))
        codes = F.softmax((logits + noise) / temperature, dim=-1)
        recon = self.decoder(self.codebook(codes).permute(0, 3, 1, 2))
        log_q = F.log_softmax(logits, dim=-1)
        kl = (log_q.exp() * (log_q + torch.log(torch.tensor(float(CODES))))).sum(-1).mean()
        bce = F.binary_cross_entropy_with_logits(recon, x)
        return bce + kl_weight * kl, bce, kl


def train(model, images):
    compiled = torch.compile(model)  # here
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(5)
    model.train()
    start = time.time()
    for epoch in range(EPOCHS):
        model.set_epoch(epoch)  # here
        for step in range(1, STEPS_PER_EPOCH + 1):
            x = images[torch.randint(0, len(images), (BATCH,), generator=generator)]
            loss, bce, kl = compiled(x)  # here
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % LOG_EVERY == 0:
                print(
                    f"epoch {epoch}  step {step:3d}  loss {loss.item():.4f}  bce {bce.item():.4f}  kl {kl.item():.3f}  "
                    f"{time.time() - start:.1f}s",
                    flush=True,
                )


def main():
    torch.manual_seed(2)
    images = sprite_bank(4000)
    model = DiscreteVAE(WARMUP_EPOCHS)
    train(model, images)
    torch.save(model.state_dict(), os.path.join(SCRATCH.name, "dvae.pt"))


if __name__ == "__main__":
    main()
