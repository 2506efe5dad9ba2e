# /// clinic
# expect = ["PD15"]
# endless = true
# stratum = "twins"
# domain = "physiological time series"
# ///
"""Sleep staging from synthetic two-channel EEG, with a small trainer that calls its plugins."""

import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

RATE, SECONDS, STAGES = 64, 20, 5


def night(n, generator):
    """Epochs of EEG: every stage has its own mixture of rhythms."""
    t = torch.arange(RATE * SECONDS) / RATE
    stage = torch.randint(0, STAGES, (n,), generator=generator)
    bands = torch.tensor([[10.0, 20.0], [6.0, 9.0], [13.0, 4.0], [2.0, 1.0], [5.0, 18.0]])
    freq = bands[stage].unsqueeze(-1) * (1 + 0.05 * torch.randn(n, 2, 1, generator=generator))
    phase = 2 * math.pi * torch.rand(n, 2, 1, generator=generator)
    wave = torch.sin(2 * math.pi * freq * t + phase)
    return wave + 1.5 * torch.randn(wave.shape, generator=generator), stage


class Residual(nn.Module):
    def __init__(self, c, dilation):
        super().__init__()
        self.conv = nn.Conv1d(c, c, 5, padding=2 * dilation, dilation=dilation)
        self.norm = nn.GroupNorm(4, c)

    def forward(self, x):
        return x + F.relu(self.norm(self.conv(x)))


class StageNet(nn.Module):
    def __init__(self, c=24, blocks=5):
        super().__init__()
        self.stem = nn.Conv1d(2, c, 7, stride=2, padding=3)
        self.body = nn.Sequential(*[Residual(c, 2**i) for i in range(blocks)])
        self.head = nn.Linear(c, STAGES)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean(-1))


class Plugin:
    def on_round_start(self, trainer): ...
    def on_step_end(self, trainer): ...
    def on_round_end(self, trainer): ...


class ActivityProbe(Plugin):
    """Watches how alive the residual blocks are (share of dead units, spread)."""

    def __init__(self, kind):
        self.kind = kind
        self.handles = []
        self.level = {}

    def on_round_start(self, trainer):
        self.level.clear()
        for name, module in trainer.model.named_modules():
            if isinstance(module, self.kind):
                self.handles.append(module.register_forward_hook(self._reader(name)))  # here

    def on_round_end(self, trainer):
        spread = torch.stack([m[0] for m in self.level.values()]).mean().item()
        quiet = torch.stack([m[1] for m in self.level.values()]).mean().item()
        trainer.notes["spread"], trainer.notes["quiet"] = spread, quiet
        for handle in self.handles:  # well
            handle.remove()  # well
        self.handles = []

    def _reader(self, name):
        @torch.no_grad()
        def read(module, inputs, output):
            seen = output.detach()
            now = torch.stack([seen.std(), (seen.abs() < 1e-2).float().mean()])
            self.level[name] = now if name not in self.level else 0.9 * self.level[name] + 0.1 * now

        return read


class Console(Plugin):
    def __init__(self, every=2):
        self.every, self.since, self.steps = every, time.time(), 0

    def on_step_end(self, trainer):
        self.steps += 1

    def on_round_end(self, trainer):
        if trainer.round % self.every == 0:
            rate = self.steps / (time.time() - self.since)
            notes = " ".join(f"{k} {v:.3f}" for k, v in trainer.notes.items())
            print(f"round {trainer.round} loss {trainer.loss:.4f} {notes} {rate:.2f} steps/s", flush=True)
            self.since, self.steps = time.time(), 0


class Trainer:
    """A round is one recording; plugins see every round and every step."""

    def __init__(self, model, optimizer, plugins, batch=16, seed=0):
        self.model, self.optimizer, self.plugins, self.batch = model, optimizer, plugins, batch
        self.generator = torch.Generator().manual_seed(seed)
        self.round, self.loss, self.notes = 0, float("nan"), {}

    def call(self, event):
        for plugin in self.plugins:
            getattr(plugin, event)(self)

    def step(self, signal, stage):
        loss = F.cross_entropy(self.model(signal), stage, label_smoothing=0.05)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, rounds, recording):
        for self.round in range(1, rounds + 1):
            signal, stage = night(recording, self.generator)
            self.call("on_round_start")
            for rows in torch.randperm(recording, generator=self.generator).split(self.batch):
                self.loss = self.step(signal[rows], stage[rows])
                self.call("on_step_end")
            self.call("on_round_end")


if __name__ == "__main__":
    torch.manual_seed(8)
    net = StageNet()
    trainer = Trainer(net, torch.optim.Adam(net.parameters(), lr=1e-3), [ActivityProbe(Residual), Console()])
    trainer.fit(rounds=5000, recording=480)
