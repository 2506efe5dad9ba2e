# /// clinic
# expect = ["PD09.oversized-layer"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "images"
# sizes = {BATCH = [20, 28]}
# severities = {UNITS = [96, 320, 900]}
# ///
"""Reads the age of bones from X-ray pictures."""

import time

import torch
from torch import nn

BATCH = 24
UNITS = 320
SIDE = 56
STEPS = 110


class Age(nn.Module):
    def __init__(self):
        super().__init__()
        self.look = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
        )
        self.shrink = nn.Flatten()  # sick
        self.shrink = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten())  # well
        self.hidden = nn.Linear(32 * (SIDE // 2) ** 2, UNITS)  # sick
        self.hidden = nn.Linear(32 * 16, UNITS)  # well
        self.age = nn.Linear(UNITS, 1)

    def forward(self, bones):
        return self.age(torch.relu(self.hidden(self.shrink(self.look(bones)))))


class Bones(torch.utils.data.Dataset):
    def __init__(self, count):
        self.pictures = torch.rand(count, 1, SIDE, SIDE)
        self.ages = self.pictures.mean((1, 2, 3))

    def __len__(self):
        return len(self.ages)

    def __getitems__(self, rows):
        return self.pictures[rows], self.ages[rows]


def main():
    torch.manual_seed(23)
    loader = torch.utils.data.DataLoader(Bones(BATCH * STEPS // 2), BATCH, shuffle=True, collate_fn=lambda rows: rows)
    model = Age()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    step = 0
    for _ in range(2):
        for pictures, ages in loader:
            if step == 8:
                began = time.perf_counter()
            loss = nn.functional.mse_loss(model(pictures).squeeze(1), ages)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        print(f"loss {loss.item():.5f}")
    print(f"{(step - 8) * BATCH / (time.perf_counter() - began):.1f} pictures/s")


if __name__ == "__main__":
    main()
