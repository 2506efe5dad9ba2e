# /// clinic
# stratum = "decoys"
# resembles = ["PD20"]
# domain = "tabular"
# allow = ["PD03", "PD05"]
# sizes = {SENSORS = [60, 90], WIDTH = [450, 550]}
# ///
"""Will there be mist? A bar shows how far it is, and every hundred steps the loss and all weights go to TensorBoard."""

import time

import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

SENSORS = 75
WIDTH = 500
BATCH = 256
STEPS = 1500


def main():
    torch.manual_seed(12)
    air = torch.randn(20_000, SENSORS)
    mist = (air[:, :5].sum(1) > 1).long()
    net = nn.Sequential(nn.Linear(SENSORS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    writer = SummaryWriter("board")
    total = torch.zeros(())
    for step in tqdm(range(STEPS)):
        if step == 50:
            began = time.perf_counter()
        rows = torch.randint(0, len(air), (BATCH,))
        loss = nn.functional.cross_entropy(net(air[rows]), mist[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 100 == 99:
            writer.add_scalar("loss", total.item() / 100, step)
            for name, weight in net.named_parameters():
                writer.add_histogram(name, weight, step)
            total.zero_()
    took = time.perf_counter() - began
    writer.close()
    print(f"{(STEPS - 50) * BATCH / took:.1f} samples/s")


if __name__ == "__main__":
    main()
