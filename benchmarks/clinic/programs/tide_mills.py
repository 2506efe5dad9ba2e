# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "tide mill logs"
# ///
#!/usr/bin/env python3
"""Head of water at a tide mill's wheel, from the miller's log.

The log gives the hours at which the sluices were worked, the wind and the glass; the tide itself follows from the
astronomical constituents. A harmonic front end with learned amplitudes and phases feeds a small temporal network that
knows about the pond.
"""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

# speeds in degrees per hour
CONSTITUENTS = {
    "M2": 28.9841042, "S2": 30.0, "N2": 28.4397295, "K1": 15.0410686, "M4": 57.9682084, "O1": 13.9430356,
    "M6": 86.9523127, "MK3": 44.0251729, "S4": 60.0, "MN4": 57.4238337, "NU2": 28.5125831, "S6": 90.0,
    "MU2": 27.9682084, "2N2": 27.8953548, "OO1": 16.1391017, "LAM2": 29.4556253, "S1": 15.0, "M1": 14.4966939,
    "J1": 15.5854433, "MM": 0.5443747, "SSA": 0.0821373, "SA": 0.0410686, "MSF": 1.0158958, "MF": 1.0980331,
    "RHO": 13.4715145, "Q1": 13.3986609, "T2": 29.9589333, "R2": 30.0410667, "2Q1": 12.8542862, "P1": 14.9589314,
    "2SM2": 31.0158958, "M3": 43.4761563, "L2": 29.5284789, "2MK3": 42.9271398, "K2": 30.0821373, "M8": 115.9364166,
    "MS4": 58.9841042,
}  # fmt: skip
HOURS = 384
MILLS = 9


class MillLog(Dataset):
    """Stretches of hourly log from several mills: times, weather, sluice positions, measured head."""

    def __init__(self, stretches, seed):
        rng = np.random.default_rng(seed)
        speed = np.deg2rad(np.array(list(CONSTITUENTS.values())))
        coast = np.random.default_rng(7)
        amplitude = coast.gamma(0.6, 0.25, (MILLS, len(speed)))
        amplitude[:, 0] += 1.6
        phase = coast.uniform(0, 2 * np.pi, amplitude.shape)
        self.mill = rng.integers(0, MILLS, stretches)
        start = rng.uniform(0, 4000, (stretches, 1))
        self.hours = (start + np.arange(HOURS)).astype(np.float32)
        self.weather = np.cumsum(rng.normal(0, 0.15, (stretches, 2, HOURS)), axis=-1).astype(np.float32)
        self.sluice = np.zeros((stretches, 1, HOURS), np.float32)
        self.head = np.zeros((stretches, HOURS), np.float32)
        for i, m in enumerate(self.mill):
            angle = self.hours[i][:, None] * speed - phase[m]
            sea = np.cos(angle) @ amplitude[m] + 0.2 * self.weather[i, 0]
            fill = np.maximum(sea, 0)
            is_open = np.roll(fill, 5) > fill
            self.sluice[i, 0] = is_open
            pond = np.convolve(fill, np.exp(-np.arange(12) / 4.0), mode="full")[:HOURS] * 0.3
            self.head[i] = pond * np.where(is_open, 0.7, 1.0) - np.minimum(sea, pond)
        self.head += rng.normal(0, 0.05, self.head.shape).astype(np.float32)

    def __len__(self):
        return len(self.mill)

    def __getitem__(self, i):
        side = np.concatenate([self.weather[i], self.sluice[i]])
        return int(self.mill[i]), self.hours[i], side, self.head[i]


class TidalHarmonics(nn.Module):
    """cos and sin of each constituent, with amplitude and phase of the mill's place on the coast."""

    def __init__(self, mills):
        super().__init__()
        speed = np.deg2rad(np.array(list(CONSTITUENTS.values())))
        self.register_buffer("speed", torch.from_numpy(speed))  # sick here
        self.register_buffer("speed", torch.from_numpy(speed).float())  # well
        self.phase = nn.Embedding(mills, len(speed))
        self.gain = nn.Embedding(mills, len(speed))
        nn.init.uniform_(self.phase.weight, -0.1, 0.1)
        nn.init.ones_(self.gain.weight)

    @property
    def channels(self):
        return 2 * len(self.speed)

    def forward(self, mill, hours):
        angle = hours.unsqueeze(1) * self.speed.view(1, -1, 1) - self.phase(mill).unsqueeze(-1)
        gain = self.gain(mill).unsqueeze(-1)
        waves = torch.cat([gain * torch.cos(angle), gain * torch.sin(angle)], dim=1)
        return waves.float()


class Pond(nn.Module):
    def __init__(self, mills, side, width=24, dilations=(1, 2, 4)):
        super().__init__()
        self.tide = TidalHarmonics(mills)
        self.enter = nn.Conv1d(self.tide.channels + side, width, 1)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, padding=d, dilation=d) for d in dilations)
        self.leave = nn.Conv1d(width, 1, 1)

    def forward(self, mill, hours, side):
        x = self.enter(torch.cat([self.tide(mill, hours), side], dim=1))
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return self.leave(x).squeeze(1)


class Trainer:
    def __init__(self, model, train, held, epochs, batch=32, lr=3e-3):
        self.model = model
        self.loader = DataLoader(train, batch, shuffle=True, drop_last=True)
        self.held = DataLoader(held, batch)
        self.epochs = epochs
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        total = epochs * len(self.loader)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=lr, total_steps=total)
        self.seen = 0

    def step(self, mill, hours, side, head):
        loss = nn.functional.huber_loss(self.model(mill, hours, side), head, delta=0.5)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.seen += len(mill)
        return loss.item()

    @torch.no_grad()
    def check(self):
        self.model.eval()
        gaps = [(self.model(mill, hours, side) - head).square().mean() for mill, hours, side, head in self.held]
        self.model.train()
        return torch.stack(gaps).mean().sqrt().item()

    def fit(self):
        began = time.perf_counter()
        for epoch in range(self.epochs):
            losses = [self.step(*batch) for batch in self.loader]
            print(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}, held-out rms {self.check():.3f} feet")
            torch.save({"model": self.model.state_dict(), "epoch": epoch}, "pond.pt")
        return self.seen / (time.perf_counter() - began)


if __name__ == "__main__":
    torch.manual_seed(1170)
    train, held = MillLog(2400, seed=1), MillLog(128, seed=2)
    pond = Pond(MILLS, side=3)
    rate = Trainer(pond, train, held, epochs=9).fit()
    print(f"{rate:.1f} stretches/s")
