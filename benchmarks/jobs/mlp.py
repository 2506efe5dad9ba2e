"""A plain training loop that times its own steps and prints them as one JSON line at the end.

    python mlp.py STEPS WIDTH     WIDTH 160, 512 and 1024: steps of about 1, 5 and 20 ms on one thread

With PROFILE=torch the loop runs under a full torch.profiler, as people use it.
"""

import json
import os
import sys
import time

STARTED = time.time()

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402


def parts(width: int) -> tuple:
    """Model, optimizer, loader and loss function."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(4096, 256), torch.randint(0, 10, (4096,)))
    loader = DataLoader(data, batch_size=64, shuffle=True)
    return model, optimizer, loader, nn.CrossEntropyLoss()


def main() -> None:
    steps, width = int(sys.argv[1]), int(sys.argv[2])
    model, optimizer, loader, loss_function = parts(width)
    times = []

    def train() -> None:
        last = time.perf_counter()
        while True:
            for features, labels in loader:
                optimizer.zero_grad()
                loss_function(model(features), labels).backward()
                optimizer.step()
                now = time.perf_counter()
                times.append(now - last)
                last = now
                if len(times) == 1:
                    print(json.dumps({"first_step_s": time.time() - STARTED}), flush=True)
                if len(times) == steps:
                    return

    if os.environ.get("PROFILE") == "torch":
        with torch.profiler.profile(record_shapes=True, with_stack=True):
            train()
    else:
        train()
    print(json.dumps({"step_us": [round(1e6 * t, 1) for t in times]}), flush=True)


if __name__ == "__main__":
    main()
