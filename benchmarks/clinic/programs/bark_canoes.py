# /// clinic
# expect = ["PD10.taken-apart"]
# stratum = "twins"
# domain = "bark canoes"
# ///
"""Birch-bark canoes: estimate heel angle and the water taken in from strain gauges on ribs and gunwales.

A small convolutional stem cleans the gauges, a gated recurrent cell with a slow and a fast state follows the hull.
    python train.py --length 192 --hidden 96
"""

import argparse
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

GAUGES = 12
TARGETS = 2


def simulate(canoes, length, generator):
    """Heel as a driven damped pendulum, water from waves over the gunwale, gauges as a mixture with drift."""

    def noise(*shape):
        return torch.randn(*shape, generator=generator)

    stroke = 0.18 + 0.05 * torch.rand(canoes, generator=generator)
    stiff = 0.05 + 0.02 * torch.rand(canoes, generator=generator)
    push = torch.sin(torch.arange(length) * stroke[:, None] * 2 * math.pi + noise(canoes, 1)) * 0.08
    gusts = noise(canoes, length) * 0.05
    heel, turn, water = torch.zeros(canoes), torch.zeros(canoes), torch.zeros(canoes)
    heels, waters = [], []
    for t in range(length):
        turn = 0.93 * turn - stiff * heel + push[:, t] + gusts[:, t]
        heel = heel + turn
        water = (water + 0.02 * (heel.abs() - 0.6).clamp_min(0)) * 0.999
        heels.append(heel)
        waters.append(water)
    state = torch.stack([torch.stack(heels, 1), torch.stack(waters, 1)], 2)
    mixing = noise(TARGETS, GAUGES) * torch.tensor([[1.0], [2.0]])
    drift = noise(canoes, length, GAUGES).cumsum(1) * 0.01
    gauges = torch.tanh(state @ mixing) + drift + 0.15 * noise(canoes, length, GAUGES)
    return gauges, state


class GaugeStem(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv1d(GAUGES, width, 5, padding=4)
        self.second = nn.Conv1d(width, width, 5, padding=4)

    def forward(self, gauges):
        x = gauges.transpose(1, 2)
        x = F.gelu(self.first(x)[..., :-4])
        x = x + F.gelu(self.second(x)[..., :-4])
        return x.transpose(1, 2)


class HullCell(nn.Module):
    """Gated unit with a fast state and a slow one that leaks with a learned time constant."""

    def __init__(self, width, hidden):
        super().__init__()
        self.hidden = hidden
        self.forget = nn.Linear(width, hidden)
        self.new = nn.Linear(width, hidden)
        self.leak = nn.Parameter(torch.full((hidden,), -3.0))
        nn.init.uniform_(self.forget.bias, 0.0, 3.0)

    def forward(self, x, state=None):
        b = x.size(0)
        fast, slow = state if state is not None else (x.new_zeros(b, self.hidden), x.new_zeros(b, self.hidden))
        leak = torch.sigmoid(self.leak)
        forget = torch.sigmoid(self.forget(x))
        new = torch.tanh(self.new(x))
        outputs = []
        for t in range(x.size(1)):  # sick
            f, n = forget[:, t], new[:, t]  # sick here
        for f, n in zip(forget.unbind(1), new.unbind(1)):  # well
            fast = torch.lerp(n, fast, f)
            slow = torch.lerp(slow, fast, leak)
            outputs.append(fast + slow)
        return torch.stack(outputs, 1), (fast, slow)


class HullModel(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.stem = GaugeStem(width)
        self.cell = HullCell(width, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, TARGETS))

    def forward(self, gauges):
        states, _ = self.cell(self.stem(gauges))
        return self.head(self.norm(states))


def windows(gauges, state, batch, length, generator):
    canoe = torch.randint(0, gauges.size(0), (batch,), generator=generator)
    start = torch.randint(0, gauges.size(1) - length, (batch,), generator=generator)
    index = start[:, None] + torch.arange(length)
    return gauges[canoe[:, None], index], state[canoe[:, None], index]


def hull_loss(out, want, burn_in, scale):
    error = (out - want) / scale
    return F.smooth_l1_loss(error[:, burn_in:], torch.zeros_like(error[:, burn_in:]))


@torch.no_grad()
def evaluate(model, gauges, state, args):
    model.eval()
    cut = (gauges.size(1) // args.length) * args.length
    x = gauges[:, :cut].reshape(-1, args.length, GAUGES)
    y = state[:, :cut].reshape(-1, args.length, TARGETS)
    error = (model(x) - y)[:, args.burn_in :].abs().mean((0, 1))
    model.train()
    return error.tolist()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--canoes", type=int, default=48)
    parser.add_argument("--seconds", type=int, default=1500)
    parser.add_argument("--length", type=int, default=192, help="samples in a window")
    parser.add_argument("--burn-in", type=int, default=12)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--steps", type=int, default=320)
    parser.add_argument("--eval-every", type=int, default=160)
    parser.add_argument("--seed", type=int, default=5)
    return parser.parse_args()


def main():
    args = parse()
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    gauges, state = simulate(args.canoes, args.seconds, generator)
    held = args.canoes // 8
    scale = state.flatten(0, 1).std(0)
    model = HullModel(args.width, args.hidden)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

    seen, began = 0, time.perf_counter()
    for step in range(1, args.steps + 1):
        x, y = windows(gauges[held:], state[held:], args.batch, args.length, generator)
        loss = hull_loss(model(x), y, args.burn_in, scale)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        seen += args.batch
        if step % args.eval_every == 0:
            heel, water = evaluate(model, gauges[:held], state[:held], args)
            print(f"step {step}: loss {loss.item():.4f}, heel error {heel:.3f} rad, water error {water:.3f}")
    rate = seen / (time.perf_counter() - began)
    print(f"{rate:.1f} windows/s")


if __name__ == "__main__":
    main()
