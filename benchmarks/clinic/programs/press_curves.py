# /// clinic
# expect = ["PD10.called-in-turn", "PD09.time-loop"]
# stratum = "twins"
# domain = "cider pressing"
# ///
"""Forecast of the juice flow of a rack-and-cloth cider press.

Reads the last 48 minutes of the press log (ram pressure, pack height, pomace temperature, ...) and predicts the juice
flow of the next 24 minutes. Encoder-decoder with attention, after the sequence to sequence tutorial.
"""

import argparse
import math
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CHANNELS = ["pressure", "height", "temp", "flow", "brix", "ph", "apple_lot", "cloth_age"]
FLOW = CHANNELS.index("flow")


def simulate_pressing(rng, minutes):
    """One pressing: pressure goes up in strokes, the flow decays as the pack of pomace drains."""
    t = np.arange(minutes)
    stroke = rng.uniform(9, 16)
    pressure = np.clip(t / minutes * 1.4, 0, 1) + 0.15 * (np.sin(2 * math.pi * t / stroke) > 0)
    drained = np.cumsum(pressure) / minutes
    flow = pressure * np.exp(-rng.uniform(2, 4) * drained) * rng.uniform(0.7, 1.3)
    height = 1 - 0.6 * drained
    temp = 11 + rng.normal(0, 2) + 0.3 * np.sin(2 * math.pi * t / 120)
    brix = rng.uniform(10, 14) - 1.5 * drained
    ph = rng.uniform(3.2, 3.9) + 0.05 * drained
    lot = np.full(minutes, rng.integers(0, 6) / 6)
    cloth = np.full(minutes, rng.uniform(0, 1))
    rows = np.stack([pressure, height, temp / 20, flow, brix / 14, ph / 4, lot, cloth], axis=1)
    return rows + rng.normal(0, 0.01, rows.shape)


def make_windows(pressings, past, future, every, seed):
    rng = np.random.default_rng(seed)
    xs, ys = [], []
    for _ in range(pressings):
        log = torch.tensor(simulate_pressing(rng, 240), dtype=torch.float32)
        cut = log.unfold(0, past + future, every).transpose(1, 2)
        xs.append(cut[:, :past])
        ys.append(cut[:, past:, FLOW])
    return torch.cat(xs).contiguous(), torch.cat(ys).contiguous()


class EncoderRNN(nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self.lstm = nn.LSTM(channels, hidden, batch_first=True)

    def forward(self, x, state=None):
        return self.lstm(x, state)


class AttnDecoderRNN(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.cell = nn.LSTMCell(1 + hidden, hidden)
        self.out = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, previous, state, encoded):
        score = torch.bmm(encoded, self.query(state[0]).unsqueeze(2)).squeeze(2)
        weight = F.softmax(score / math.sqrt(encoded.size(2)), dim=1)
        context = torch.bmm(weight.unsqueeze(1), encoded).squeeze(1)
        state = self.cell(torch.cat([previous, context], dim=1), state)
        return self.out(torch.cat([state[0], context], dim=1)), state


class PressForecaster(nn.Module):
    def __init__(self, channels, hidden, future):
        super().__init__()
        self.encoder = EncoderRNN(channels, hidden)
        self.decoder = AttnDecoderRNN(hidden)
        self.future = future

    def encode(self, x):
        state = None  # sick
        outputs = []  # sick
        for minute in range(x.size(1)):  # sick here
            output, state = self.encoder(x[:, minute : minute + 1], state)  # sick here
            outputs.append(output)  # sick
        encoded = torch.cat(outputs, dim=1)  # sick
        encoded, state = self.encoder(x)  # well
        return encoded, (state[0][0], state[1][0])

    def forward(self, x):
        encoded, state = self.encode(x)
        previous = x[:, -1, FLOW : FLOW + 1]
        forecast = []
        for _ in range(self.future):
            previous, state = self.decoder(previous, state, encoded)
            forecast.append(previous)
        return torch.cat(forecast, dim=1)


@torch.no_grad()
def evaluate(model, x, y, batch):
    model.eval()
    error = 0.0
    for xb, yb in zip(x.split(batch), y.split(batch)):
        error += F.l1_loss(model(xb), yb, reduction="sum").item()
    model.train()
    return error / y.numel()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--past", type=int, default=48)
    parser.add_argument("--future", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)

    x, y = make_windows(92, args.past, args.future, 5, seed=1)
    x_val, y_val = make_windows(8, args.past, args.future, 5, seed=2)
    mean, std = x.mean((0, 1)), x.std((0, 1)) + 1e-6
    y, y_val = (y - mean[FLOW]) / std[FLOW], (y_val - mean[FLOW]) / std[FLOW]
    x, x_val = (x - mean) / std, (x_val - mean) / std
    print(f"{len(x)} windows of {len(CHANNELS)} channels, {len(x_val)} for validation")

    model = PressForecaster(len(CHANNELS), args.hidden, args.future)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)

    steps = len(x) // args.batch
    began = time.perf_counter()
    for epoch in range(args.epochs):
        order = torch.randperm(len(x))
        total = torch.zeros(())
        for step in range(steps):
            pick = order[step * args.batch : (step + 1) * args.batch]
            loss = F.smooth_l1_loss(model(x[pick]), y[pick])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.detach()
        scheduler.step()
        mae = evaluate(model, x_val, y_val, args.batch)
        print(f"epoch {epoch + 1:2d}  loss {total.item() / steps:.4f}  val mae {mae:.4f}")
    rate = args.epochs * steps * args.batch / (time.perf_counter() - began)
    print(f"{rate:.1f} windows/s")


if __name__ == "__main__":
    main()
