# /// clinic
# expect = ["PD05.called-in-parts"]
# stratum = "twins"
# domain = "video"
# ///
"""Recognition of hand gestures in short clips.

A moving blob stands for the hand: its trajectory (swipe, circle, wave ...) is
the class. A frame encoder feeds a GRU; training runs under Accelerate.
"""

import argparse
import math
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


GESTURES = ["swipe_left", "swipe_right", "swipe_up", "swipe_down", "circle", "wave"]


def trajectory(kind, frames):
    """Centre of the hand over time, in [-1, 1], one row per frame."""
    s = torch.linspace(-1, 1, frames)
    zero = torch.zeros(frames)
    if kind == 0:
        return torch.stack([-s, zero], 1)
    if kind == 1:
        return torch.stack([s, zero], 1)
    if kind == 2:
        return torch.stack([zero, -s], 1)
    if kind == 3:
        return torch.stack([zero, s], 1)
    if kind == 4:
        return torch.stack([torch.cos(math.pi * s), torch.sin(math.pi * s)], 1)
    return torch.stack([0.6 * torch.sin(3 * math.pi * s), zero], 1)


def make_clips(count, frames, size, generator):
    labels = torch.randint(len(GESTURES), (count,), generator=generator)
    paths = torch.stack([trajectory(int(k), frames) for k in labels])
    paths = paths * 0.6 + torch.randn(count, 1, 2, generator=generator) * 0.15
    axis = torch.linspace(-1, 1, size)
    dx = axis.view(1, 1, 1, size) - paths[..., 0, None, None]
    dy = axis.view(1, 1, size, 1) - paths[..., 1, None, None]
    hand = torch.exp(-(dx**2 + dy**2) / 0.05)
    tint = torch.rand(count, 1, 3, 1, 1, generator=generator)
    clips = hand.unsqueeze(2) * tint
    clips += 0.2 * torch.randn(clips.shape, generator=generator)
    return clips, labels


def conv_block(inputs, outputs, stride=2):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.GroupNorm(4, outputs),
        nn.SiLU(inplace=True),
    )


class FrameEncoder(nn.Module):
    def __init__(self, width=16, features=128):
        super().__init__()
        self.layers = nn.Sequential(
            conv_block(3, width),
            conv_block(width, width * 2),
            conv_block(width * 2, width * 2, stride=1),
            conv_block(width * 2, width * 4),
            conv_block(width * 4, width * 4, stride=1),
            conv_block(width * 4, width * 8),
        )
        self.project = nn.Linear(width * 8, features)

    def forward(self, frames):
        return self.project(self.layers(frames).mean((2, 3)))


class GestureNet(nn.Module):
    def __init__(self, classes, features=128):
        super().__init__()
        self.encoder = FrameEncoder(features=features)
        self.temporal = nn.GRU(features, features, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.classifier = nn.Linear(features, classes)

    def encode(self, clips):
        features = [self.encoder(clips[:, t]) for t in range(clips.shape[1])]  # sick here
        return torch.stack(features, dim=1)  # sick
        features = self.encoder(clips.flatten(0, 1))  # well
        return features.unflatten(0, clips.shape[:2])  # well

    def forward(self, clips):
        states, _ = self.temporal(self.encode(clips))
        return self.classifier(self.dropout(states[:, -1]))


def build(args):
    generator = torch.Generator().manual_seed(args.seed)
    clips, labels = make_clips(args.clips, args.frames, args.size, generator)
    loader = DataLoader(TensorDataset(clips, labels), args.batch_size, shuffle=True, drop_last=True)
    model = GestureNet(len(GESTURES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    total = args.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    return model, optimizer, loader, schedule


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=240)
    parser.add_argument("--frames", type=int, default=16)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=21)
    return parser.parse_known_args()[0]


def main():
    args = parse()
    set_seed(args.seed)
    accelerator = Accelerator(cpu=True)
    model, optimizer, loader, schedule = accelerator.prepare(*build(args))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    began, step = time.time(), 0
    for epoch in range(args.epochs):
        model.train()
        right = torch.zeros((), dtype=torch.long)
        for clips, labels in loader:
            logits = model(clips)
            loss = criterion(logits, labels)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            right += (logits.argmax(1) == labels).sum()
            step += 1
            if step % 50 == 0:
                accelerator.print(f"step {step}: loss {loss.item():.4f}, {time.time() - began:.1f} s", flush=True)
        accuracy = right.item() / (len(loader) * args.batch_size)
        accelerator.print(f"epoch {epoch}: train accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
