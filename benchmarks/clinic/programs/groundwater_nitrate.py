# /// clinic
# expect = ["PD10.inverse-then-product"]
# stratum = "twins"
# domain = "groundwater nitrate mapping with a deep-kernel Gaussian process"
# ///
"""Nitrate in groundwater: a Gaussian process with a learned feature map, fitted to measurements in wells.

The features of a well (position, depth, land use, ...) go through a small network; the process lives on its output. Each step
draws a region with its wells and takes the negative log marginal likelihood of the measurements.
"""

import math
import time

import torch
from torch import nn


torch.manual_seed(21)
WELLS = 20000
PER_STEP = 640
STEPS = 720
FEATURES = 9


def make_wells():
    place = torch.rand(WELLS, 2) * 100
    depth = torch.rand(WELLS, 1) * 80
    land_use = torch.rand(WELLS, FEATURES - 3)
    trend = torch.sin(place[:, 0] / 9) + torch.cos(place[:, 1] / 13) + 1.5 * land_use[:, 0] - depth[:, 0] / 40
    nitrate = trend + land_use[:, 1] * land_use[:, 2] + 0.25 * torch.randn(WELLS)
    features = torch.cat([place / 50 - 1, depth / 40 - 1, land_use * 2 - 1], dim=1)
    return features, (nitrate - nitrate.mean()) / nitrate.std()


class FeatureMap(nn.Module):
    def __init__(self, width=64, out=4):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, out)
        )

    def forward(self, wells):
        return self.layers(wells)


class NitrateProcess(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = FeatureMap()
        self.log_scale = nn.Parameter(torch.zeros(4))
        self.log_signal = nn.Parameter(torch.zeros(()))
        self.log_noise = nn.Parameter(torch.tensor(-1.0))
        self.mean = nn.Parameter(torch.zeros(()))

    def covariance(self, wells):
        z = self.features(wells) / self.log_scale.exp()
        square = z.pow(2).sum(dim=1)
        distance = (square[:, None] + square[None, :] - 2 * (z @ z.T)).clamp_min(0)
        kernel = self.log_signal.exp() * torch.exp(-0.5 * distance)
        return kernel + torch.diag_embed((self.log_noise.exp() + 1e-3).expand(len(wells)))

    def forward(self, wells, nitrate):
        """Negative log marginal likelihood for each well."""
        cov = self.covariance(wells)
        rest = (nitrate - self.mean).unsqueeze(1)
        precision = torch.inverse(cov)  # sick here
        fit = (rest.T @ precision @ rest).squeeze()  # sick here
        volume = torch.logdet(cov)  # sick here
        factor = torch.linalg.cholesky(cov)  # well
        fit = torch.linalg.solve_triangular(factor, rest, upper=False).pow(2).sum()  # well
        volume = 2 * factor.diagonal().log().sum()  # well
        return 0.5 * (fit + volume + len(wells) * math.log(2 * math.pi)) / len(wells)


@torch.no_grad()
def held_out_error(process, known, known_nitrate, new, new_nitrate):
    z_known, z_new = process.features(known), process.features(new)
    scale = process.log_scale.exp()
    cross = process.log_signal.exp() * torch.exp(-0.5 * torch.cdist(z_new / scale, z_known / scale).pow(2))
    factor = torch.linalg.cholesky(process.covariance(known))
    weights = torch.cholesky_solve((known_nitrate - process.mean).unsqueeze(1), factor)
    predicted = process.mean + (cross @ weights).squeeze(1)
    return (predicted - new_nitrate).pow(2).mean().sqrt().item()


features, nitrate = make_wells()
test_features, test_nitrate = features[-800:], nitrate[-800:]
features, nitrate = features[:-800], nitrate[:-800]
order = features[:, 0].argsort()
features, nitrate = features[order], nitrate[order]

process = NitrateProcess()
optimizer = torch.optim.Adam(
    [
        {"params": process.features.parameters(), "lr": 2e-3},
        {"params": [process.log_scale, process.log_signal, process.log_noise, process.mean], "lr": 1e-2},
    ]
)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

print(f"{len(nitrate)} wells to fit, {len(test_nitrate)} held out")
begun = time.time()
for step in range(1, STEPS + 1):
    start = torch.randint(0, len(nitrate) - 4 * PER_STEP, ()).item()
    pick = start + torch.randperm(4 * PER_STEP)[:PER_STEP]
    optimizer.zero_grad()
    loss = process(features[pick], nitrate[pick])
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 40 == 0:
        rate = step / (time.time() - begun)
        print(f"step {step} nll {loss.item():.4f} noise {process.log_noise.exp().item():.3f} ({rate:.1f} steps/s)")

known = torch.randperm(len(nitrate))[:2000]
error = held_out_error(process, features[known], nitrate[known], test_features, test_nitrate)
print(f"held-out error {error:.3f} (standard deviations of nitrate)")
