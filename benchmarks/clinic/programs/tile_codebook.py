# /// clinic
# expect = ["PD10.broadcast-then-sum"]
# allow = ["PD08.allocator-churn", "PD07.bfloat16-unused"]
# stratum = "twins"
# domain = "image compression"
# sizes = {CODES = [192, 288], PATCHES = [768, 1024]}
# ///
"""A codebook for image patches: encoder, nearest code, decoder."""

import time

import torch
from torch import nn

CODES = 256
PATCHES = 1024
PIXELS = 192
WIDTH = 64
STEPS = 400


class Codebook(nn.Module):
    def __init__(self):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(CODES, WIDTH) * 0.3)

    def forward(self, z):
        apart = z.unsqueeze(1) - self.codes.unsqueeze(0)  # sick here
        distances = apart.pow(2).sum(-1)  # sick
        distances = z.square().sum(1, keepdim=True) + self.codes.square().sum(1) - 2 * z @ self.codes.T  # well
        weights = torch.softmax(-distances / 0.5, 1)
        return weights @ self.codes, distances.min(1).values.mean()


def main():
    torch.manual_seed(5)
    encoder = nn.Sequential(nn.Linear(PIXELS, 256), nn.GELU(), nn.Linear(256, WIDTH))
    decoder = nn.Sequential(nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, PIXELS))
    codebook = Codebook()
    parameters = [p for part in (encoder, codebook, decoder) for p in part.parameters()]
    optimizer = torch.optim.Adam(parameters, 1e-3)
    bases = torch.randn(12, PIXELS)
    for step in range(STEPS):
        if step == 20:
            began = time.perf_counter()
        patches = torch.randn(PATCHES, 12) @ bases + 0.1 * torch.randn(PATCHES, PIXELS)
        quantised, commitment = codebook(encoder(patches))
        loss = (decoder(quantised) - patches).square().mean() + 0.1 * commitment
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(step, round(loss.item(), 3))
    print(f"{PATCHES * (STEPS - 20) / (time.perf_counter() - began):.1f} patches/s")


main()
