# /// clinic
# allow = ["PD08.allocator-churn"]
# stratum = "placebo"
# domain = "transformer"
# smoke = true
# sizes = {BATCH = [16, 24], WIDTH = [4, 6]}
# ///
"""A vision transformer on synthetic textures, trained with Adam, a warm-up and clipped gradients."""

import time

import torch
from torch import nn

BATCH = 20
WIDTH = 5
STEPS = 110


class PatchTransformer(nn.Module):
    def __init__(self, width=32 * WIDTH, layers=3, kinds=8):
        super().__init__()
        self.patches = nn.Conv2d(1, width, 4, stride=4)
        self.place = nn.Parameter(torch.zeros(64, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.kind = nn.Linear(width, kinds)

    def forward(self, images):
        patches = self.patches(images).flatten(2).transpose(1, 2)
        return self.kind(self.encoder(patches + self.place).mean(1))


def textures(count):
    kinds = torch.arange(count) % 8
    axis = torch.arange(32) / 32
    angle = kinds / 8 * torch.pi
    waves = angle.cos()[:, None, None] * axis[:, None] + angle.sin()[:, None, None] * axis
    return (torch.sin(40 * waves) + 0.5 * torch.randn(count, 32, 32))[:, None], kinds


def main():
    torch.manual_seed(17)
    images, kinds = textures(1600)
    model = PatchTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))
    losses = []
    for step in range(STEPS):
        if step == 10:
            began = time.perf_counter()
        rows = torch.randint(0, len(images), (BATCH,))
        loss = nn.functional.cross_entropy(model(images[rows]), kinds[rows])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
        if len(losses) == 50:
            print(f"step {step}: {torch.stack(losses).mean().item():.3f}")
            losses.clear()
    print(f"{(STEPS - 10) * BATCH / (time.perf_counter() - began):.1f} images/s")


if __name__ == "__main__":
    main()
