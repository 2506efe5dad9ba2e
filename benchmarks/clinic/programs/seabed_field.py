# /// clinic
# expect = ["PD10.column-lookup"]
# stratum = "twins"
# domain = "bathymetry"
# ///
"""A neural field of seabed depth fitted to scattered sonar soundings: learned grid codes, blended bilinearly, and a small decoder."""

import time

import torch
from torch import nn


def seabed(position):
    """Depth in hundreds of metres on the unit square: shelf, canyon, seamounts and ripples."""
    x, y = position.unbind(-1)
    depth = 2.0 * torch.sigmoid(8 * (x - 0.4))
    depth = depth + 1.2 * torch.exp(-((y - 0.5 - 0.15 * torch.sin(9 * x)) ** 2) / 0.003)
    for cx, cy, height in ((0.7, 0.2, 1.1), (0.85, 0.75, 0.8), (0.6, 0.85, 0.6)):
        depth = depth - height * torch.exp(-((x - cx) ** 2 + (y - cy) ** 2) / 0.004)
    return depth + 0.05 * torch.sin(120 * x + 40 * y)


class Soundings:
    """Soundings along random ship tracks, with the noise of the instrument."""

    def __init__(self, count, batch, seed):
        self.generator = torch.Generator().manual_seed(seed)
        start = torch.rand(count // 100, 1, 2, generator=self.generator)
        heading = torch.randn(count // 100, 1, 2, generator=self.generator) * 0.2
        along = torch.linspace(0, 1, 100).view(1, -1, 1)
        self.position = ((start + along * heading) % 1.0).reshape(-1, 2).clamp(0, 1 - 1e-6)
        self.depth = seabed(self.position) + 0.02 * torch.randn(len(self.position), generator=self.generator)
        self.batch = batch

    def __len__(self):
        return len(self.position) // self.batch

    def __iter__(self):
        order = torch.randperm(len(self.position), generator=self.generator)
        for part in order.split(self.batch)[: len(self)]:
            yield self.position[part], self.depth[part]


class GridCodes(nn.Module):
    """Learned codes at the nodes of a regular grid, interpolated at the queried positions."""

    def __init__(self, rows, columns, features):
        super().__init__()
        self.rows, self.columns, self.features = rows, columns, features
        self.codes = nn.Parameter(0.01 * torch.randn(features, rows, columns))  # sick here
        self.codes = nn.Parameter(0.01 * torch.randn(rows, columns, features))  # well

    def lookup(self, row, column):
        return self.codes[:, row, column].t()  # sick
        return self.codes[row, column]  # well

    def forward(self, position):
        scaled = position * position.new_tensor([self.columns - 1, self.rows - 1])
        corner = scaled.long()
        fraction = (scaled - corner).unsqueeze(-1)
        column, row = corner.unbind(-1)
        fx, fy = fraction.unbind(-2)
        top = (1 - fx) * self.lookup(row, column) + fx * self.lookup(row, column + 1)
        bottom = (1 - fx) * self.lookup(row + 1, column) + fx * self.lookup(row + 1, column + 1)
        return (1 - fy) * top + fy * bottom


class DepthField(nn.Module):
    def __init__(self, features=32, width=64):
        super().__init__()
        self.fine = GridCodes(192, 192, features)
        self.frequencies = nn.Parameter(torch.randn(2, 8) * 6)
        self.decoder = nn.Sequential(
            nn.Linear(features + 16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, position):
        phase = position @ self.frequencies
        inputs = torch.cat([self.fine(position), phase.sin(), phase.cos()], dim=-1)
        return self.decoder(inputs).squeeze(-1)


@torch.no_grad()
def chart_error(model, side=160):
    axis = (torch.arange(side) + 0.5) / side
    position = torch.cartesian_prod(axis, axis)
    return 100 * (model(position) - seabed(position)).square().mean().sqrt().item()


def main():
    torch.manual_seed(8)
    soundings = Soundings(800_000, batch=8192, seed=4)
    model = DepthField()
    optimizer = torch.optim.Adam(
        [
            {"params": [model.fine.codes], "lr": 1e-2},
            {"params": [*model.decoder.parameters(), model.frequencies], "lr": 2e-3},
        ],
        eps=1e-10,
    )
    epochs, step, since = 10, 0, None
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(soundings))
    for epoch in range(epochs):
        total = torch.zeros(())
        for position, depth in soundings:
            loss = nn.functional.smooth_l1_loss(model(position), depth, beta=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
            step += 1
            if step == 5:
                since = time.perf_counter()
        print(
            f"epoch {epoch}: loss {total.item() / len(soundings):.5f}, chart rmse {chart_error(model):.2f} m",
            flush=True,
        )
    print(f"{(step - 5) / (time.perf_counter() - since):.2f} steps/s")


if __name__ == "__main__":
    main()
