# /// clinic
# expect = ["PD19.buffers-broadcast"]
# stratum = "twins"
# domain = "click-through prediction, two ranks"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Click-through prediction on hashed categorical features, data parallel: torchrun --nproc-per-node 2 job.py"""

import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HASH_SPACE = 1 << 21
VOCABULARY = 12000
N_FIELDS = 20
N_NUMERIC = 13
EMBED = 16
BATCH = 1024
STEPS = 900
EVAL_EVERY = 300


def make_vocabulary(seed):
    """Which hash buckets were frequent enough for a row of their own, and the click rates seen before."""
    gen = torch.Generator().manual_seed(seed)
    frequent = torch.randperm(HASH_SPACE, generator=gen)[: VOCABULARY - 1]
    rows = torch.zeros(HASH_SPACE, dtype=torch.long)
    rows[frequent] = torch.arange(1, VOCABULARY)
    prior = torch.randn(HASH_SPACE, generator=gen) * 0.1
    return frequent, rows, prior


class Impressions:
    """One shard of the log of impressions."""

    def __init__(self, count, frequent, seed):
        gen = torch.Generator().manual_seed(seed)
        rank = torch.rand(count, N_FIELDS, generator=gen).pow(3).mul(len(frequent)).long()
        self.hashes = frequent[rank]
        rare = torch.rand(count, N_FIELDS, generator=gen) < 0.05
        self.hashes[rare] = torch.randint(HASH_SPACE, (int(rare.sum()),), generator=gen)
        self.numeric = torch.randn(count, N_NUMERIC, generator=gen)
        effect = torch.randn(HASH_SPACE, generator=torch.Generator().manual_seed(99)) * 0.5
        logit = effect[self.hashes].sum(1) + self.numeric[:, 0] * self.numeric[:, 1] - 1.0
        self.clicks = (torch.rand(count, generator=gen) < logit.sigmoid()).float()
        self.gen = gen

    def __len__(self):
        return len(self.clicks)

    def epoch(self, batch_size, shuffle=True):
        order = torch.randperm(len(self), generator=self.gen) if shuffle else torch.arange(len(self))
        for index in order.split(batch_size):
            if len(index) == batch_size:
                yield self.hashes[index], self.numeric[index], self.clicks[index]


class HashedEmbedding(nn.Module):
    """Hash bucket to row of the table; every rare bucket shares row 0."""

    def __init__(self, rows, prior):
        super().__init__()
        self.register_buffer("rows", rows)
        self.register_buffer("prior", prior)
        self.table = nn.Embedding(VOCABULARY, EMBED)
        nn.init.normal_(self.table.weight, std=0.05)

    def forward(self, hashes):
        return self.table(self.rows[hashes]), self.prior[hashes]


class ClickModel(nn.Module):
    def __init__(self, rows, prior):
        super().__init__()
        self.embed = HashedEmbedding(rows, prior)
        self.bottom = nn.Sequential(nn.Linear(N_NUMERIC, 64), nn.ReLU(), nn.Linear(64, EMBED))
        pairs = torch.triu_indices(N_FIELDS + 1, N_FIELDS + 1, 1)
        self.register_buffer("pairs", pairs[0] * (N_FIELDS + 1) + pairs[1])
        inputs = self.pairs.numel() + EMBED + N_FIELDS
        self.top = nn.Sequential(nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, hashes, numeric):
        dense = self.bottom(numeric)
        vectors, prior = self.embed(hashes)
        vectors = torch.cat([vectors, dense[:, None]], 1)
        crossed = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        return self.top(torch.cat([crossed, dense, prior], 1)).squeeze(1)


@torch.no_grad()
def log_loss(model, shard):
    model.eval()
    total = torch.zeros(2)
    for hashes, numeric, clicks in shard.epoch(2048, shuffle=False):
        total[0] += F.binary_cross_entropy_with_logits(model(hashes, numeric), clicks, reduction="sum")
        total[1] += len(clicks)
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


def forever(shard):
    while True:
        yield from shard.epoch(BATCH)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11)
    frequent, rows, prior = make_vocabulary(seed=5)
    train = Impressions(100_000, frequent, seed=100 + rank)
    valid = Impressions(8192, frequent, seed=200 + rank)

    model = ClickModel(rows, prior)
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)  # sick here
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True, forward_sync_buffers=False)  # well
    optimizer = torch.optim.Adam(ddp.parameters(), lr=1e-3, fused=True)

    start, running = None, 0.0
    for step, (hashes, numeric, clicks) in enumerate(forever(train), 1):
        loss = F.binary_cross_entropy_with_logits(ddp(hashes, numeric), clicks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
        if step == 5:
            dist.barrier()
            start = time.perf_counter()
        if step % EVAL_EVERY == 0:
            held_out = log_loss(model, valid)
            if rank == 0:
                print(f"step {step}: loss {running / EVAL_EVERY:.4f}, held-out log loss {held_out:.4f}", flush=True)
            running = 0.0
        if step == STEPS:
            break
    if rank == 0:
        torch.save(model.state_dict(), "clicks.pt")
    dist.barrier()
    seconds = time.perf_counter() - start
    if rank == 0:
        print(f"{world} ranks, {BATCH * world * (STEPS - 5) / seconds:.0f} impressions/s")
        print(f"{(STEPS - 5) / seconds:.3f} steps/s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
