# /// clinic
# expect = ["PD03"]
# stratum = "twins"
# domain = "bioacoustics"
# sizes = {CLIPS_PER_DEPLOYMENT = [180, 205], CHANNELS = [23, 25]}
# ///
"""Call-type classifier for passive acoustic monitoring: log-mel clips of six hydrophone deployments."""

import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLIPS_PER_DEPLOYMENT = 192
CHANNELS = 24
DEPLOYMENTS = 6
MELS, FRAMES = 64, 64
CALL_TYPES = 9
BATCH = 32
EPOCHS = 6
WARMUP_STEPS = 8


def write_deployments(folder):
    """One .npz per deployment, as the annotation team exports them."""
    rng = np.random.default_rng(11)
    paths = []
    mel = np.arange(MELS)[:, None]
    frame = np.arange(FRAMES)[None, :]
    for d in range(DEPLOYMENTS):
        label = rng.integers(0, CALL_TYPES, CLIPS_PER_DEPLOYMENT)
        spec = rng.normal(0, 1, (CLIPS_PER_DEPLOYMENT, MELS, FRAMES)).astype(np.float32)
        for k in range(CALL_TYPES):
            # every call type is an up- or down-sweep with its own slope
            sweep = np.exp(-((mel - 30 - (k - 4) * 0.2 * (frame - 32)) ** 2) / 18.0)
            spec[label == k] += 1.5 * sweep.astype(np.float32)
        path = os.path.join(folder, f"mooring_{d}.npz")
        np.savez(path, spec=spec, label=label, depth=rng.uniform(40, 300, CLIPS_PER_DEPLOYMENT))
        paths.append(path)
    return paths


class HydrophoneClips(Dataset):
    def __init__(self, paths, clips):
        self.paths = paths
        self.index = [(d, j) for d in range(len(paths)) for j in range(clips)]
        self.opened = {}

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        d, j = self.index[i]
        if d not in self.opened:  # opened in the worker, file handles do not survive a fork
            self.opened[d] = np.load(self.paths[d], mmap_mode="r")  # sick here
            self.opened[d] = dict(np.load(self.paths[d]))  # well
        mooring = self.opened[d]
        spec = mooring["spec"][j]  # sick here
        spec = mooring["spec"][j]  # well
        return torch.from_numpy(spec).unsqueeze(0), int(mooring["label"][j])


class CallNet(nn.Module):
    def __init__(self, ch):
        super().__init__()

        def stage(cin, cout):
            return nn.Sequential(
                nn.Conv2d(cin, cout, 3, padding=1, bias=False),
                nn.BatchNorm2d(cout),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2),
            )

        self.body = nn.Sequential(
            stage(1, ch), stage(ch, 2 * ch), stage(2 * ch, 4 * ch), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.head = nn.Linear(4 * ch, CALL_TYPES)

    def forward(self, x):
        return self.head(self.body(x))


def main():
    torch.manual_seed(5)
    with tempfile.TemporaryDirectory() as folder:
        clips = HydrophoneClips(write_deployments(folder), CLIPS_PER_DEPLOYMENT)
        loader = DataLoader(
            clips,
            batch_size=BATCH,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
            prefetch_factor=4,
            drop_last=True,
        )
        net = CallNet(CHANNELS)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-2, fused=True)
        criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

        step, start = 0, None
        for epoch in range(EPOCHS):
            total = torch.zeros(())
            for spec, label in loader:
                if step == WARMUP_STEPS:
                    start = time.perf_counter()
                loss = criterion(net(spec), label)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                total += loss.detach()
                step += 1
            print(f"epoch {epoch}: loss {total.item() / len(loader):.3f}", flush=True)
        elapsed = time.perf_counter() - start
        print(f"{(step - WARMUP_STEPS) * BATCH / elapsed:.1f} clips/s")


if __name__ == "__main__":
    main()
