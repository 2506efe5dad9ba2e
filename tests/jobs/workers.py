"""Loaders with worker processes: `python workers.py fork spawn ...`."""

import gc
import sys
import threading
import time

import facts
import loops
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Slow(Dataset):
    """Every sample takes a millisecond, and says where it was made."""

    def __len__(self):
        return 32

    def __getitem__(self, index):
        time.sleep(0.001)
        info = get_worker_info()
        return torch.full((8,), index / 10.0), torch.tensor(info.id % 2)


class Failing(Slow):
    def __getitem__(self, index):
        raise LookupError(f"no sample {index}")


def main():
    facts.seed()
    model, optimizer, criterion = loops.setup()
    for method in sys.argv[1:]:
        name, _, persistent = method.partition("-")
        loader = DataLoader(
            Slow(),
            batch_size=4,
            num_workers=2,
            shuffle=True,
            multiprocessing_context=name,
            persistent_workers=bool(persistent),
            collate_fn=loops.collate,
        )
        for _ in range(2 if name == "fork" or persistent else 1):
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
        print(method, facts.digest(model.parameters()), facts.randomness(), flush=True)
    del loader
    try:
        next(iter(DataLoader(Failing(), num_workers=2)))
    except LookupError as error:
        print(str(error).splitlines()[-1])
    # The error holds its iterator in a cycle, and threads of the iterators' queues close their pipes some time later.
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":
            thread.join(timeout=10)
    facts.show("process", facts.process())


if __name__ == "__main__":
    main()
