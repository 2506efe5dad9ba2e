# /// clinic
# expect = ["PD10.same-each-epoch"]
# stratum = "twins"
# domain = "vision"
# allow = ["PD03"]
# ///
"""Name moths in pictures of light traps: a head is trained on what a frozen network sees in them."""

import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SPECIES, PICTURES, SIDE, BATCH, EPOCHS = 6, 1600, 48, 40, 22


def make_pictures(generator):
    species = torch.randint(0, SPECIES, (PICTURES,), generator=generator)
    wings = torch.randn(SPECIES, 3, SIDE, SIDE, generator=generator)
    pictures = 0.6 * wings[species] + torch.randn(PICTURES, 3, SIDE, SIDE, generator=generator)
    return pictures, species


def released_network():
    """Stands for one that was trained elsewhere."""
    torch.manual_seed(5)
    layers = []
    for before, after in ((3, 24), (24, 48), (48, 96)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval().requires_grad_(False)


def main():
    generator = torch.Generator().manual_seed(23)
    pictures, species = make_pictures(generator)
    network = released_network()
    head = nn.Sequential(nn.Linear(96, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, SPECIES))
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
    dataset = TensorDataset(pictures, species)  # sick
    with torch.no_grad():  # well
        seen = torch.cat([network(part) for part in pictures.split(200)])  # well
    dataset = TensorDataset(seen, species)  # well
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, generator=generator)
    for epoch in range(EPOCHS):
        start, right = time.perf_counter(), torch.zeros((), dtype=torch.long)
        for inputs, labels in loader:
            with torch.no_grad():  # sick here
                inputs = network(inputs)  # sick here
            scores = head(inputs)
            loss = F.cross_entropy(scores, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.detach().argmax(1) == labels).sum()
        rate = PICTURES / (time.perf_counter() - start)
        print(f"epoch {epoch}: {right / PICTURES:.2f} right, {rate:.0f} pictures per second", flush=True)


if __name__ == "__main__":
    main()
