# /// clinic
# expect = ["PD19.accumulation-without-no-sync"]
# stratum = "twins"
# domain = "cable cars"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Discrete-time survival model for the haul ropes of cable cars.

torchrun --nproc-per-node 2 gondola_ropes.py

Every rope is inspected magnetically; the trace (stray field along one lay length, two Hall sensors) and the ropeway's
operating data predict in which inspection period the next outer wire will break. Ropes that were replaced before a
break are right censored. Nights of inspection arrive as small groups, an update uses several groups.
"""

import contextlib
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

SAMPLES = 256  # per sensor
OPERATION = ("span", "tension", "speed", "gondolas", "sheaves", "age", "frost_days", "storm_hours")
PERIODS = 24

CONFIG = dict(
    ropes=8192,
    holdout=1024,
    group=32,
    groups_per_update=4,
    updates=200,
    log_every=25,
    lr=4e-4,
    width=1024,
    dropout=0.1,
)


def make_ropes(count, generator):
    """Traces (count, 2 * SAMPLES), operating data, period of the break or of censoring, and whether it broke."""
    position = torch.linspace(0, 1, SAMPLES)
    operation = torch.randn(count, len(OPERATION), generator=generator)
    fatigue = 0.6 * operation[:, 5] + 0.3 * operation[:, 1] + 0.2 * operation[:, 1] * operation[:, 4]

    strands = torch.randint(6, 9, (count, 1), generator=generator)
    phase = torch.rand(count, 1, generator=generator)
    base = torch.sin(2 * torch.pi * (strands * position + phase))
    traces = torch.stack([base, 0.8 * torch.roll(base, 7, dims=1)], dim=1)
    damage = torch.zeros(count)
    for _ in range(4):
        where = torch.rand(count, 1, generator=generator)
        depth = torch.rand(count, 1, generator=generator) ** 3 * (1 + 0.4 * fatigue[:, None]).clamp_min(0)
        notch = (position - where) / 0.01
        traces[:, 0] += 2 * depth * notch * torch.exp(-0.5 * notch**2)
        traces[:, 1] += 1.5 * depth * torch.exp(-0.5 * notch**2)
        damage += depth.squeeze(1)
    traces += 0.2 * torch.randn(traces.shape, generator=generator)

    log_rate = -3.4 + 0.7 * fatigue + 1.1 * damage
    unit = torch.rand(count, generator=generator).clamp_min(1e-6)
    lifetime = (-unit.log() / log_rate.exp()).pow(0.8)
    censored_at = torch.randint(4, 2 * PERIODS, (count,), generator=generator).float()
    last = torch.minimum(lifetime, censored_at)
    broke = (lifetime <= censored_at) & (last < PERIODS)
    return traces.flatten(1), operation, last.clamp(max=PERIODS - 1).long(), broke


class Residual(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.drop(F.gelu(self.up(self.norm(x))))


class RopeHazard(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.trace = nn.Linear(2 * SAMPLES, width)
        self.operation = nn.Sequential(nn.Linear(len(OPERATION), 128), nn.GELU(), nn.Linear(128, width))
        self.blocks = nn.Sequential(*[Residual(width, dropout) for _ in range(2)])
        self.hazard = nn.Linear(width, PERIODS)
        nn.init.constant_(self.hazard.bias, -3.0)

    def forward(self, traces, operation):
        x = F.gelu(self.trace(traces)) + self.operation(operation)
        return self.hazard(self.blocks(x))


def survival_nll(logits, last, broke):
    period = torch.arange(PERIODS)
    survived = F.logsigmoid(-logits) * (period < last[:, None])
    final = logits.gather(1, last[:, None]).squeeze(1)
    final = torch.where(broke, F.logsigmoid(final), F.logsigmoid(-final))
    return -(survived.sum(1) + final).mean()


@torch.no_grad()
def concordance(model, traces, operation, last, broke):
    """Share of comparable pairs that are ranked the right way round by the expected number of breaks."""
    model.eval()
    risk = torch.cat([model(t, o).sigmoid().sum(1) for t, o in zip(traces.split(128), operation.split(128))])
    model.train()
    comparable = broke[:, None] & (last[:, None] < last[None, :])
    right = (risk[:, None] > risk[None, :]) & comparable
    return right.sum(), comparable.sum()


def update(ddp, groups, optimizer):
    """One optimizer step on the mean of all groups; returns the loss."""
    optimizer.zero_grad(set_to_none=True)
    total = torch.zeros(())
    for i, (traces, operation, last, broke) in enumerate(groups):
        share = 1.0 / len(groups)
        sync = contextlib.nullcontext() if i + 1 == len(groups) else ddp.no_sync()  # well
        with sync:  # well
            loss = share * survival_nll(ddp(traces, operation), last, broke)  # well
            loss.backward()  # well
        loss = share * survival_nll(ddp(traces, operation), last, broke)  # sick
        loss.backward()  # sick here
        total += loss.detach()
    nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
    optimizer.step()
    return total


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    cfg = CONFIG
    torch.manual_seed(1908)

    data = make_ropes(cfg["ropes"] + cfg["holdout"], torch.Generator().manual_seed(66))
    train = [part[: cfg["ropes"]][rank::world] for part in data]
    valid = [part[cfg["ropes"] :][rank::world] for part in data]

    model = RopeHazard(cfg["width"], cfg["dropout"])
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=20 * cfg["lr"], momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 50 * cfg["lr"], total_steps=cfg["updates"])
    if rank == 0:
        print(f"pid {os.getpid()}: {sum(p.numel() for p in model.parameters()):,} parameters, {world} ranks")

    generator = torch.Generator().manual_seed(rank)
    rows_per_update = cfg["group"] * cfg["groups_per_update"]
    dist.barrier()
    start = time.perf_counter()
    for number in range(1, cfg["updates"] + 1):
        rows = torch.randint(len(train[0]), (rows_per_update,), generator=generator)
        groups = [[part[r] for part in train] for r in rows.split(cfg["group"])]
        loss = update(ddp, groups, optimizer)
        schedule.step()
        if number % cfg["log_every"] == 0:
            right, comparable = concordance(model, *valid)
            summary = torch.stack([right.float(), comparable.float(), loss * comparable])
            dist.all_reduce(summary)
            if rank == 0:
                c_index, mean_loss = (summary[:1] / summary[1]).item(), (summary[2] / summary[1]).item()
                print(f"update {number:4d}  nll {mean_loss:.3f}  c-index {c_index:.3f}", flush=True)
    seconds = time.perf_counter() - start
    if rank == 0:
        print(f"{cfg['updates'] * rows_per_update * world / seconds:.1f} ropes/s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
