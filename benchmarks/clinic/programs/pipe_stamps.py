# /// clinic
# expect = ["PD19.accumulation-without-no-sync"]
# stratum = "twins"
# domain = "clay pipe stamps"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""VAE of the stamps on the heels of clay tobacco pipes, trained on two ranks.

Run: torchrun --nproc-per-node 2 train.py
"""

import os
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

SIDE = 48


@dataclass
class Config:
    stamps: int = 3200
    held: int = 256
    micro: int = 8
    accumulate: int = 4
    epochs: int = 4
    hidden: int = 768
    latent: int = 32
    beta: float = 0.02
    lr: float = 1.5e-3
    log_every: int = 10
    seed: int = 31


def press_stamps(count, seed):
    """Pictures [count, 1, SIDE, SIDE] of worn stamps: a round or oval frame, spokes or petals, pearls, wear."""
    gen = np.random.default_rng(seed)
    y, x = np.mgrid[-1 : 1 : SIDE * 1j, -1 : 1 : SIDE * 1j].astype(np.float32)
    stamps = np.empty((count, 1, SIDE, SIDE), dtype=np.float32)
    for n in range(count):
        cx, cy = gen.normal(0, 0.08, 2)
        squeeze = gen.uniform(0.8, 1.2)
        r = np.hypot((x - cx) * squeeze, y - cy)
        turn = np.arctan2(y - cy, x - cx) + gen.uniform(0, 2 * np.pi)
        frame = np.exp(-(((r - gen.uniform(0.65, 0.8)) / 0.06) ** 2))
        petals = int(gen.integers(3, 9))
        flower = (r < 0.5) * (0.5 + 0.5 * np.cos(petals * turn)) ** 2
        pearls = np.exp(-(((r - 0.58) / 0.05) ** 2)) * (np.cos(2 * petals * turn) > 0.4)
        wear = np.clip(1 - np.exp(3 * (x * gen.normal() + y * gen.normal() - 1.2)), 0.1, 1)
        stamps[n, 0] = (0.8 * frame + 0.9 * flower + 0.6 * pearls) * wear + gen.normal(0, 0.04, x.shape)
    return torch.from_numpy(stamps).clamp_(0, 1)


class StampVAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(1, 16, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(16, 32, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(32, 64, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(64 * 36, cfg.hidden),
            nn.SiLU(),
            nn.Linear(cfg.hidden, 2 * cfg.latent),
        )
        self.expand = nn.Sequential(
            nn.Linear(cfg.latent, cfg.hidden), nn.SiLU(), nn.Linear(cfg.hidden, 64 * 36), nn.SiLU()
        )
        self.decode = nn.Sequential(
            nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1),
        )

    def forward(self, x):
        mean, log_var = self.encode(x).chunk(2, dim=1)
        code = mean + torch.randn_like(mean) * (0.5 * log_var).exp() if self.training else mean
        return self.decode(self.expand(code).view(-1, 64, 6, 6)), mean, log_var


def elbo(output, x, beta):
    picture, mean, log_var = output
    rest = F.binary_cross_entropy_with_logits(picture, x, reduction="none").sum((1, 2, 3)).mean()
    kl = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(1).mean()
    return rest + beta * kl, rest, kl


@torch.no_grad()
def evaluate(model, held, cfg, rank, world):
    model.eval()
    sums = torch.zeros(2)
    for part in held[rank::world].split(4 * cfg.micro):
        _, rest, _ = elbo(model(part), part, cfg.beta)
        sums += torch.tensor([rest.item() * len(part), len(part)])
    dist.all_reduce(sums)
    model.train()
    return (sums[0] / sums[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    stamps, held = press_stamps(cfg.stamps, cfg.seed), press_stamps(cfg.held, cfg.seed + 1)
    sampler = DistributedSampler(stamps, num_replicas=world, rank=rank, shuffle=True, drop_last=True)
    loader = DataLoader(TensorDataset(stamps), batch_size=cfg.micro, sampler=sampler, drop_last=True)

    model = DistributedDataParallel(StampVAE(cfg))
    torch.manual_seed(cfg.seed + rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-4)
    updates = cfg.epochs * (len(loader) // cfg.accumulate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=cfg.lr, total_steps=updates + 1)
    if rank == 0:
        print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, {updates} updates, {world} ranks")

    seen, update, began = 0, 0, time.perf_counter()
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        for n, (x,) in enumerate(loader):
            last = (n + 1) % cfg.accumulate == 0
            model.require_backward_grad_sync = last  # well
            loss, rest, kl = elbo(model(x), x, cfg.beta)
            (loss / cfg.accumulate).backward()  # here
            seen += len(x) * world
            if last:
                nn.utils.clip_grad_norm_(model.parameters(), 50.0)
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
                update += 1
                if rank == 0 and update % cfg.log_every == 0:
                    print(f"update {update:3d}  rest {rest.item():.1f}  kl {kl.item():.1f}")
        held_rest = evaluate(model.module, held, cfg, rank, world)
        if rank == 0:
            print(f"epoch {epoch + 1}  held-out rest {held_rest:.1f}")
            torch.save(model.module.state_dict(), os.path.join(os.getcwd(), "stamps.pt"))
    dist.barrier()
    rate = seen / (time.perf_counter() - began)
    dist.destroy_process_group()
    if rank == 0:
        print(f"{rate:.1f} stamps/s")


if __name__ == "__main__":
    main()
