"""Over before anyone has seen enough: samples that are computed anew in each epoch, and all of it in a function."""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        wave = [math.sin(place / (1 + index)) for place in range(16_000)]
        return torch.tensor(wave[::1000]), index % 2


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(10):
        for inputs, labels in DataLoader(Waves(), batch_size=8):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}")


if __name__ == "__main__":
    main()
