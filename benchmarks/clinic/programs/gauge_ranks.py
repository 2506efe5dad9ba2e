# /// clinic
# expect = ["PD19"]
# stratum = "twins"
# domain = "hydrology"
# launcher = ["torchrun", "--nproc-per-node", "2"]
# sizes = {WIDTH = [23, 25], BATCH = [11, 13]}
# ///
"""Streamflow forecasting at river gauges with a causal transformer, data-parallel over two processes.

Attention carries a recency bias per head (linear in the time lag), laid out once for the longest record we serve.
"""

import math
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 24  # per head
BATCH = 12
HEADS = 6
LAYERS = 4
LONGEST = 640
DAYS = 96
FORCINGS = 7
GAUGES = 300
RECORD = 1500
STEPS = 170
WARMUP = 10


def make_records(rank):
    """Daily forcings and the flow of a linear reservoir, the gauges of this rank."""
    g = torch.Generator().manual_seed(100 + rank)
    forcing = torch.randn(GAUGES, RECORD, FORCINGS, generator=g)
    rain = torch.relu(forcing[..., 0])
    store = torch.zeros(GAUGES)
    leak = 0.85 + 0.13 * torch.rand(GAUGES, generator=g)
    flow = torch.empty(GAUGES, RECORD)
    for day in range(RECORD):
        store = leak * store + rain[:, day]
        flow[:, day] = (1 - leak) * store
    return forcing, flow


class RecencyAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        lag = torch.arange(LONGEST)[:, None] - torch.arange(LONGEST)[None, :]
        slope = torch.tensor([2.0 ** (-8 * (h + 1) / heads) for h in range(heads)])
        bias = -slope[:, None, None] * lag
        self.register_buffer("bias", bias.masked_fill(lag < 0, -math.inf))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias[:, :t, :t])
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = RecencyAttention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GaugeTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        width = WIDTH * HEADS
        self.embed = nn.Linear(FORCINGS, width)
        self.blocks = nn.Sequential(*[Block(width, HEADS) for _ in range(LAYERS)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, forcing):
        return self.head(self.blocks(self.embed(forcing))).squeeze(-1)


def main():
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    forcing, flow = make_records(rank)
    torch.manual_seed(4)
    model = DistributedDataParallel(GaugeTransformer())  # sick here
    model = DistributedDataParallel(GaugeTransformer(), forward_sync_buffers=False)  # well
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    draw = torch.Generator().manual_seed(rank)
    window = torch.arange(DAYS)

    start = None
    for step in range(STEPS):
        if step == WARMUP:
            dist.barrier()
            start = time.perf_counter()
        gauge = torch.randint(0, GAUGES, (BATCH, 1), generator=draw)
        days = torch.randint(0, RECORD - DAYS, (BATCH, 1), generator=draw) + window
        loss = F.smooth_l1_loss(model(forcing[gauge, days]), flow[gauge, days])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0 and rank == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    dist.barrier()
    elapsed = time.perf_counter() - start
    if rank == 0:
        print(f"{(STEPS - WARMUP) * BATCH * ranks / elapsed:.1f} windows/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
