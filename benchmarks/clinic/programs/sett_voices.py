# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "badger sett sounds"
# ///
"""Embeddings of badger calls recorded at setts, learned with the supervised contrastive loss.

Calls of one kind (churr, purr, yelp, ...) should lie close together whatever the sett and the microphone.
"""

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

KINDS = ["bark", "chirp", "chitter", "churr", "cluck", "coo", "growl", "grunt", "hiss", "purr", "snarl", "yelp"]
BANDS, FRAMES = 40, 48


def record_calls(count, seed):
    """Log spectrograms [count, 1, BANDS, FRAMES] and kinds of synthetic calls."""
    gen = np.random.default_rng(seed)
    rate, n_fft, hop = 4000, 126, 80
    length = hop * (FRAMES - 1)
    t = np.arange(length) / rate
    kinds = gen.integers(0, len(KINDS), count)
    waves = np.empty((count, length), dtype=np.float32)
    for n, kind in enumerate(kinds):
        base = 120 + 90 * kind + gen.normal(0, 12)
        sweep = (kind % 3 - 1) * gen.uniform(60, 140)
        pulse = 0.5 + 0.5 * np.sign(np.sin(2 * np.pi * (4 + 2 * (kind % 5)) * t + gen.uniform(0, 6.28)))
        tone = np.sin(2 * np.pi * (base * t + 0.5 * sweep * t**2 / t[-1]))
        tone += 0.4 * np.sin(4 * np.pi * base * t)
        envelope = np.exp(-(((t - t[-1] * gen.uniform(0.35, 0.65)) / (0.3 * t[-1])) ** 2))
        waves[n] = tone * pulse * envelope + gen.normal(0, 0.25, length)
    spec = torch.stft(torch.from_numpy(waves), n_fft, hop, window=torch.hann_window(n_fft), return_complex=True)
    spec = torch.log1p(spec.abs()[:, :BANDS, :FRAMES])
    spec = (spec - spec.mean()) / spec.std()
    return spec.unsqueeze(1), torch.from_numpy(kinds)


class CallEncoder(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        layers, before = [], 1
        for k in (1, 2, 4):
            layers += [nn.Conv2d(before, k * width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(k * width)]
            layers += [nn.ReLU(inplace=True)]
            before = k * width
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d((2, 3)), nn.Flatten())
        self.project = nn.Sequential(nn.Linear(before * 6, 128), nn.ReLU(inplace=True), nn.Linear(128, out))

    def forward(self, x):
        return F.normalize(self.project(self.body(x)), dim=-1)


def contrast(z, kinds, heat):
    """Supervised contrastive loss (Khosla et al. 2020, eq. 2) of the embeddings of one batch."""
    sims = z @ z.T / heat
    terms = []  # sick
    for i in range(len(z)):  # sick here
        others = torch.arange(len(z)) != i  # sick
        friends = others & (kinds == kinds[i])  # sick
        if friends.any():  # sick
            log_p = sims[i] - torch.logsumexp(sims[i][others], dim=0)  # sick
            terms.append(-log_p[friends].mean())  # sick
    return torch.stack(terms).mean()  # sick
    me = torch.eye(len(z), dtype=torch.bool)  # well
    friends = (kinds[:, None] == kinds[None]) & ~me  # well
    log_p = sims - torch.logsumexp(sims.masked_fill(me, float("-inf")), dim=1, keepdim=True)  # well
    count = friends.sum(1)  # well
    return (-(log_p * friends).sum(1) / count.clamp(min=1))[count > 0].mean()  # well


def distort(x):
    """Gain, shift in time and a masked band for the whole batch."""
    gain = 1 + 0.1 * torch.randn(len(x), 1, 1, 1)
    x = torch.roll(x * gain, int(torch.randint(-4, 5, ())), dims=-1)
    low = int(torch.randint(0, BANDS - 6, ()))
    x[:, :, low : low + int(torch.randint(1, 6, ()))] = 0.0
    return x


class Trainer:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        self.calls, self.kinds = record_calls(args.calls, args.seed)
        self.held, self.held_kinds = record_calls(args.held, args.seed + 1)
        self.model = CallEncoder(args.width, args.out)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
        per_epoch = args.calls // args.batch
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=args.lr, total_steps=args.epochs * per_epoch, pct_start=0.2
        )

    def batches(self):
        order = torch.randperm(len(self.calls))
        for k in range(0, len(order) - self.args.batch + 1, self.args.batch):
            pick = order[k : k + self.args.batch]
            yield distort(self.calls[pick]), self.kinds[pick]

    @torch.no_grad()
    def neighbours_right(self):
        """Share of held-out calls whose nearest neighbours in the training set are mostly of their kind."""
        self.model.eval()
        bank = torch.cat([self.model(part) for part in self.calls[:512].split(128)])
        query = torch.cat([self.model(part) for part in self.held.split(128)])
        near = (query @ bank.T).topk(5, dim=1).indices
        votes = F.one_hot(self.kinds[near], len(KINDS)).sum(1)
        self.model.train()
        return (votes.argmax(1) == self.held_kinds).float().mean().item()

    def fit(self):
        seen, began = 0, time.perf_counter()
        for epoch in range(self.args.epochs):
            total, steps = 0.0, 0
            for x, kinds in self.batches():
                loss = contrast(self.model(x), kinds, self.args.heat)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.schedule.step()
                total, steps, seen = total + loss.item(), steps + 1, seen + len(x)
            right = self.neighbours_right()
            print(f"epoch {epoch + 1:2d}  loss {total / steps:.3f}  neighbours right {right:.3f}")
            torch.save(self.model.state_dict(), "voices.pt")
        return seen / (time.perf_counter() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2880)
    parser.add_argument("--held", type=int, default=256)
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--width", type=int, default=12)
    parser.add_argument("--out", type=int, default=48)
    parser.add_argument("--heat", type=float, default=0.15)
    parser.add_argument("--lr", type=float, default=0.08)
    parser.add_argument("--seed", type=int, default=5)
    rate = Trainer(parser.parse_args()).fit()
    print(f"{rate:.1f} calls/s")


if __name__ == "__main__":
    main()
