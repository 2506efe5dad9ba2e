# /// clinic
# expect = ["PD20.metrics-sample-by-sample"]
# allow = ["PD05", "PD08.allocator-churn", "PD03", "PD20.evaluation-too-often"]
# stratum = "twins"
# domain = "tabular"
# sizes = {SENSORS = [20, 40]}
# severities = {CHECKED = [512, 1024, 2048]}
# ///
"""Will the orbit hold? Scored after every forty steps by precision among the confident."""

import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

SENSORS = 32
CHECKED = 1024
BATCH = 64


def orbits(count):
    seen = torch.randn(count, SENSORS)
    return TensorDataset(seen, (seen[:, :5].sum(1) > 0).long())


def score(model, loader):
    model.eval()
    right = sure = 0
    with torch.no_grad():
        for seen, holds in loader:
            chances = model(seen).softmax(1)
            for chance, held in zip(chances, holds):  # sick
                if chance.max() > 0.8:  # sick
                    sure += 1  # sick
                    right += int(chance.argmax() == held)  # sick
            confident = chances.amax(1) > 0.8  # well
            sure += confident.sum().item()  # well
            right += (chances.argmax(1) == holds)[confident].sum().item()  # well
    model.train()
    return right / max(1, sure)


def run(epochs=10):
    torch.manual_seed(4)
    data = orbits(96 * BATCH)
    sampler = BatchSampler(RandomSampler(data), BATCH, drop_last=True)
    loader = DataLoader(data, sampler=sampler, batch_size=None)
    checked = orbits(CHECKED)
    checks = DataLoader(checked, sampler=BatchSampler(range(CHECKED), BATCH, drop_last=False), batch_size=None)
    model = nn.Sequential(nn.Linear(SENSORS, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step = 0
    for epoch in range(epochs):
        if epoch == 1:
            start = time.perf_counter()
        for seen, holds in loader:
            loss = nn.functional.cross_entropy(model(seen), holds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 40 == 0:
                precision = score(model, checks)
        print(f"epoch {epoch} loss {loss.item():.4f} precision {precision:.3f}", flush=True)
    print(f"{(epochs - 1) * len(loader) * BATCH / (time.perf_counter() - start):.1f} orbits/s")


if __name__ == "__main__":
    run()
