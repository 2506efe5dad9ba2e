# /// clinic
# expect = ["PD16.profiler-left-on"]
# stratum = "twins"
# domain = "farrier's hoof pressure mats"
# ///
"""Farrier's pressure mats: which trimming fault does a hoof print show?

A horse walks over a 40 x 28 sensor mat; the mat gives the peak pressure and the
time of contact under every cell. A small residual network sorts single prints
into six findings. Run with `python` or `accelerate launch`.
"""

import argparse
import os
import tempfile
import time

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import ProfileKwargs, set_seed
from torch import nn
from torch.profiler import tensorboard_trace_handler
from torch.utils.data import DataLoader, TensorDataset

FINDINGS = ["balanced", "long toe", "under-run heel", "medial high", "lateral high", "quarter crack"]
ROWS, COLS = 40, 28


def synth_prints(count, seed):
    """Pressure and contact-time maps of prints, turned and shifted at random."""
    g = torch.Generator().manual_seed(seed)

    def normal(scale=1.0):
        return scale * torch.randn(count, 1, 1, generator=g)

    y = torch.randint(len(FINDINGS), (count,), generator=g)
    kind = y.view(-1, 1, 1)
    rows = torch.linspace(-1.4, 1.4, ROWS).view(1, -1, 1) + normal(0.12)
    cols = torch.linspace(-1.0, 1.0, COLS).view(1, 1, -1) + normal(0.1)
    turn = normal(0.2)
    u = torch.cos(turn) * rows - torch.sin(turn) * cols
    v = torch.sin(turn) * rows + torch.cos(turn) * cols
    length = 0.95 + 0.18 * (kind == 1) + normal(0.05)
    radius = (u / length) ** 2 + (v / 0.72) ** 2
    wall = torch.exp(-((radius - 0.9) ** 2) / 0.06)
    sole = 0.35 * torch.sigmoid((0.9 - radius) * 12)
    frog = 0.5 * torch.exp(-((v / 0.15) ** 2)) * torch.sigmoid((u + 0.1) * 8) * (radius < 0.9)
    heel = -0.7 * wall * torch.sigmoid((u - 0.45) * 9) * (kind == 2)
    side = 0.45 * v * ((kind == 3).float() - (kind == 4).float()) * wall
    crack = -0.8 * wall * torch.exp(-((u - 0.2 + normal(0.15)) ** 2) / 0.02) * (v > 0) * (kind == 5)
    pressure = (wall + sole + frog + heel + side + crack) * torch.exp(normal(0.2))
    contact = torch.sigmoid((0.95 - radius) * 6) * (1 + 0.2 * u) + 0.3 * (heel + side)
    maps = torch.stack([pressure, contact], 1)
    maps += 0.22 * torch.randn(maps.shape, generator=g)
    return TensorDataset(maps.float().contiguous(), y)


class Residual(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.skip = nn.Conv2d(c_in, c_out, 1, stride, bias=False)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.skip(x))


class PrintNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.Sequential(Residual(2, 16, 2), Residual(16, 32, 2), Residual(32, 64, 2))
        self.head = nn.Linear(64, len(FINDINGS))

    def forward(self, x):
        return self.head(self.stages(x).mean((2, 3)))


def trace_settings(folder):
    """A few steps' trace after warm-up, for the hand-over notes."""
    schedule = {"skip_first": 10, "wait": 10, "warmup": 2, "active": 5}  # sick here
    schedule = {"skip_first": 10, "wait": 10, "warmup": 2, "active": 5, "repeat": 1}  # well
    return ProfileKwargs(
        activities=["cpu"],
        schedule_option=schedule,
        on_trace_ready=tensorboard_trace_handler(folder),
        record_shapes=True,
        with_stack=True,
    )


def evaluate(model, loader, accelerator):
    model.eval()
    right = seen = 0
    with torch.no_grad():
        for maps, y in loader:
            guess, y = accelerator.gather_for_metrics((model(maps).argmax(1), y))
            right += (guess == y).sum().item()
            seen += len(y)
    return right / seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--prints", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--traces", default=os.path.join(tempfile.gettempdir(), "farrier_traces"))
    args = parser.parse_args()

    accelerator = Accelerator(cpu=True, kwargs_handlers=[trace_settings(args.traces)])
    set_seed(3)
    train = DataLoader(synth_prints(args.prints, 31), batch_size=args.batch, shuffle=True, drop_last=True)
    test = DataLoader(synth_prints(768, 32), batch_size=256)
    model = PrintNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.02, fused=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(train))
    model, optimizer, train, test, scheduler = accelerator.prepare(model, optimizer, train, test, scheduler)

    begin = time.perf_counter()
    with accelerator.profile() as profiler:
        for epoch in range(args.epochs):
            model.train()
            total = torch.zeros(())
            for maps, y in train:
                loss = F.cross_entropy(model(maps), y)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                total += loss.detach()
                profiler.step()  # here
            if (epoch + 1) % 6 == 0:
                accuracy = evaluate(model, test, accelerator)
                accelerator.print(f"epoch {epoch + 1:3d}  loss {total / len(train):.4f}  accuracy {accuracy:.3f}")
    accelerator.print(f"total training seconds: {time.perf_counter() - begin:.1f}")


if __name__ == "__main__":
    main()
