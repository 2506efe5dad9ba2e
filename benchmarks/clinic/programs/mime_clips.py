# /// clinic
# expect = ["PD05.called-in-parts"]
# stratum = "twins"
# domain = ""
# ///
"""Recognise hand gestures in short clips: a convolutional encoder for the frames, a GRU over them, a label for the clip."""

import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


GESTURES = ["swipe_left", "swipe_right", "swipe_up", "swipe_down", "circle", "still"]


@dataclass
class Settings:
    clips: int = 480
    frames: int = 20
    side: int = 32
    batch: int = 6
    epochs: int = 5
    width: int = 12
    lr: float = 1e-3
    print_every: int = 50


class GestureClips(Dataset):
    """A bright blob (the hand) that moves over a noisy background; clips are kept as bytes."""

    def __init__(self, settings, seed=5):
        g = torch.Generator().manual_seed(seed)
        n, t, s = settings.clips, settings.frames, settings.side
        self.labels = torch.randint(len(GESTURES), (n,), generator=g)
        time_axis = torch.linspace(-1, 1, t)
        zero = torch.zeros(t)
        paths = torch.stack(
            [
                torch.stack([zero, -time_axis]),
                torch.stack([zero, time_axis]),
                torch.stack([-time_axis, zero]),
                torch.stack([time_axis, zero]),
                torch.stack([torch.sin(3.1 * time_axis), torch.cos(3.1 * time_axis)]),
                torch.stack([zero, zero]),
            ]
        )
        centre = paths[self.labels] * s / 3 + s / 2 + torch.randn(n, 2, 1, generator=g) * 2
        grid = torch.arange(s)
        y = (grid.view(1, 1, s) - centre[:, 0].unsqueeze(2)).square().div(-8).exp()
        x = (grid.view(1, 1, s) - centre[:, 1].unsqueeze(2)).square().div(-8).exp()
        hand = (y.unsqueeze(3) * x.unsqueeze(2) * 160).unsqueeze(2)
        self.clips = torch.randint(0, 90, (n, t, 3, s, s), generator=g, dtype=torch.uint8)
        self.clips += hand.to(torch.uint8)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.clips[index], self.labels[index]


class ConvUnit(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.norm = nn.GroupNorm(4, cout)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class FrameEncoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.units = nn.Sequential(
            ConvUnit(3, width, 2),
            ConvUnit(width, width),
            ConvUnit(width, 2 * width, 2),
            ConvUnit(2 * width, 2 * width),
            ConvUnit(2 * width, 4 * width, 2),
            ConvUnit(4 * width, 4 * width),
        )
        self.project = nn.Linear(4 * width * 2, 64)

    def forward(self, frames):
        maps = self.units(frames)
        return self.project(torch.cat([maps.mean((2, 3)), maps.amax((2, 3))], 1))


class GestureNet(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.encoder = FrameEncoder(settings.width)
        self.temporal = nn.GRU(64, 64, batch_first=True)
        self.classify = nn.Linear(64, len(GESTURES))

    def encode(self, clips):
        """(batch, time, 3, height, width) to (batch, time, features)."""
        features = []  # sick here
        for t in range(clips.shape[1]):  # sick here
            features.append(self.encoder(clips[:, t]))  # sick here
        return torch.stack(features, dim=1)  # sick here
        return self.encoder(clips.flatten(0, 1)).unflatten(0, clips.shape[:2])  # well

    def forward(self, clips):
        clips = clips.float().div(127.5).sub(1)
        states, _ = self.temporal(self.encode(clips))  # here
        return self.classify(states[:, -1])


class Meter:
    def __init__(self):
        self.loss, self.hits, self.count = 0.0, 0, 0

    def add(self, loss, logits, labels):
        self.loss += loss.item() * len(labels)
        self.hits += (logits.argmax(1) == labels).sum().item()
        self.count += len(labels)

    def __str__(self):
        return f"loss {self.loss / self.count:.4f} accuracy {self.hits / self.count:.3f}"


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    meter = Meter()
    for clips, labels in loader:
        logits = model(clips)
        meter.add(F.cross_entropy(logits, labels), logits, labels)
    model.train()
    return meter


def main():
    settings = Settings()
    torch.manual_seed(1)
    train_set, test_set = random_split(GestureClips(settings), [settings.clips - 40, 40])
    train_loader = DataLoader(train_set, settings.batch, shuffle=True)
    test_loader = DataLoader(test_set, 20)
    model = GestureNet(settings)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr)
    step, started = 0, time.time()
    for epoch in range(settings.epochs):
        meter = Meter()
        for clips, labels in train_loader:
            logits = model(clips)
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            meter.add(loss, logits, labels)
            step += 1
            if step % settings.print_every == 0:
                print(f"step {step} {meter} {(time.time() - started) / step * 1000:.0f} ms/step", flush=True)
        print(f"epoch {epoch} test {evaluate(model, test_loader)}", flush=True)


if __name__ == "__main__":
    main()
