"""An iterable data set whose workers divide its samples: `python sharded_late.py FORM WORKERS`."""

import itertools
import sys
import time

import facts
import loops
import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

STEPS = 40


def spent(values):
    """Half a millisecond of work."""
    until = time.perf_counter() + 0.0005
    while time.perf_counter() < until:
        pass
    return values * 2


def made(record):
    number, values = record
    return torch.from_numpy(spent(values)), number % 2


class Stream(IterableDataset):
    def __init__(self, form):
        self.form = form
        self.waves = np.random.default_rng(0).normal(size=(128, 8)).astype(np.float32)

    def records(self):
        yield from enumerate(self.waves)

    def samples(self):
        for record in self.records():
            yield made(record)

    def __iter__(self):
        info = get_worker_info()
        self.worker, self.workers = (info.id, info.num_workers) if info else (0, 1)
        return getattr(self, self.form)()

    def sliced(self):
        yield from itertools.islice(map(made, self.records()), self.worker, None, self.workers)

    def in_order(self):
        yield from map(made, itertools.islice(self.records(), self.worker, None, self.workers))

    def taken(self):
        for values, label in itertools.islice(self.samples(), self.worker, None, self.workers):
            yield values.clone(), label

    def numbered(self):
        info = get_worker_info()
        for number, sample in enumerate(self.samples()):
            if number % (info.num_workers if info is not None else 1) == (info.id if info is not None else 0):
                yield sample

    def skipped(self):
        for number, (label, values) in enumerate(self.records()):
            wave = spent(values)
            wave = torch.from_numpy(wave)
            if number % self.workers != self.worker:
                continue
            yield wave, label % 2

    def skipped_first(self):
        for number, record in enumerate(self.records()):
            if number % self.workers != self.worker:
                continue
            yield made(record)

    def expressed(self):
        mine, shards = self.worker, self.workers
        return (one for number, one in enumerate(map(made, self.records())) if number % shards == mine)

    def expressed_first(self):
        mine, shards = self.worker, self.workers
        return (made(one) for number, one in enumerate(self.records()) if number % shards == mine)

    def summed(self):
        """All samples count in the mean that each is centred by."""
        mean = np.zeros(8, dtype=np.float32)
        for number, (label, values) in enumerate(self.records()):
            wave = spent(values)
            mean = mean + wave / 128
            if number % self.workers == self.worker:
                yield torch.from_numpy(wave - mean), label % 2

    def averaged(self):
        mean = torch.zeros(8)
        for number, (values, label) in enumerate(self.samples()):
            mean += values / 128
            if number % self.workers == self.worker:
                yield values - mean, label

    def thinned(self):
        """Every second sample, in each worker the same ones."""
        yield from itertools.islice(map(made, self.records()), 0, None, 2)

    def cropped(self):
        """As many crops of a sample as there are workers."""
        for label, values in itertools.islice(self.records(), self.worker, None, self.workers):
            crops = [spent(values) for _ in range(2)]
            yield torch.from_numpy(crops[0] + crops[1]), label % 2

    def buffered(self):
        """Two records make a sample."""
        kept = []
        for number, (label, values) in enumerate(self.records()):
            wave = spent(values)
            kept.append(wave)
            if number % 2 == 1:
                yield torch.from_numpy(kept[-1] + kept[-2]), label % 2

    def rejected(self):
        """By what samples hold."""
        for number, (label, values) in enumerate(self.records()):
            wave = spent(values)
            if int(wave[0] * 1000) % self.workers == self.worker:
                yield torch.from_numpy(wave), label % 2


def main(form, workers):
    facts.seed()
    model, optimizer, criterion = loops.setup()
    loader = DataLoader(Stream(form), batch_size=4, num_workers=workers, persistent_workers=workers > 0)
    done = 0
    while done < STEPS:
        for x, y in loader:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            done += 1
    print(facts.digest(model.parameters()), facts.randomness(), sys.gettrace(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
