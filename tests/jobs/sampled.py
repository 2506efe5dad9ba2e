"""A loop whose two lines of Python take three times and once the same time, with batches made by a worker in a third.

python sampled.py SECONDS [spawn]
"""

import sys
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def spin(count):
    total = 0
    for number in range(count):
        total += number & 7
    return total


class Data(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        spin(6_000)
        return torch.ones(8) * (index % 3)


def wait():
    threading.Event().wait()


def main():
    torch.manual_seed(0)
    threading.Thread(target=wait, name="idle one", daemon=True).start()
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    method = sys.argv[2] if len(sys.argv) > 2 else "fork"
    loader = DataLoader(Data(), batch_size=2, num_workers=1, multiprocessing_context=method)
    ends = time.monotonic() + float(sys.argv[1])
    first = None
    for batch in loader:
        spin(60_000)  # long
        spin(20_000)  # short
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        first = loss.item() if first is None else first
        if time.monotonic() > ends:
            break
    print(f"{first:.6f}")


if __name__ == "__main__":
    main()
