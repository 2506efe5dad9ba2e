"""Steps that draw from a slow and from a quick loader: `two_loaders.py SLOW QUICK [METHOD]`, workers of either and how
they are started."""

import sys
import time

import facts
import loops
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS = 280


class Labelled(Dataset):
    """Every sample takes a millisecond."""

    def __len__(self):
        return 2 * STEPS

    def __getitem__(self, index):
        time.sleep(0.001)  # slow
        return torch.full((8,), index / 10.0)


class Unlabelled(Dataset):
    def __len__(self):
        return 2 * STEPS

    def __getitem__(self, index):
        return torch.full((8,), index / 10.0)  # quick


def loader(dataset, workers, method):
    return DataLoader(dataset, batch_size=2, num_workers=workers, multiprocessing_context=method if workers else None)


def main():
    facts.seed()
    slow, quick, method = int(sys.argv[1]), int(sys.argv[2]), (sys.argv[3:] or ["fork"])[0]
    model, optimizer, _ = loops.setup()
    loaders = loader(Labelled(), slow, method), loader(Unlabelled(), quick, method)
    for x, u in zip(*loaders):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), model(u)).backward()
        optimizer.step()
    print(facts.digest(model.parameters()), facts.randomness())


if __name__ == "__main__":
    main()
