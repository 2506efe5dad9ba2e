# /// clinic
# expect = ["PD02.packed-sequences"]
# stratum = "twins"
# domain = "vineyard frost"
# ///
"""Nightly frost forecast for vineyard plots: sensor series -> minimum temperature at each later reading and frost alarm.

usage: train.py [--epochs N] [--nights N] [--hidden N]
"""

import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence  # sick
from torch.nn.utils.rnn import pad_sequence  # well
from torch.utils.data import DataLoader, Dataset

FEATURES = ("air", "soil", "wet_bulb", "wind", "cloud", "dew", "humidity", "radiation")


def parse_args():
    p = argparse.ArgumentParser(description="frost alarms from vineyard sensors")
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--nights", type=int, default=2304)
    p.add_argument("--readings", type=int, default=72, help="readings between sunset and sunrise, one in 10 minutes")
    p.add_argument("--plots", type=int, default=24)
    p.add_argument("--hidden", type=int, default=128)
    p.add_argument("--layers", type=int, default=1)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=11)
    return p.parse_args()


class FrostNights(Dataset):
    """One item is a night at a plot; stations lose a reading or two now and then."""

    def __init__(self, nights, readings, plots, seed):
        g = torch.Generator().manual_seed(seed)
        t = torch.linspace(0, 1, readings)
        start = 6 + 4 * torch.randn(nights, 1, generator=g)
        cloud = torch.rand(nights, 1, generator=g)
        wind = torch.rand(nights, 1, generator=g) * 5
        self.plot = torch.randint(0, plots, (nights,), generator=g)
        hollow = torch.sin(self.plot.float() * 1.7).unsqueeze(1)
        drop = (9 - 6 * cloud - 0.8 * wind + 2 * hollow) * torch.sqrt(t)
        air = start - drop + 0.3 * torch.randn(nights, readings, generator=g)
        soil = start + 2 - 0.4 * drop
        humidity = 60 + 30 * torch.sigmoid(drop / 4 - 1) + torch.randn(nights, readings, generator=g)
        dew = air - (100 - humidity) / 5
        wet = (air + dew) / 2
        ones = torch.ones(nights, readings)
        radiation = -60 * (1 - cloud) * ones + 5 * torch.randn(nights, readings, generator=g)
        x = torch.stack([air, soil, wet, wind * ones, cloud * ones, dew, humidity / 20, radiation / 20], dim=-1)
        self.x = (x - x.mean((0, 1))) / x.std((0, 1))
        self.later_min = air.flip(1).cummin(dim=1).values.flip(1) / 5
        self.lengths = readings - torch.randint(0, 4, (nights,), generator=g)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        n = int(self.lengths[i])
        return self.x[i, :n], self.later_min[i, :n], int(self.plot[i])


def collate(items):
    xs, ys, plots = zip(*items)
    lengths = torch.tensor([len(x) for x in xs])
    return pad_sequence(xs, batch_first=True), pad_sequence(ys, batch_first=True), torch.tensor(plots), lengths


class FrostModel(nn.Module):
    def __init__(self, plots, hidden, layers):
        super().__init__()
        self.plot = nn.Embedding(plots, 16)
        self.inp = nn.Sequential(nn.Linear(len(FEATURES) + 16, hidden), nn.GELU(), nn.LayerNorm(hidden))
        self.rnn = nn.LSTM(hidden, hidden, layers, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 2))
        self.alarm = nn.Linear(hidden, 1)

    def forward(self, x, plots, lengths):
        where = self.plot(plots).unsqueeze(1).expand(-1, x.size(1), -1)
        h = self.inp(torch.cat([x, where], dim=-1))
        packed = pack_padded_sequence(h, lengths, batch_first=True, enforce_sorted=False)  # sick here
        states, _ = self.rnn(packed)  # sick here
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=x.size(1))  # sick here
        states, _ = self.rnn(h)  # well
        mean, log_scale = self.head(states).unbind(-1)
        last = states[torch.arange(len(lengths)), lengths - 1]
        return mean, log_scale.clamp(-4, 3), self.alarm(last).squeeze(-1)


def loss_of(model, batch):
    x, y, plots, lengths = batch
    mask = (torch.arange(x.size(1)) < lengths.unsqueeze(1)).float()
    mean, log_scale, alarm = model(x, plots, lengths)
    nll = log_scale + 0.5 * ((y - mean) / log_scale.exp()) ** 2 + 0.5 * math.log(2 * math.pi)
    nll = (nll * mask).sum() / mask.sum()
    frost = (y.masked_fill(mask == 0, 9.0).amin(1) < 0).float()
    bce = F.binary_cross_entropy_with_logits(alarm, frost)
    return nll + bce, nll, ((alarm > 0).float() == frost).float().mean()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    rows = [torch.stack([v.detach() for v in loss_of(model, batch)[1:]]) for batch in loader]
    model.train()
    return torch.stack(rows).mean(0).tolist()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    train = FrostNights(args.nights, args.readings, args.plots, args.seed)
    valid = FrostNights(512, args.readings, args.plots, args.seed + 1)
    loader = DataLoader(train, batch_size=args.batch, shuffle=True, collate_fn=collate)
    valid_loader = DataLoader(valid, batch_size=256, collate_fn=collate)
    model = FrostModel(args.plots, args.hidden, args.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(loader))

    seen = 0
    began = time.perf_counter()
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for batch in loader:
            loss, _, _ = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            total += loss.detach()
            seen += len(batch[0])
        nll, accuracy = evaluate(model, valid_loader)
        print(f"epoch {epoch}: train {total / len(loader):.3f}  valid nll {nll:.3f}  frost accuracy {accuracy:.3f}")
    rate = seen / (time.perf_counter() - began)
    print(f"{rate:.1f} nights/s")


if __name__ == "__main__":
    main()
