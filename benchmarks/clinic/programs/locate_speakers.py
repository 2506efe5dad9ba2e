# /// clinic
# expect = ["PD13.pinned-process"]
# stratum = "twins"
# domain = "audio, direction of arrival with a microphone array, CNN"
# ///
"""Where does the speaker stand? Direction of arrival for a six-microphone array, retrained on the device at night.

The network reads steered power maps (one row per direction, one column per frame) and names the sector. The device
keeps listening while it trains: a recorder thread takes blocks of 10 ms from the sound card and follows the noise floor
of the room, which the training mixes into its examples. The recorder stays on the last core, as the sound people
advise, so that its buffers do not move between caches; it starts before the slow imports, to hear the room early.
Scenes and sound card are simulated.
"""

import os
import threading
import time

import numpy as np


CONFIG = {
    "microphones": 6,
    "radius": 0.05,
    "bins": 96,
    "frames": 64,
    "grid": 180,
    "sectors": 18,
    "reflections": 5,
    "scenes": 400,
    "batch": 24,
    "steps": 240,
    "width": 288,
    "learning_rate": 2e-3,
    "block_seconds": 0.010,
    "block_samples": 160,
    "log_every": 40,
}
SPEED_OF_SOUND = 343.0


class Recorder(threading.Thread):
    """Reads blocks from the sound card and keeps a running noise floor."""

    def __init__(self, config):
        super().__init__(daemon=True)
        self.config = config
        self.rng = np.random.default_rng(9)
        self.floor = 0.3
        self.done = threading.Event()
        self.core = os.cpu_count() - 1
        os.sched_setaffinity(0, {self.core})  # sick here

    def run(self):
        os.sched_setaffinity(threading.get_native_id(), {self.core})  # well
        shape = (self.config["microphones"], self.config["block_samples"])
        while not self.done.wait(self.config["block_seconds"]):
            block = self.rng.standard_normal(shape, dtype=np.float32)
            level = float(np.abs(np.fft.rfft(block)).mean()) / self.config["block_samples"]
            self.floor += 0.01 * (3 * level - self.floor)


recorder = Recorder(CONFIG)  # here
recorder.start()

import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402


def steering_vectors(config):
    """Phase of a plane wave from each direction at every microphone and frequency: (grid, microphones * bins)."""
    angles = 2 * np.pi * np.arange(config["grid"]) / config["grid"]
    around = 2 * np.pi * np.arange(config["microphones"]) / config["microphones"]
    frequency = np.linspace(300, 6000, config["bins"])
    delay = -config["radius"] * np.cos(angles[:, None] - around[None]) / SPEED_OF_SOUND
    phase = -2j * np.pi * delay[:, :, None] * frequency[None, None]
    return np.exp(phase).astype(np.complex64).reshape(config["grid"], -1)


def simulate_scene(config, steering, rng):
    """Direct path and reflections of one speaker, seen through the array: log power per direction and frame."""
    directions = rng.integers(config["grid"], size=1 + config["reflections"])
    gains = np.concatenate([[1.0], rng.uniform(0.2, 0.6, config["reflections"])]).astype(np.float32)
    size = (2, config["bins"], config["frames"])
    real, imaginary = rng.standard_normal(size, dtype=np.float32)
    speech = (real + 1j * imaginary) * np.exp(rng.standard_normal((1, config["frames"]), dtype=np.float32))
    path = (gains[:, None] * steering[directions]).sum(0).reshape(config["microphones"], config["bins"], 1)
    steered = steering.conj() @ (path * speech).reshape(-1, config["frames"])
    power = np.log(steered.real**2 + steered.imag**2 + 1e-3)
    return power - power.mean(), directions[0] * config["sectors"] // config["grid"]


class MapReader(nn.Module):
    """Convolutions over the frames with the directions as channels, pooled by attention."""

    def __init__(self, config):
        super().__init__()
        width = config["width"]
        self.lift = nn.Conv1d(config["grid"], width, 5, padding=2)
        self.layers = nn.ModuleList([nn.Conv1d(width, width, 5, padding=2 * 2**k, dilation=2**k) for k in range(4)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(width) for _ in self.layers])
        self.weight = nn.Conv1d(width, 1, 1)
        self.sector = nn.Linear(width, config["sectors"])

    def forward(self, maps):
        x = F.relu(self.lift(maps))
        for layer, norm in zip(self.layers, self.norms):
            x = x + F.relu(norm(layer(x)))
        attention = self.weight(x).softmax(dim=-1)
        return self.sector((attention * x).sum(dim=-1))


def draw_batch(config, maps, sectors, floor):
    """Random scenes, the array turned by whole sectors, the noise of the room mixed in."""
    chosen = torch.randint(len(maps), (config["batch"],))
    turn = int(torch.randint(config["sectors"], ()))
    batch = maps[chosen].roll(turn * config["grid"] // config["sectors"], dims=1)
    return batch + floor * torch.randn_like(batch), (sectors[chosen] + turn) % config["sectors"]


def train(config):
    torch.manual_seed(0)
    rng, steering = np.random.default_rng(1), steering_vectors(config)
    scenes = [simulate_scene(config, steering, rng) for _ in range(config["scenes"])]
    maps = torch.from_numpy(np.stack([power for power, _ in scenes]))
    sectors = torch.tensor([int(sector) for _, sector in scenes])
    model = MapReader(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["learning_rate"], fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, config["learning_rate"], total_steps=config["steps"])
    started, loss_sum, right = time.time(), torch.zeros(()), torch.zeros(())
    for step in range(1, config["steps"] + 1):
        batch, target = draw_batch(config, maps, sectors, recorder.floor)
        logits = model(batch)
        loss = F.cross_entropy(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        loss_sum += loss.detach()
        right += (logits.detach().argmax(1) == target).float().mean()
        if step % config["log_every"] == 0:
            mean, hits = loss_sum.item() / config["log_every"], right.item() / config["log_every"]
            print(f"step {step:4d}  loss {mean:.3f}  right {hits:.3f}  {time.time() - started:.1f} s", flush=True)
            loss_sum.zero_()
            right.zero_()
    recorder.done.set()
    recorder.join()
    return model


if __name__ == "__main__":
    train(CONFIG)
