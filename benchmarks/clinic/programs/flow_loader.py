# /// clinic
# stratum = "decoys"
# domain = "tabular"
# sizes = {FEATURES = [60, 80], WIDTH = [560, 640]}
# ///
"""Learns the drag of shapes; every shape is sampled in the background while the network trains."""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FEATURES = 72
WIDTH = 600
BATCH = 256


class Shapes(Dataset):
    def __len__(self):
        return 100_000

    def __getitems__(self, numbers):
        generator = np.random.default_rng(numbers[0])
        radii = generator.gamma(4.0, size=(len(numbers), FEATURES)).astype(np.float32)
        time.sleep(0.008)  # the mesh service answers
        return torch.from_numpy(radii), torch.from_numpy(np.log1p(radii).sum(1, keepdims=True))


def same(batch):
    return batch


torch.manual_seed(0)
loader = DataLoader(Shapes(), batch_size=BATCH, num_workers=2, prefetch_factor=4, collate_fn=same)
model = nn.Sequential(
    nn.Linear(FEATURES, WIDTH),
    nn.ReLU(),
    nn.Linear(WIDTH, WIDTH),
    nn.ReLU(),
    nn.Linear(WIDTH, WIDTH),
    nn.ReLU(),
    nn.Linear(WIDTH, 1),
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, momentum=0.9)
for step, (radii, drag) in enumerate(loader):
    if step == 10:
        began = time.perf_counter()
    if step == 210:
        break
    loss = nn.functional.smooth_l1_loss(model(radii), drag)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: {loss.item():.3f}")
print(f"{200 * BATCH / (time.perf_counter() - began):.1f} shapes/s")
