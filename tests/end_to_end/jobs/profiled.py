"""A loop that may wait for its data, and may write a trace of its last steps."""

import argparse
import time

import torch
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--delay", type=float, default=0.0, help="seconds for each batch of 16")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--trace", default="")
options = parser.parse_args()


class Samples(Dataset):
    def __len__(self) -> int:
        return 16 * options.steps

    def __getitem__(self, index: int) -> torch.Tensor:
        if options.delay:
            time.sleep(options.delay / 16)
        return torch.ones(256)


model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
profiler = profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=options.steps - 12, warmup=2, active=8),
    on_trace_ready=lambda done: done.export_chrome_trace(options.trace),
    with_stack=True,
)
if options.trace:
    profiler.start()
for batch in DataLoader(Samples(), batch_size=16):
    optimizer.zero_grad()
    for _ in range(4):
        model(batch).square().mean().backward()
    optimizer.step()
    if options.trace:
        profiler.step()
if options.trace:
    profiler.stop()
