# /// clinic
# expect = ["PD19.collectives-one-by-one", "PD19.barrier-in-step"]
# stratum = "twins"
# domain = "traffic"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Predicts the speeds on a city's road segments for the next three intervals, on two ranks."""

import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchmetrics import ExplainedVariance, MeanAbsoluteError, MeanSquaredError, MetricCollection, R2Score

SEGMENTS = 96
PAST = 12
AHEAD = 3
BATCH = 64
EPOCHS = 3
CHANNELS = 128


def make_speeds(intervals=10_000, seed=0):
    """Rush hours twice a day, jams that pass from one segment to the next, and noise; about zero mean."""
    rng = np.random.default_rng(seed)
    t = np.arange(intervals)[:, None]
    shift = np.linspace(0, 12, SEGMENTS)[None, :]
    day = -np.exp(-((((t - shift) % 288 - 96) / 20) ** 2)) - np.exp(-((((t - shift) % 288 - 210) / 25) ** 2))
    jams = rng.normal(0, 0.1, (intervals, SEGMENTS))
    for i in range(1, intervals):
        jams[i] += 0.6 * jams[i - 1] + 0.25 * np.roll(jams[i - 1], 1)
    speeds = (day - day.mean()) * 2 + jams
    return torch.from_numpy(speeds.astype(np.float32))


class SpeedModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(SEGMENTS, CHANNELS, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(CHANNELS, CHANNELS, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(CHANNELS, CHANNELS, 3),
            nn.ReLU(),
        )
        self.head = nn.Linear(CHANNELS * (PAST - 2), SEGMENTS * AHEAD)

    def forward(self, past):
        return self.head(self.body(past).flatten(1)).view(-1, AHEAD, SEGMENTS)


def make_metrics():
    shared = {"dist_sync_on_step": True}  # sick here
    shared = {}  # well
    return MetricCollection(
        {
            "mae": MeanAbsoluteError(**shared),
            "rmse": MeanSquaredError(squared=False, **shared),
            "r2": R2Score(**shared),
            "explained": ExplainedVariance(**shared),
        }
    )


def take(windows, index):
    """Past and coming speeds of the numbered windows: (batch, segments, past), (batch, ahead, segments)."""
    chosen = windows[index]
    return chosen[:, :, :PAST].contiguous(), chosen[:, :, PAST:].transpose(1, 2).contiguous()


def held_error(model, windows, index):
    model.eval()
    total = torch.zeros(2)
    with torch.no_grad():
        for part in index.split(256):
            past, coming = take(windows, part)
            total[0] += (model(past) - coming).abs().sum()
            total[1] += coming.numel()
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    windows = make_speeds().unfold(0, PAST + AHEAD, 1)
    train_count = len(windows) - 1024
    held = torch.arange(train_count + PAST + AHEAD, len(windows))[rank::world]

    model = DistributedDataParallel(SpeedModel(), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    criterion = nn.SmoothL1Loss()
    metrics = make_metrics()
    curve = []

    seen = 0
    began = time.perf_counter()
    for epoch in range(EPOCHS):
        shuffle = torch.Generator().manual_seed(100 + epoch)
        mine = torch.randperm(train_count, generator=shuffle)[rank : train_count // world * world : world]
        for index in mine.split(BATCH):
            past, coming = take(windows, index)
            optimizer.zero_grad()
            predicted = model(past)
            loss = criterion(predicted, coming)
            loss.backward()
            optimizer.step()
            curve.append(metrics(predicted.detach().flatten(), coming.flatten()))  # sick here
            metrics.update(predicted.detach().flatten(), coming.flatten())  # well
            seen += len(index) * world
        values = metrics.compute()
        curve.append(values)  # well
        metrics.reset()
        if rank == 0:
            print(f"epoch {epoch}: " + ", ".join(f"{name} {value.item():.4f}" for name, value in values.items()))
    spent = time.perf_counter() - began

    error = held_error(model, windows, held)
    if rank == 0:
        print(f"{len(curve)} points on the curve, held-out mean absolute error {error:.4f}")
        print(f"{seen / spent:.1f} samples/s")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
