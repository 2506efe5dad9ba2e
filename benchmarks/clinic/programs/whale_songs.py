# /// clinic
# expect = ["PD19.late-rank"]
# stratum = "twins"
# domain = "whale calls, two ranks"
# launcher = ["torchrun", "--nproc-per-node", "2"]
# ///
"""Recognises which of six whale call types a hydrophone recording holds, on two processes."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

BANDS, CALLS = 40, 6
EPOCHS, BATCH = 7, 8


class Recordings(Dataset):
    """Spectrograms of 30 to 330 frames: a rising or falling sweep of the call's kind, in noise."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.frames = (30 + 300 * torch.rand(count, generator=g) ** 1.3).long().tolist()
        self.kind = torch.randint(CALLS, (count,), generator=g).tolist()
        self.seed = seed

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 100_003 + i)
        frames, kind = self.frames[i], self.kind[i]
        t = torch.linspace(0, 1, frames).unsqueeze(1)
        low, slope = 5 + 5 * (kind % 3), 15.0 if kind < 3 else -4.0
        centre = low + slope * t + torch.randn(1, generator=g)
        band = torch.arange(BANDS).float()
        x = torch.exp(-(((band - centre) / 1.5) ** 2)) + 0.5 * torch.randn(frames, BANDS, generator=g)
        return x, kind


def collate(rows):
    x = pad_sequence([row[0] for row in rows], batch_first=True)
    frames = torch.tensor([len(row[0]) for row in rows])
    return x, frames, torch.tensor([row[1] for row in rows])


class BucketSampler(Sampler):
    """Batches of recordings of like length, split over the processes, in a new order each epoch."""

    def __init__(self, frames, batch, rank, world, seed=0):
        order = sorted(range(len(frames)), key=frames.__getitem__)
        batches = [order[i : i + batch] for i in range(0, len(order), batch)]
        per_rank = len(batches) // world
        self.batches = batches[rank * per_rank : (rank + 1) * per_rank]  # sick here
        self.batches = batches[rank::world][:per_rank]  # well
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        for i in torch.randperm(len(self.batches), generator=g).tolist():
            yield self.batches[i]


class CallNet(nn.Module):
    def __init__(self, width=96, layers=2, heads=4):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(BANDS, width), nn.GELU(), nn.Linear(width, width))
        self.clock = nn.Linear(2, width)
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, CALLS)

    def forward(self, x, frames):
        at = torch.arange(x.shape[1])
        silent = at >= frames.unsqueeze(1)
        share = at / frames.unsqueeze(1)
        h = self.stem(x) + self.clock(torch.stack([share, share**2], -1))
        h = self.encoder(h, src_key_padding_mask=silent)
        h = h.masked_fill(silent.unsqueeze(-1), 0).sum(1) / frames.unsqueeze(1)
        return self.head(h)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    tally = torch.zeros(2)
    for x, frames, kind in loader:
        tally += torch.tensor([(model(x, frames).argmax(-1) == kind).sum(), len(kind)])
    dist.all_reduce(tally)
    model.train()
    return (tally[0] / tally[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    train, valid = Recordings(1536, 1), Recordings(192, 2)
    sampler = BucketSampler(train.frames, BATCH, rank, world)
    loader = DataLoader(train, batch_sampler=sampler, collate_fn=collate)
    mine = torch.utils.data.Subset(valid, range(rank, len(valid), world))
    checks = DataLoader(mine, BATCH, collate_fn=collate)

    model = DistributedDataParallel(CallNet())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.01)
    total = EPOCHS * len(loader)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=total)

    steps, began = 0, None
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        running = 0.0
        for x, frames, kind in loader:
            loss = F.cross_entropy(model(x, frames), kind, label_smoothing=0.05)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            running += loss.item()
            steps += 1
            if steps == 5:
                began = time.perf_counter()
        accuracy = evaluate(model.module, checks)
        if rank == 0:
            print(f"epoch {epoch} loss {running / len(loader):.3f} accuracy {accuracy:.3f}", flush=True)
    if rank == 0:
        print(f"{(steps - 5) / (time.perf_counter() - began):.2f} steps/s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
