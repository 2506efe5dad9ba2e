# /// clinic
# expect = ["PD17.needless-groups"]
# stratum = "twins"
# domain = "features"
# sizes = {WIDTH = [16, 32]}
# ///
"""Which carver made a puppet's face: an embedding of its measures, learned by class and by triplets."""

import time

import torch
from torch import nn
from torch.nn import functional as F

WIDTH = 24
MEASURES, CARVERS = 40, 24
STEPS, BATCH = 900, 48


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Carver(nn.Module):
    def __init__(self, width, depth=16):
        super().__init__()
        self.first = nn.Linear(MEASURES, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.last = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, CARVERS, bias=False)

    def forward(self, measures):
        embedded = self.last(self.blocks(self.first(measures)))
        return embedded, self.classifier(embedded)


def make_optimizer(model, rate=2e-3, decay=5e-4, bias_factor=2):
    """Biases learn twice as fast, and do not decay."""
    options = {True: {"lr": rate * bias_factor, "weight_decay": 0.0}, False: {"lr": rate, "weight_decay": decay}}
    groups = {True: [], False: []}  # well
    params = []
    for name, value in model.named_parameters():
        if not value.requires_grad:
            continue
        is_bias = name.endswith("bias")
        params += [{"params": [value], **options[is_bias]}]  # sick here
        groups[is_bias].append(value)  # well
    params = [{"params": found, **options[is_bias]} for is_bias, found in groups.items()]  # well
    return torch.optim.AdamW(params, fused=True)  # here


def triplets(embedded, carvers):
    """The hardest of each batch."""
    distance = torch.cdist(embedded, embedded)
    same = carvers[:, None] == carvers
    far = distance.masked_fill(~same, 0.0).amax(1)
    near = distance.masked_fill(same, 1e4).amin(1)
    return F.softplus(far - near).mean()


def main():
    torch.manual_seed(11)
    style = torch.randn(CARVERS, MEASURES)
    carvers = torch.randint(0, CARVERS, (STEPS, BATCH))
    noise = torch.randn(64, BATCH, MEASURES)
    model = Carver(WIDTH)
    optimizer = make_optimizer(model)
    began = time.perf_counter()
    for step in range(STEPS):
        embedded, scores = model(style[carvers[step]] + noise[step % 64])
        loss = F.cross_entropy(scores, carvers[step]) + triplets(embedded, carvers[step])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")
    print(f"rate {STEPS * BATCH / (time.perf_counter() - began):.2f} samples/s")


if __name__ == "__main__":
    main()
