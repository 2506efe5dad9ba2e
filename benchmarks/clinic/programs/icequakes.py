# /// clinic
# expect = ["PD02.channels-last"]
# stratum = "twins"
# domain = "seismic records of a glacier"
# ///
"""Sort three-component geophone records from a glacier tongue by source:
surface crevassing, calving, rockfall on the moraine, or background hum."""

import argparse
import math
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = ("crevasse", "calving", "rockfall", "hum")
RATE = 250.0


def ricker(t, freq):
    a = (math.pi * freq * t) ** 2
    return (1 - 2 * a) * torch.exp(-a)


def synthesise(n, length, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(length) / RATE
    records = torch.empty(n, 3, length)
    labels = torch.randint(0, len(CLASSES), (n,), generator=g)
    for i, kind in enumerate(labels.tolist()):
        u = torch.rand(8, generator=g)
        onset = 0.2 + 0.9 * u[0]
        since = (t - onset).clamp(min=0)
        gate = (t > onset).float()
        if kind == 0:
            wave = ricker(t - onset - 0.05, 22 + 12 * u[1]) + 0.6 * ricker(t - onset - 0.17, 14 + 6 * u[2])
        elif kind == 1:
            wave = (
                gate
                * (1 - torch.exp(-since * 6))
                * torch.exp(-since * 1.5)
                * torch.sin(2 * math.pi * (3 + 3 * u[1]) * since)
            )
        elif kind == 2:
            hits = onset + torch.cumsum(0.05 + 0.15 * torch.rand(6, generator=g), 0)
            wave = sum((0.4 + 0.6 * u[2 + k % 5]) * ricker(t - hit, 35) for k, hit in enumerate(hits))
        else:
            wave = 0.5 * torch.sin(2 * math.pi * (8 + 20 * u[1]) * t + 6 * u[2])
        mix = torch.tensor([1.0, 0.3 + 0.7 * float(u[3]), 0.3 + 0.7 * float(u[4])])
        records[i] = mix[:, None] * wave + 0.55 * torch.randn(3, length, generator=g)
    return records, labels


class Spectrograms(Dataset):
    """Log spectrograms of the records, 3 x 32 x 64; hands out whole mini-batches."""

    def __init__(self, n, length, seed, window=62):
        records, self.y = synthesise(n, length, seed)
        power = torch.stft(
            records.flatten(0, 1), window, hop_length=8, window=torch.hann_window(window), return_complex=True
        ).abs()
        self.x = torch.log1p(power).unflatten(0, (n, 3))[..., :64].contiguous()
        self.x -= self.x.mean(dim=(1, 2, 3), keepdim=True)

    def __len__(self):
        return len(self.y)

    def __getitems__(self, indices):
        pick = torch.as_tensor(indices)
        return self.x[pick], self.y[pick]


class SplitBlock(nn.Module):
    """Residual block whose spatial filters work on a few channels each, as in ResNeXt."""

    def __init__(self, channels, cardinality):
        super().__init__()
        self.filters = nn.Conv2d(channels, channels, 3, padding=1, groups=cardinality, bias=False)  # here
        self.norm = nn.BatchNorm2d(channels)
        self.mix = nn.Conv2d(channels, channels, 1, bias=False)
        self.mix_norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = torch.relu(self.norm(self.filters(x)))
        return torch.relu(x + self.mix_norm(self.mix(y)))


class SourceNet(nn.Module):
    def __init__(self, classes=len(CLASSES), channels=40, cardinality=8):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()
        )
        self.stages = nn.Sequential(
            SplitBlock(channels, cardinality),
            nn.MaxPool2d(2),
            SplitBlock(channels, cardinality),
            SplitBlock(channels, cardinality),
            nn.MaxPool2d(2),
            SplitBlock(channels, cardinality),
        )
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        x = x.contiguous(memory_format=torch.channels_last)  # well
        x = self.stages(self.stem(x))
        return self.head(self.drop(x.mean(dim=(2, 3))))


class Experiment:
    def __init__(self, args):
        torch.manual_seed(args.seed)
        self.epochs = args.epochs
        train = Spectrograms(args.records, args.length, args.seed)
        held_out = Spectrograms(args.records // 8, args.length, args.seed + 1)
        self.train_loader = DataLoader(train, args.batch, shuffle=True, drop_last=True, collate_fn=tuple)
        self.test_loader = DataLoader(held_out, 128, collate_fn=tuple)
        self.net = SourceNet()  # sick here
        self.net = SourceNet().to(memory_format=torch.channels_last)  # well
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=args.lr, weight_decay=1e-3)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.opt, args.lr, total_steps=args.epochs * len(self.train_loader)
        )
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    def fit_epoch(self):
        self.net.train()
        total = 0.0
        for x, y in self.train_loader:
            self.opt.zero_grad()
            loss = self.criterion(self.net(x), y)
            loss.backward()
            self.opt.step()
            self.schedule.step()
            total += loss.item()
        return total / len(self.train_loader)

    @torch.inference_mode()
    def score(self):
        self.net.eval()
        right = sum((self.net(x).argmax(1) == y).sum().item() for x, y in self.test_loader)
        return right / len(self.test_loader.dataset)

    def run(self):
        started = time.perf_counter()
        for epoch in range(1, self.epochs + 1):
            loss = self.fit_epoch()
            print(f"epoch {epoch:3d}  loss {loss:.4f}  held-out accuracy {self.score():.3f}", flush=True)
        print(f"total training seconds: {time.perf_counter() - started:.2f}")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--records", type=int, default=1024)
    p.add_argument("--length", type=int, default=512)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--epochs", type=int, default=26)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=7)
    Experiment(p.parse_args()).run()


if __name__ == "__main__":
    main()
