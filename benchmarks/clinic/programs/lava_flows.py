# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "lava flows"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Latent neural ODE for the advance of lava flows, with a critic on the latent paths.  torchrun, gloo.

A recognition GRU reads the thermal record of a flow backwards, the latent state is integrated forwards with fixed-step
Runge-Kutta, and two heads give back the record and the position of the front.
"""

import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

SENSORS = 20
TIMES = 14


def erupt(count, seed):
    """Cooling and advance of `count` flows, seen by a row of thermal sensors at irregular times."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0, 10, TIMES - 1))
    times = np.concatenate([[0.0], times])
    supply = rng.uniform(0.5, 2.0, (count, 1))
    slope = rng.uniform(0.05, 0.4, (count, 1))
    decay = rng.uniform(0.1, 0.4, (count, 1))
    front = supply * np.sqrt(slope) * (1 - np.exp(-decay * times)) / decay
    place = np.linspace(0.1, 4, SENSORS)
    reached = 1 / (1 + np.exp(-6 * (front[:, :, None] - place)))
    pulse = 0.15 * np.sin(rng.uniform(1, 3, (count, 1)) * times + rng.uniform(0, 6.28, (count, 1)))
    crust = np.exp(-0.15 * np.maximum(0, times[None, :, None] - place))
    heat = reached * crust * (1 + pulse[:, :, None])
    heat += rng.normal(0, 0.02, heat.shape)
    return times, heat, front


class FlowRecords(Dataset):
    def __init__(self, heat, front):
        self.heat = torch.from_numpy(heat)  # sick here
        self.front = torch.from_numpy(front)  # sick here
        self.heat = torch.from_numpy(heat).float()  # well
        self.front = torch.from_numpy(front).float()  # well

    def __len__(self):
        return len(self.heat)

    def __getitem__(self, i):
        return self.heat[i], self.front[i]


class Dynamics(nn.Module):
    def __init__(self, latent, hidden):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(latent, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, latent),
        )

    def forward(self, z):
        return self.net(z)


def runge_kutta(func, z, steps):
    path = [z]
    for h in steps:
        k1 = func(z)
        k2 = func(z + h / 2 * k1)
        k3 = func(z + h / 2 * k2)
        k4 = func(z + h * k3)
        z = z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        path.append(z)
    return torch.stack(path, 1)


class LatentODE(nn.Module):
    def __init__(self, times, latent=24, hidden=128):
        super().__init__()
        self.steps = np.diff(times).tolist()
        self.recognise = nn.GRU(SENSORS, hidden, batch_first=True)
        self.to_latent = nn.Linear(hidden, 2 * latent)
        self.dynamics = Dynamics(latent, hidden)
        self.heat = nn.Sequential(nn.Linear(latent, hidden), nn.SiLU(), nn.Linear(hidden, SENSORS))
        self.front = nn.Sequential(nn.Linear(latent, 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, heat):
        _, last = self.recognise(heat.flip(1))
        mean, log_std = self.to_latent(last[0]).chunk(2, -1)
        z0 = mean + log_std.exp() * torch.randn_like(mean) if self.training else mean
        path = runge_kutta(self.dynamics, z0, self.steps)
        return self.heat(path), self.front(path).squeeze(-1), path, mean, log_std


class PathCritic(nn.Module):
    """Tells records that the sensors took from records that the model decoded."""

    def __init__(self, hidden=48):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(SENSORS, hidden, 3, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv1d(hidden, hidden, 3, stride=2, padding=1),
            nn.LeakyReLU(0.2),
        )
        self.out = nn.Linear(hidden, 1)

    def forward(self, record):
        return self.out(self.conv(record.transpose(1, 2)).mean(-1)).squeeze(-1)


class Trainer:
    def __init__(self, rank, world, epochs=6, batch=64):
        self.rank, self.epochs, self.batch = rank, epochs, batch
        times, heat, front = erupt(5376, seed=9)
        self.train_set = FlowRecords(heat[:4800], front[:4800])
        self.test_set = FlowRecords(heat[4800:], front[4800:])
        self.sampler = DistributedSampler(self.train_set, world, rank, shuffle=True, drop_last=True)
        self.loader = DataLoader(self.train_set, batch_size=batch, sampler=self.sampler, drop_last=True)
        model, critic = LatentODE(times), PathCritic()
        model, critic = model.double(), critic.double()  # sick here
        self.model = DDP(model)
        self.critic = DDP(critic, broadcast_buffers=False)
        self.opt = torch.optim.Adamax(model.parameters(), 4e-3)
        self.critic_opt = torch.optim.Adam(critic.parameters(), 2e-4, betas=(0.5, 0.9))
        self.decay = torch.optim.lr_scheduler.ExponentialLR(self.opt, 0.9)

    def critic_step(self, heat, decoded):
        scores = self.critic(torch.cat([heat, decoded.detach()]))
        real, fake = scores.chunk(2)
        loss = F.softplus(-real).mean() + F.softplus(fake).mean()
        self.critic_opt.zero_grad()
        loss.backward()
        self.critic_opt.step()
        return loss.detach()

    def model_step(self, heat, front, kl_weight):
        decoded, front_hat, path, mean, log_std = self.model(heat)
        critic_loss = self.critic_step(heat, decoded)
        record = F.mse_loss(decoded, heat) / 0.02
        advance = F.smooth_l1_loss(front_hat, front)
        kl = 0.5 * (mean.square() + (2 * log_std).exp() - 2 * log_std - 1).sum(-1).mean()
        smooth = (path[:, 2:] - 2 * path[:, 1:-1] + path[:, :-2]).square().mean()
        self.critic.module.requires_grad_(False)
        fool = F.softplus(-self.critic.module(decoded)).mean()
        self.critic.module.requires_grad_(True)
        loss = record + advance + kl_weight * kl + 1e-2 * smooth + 0.05 * fool
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 10.0)
        self.opt.step()
        return torch.stack([record.detach(), advance.detach(), kl.detach(), critic_loss])

    @torch.no_grad()
    def test(self):
        model = self.model.module.eval()
        heat, front = self.test_set[:]
        decoded, front_hat, *_ = model(heat)
        model.train()
        return F.mse_loss(decoded, heat).item(), (front_hat - front).abs().mean().item()

    def fit(self):
        start, seen = time.perf_counter(), 0
        for epoch in range(self.epochs):
            self.sampler.set_epoch(epoch)
            losses = []
            for heat, front in self.loader:
                losses.append(self.model_step(heat, front, kl_weight=min(1.0, epoch / 5) * 1e-2))
                seen += len(heat)
            self.decay.step()
            if self.rank == 0:
                record, advance, kl, critic = torch.stack(losses).mean(0).tolist()
                mse, off = self.test()
                print(f"epoch {epoch} record {record:.3f} front {advance:.3f} kl {kl:.2f} critic {critic:.3f}", end=" ")
                print(f"test mse {mse:.4f} front error {off:.3f}", flush=True)
            dist.barrier()
        return seen * dist.get_world_size() / (time.perf_counter() - start)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(40)
    rate = Trainer(dist.get_rank(), dist.get_world_size()).fit()
    if dist.get_rank() == 0:
        print(f"{rate:.1f} flows/s")
    dist.destroy_process_group()
