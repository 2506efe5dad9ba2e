# /// clinic
# expect = ["PD03.too-few-workers"]
# allow = ["PD03.per-sample-indexing"]
# stratum = "contra"
# domain = "recommender"
# smoke = true
# sizes = {COLUMNS = [90, 130]}
# severities = {BATCH = [384, 256, 128]}
# ///
"""Click-through rates from dense features."""

import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

COLUMNS = 110
BATCH = 256
EPOCHS = 8


class Clicks(Dataset):
    def __init__(self, rows):
        self.features = torch.randn(rows, COLUMNS)
        self.clicked = (self.features[:, :5].sum(1) > 0).float()

    def __len__(self):
        return len(self.clicked)

    def __getitem__(self, row):
        return self.features[row], self.clicked[row]


def train():
    torch.manual_seed(0)
    data = Clicks(32 * BATCH)
    loader = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=0)  # sick
    loader = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=2)  # well
    model = nn.Sequential(nn.Linear(COLUMNS, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(EPOCHS):
        if epoch == 1:
            start = time.time()
        for features, clicked in loader:
            optimizer.zero_grad()
            loss = criterion(model(features).squeeze(1), clicked)
            loss.backward()
            optimizer.step()
        print(f"Epoch {epoch + 1}/{EPOCHS}, loss {loss.item():.4f}")
    print(f"{(EPOCHS - 1) * len(data) / (time.time() - start):.1f} samples/s")


if __name__ == "__main__":
    train()
