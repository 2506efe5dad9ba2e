# /// clinic
# expect = ["PD09.dense-embedding-gradient"]
# stratum = "twins"
# domain = "cuckoo clock escapements"
# ///
"""Rate error of cuckoo clocks from a workshop's ledger of escapement readings (Accelerate).

Every row of the ledger is one reading: which clock (serial number), which maker's movement, which type of escapement,
and what the timing machine heard: beat error, amplitude, drop, lock, recoil and the like. The target is the clock's
gain or loss in minutes a day. Clocks come back many times, so each serial number has a learned character of its own.
"""

import argparse
import time

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

ESCAPEMENTS = ("recoil", "deadbeat", "brocot", "verge", "pin-pallet")


class Ledger(Dataset):
    """Synthetic ledger; answers a list of row numbers with a whole batch."""

    def __init__(self, rows: int, clocks: int, makers: int, seed: int):
        world = np.random.default_rng(99)
        maker_of = world.integers(0, makers, clocks)
        type_of = world.integers(0, len(ESCAPEMENTS), clocks)
        wear = world.gamma(2.0, 0.5, clocks)
        pendulum = world.normal(0, 1.0, clocks)
        maker_bias = world.normal(0, 1.2, makers)
        type_slope = world.normal(0, 0.8, (len(ESCAPEMENTS), 4))

        rng = np.random.default_rng(seed)
        clock = rng.integers(0, clocks, rows)
        kind = type_of[clock]
        beat = rng.normal(0, 1, rows)
        amplitude = rng.normal(0, 1, rows) - 0.4 * wear[clock]
        drop = rng.normal(0, 1, rows) + 0.5 * wear[clock]
        recoil = rng.normal(0, 1, rows) + (kind == 0)
        weight_drive, bellows, humidity, temperature = rng.normal(0, 1, (4, rows))
        slope = type_slope[kind]
        error = slope[:, 0] * beat + slope[:, 1] * amplitude * drop + slope[:, 2] * np.tanh(recoil)
        error += slope[:, 3] * temperature + 0.3 * humidity * (drop > 1) + 0.2 * weight_drive
        error += maker_bias[maker_of[clock]] + 1.5 * pendulum[clock] + rng.normal(0, 0.3, rows)
        readings = [beat, amplitude, drop, recoil, weight_drive, bellows, humidity, temperature]

        self.clock = torch.from_numpy(clock)
        self.maker = torch.from_numpy(maker_of[clock])
        self.kind = torch.from_numpy(kind)
        self.readings = torch.from_numpy(np.stack(readings, 1).astype(np.float32))
        self.error = torch.from_numpy(error.astype(np.float32))

    def __len__(self):
        return len(self.error)

    def __getitem__(self, rows):
        rows = torch.as_tensor(rows)
        return self.clock[rows], self.maker[rows], self.kind[rows], self.readings[rows], self.error[rows]


class CharacterTable(nn.Module):
    """One learned vector for every serial number in the ledger."""

    def __init__(self, clocks: int, width: int):
        super().__init__()
        self.table = nn.Embedding(clocks, width)  # sick here
        self.table = nn.Embedding(clocks, width, sparse=True)  # well
        nn.init.normal_(self.table.weight, std=0.05)

    def forward(self, clock):
        return self.table(clock)


class RateModel(nn.Module):
    """Readings modulated by escapement and maker, then a residual MLP together with the clock's character."""

    def __init__(self, makers: int, character: int, width: int):
        super().__init__()
        self.maker = nn.Embedding(makers, 16)
        self.kind = nn.Embedding(len(ESCAPEMENTS), 8)
        self.film = nn.Linear(24, 2 * 64)
        self.readings = nn.Linear(8, 64)
        self.inlet = nn.Linear(64 + 24 + character, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
            for _ in range(2)
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, character, maker, kind, readings):
        context = torch.cat([self.maker(maker), self.kind(kind)], 1)
        scale, shift = self.film(context).chunk(2, 1)
        heard = torch.tanh(self.readings(readings)) * (1 + scale) + shift
        h = self.inlet(torch.cat([heard, context, character], 1))
        for block in self.blocks:
            h = h + block(h)
        return self.head(h)[:, 0]


def evaluate(accelerator, characters, model, loader):
    model.eval()
    errors = []
    with torch.no_grad():
        for clock, maker, kind, readings, error in loader:
            guess = model(characters(clock), maker, kind, readings)
            errors.append(accelerator.gather_for_metrics((guess - error).abs()))
    model.train()
    return torch.cat(errors).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clocks", type=int, default=50_000)
    parser.add_argument("--makers", type=int, default=120)
    parser.add_argument("--rows", type=int, default=204_800)
    parser.add_argument("--character", type=int, default=48)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()

    accelerator = Accelerator(cpu=True)
    set_seed(17)
    train_set = Ledger(args.rows, args.clocks, args.makers, seed=1)
    val_set = Ledger(args.rows // 10, args.clocks, args.makers, seed=2)
    train = DataLoader(
        train_set, batch_size=None, sampler=BatchSampler(RandomSampler(train_set), args.batch_size, drop_last=True)
    )
    val = DataLoader(val_set, batch_size=None, sampler=BatchSampler(SequentialSampler(val_set), 2048, drop_last=False))

    characters = CharacterTable(args.clocks, args.character)
    model = RateModel(args.makers, args.character, args.width)
    table_optimizer = torch.optim.Adam(characters.parameters(), lr=5 * args.lr)  # sick here
    table_optimizer = torch.optim.SparseAdam(characters.parameters(), lr=5 * args.lr)  # well
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train))
    characters, model, table_optimizer, optimizer = accelerator.prepare(characters, model, table_optimizer, optimizer)

    rows = 0
    start = time.perf_counter()
    for epoch in range(args.epochs):
        running = 0.0
        for clock, maker, kind, readings, error in train:
            guess = model(characters(clock), maker, kind, readings)
            loss = nn.functional.huber_loss(guess, error, delta=2.0)
            table_optimizer.zero_grad()
            optimizer.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            table_optimizer.step()
            optimizer.step()
            schedule.step()
            running += loss.detach()
            rows += len(error)
        mae = evaluate(accelerator, characters, model, val)
        accelerator.print(f"epoch {epoch}: loss {running.item() / len(train):.4f}, off by {mae:.3f} min/day")
    rate = rows / (time.perf_counter() - start)
    accelerator.print(f"{rate:.1f} readings/s")


if __name__ == "__main__":
    main()
