# /// clinic
# expect = ["PD14.whole-storages"]
# stratum = "twins"
# domain = "marine biology: identity of humpback whales"
# ///
"""Telling humpback whales apart by the trailing edge of the fluke.

Each photograph is reduced to a curve (curvature along the edge at several scales). A 1-d convolutional encoder is trained
with a memory of the embeddings of all photographs seen, instance discrimination with negatives from the memory.
Now and then a snapshot is written: the weights and where some well-known animals are at that time, for the film
that shows the clusters forming.
"""

import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


ANIMALS = 3000
PHOTOGRAPHS = 120000
SCALES = 4
POINTS = 96
WIDTH = 256
BATCH = 96
NEGATIVES = 4096
STEPS = 380
KNOWN = 200  # the first photographs are those of the catalogue's best-known animals
SNAPSHOT_EVERY = 4


class FlukeEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        layers, inputs = [], SCALES
        for outputs, stride in ((48, 2), (96, 1), (128, 2)):
            layers += [nn.Conv1d(inputs, outputs, 5, stride, 2, bias=False), nn.BatchNorm1d(outputs), nn.ReLU()]
            inputs = outputs
        self.layers = nn.Sequential(*layers)
        self.project = nn.Linear(inputs, WIDTH)

    def forward(self, curve):
        return F.normalize(self.project(self.layers(curve).mean(-1)), dim=-1)


def photograph(edges, animals, generator):
    """Curves of these animals, seen from somewhat different angles and with some noise."""
    curves = edges[animals]
    tilt = 1 + 0.1 * torch.randn(len(animals), SCALES, 1, generator=generator)
    slope = 0.2 * torch.randn(len(animals), 1, 1, generator=generator) * torch.linspace(-1, 1, POINTS)
    return curves * tilt + slope + 1.2 * torch.randn(curves.shape, generator=generator)


def write_snapshot(folder, step, encoder, memory):
    known = memory[:KNOWN]  # here
    path = os.path.join(folder, f"snapshot_{step:05d}.pt")
    torch.save({"step": step, "encoder": encoder.state_dict(), "known": known}, path)  # sick here
    torch.save({"step": step, "encoder": encoder.state_dict(), "known": known.clone()}, path)  # well
    return path


def prune(paths, keep=6):
    while len(paths) > keep:
        os.remove(paths.pop(0))


generator = torch.Generator().manual_seed(21)
torch.manual_seed(21)
edges = torch.randn(ANIMALS, SCALES, POINTS // 8, generator=generator)
edges = F.interpolate(edges, size=POINTS, mode="linear", align_corners=True)
owner = torch.arange(PHOTOGRAPHS) % ANIMALS
memory = F.normalize(torch.randn(PHOTOGRAPHS, WIDTH, generator=generator), dim=-1)

encoder = FlukeEncoder()
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
temperature, inertia = 0.1, 0.5
began = time.perf_counter()

with tempfile.TemporaryDirectory(prefix="flukes_") as folder:
    snapshots = []
    for step in range(1, STEPS + 1):
        seen = torch.randint(PHOTOGRAPHS, (BATCH,), generator=generator)
        animals = owner[seen]
        first = encoder(photograph(edges, animals, generator))
        second = encoder(photograph(edges, animals, generator))

        others = torch.randint(PHOTOGRAPHS, (NEGATIVES,), generator=generator)
        likeness = first @ torch.cat([second, memory[others]]).T / temperature
        twin = owner[torch.cat([seen, others])] == animals[:, None]
        twin[:, :BATCH].fill_diagonal_(False)
        likeness = likeness.masked_fill(twin, -1e4)
        loss = F.cross_entropy(likeness, torch.arange(BATCH))

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()

        with torch.no_grad():
            memory[seen] = F.normalize(inertia * memory[seen] + (1 - inertia) * first, dim=-1)

        if step % SNAPSHOT_EVERY == 0:
            snapshots.append(write_snapshot(folder, step, encoder, memory))  # here
            prune(snapshots)
        if step % 20 == 0:
            right = (likeness.argmax(1) == torch.arange(BATCH)).float().mean()
            print(
                f"step {step:4d}  loss {loss.item():.3f}  nearest is itself {right.item():.2f}  "
                f"{time.perf_counter() - began:.1f} s",
                flush=True,
            )
