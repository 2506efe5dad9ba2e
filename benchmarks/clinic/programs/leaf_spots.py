# /// clinic
# expect = ["PD11.capped-by-environment"]
# allow = ["PD05.batch-too-small", "PD08.allocator-churn"]
# stratum = "twins"
# domain = "images"
# environment = {ONEDNN_MAX_CPU_ISA = "SSE41"}
# cure = {ONEDNN_MAX_CPU_ISA = "ALL"}
# smoke = true
# sizes = {BATCH = [14, 20]}
# severities = {DENSE = [2000, 800, 64]}
# ///
"""Classifies spots on leaves: a small residual network."""

import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

BATCH = 16
DENSE = 800
EPOCHS = 7


class Leaves(Dataset):
    def __init__(self, count):
        self.count = count
        self.kind = torch.arange(count) % 5
        self.noise = torch.randn(count, 3, 32, 32)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        leaf = self.noise[i].clone()
        leaf[self.kind[i] % 3, 5 : 10 + 5 * self.kind[i]] += 1.0
        return leaf, self.kind[i]


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a = nn.Conv2d(width, width, 3, padding=1)
        self.b = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return functional.relu(x + self.b(functional.relu(self.a(x))))


def network():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        Residual(32),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        Residual(64),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(1024, DENSE),
        nn.ReLU(),
        nn.Linear(DENSE, DENSE),
        nn.ReLU(),
        nn.Linear(DENSE, 5),
    )


def main():
    torch.manual_seed(8)
    leaves = Leaves(30 * BATCH)
    loader = DataLoader(leaves, batch_size=BATCH, shuffle=True, drop_last=True)
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.002, momentum=0.9)
    for epoch in range(EPOCHS):
        if epoch == 1:
            began = time.perf_counter()
        total = torch.zeros(())
        for images, kinds in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(images), kinds)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: {total.item() / len(loader):.4f}")
    print(f"{(EPOCHS - 1) * len(leaves) / (time.perf_counter() - began):.1f} images/s")


if __name__ == "__main__":
    main()
