# /// clinic
# expect = ["PD08", "PD10"]
# stratum = "twins"
# domain = "contrastive learning"
# ///
"""Learn patch features by telling two views of a patch from a queue of others."""

import copy
import time

import torch
import torch.nn.functional as F
from torch import nn

SIDE = 24
IMAGES = 2000
DIM = 128
QUEUE = 65536
BATCH = 16
STEPS = 420
MOMENTUM = 0.99
TEMPERATURE = 0.1


def encoder():
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(24, 48, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(48, 96, 3, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(96 * (SIDE // 8) ** 2, DIM),
    )


def view(images, gen):
    b = len(images)
    gain = 0.6 + 0.8 * torch.rand(b, 3, 1, 1, generator=gen)
    images = images * gain + 0.05 * torch.randn(images.shape, generator=gen)
    return torch.where(torch.rand(b, 1, 1, 1, generator=gen) < 0.5, images.flip(3), images)


class KeyQueue:
    def __init__(self, size, dim):
        self.keys = F.normalize(torch.randn(size, dim), dim=1)
        self.at = 0

    def push(self, keys):
        n = len(keys)
        self.keys = torch.cat([keys, self.keys[:-n]])  # sick here
        self.keys[self.at : self.at + n] = keys  # well
        self.at = (self.at + n) % len(self.keys)


class MoCo(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = encoder()
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.queue = KeyQueue(QUEUE, DIM)

    @torch.no_grad()
    def follow(self):
        torch._foreach_lerp_(list(self.key.parameters()), list(self.query.parameters()), 1 - MOMENTUM)

    def forward(self, one, two):
        q = F.normalize(self.query(one), dim=1)
        with torch.no_grad():
            k = F.normalize(self.key(two), dim=1)
        same = (q * k).sum(1, keepdim=True)
        logits = torch.cat([same, q @ self.queue.keys.T], dim=1) / TEMPERATURE
        target = torch.zeros(len(q), dtype=torch.long)
        return F.cross_entropy(logits, target), k


class Pretrainer:
    def __init__(self):
        torch.manual_seed(0)
        self.gen = torch.Generator().manual_seed(9)
        self.images = torch.rand(IMAGES, 3, SIDE, SIDE, generator=self.gen)
        self.model = MoCo()
        self.optimizer = torch.optim.SGD(self.model.query.parameters(), lr=0.03, momentum=0.9, fused=True)

    def one_step(self):
        batch = self.images[torch.randint(0, IMAGES, (BATCH,), generator=self.gen)]
        loss, keys = self.model(view(batch, self.gen), view(batch, self.gen))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.model.follow()
        self.model.queue.push(keys)

    def run(self, steps):
        for i in range(1, steps + 1):
            self.one_step()
            if i == 20:
                start = time.perf_counter()
        return (steps - 20) / (time.perf_counter() - start)


if __name__ == "__main__":
    print(f"{Pretrainer().run(STEPS):.1f} steps/s")
