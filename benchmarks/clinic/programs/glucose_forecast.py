# /// clinic
# expect = ["PD10.taken-apart"]
# stratum = "twins"
# domain = "glucose levels"
# ///
"""Forecast of blood glucose half an hour ahead from pump, meal and sensor channels."""

import math
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CHANNELS = 6
WINDOW = 96


def simulate(patients, seed):
    """A two-compartment caricature: meals raise, insulin lowers, both with a lag of their own."""
    g = torch.Generator().manual_seed(seed)
    length = WINDOW + 6
    meals = (torch.rand(patients, length, generator=g) < 0.04).float() * (
        30 + 50 * torch.rand(patients, length, generator=g)
    )
    insulin = 0.12 * meals * (0.6 + 0.8 * torch.rand(patients, 1, generator=g)) + 0.02
    level = torch.full((patients,), 110.0) + 20 * torch.randn(patients, generator=g)
    gut = torch.zeros(patients)
    plasma = torch.zeros(patients)
    trace = []
    for minute in range(length):
        gut = 0.88 * gut + meals[:, minute]
        plasma = 0.93 * plasma + insulin[:, minute]
        level = level + 0.11 * gut - 0.55 * plasma + 0.03 * (115 - level) + 1.5 * torch.randn(patients, generator=g)
        level = level.clamp(40, 400)
        trace.append(level)
    glucose = torch.stack(trace, dim=1)
    clock = torch.linspace(0, 2 * math.pi, length).expand(patients, -1)
    activity = torch.rand(patients, length, generator=g)
    features = torch.stack(
        [(glucose - 120) / 50, meals / 40, insulin, activity, torch.sin(clock), torch.cos(clock)], dim=-1
    )
    return features[:, :WINDOW].contiguous(), (glucose[:, WINDOW + 5] - 120) / 50


class GatedLayer(nn.Module):
    """Gated recurrence whose input part is projected for the whole window in one product."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.hidden = hidden
        self.project = nn.Linear(inputs, 3 * hidden)
        self.recur_gates = nn.Linear(hidden, 2 * hidden, bias=False)
        self.recur_state = nn.Linear(hidden, hidden, bias=False)
        self.decay = nn.Parameter(torch.zeros(hidden))

    def forward(self, sequence):
        drive = self.project(sequence)
        columns = drive.unbind(1)  # well
        state = drive.new_zeros(len(sequence), self.hidden)
        history = []
        for step in range(sequence.size(1)):
            current = drive[:, step]  # sick here
            current = columns[step]  # well
            update, reset, candidate = current.split(self.hidden, dim=-1)
            from_update, from_reset = self.recur_gates(state).chunk(2, dim=-1)
            update = torch.sigmoid(update + from_update + self.decay)
            reset = torch.sigmoid(reset + from_reset)
            candidate = torch.tanh(candidate + self.recur_state(reset * state))
            state = torch.lerp(state, candidate, update)
            history.append(state)
        return torch.stack(history, dim=1)


class Forecaster(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(CHANNELS, hidden), nn.GELU())
        self.recurrence = GatedLayer(hidden, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.score = nn.Linear(hidden, 1)
        self.readout = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 2))

    def forward(self, window):
        states = self.norm(self.recurrence(self.embed(window)))
        weights = self.score(states).softmax(dim=1)
        summary = (weights * states).sum(1) + states[:, -1]
        offset, log_scale = self.readout(summary).unbind(-1)
        return window[:, -1, 0] + offset, log_scale.clamp(-4, 3)


def gaussian_nll(mean, log_scale, target):
    return (log_scale + 0.5 * ((target - mean) * torch.exp(-log_scale)) ** 2).mean()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    squared = [((model(window)[0] - target) ** 2) for window, target in loader]
    model.train()
    return 50 * torch.cat(squared).mean().sqrt().item()


def main():
    torch.manual_seed(5)
    train = DataLoader(TensorDataset(*simulate(4096, seed=1)), batch_size=32, shuffle=True, drop_last=True)
    held_out = DataLoader(TensorDataset(*simulate(256, seed=2)), batch_size=64)
    model = Forecaster()
    epochs = 6
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=epochs * len(train))
    step, since = 0, None
    for epoch in range(epochs):
        total = torch.zeros(())
        for window, target in train:
            loss = gaussian_nll(*model(window), target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.detach()
            step += 1
            if step == 5:
                since = time.perf_counter()
        print(
            f"epoch {epoch}: nll {total.item() / len(train):.3f}, rmse {evaluate(model, held_out):.2f} mg/dl",
            flush=True,
        )
    print(f"{(step - 5) / (time.perf_counter() - since):.2f} steps/s")


if __name__ == "__main__":
    main()
