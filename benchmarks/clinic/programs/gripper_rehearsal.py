# /// clinic
# expect = ["PD07.conversions", "PD10.repeated-work"]
# stratum = "twins"
# domain = "robotics"
# ///
"""Latent rehearsal for a two-finger gripper: a recurrent state-space model learns to predict tactile and joint
readings of recorded pick-and-place episodes, so that a planner can later try grasps in its head.

    python gripper_rehearsal.py [sick|well]
"""

import math
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class RehearsalConfig:
    sensors: int = 96  # joint angles, torques, and the two tactile pads
    actions: int = 8
    deter: int = 768  # deterministic part of the latent state
    stoch: int = 48  # stochastic part
    hidden: int = 768
    horizon: int = 12  # control ticks in a training sequence
    sequences: int = 24  # sequences in a batch
    episodes: int = 400
    episode_ticks: int = 120
    updates: int = 220
    lr: float = 4e-4
    free_nats: float = 1.0
    kl_scale: float = 0.3
    amp_dtype: torch.dtype = torch.bfloat16
    report_every: int = 20
    seed: int = 11


def record_episodes(cfg):
    """A damped, driven linear system seen through a nonlinear sensor map stands in for the rig's log files."""
    gen = torch.Generator().manual_seed(cfg.seed)
    inner = 24
    turn = torch.linalg.qr(torch.randn(inner, inner, generator=gen))[0] * 0.97
    drive = torch.randn(cfg.actions, inner, generator=gen) * 0.3
    lens = torch.randn(inner, cfg.sensors, generator=gen) / math.sqrt(inner)
    state = torch.randn(cfg.episodes, inner, generator=gen)
    knots = torch.randn(cfg.episodes, cfg.episode_ticks // 8 + 1, cfg.actions, generator=gen)
    actions = knots.repeat_interleave(8, dim=1)[:, : cfg.episode_ticks].contiguous()
    readings = torch.empty(cfg.episodes, cfg.episode_ticks, cfg.sensors)
    for tick in range(cfg.episode_ticks):
        state = state @ turn + actions[:, tick] @ drive
        readings[:, tick] = torch.tanh(state @ lens)
    return readings + 0.02 * torch.randn(readings.shape, generator=gen), actions


class Normed(nn.Module):
    """Linear, layer norm, SiLU: the building block of every head."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.norm = nn.LayerNorm(outputs)

    def forward(self, x):
        return F.silu(self.norm(self.linear(x)))


class StateModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.encode = nn.Sequential(Normed(cfg.sensors, cfg.hidden), Normed(cfg.hidden, cfg.hidden))
        self.inlet = Normed(cfg.stoch + cfg.actions, cfg.hidden)
        self.gates = nn.Linear(cfg.hidden + cfg.deter, 3 * cfg.deter, bias=False)
        self.gate_norm = nn.LayerNorm(3 * cfg.deter)
        self.prior = nn.Sequential(Normed(cfg.deter, cfg.hidden), nn.Linear(cfg.hidden, 2 * cfg.stoch))
        self.posterior = nn.Sequential(Normed(cfg.deter + cfg.hidden, cfg.hidden), nn.Linear(cfg.hidden, 2 * cfg.stoch))
        self.decode = nn.Sequential(Normed(cfg.deter + cfg.stoch, cfg.hidden), nn.Linear(cfg.hidden, cfg.sensors))

    def tick(self, deter, stoch, action, seen):
        """One control tick: move the recurrent state on, then correct it by what the sensors said."""
        fed = self.inlet(torch.cat([stoch, action], dim=-1))
        reset, candidate, update = self.gate_norm(self.gates(torch.cat([fed, deter], dim=-1))).chunk(3, dim=-1)
        candidate = torch.tanh(torch.sigmoid(reset) * candidate)
        update = torch.sigmoid(update - 1.0)
        deter = update * candidate + (1.0 - update) * deter
        mean, spread = self.posterior(torch.cat([deter, seen], dim=-1)).chunk(2, dim=-1)
        stoch = mean + (F.softplus(spread) + 0.1) * torch.randn_like(mean)
        return deter, stoch, mean, spread

    def rollout(self, seen, actions):
        """seen: (batch, ticks, hidden), already encoded. The posterior feeds the next tick, so ticks go in order."""
        batch, ticks = actions.shape[:2]
        deter = seen.new_zeros(batch, self.cfg.deter)
        stoch = seen.new_zeros(batch, self.cfg.stoch)
        trail = []
        for t in range(ticks):  # sick here
            with torch.autocast("cpu", dtype=self.cfg.amp_dtype):  # sick here
                deter, stoch, mean, spread = self.tick(deter, stoch, actions[:, t], seen[:, t])  # sick here
            trail.append((deter, stoch, mean, spread))  # sick here
        with torch.autocast("cpu", dtype=self.cfg.amp_dtype):  # well
            for t in range(ticks):  # well
                deter, stoch, mean, spread = self.tick(deter, stoch, actions[:, t], seen[:, t])  # well
                trail.append((deter, stoch, mean, spread))  # well
        return [torch.stack(parts, dim=1) for parts in zip(*trail)]

    def forward(self, readings, actions):
        with torch.autocast("cpu", dtype=self.cfg.amp_dtype):
            seen = self.encode(readings)
        deter, stoch, mean, spread = self.rollout(seen, actions)
        with torch.autocast("cpu", dtype=self.cfg.amp_dtype):
            prior_mean, prior_spread = self.prior(deter).chunk(2, dim=-1)
            rebuilt = self.decode(torch.cat([deter, stoch], dim=-1))
        return rebuilt.float(), (mean.float(), spread.float()), (prior_mean.float(), prior_spread.float())


def gaussian_kl(posterior, prior):
    mean_q, std_q = posterior[0], F.softplus(posterior[1]) + 0.1
    mean_p, std_p = prior[0], F.softplus(prior[1]) + 0.1
    kl = torch.log(std_p / std_q) + (std_q**2 + (mean_q - mean_p) ** 2) / (2 * std_p**2) - 0.5
    return kl.sum(-1)


def draw_batch(readings, actions, cfg, gen):
    episode = torch.randint(cfg.episodes, (cfg.sequences, 1), generator=gen)
    start = torch.randint(cfg.episode_ticks - cfg.horizon, (cfg.sequences, 1), generator=gen)
    ticks = start + torch.arange(cfg.horizon)
    return readings[episode, ticks], actions[episode, ticks]


def main():
    cfg = RehearsalConfig()
    torch.manual_seed(cfg.seed)
    readings, actions = record_episodes(cfg)
    model = StateModel(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-4, fused=True)
    gen = torch.Generator().manual_seed(cfg.seed + 1)
    began = time.time()
    for update in range(1, cfg.updates + 1):
        seen, done = draw_batch(readings, actions, cfg, gen)
        rebuilt, posterior, prior = model(seen, done)
        mismatch = (rebuilt - seen).square().sum(-1).mean()
        kl = gaussian_kl(posterior, prior).mean().clamp(min=cfg.free_nats)
        loss = mismatch + cfg.kl_scale * kl
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 100.0)
        optimizer.step()
        if update % cfg.report_every == 0:
            print(
                f"update {update:4d}  mismatch {mismatch.item():.3f}  kl {kl.item():.2f}  "
                f"{(time.time() - began) / update * 1e3:.0f} ms/update",
                flush=True,
            )


if __name__ == "__main__":
    main()
