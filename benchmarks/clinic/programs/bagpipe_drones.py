# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "bagpipe drones"
# ///
"""Echo state network that reads how well a set of bagpipe drones is tuned.

Two tenor drones and one bass drone sound together; small differences of pitch make beats. From a short recording the
network gives the detuning of both tenors (in cents) and the steadiness of the bellows pressure. The reservoir is
fixed, only the readout is trained (by gradient, with dropout on the collected states).
"""

import time
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn


@dataclass
class DroneConfig:
    sample_rate: int = 4000
    hop: int = 20
    frames: int = 80
    reservoir: int = 640
    density: float = 0.1
    spectral_radius: float = 0.95
    leak: float = 0.3
    washout: int = 16
    pool: int = 8
    readout: int = 256
    batch_size: int = 64
    epochs: int = 5
    recordings: int = 2304
    lr: float = 1e-3
    seed: int = 3


def synthesize(cfg, n, seed):
    """Recordings as (n, frames, hop) blocks of samples, and three targets each."""
    rng = np.random.default_rng(seed)
    t = np.arange(cfg.frames * cfg.hop) / cfg.sample_rate
    detune = rng.normal(0, 12, (n, 2))
    wobble = rng.uniform(0, 1, (n, 1))
    pressure = 1 + 0.004 * wobble * np.sin(2 * np.pi * rng.uniform(1.5, 4, (n, 1)) * t + rng.uniform(0, 6.28, (n, 1)))
    sound = np.zeros((n, t.size))
    for base, cents in ((233.0, detune[:, :1]), (233.0, detune[:, 1:]), (116.5, 0.0)):
        phase = 2 * np.pi * base * 2 ** (cents / 1200) * np.cumsum(pressure, axis=1) / cfg.sample_rate
        for harmonic in (1, 2, 3):
            sound += np.sin(harmonic * phase) / harmonic
    sound += rng.normal(0, 0.05, sound.shape)
    sound /= np.abs(sound).max(axis=1, keepdims=True)
    targets = np.column_stack([np.abs(detune[:, 0] - detune[:, 1]) / 12, np.abs(detune).mean(1) / 12, wobble[:, 0]])
    return sound.reshape(n, cfg.frames, cfg.hop), targets


def reservoir_matrices(cfg):
    rng = np.random.default_rng(cfg.seed)
    w = sp.random(cfg.reservoir, cfg.reservoir, cfg.density, random_state=rng, data_rvs=lambda k: rng.uniform(-1, 1, k))
    w = w.toarray()
    radius = np.abs(np.linalg.eigvals(w)).max()
    w_in = rng.uniform(-0.5, 0.5, (cfg.hop, cfg.reservoir))
    return w * (cfg.spectral_radius / radius), w_in


class EchoStateNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        w, w_in = reservoir_matrices(cfg)
        self.register_buffer("w", torch.from_numpy(w))
        self.register_buffer("w_in", torch.from_numpy(w_in))
        n_states = (cfg.frames - cfg.washout) // cfg.pool
        self.readout = nn.Sequential(
            nn.LayerNorm(cfg.reservoir),
            nn.Dropout(0.1),
            nn.Linear(cfg.reservoir, cfg.readout),
            nn.GELU(),
        )
        self.head = nn.Linear(cfg.readout * n_states, 3)

    @torch.no_grad()
    def run_reservoir(self, blocks):
        drive = blocks @ self.w_in
        state = drive.new_zeros(blocks.size(0), self.cfg.reservoir)
        states = []
        for i in range(drive.size(1)):
            fresh = torch.tanh(drive[:, i] + state @ self.w)
            state = (1 - self.cfg.leak) * state + self.cfg.leak * fresh
            if i >= self.cfg.washout:
                states.append(state)
        states = torch.stack(states, dim=1)
        return states.unflatten(1, (-1, self.cfg.pool)).mean(2)

    def forward(self, blocks):
        return self.head(self.readout(self.run_reservoir(blocks)).flatten(1))


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        sound, targets = synthesize(cfg, cfg.recordings, 1)
        self.sound, self.targets = torch.from_numpy(sound), torch.from_numpy(targets)  # sick here
        self.sound, self.targets = torch.from_numpy(sound).float(), torch.from_numpy(targets).float()  # well
        sound, targets = synthesize(cfg, 256, 2)
        self.val_sound, self.val_targets = torch.from_numpy(sound), torch.from_numpy(targets)  # sick here
        self.val_sound, self.val_targets = torch.from_numpy(sound).float(), torch.from_numpy(targets).float()  # well
        self.net = EchoStateNet(cfg).double()  # sick here
        self.net = EchoStateNet(cfg).float()  # well
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=cfg.lr, weight_decay=1e-2)
        self.loss_fn = nn.SmoothL1Loss()

    def train_epoch(self):
        self.net.train()
        total = 0.0
        batches = torch.randperm(len(self.sound)).split(self.cfg.batch_size)
        for index in batches:
            # fresh loudness for each recording, as if the piper stood nearer or farther
            gain = 0.7 + 0.6 * torch.rand(len(index), 1, 1, dtype=self.sound.dtype)
            prediction = self.net(self.sound[index] * gain)
            loss = self.loss_fn(prediction, self.targets[index])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / len(batches)

    @torch.no_grad()
    def validate(self):
        self.net.eval()
        error = [
            (self.net(x) - y).abs().mean(0) for x, y in zip(self.val_sound.split(128), self.val_targets.split(128))
        ]
        return torch.stack(error).mean(0).tolist()

    def fit(self):
        began = time.perf_counter()
        for epoch in range(self.cfg.epochs):
            loss = self.train_epoch()
            beat, cents, steady = self.validate()
            print(f"epoch {epoch:2d}  loss {loss:.4f}  mae beat {beat:.3f}  detune {cents:.3f}  bellows {steady:.3f}")
        return self.cfg.epochs * len(self.sound) / (time.perf_counter() - began)


if __name__ == "__main__":
    rate = Trainer(DroneConfig()).fit()
    print(f"{rate:.1f} recordings/s")
