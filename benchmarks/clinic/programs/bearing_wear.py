# /// clinic
# expect = ["PD12.busy-helper"]
# stratum = "twins"
# domain = "bearing wear"
# ///
"""Remaining life of roller bearings from vibration; a companion process scores snapshots on held-out machines."""

import io
import math
import multiprocessing
import time

import torch
from torch import nn

LENGTH = 512
STEPS = 1200
SNAPSHOT_EVERY = 100


def vibration(count, generator):
    """Accelerometer windows on two axes: shaft rotation, a defect's ringing that grows with wear, noise."""
    wear = torch.rand(count, generator=generator)
    clock = torch.arange(LENGTH) / LENGTH
    speed = 8 + 6 * torch.rand(count, 1, generator=generator)
    phase = 2 * math.pi * torch.rand(count, 1, generator=generator)
    shaft = torch.sin(2 * math.pi * speed * clock + phase)
    strike = torch.sin(2 * math.pi * 3.6 * speed * clock + phase).clamp(min=0) ** 8
    ring = strike * torch.sin(2 * math.pi * 90 * clock) * wear[:, None] * 1.5
    noise = 0.4 * torch.randn(count, 2, LENGTH, generator=generator)
    signal = torch.stack([shaft + ring, 0.5 * shaft - 0.7 * ring], 1) + noise
    return signal, 1 - wear


class Life(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        layers, have = [], 2
        for i, stride in enumerate((2, 2, 2, 2)):
            want = width * (1 + i // 2)
            layers += [nn.Conv1d(have, want, 9, stride=stride, padding=4), nn.BatchNorm1d(want), nn.GELU()]
            have = want
        self.body = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Linear(2 * have, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, signal):
        hidden = self.body(signal)
        return self.head(torch.cat([hidden.mean(2), hidden.amax(2)], 1)).squeeze(1)


def score_snapshots(pipe, seed):
    """Runs beside the training: takes snapshots as they come and answers with their error."""
    signal, life = vibration(512, torch.Generator().manual_seed(seed))
    model = Life().eval()
    mother = multiprocessing.parent_process()
    while mother.is_alive():
        arrived = pipe.poll()  # sick here
        arrived = pipe.poll(1.0)  # well
        if not arrived:
            continue
        step, snapshot = pipe.recv()
        if snapshot is None:
            break
        model.load_state_dict(torch.load(io.BytesIO(snapshot)))
        with torch.inference_mode():
            error = (model(signal) - life).abs().mean().item()
        pipe.send((step, error))


class Companion:
    """Keeps the scoring process and the best snapshot so far."""

    def __init__(self, seed=99):
        context = multiprocessing.get_context("spawn")
        self.pipe, far = context.Pipe()
        self.process = context.Process(target=score_snapshots, args=(far, seed), daemon=True)
        self.process.start()
        self.waiting = {}
        self.best = (math.inf, -1, None)

    def offer(self, step, model):
        buffer = io.BytesIO()
        torch.save(model.state_dict(), buffer)
        self.waiting[step] = buffer.getvalue()
        self.pipe.send((step, self.waiting[step]))

    def take(self):
        step, error = self.pipe.recv()
        snapshot = self.waiting.pop(step)
        print(f"step {step}: held-out error {error:.4f}", flush=True)
        if error < self.best[0]:
            self.best = (error, step, snapshot)

    def collect(self):
        while self.waiting and self.pipe.poll():
            self.take()

    def close(self):
        while self.waiting:
            self.take()
        self.pipe.send((None, None))
        self.process.join()


def train():
    torch.manual_seed(5)
    generator = torch.Generator().manual_seed(5)
    signal, life = vibration(6000, generator)
    model = Life()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=STEPS)
    companion = Companion()
    mean, since = None, None
    for step in range(1, STEPS + 1):
        pick = torch.randint(len(life), (64,), generator=generator)
        shift = int(torch.randint(LENGTH, (1,), generator=generator))
        batch = signal[pick].roll(shift, 2)
        loss = nn.functional.smooth_l1_loss(model(batch), life[pick], beta=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        mean = loss.item() if mean is None else 0.98 * mean + 0.02 * loss.item()
        if step % SNAPSHOT_EVERY == 0:
            companion.offer(step, model)
        companion.collect()
        if step == 5:
            since = time.perf_counter()
    took = time.perf_counter() - since
    companion.close()
    print(f"loss {mean:.4f}, best snapshot: step {companion.best[1]}, error {companion.best[0]:.4f}")
    print(f"{(STEPS - 5) / took:.2f} steps/s")


if __name__ == "__main__":
    train()
