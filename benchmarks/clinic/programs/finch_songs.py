# /// clinic
# stratum = "decoys"
# resembles = ["PD14", "PD20"]
# domain = "audio"
# ///
"""Which finch sings, from spectra of its song. The best model is kept, and the state at the end of each epoch."""

import time

import torch
from torch import nn

BINS, BIRDS, BATCH = 300, 12, 128
EPOCHS = 8


def right(net, spectra, birds):
    net.eval()
    with torch.no_grad():
        share = (net(spectra).argmax(1) == birds).float().mean().item()
    net.train()
    return share


def main():
    torch.manual_seed(31)
    spectra = torch.randn(26_000, BINS)
    birds = spectra[:, :BIRDS].argmax(1)
    held_out = spectra[25_000:], birds[25_000:]
    net = nn.Sequential(nn.Linear(BINS, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, BIRDS))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    best, steps, began = 0.0, 0, None
    for epoch in range(EPOCHS):
        for rows in torch.randperm(25_000).split(BATCH):
            if steps == 20:
                began = time.perf_counter()
            loss = nn.functional.cross_entropy(net(spectra[rows]), birds[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if steps % 100 == 0:
                share = right(net, *held_out)
                if share > best:
                    best = share
                    torch.save(net.state_dict(), "best.pt")
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "epoch.pt")
    print(f"best {best:.3f} after {steps} steps")
    print(f"{(steps - 20) * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
