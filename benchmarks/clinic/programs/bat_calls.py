# /// clinic
# expect = ["PD10.rebuilt-by-cat", "PD08.allocator-churn"]
# stratum = "twins"
# domain = "bat calls"
# ///
"""Momentum-contrast encoder for spectrograms of bat calls."""

import copy
import time

import torch
from torch import nn
import torch.nn.functional as F


class CallBook:
    """Synthetic chirps: every species sweeps its own band in its own time."""

    def __init__(self, species=200, bands=40, frames=48, seed=0):
        g = torch.Generator().manual_seed(seed)
        t = torch.linspace(0, 1, frames)
        begin = torch.rand(species, 1, generator=g) * bands
        end = torch.rand(species, 1, generator=g) * bands
        bend = 0.5 + 2 * torch.rand(species, 1, generator=g)
        line = begin + (end - begin) * t**bend
        f = torch.arange(bands)[None, :, None]
        self.calls = torch.exp(-0.5 * ((f - line[:, None, :]) / 1.5) ** 2)

    def draw(self, n):
        which = torch.randint(len(self.calls), (n,))
        return self.view(self.calls[which]), self.view(self.calls[which])

    def view(self, call):
        call = torch.roll(call, int(torch.randint(-6, 7, ())), dims=2)
        gain = 0.6 + 0.8 * torch.rand(len(call), 1, 1)
        return (call * gain + 0.2 * torch.randn_like(call)).unsqueeze(1)


def encoder(width=24, size=128):
    return nn.Sequential(
        nn.Conv2d(1, width, 5, 2, 2),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, 2, 1),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.Conv2d(2 * width, 2 * width, 3, 2, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * width, size),
    )


class MoCo(nn.Module):
    def __init__(self, queue=65_536, size=128, momentum=0.99, heat=0.1):
        super().__init__()
        self.query = encoder(size=size)
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.momentum, self.heat = momentum, heat
        self.head = 0
        self.register_buffer("queue", F.normalize(torch.randn(queue, size), dim=1))

    def forward(self, a, b):
        q = F.normalize(self.query(a), dim=1)
        with torch.no_grad():
            for slow, fast in zip(self.key.parameters(), self.query.parameters()):
                slow.lerp_(fast, 1 - self.momentum)
            k = F.normalize(self.key(b), dim=1)
        near = (q * k).sum(1, keepdim=True) / self.heat
        far = q @ self.queue.T / self.heat
        loss = (torch.logaddexp(near.squeeze(1), far.logsumexp(1)) - near.squeeze(1)).mean()
        return loss, k

    @torch.no_grad()
    def enqueue(self, k):
        self.queue = torch.cat([self.queue[len(k) :], k])  # sick here
        self.queue[self.head : self.head + len(k)] = k  # well
        self.head = (self.head + len(k)) % len(self.queue)


def main():
    torch.manual_seed(0)
    book = CallBook()
    model = MoCo()
    opt = torch.optim.SGD(model.query.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    steps, warm = 600, 5
    for step in range(steps):
        if step == warm:
            start = time.perf_counter()
        a, b = book.draw(32)
        loss, k = model(a, b)
        opt.zero_grad()
        loss.backward()
        opt.step()
        model.enqueue(k)
        if step % 100 == 99:
            print(f"step {step + 1} loss {loss.item():.4f}")
    rate = (steps - warm) / (time.perf_counter() - start)
    print(f"{rate:.2f} steps/s")


if __name__ == "__main__":
    main()
