# /// clinic
# expect = ["PD17.passes-one-by-one"]
# stratum = "twins"
# domain = "balcony plants"
# ///
"""World model of a balcony: eight pots, a watering valve each, weather that nobody controls.

A recurrent state-space model is fitted on logged seasons; an actor and a critic are trained in its imagination.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence


@dataclass
class Config:
    pots: int = 8
    seasons: int = 300
    days: int = 64
    batch: int = 36
    window: int = 20
    deter: int = 192
    stoch: int = 32
    hidden: int = 192
    horizon: int = 3
    gamma: float = 0.97
    lam: float = 0.95
    free_nats: float = 1.0
    kl_scale: float = 0.5
    steps: int = 220
    eval_every: int = 110


class Balcony:
    """Soil moisture, biomass and weather of many balconies at once."""

    def __init__(self, n, pots, rng):
        self.n, self.pots, self.rng = n, pots, rng
        self.thirst = rng.uniform(0.5, 1.5, (1, pots))
        self.reset()

    def reset(self):
        self.moisture = self.rng.uniform(0.3, 0.7, (self.n, self.pots))
        self.mass = np.full((self.n, self.pots), 0.2)
        self.sun = self.rng.uniform(0.2, 0.8, (self.n, 1))
        return self.observe()

    def observe(self):
        leaves = np.tanh(2 * self.mass) * (1 - (self.moisture - 0.5) ** 2)
        clean = np.concatenate([self.moisture, self.mass, leaves, self.sun, 1 - self.sun], 1)
        return (clean + self.rng.normal(0, 0.02, clean.shape)).astype(np.float32)

    def step(self, water):
        self.sun = np.clip(0.85 * self.sun + 0.15 * self.rng.uniform(0, 1, (self.n, 1)), 0, 1)
        drink = 0.12 * self.thirst * (0.3 + self.sun) * (0.5 + self.mass)
        self.moisture = np.clip(self.moisture - drink + 0.15 * (water + 1), 0, 1.2)
        growth = 0.06 * self.sun * np.exp(-8 * (self.moisture - 0.55) ** 2) - 0.01
        self.mass = np.clip(self.mass + growth, 0, 2)
        reward = 10 * growth.mean(1) - 0.05 * (water + 1).mean(1)
        return self.observe(), reward.astype(np.float32)


def mlp(inp, hidden, out, layers=2):
    parts = []
    for _ in range(layers):
        parts += [nn.Linear(inp, hidden), nn.LayerNorm(hidden), nn.SiLU()]
        inp = hidden
    return nn.Sequential(*parts, nn.Linear(inp, out))


class WorldModel(nn.Module):
    def __init__(self, cfg, obs_dim):
        super().__init__()
        self.cfg = cfg
        self.encoder = mlp(obs_dim, cfg.hidden, cfg.hidden)
        self.inp = nn.Linear(cfg.stoch + cfg.pots, cfg.hidden)
        self.cell = nn.GRUCell(cfg.hidden, cfg.deter)
        self.prior_net = mlp(cfg.deter, cfg.hidden, 2 * cfg.stoch, 1)
        self.post_net = mlp(cfg.deter + cfg.hidden, cfg.hidden, 2 * cfg.stoch, 1)
        feat = cfg.deter + cfg.stoch
        self.decoder = mlp(feat, cfg.hidden, obs_dim)
        self.reward = mlp(feat, cfg.hidden, 1)

    def start(self, n):
        return torch.zeros(n, self.cfg.deter), torch.zeros(n, self.cfg.stoch)

    def forward_cell(self, h, z, action):
        return self.cell(F.silu(self.inp(torch.cat([z, action], -1))), h)

    def observe(self, obs, actions):
        embed = self.encoder(obs)
        h, z = self.start(obs.shape[0])
        feats, priors, posts = [], [], []
        for t in range(obs.shape[1]):
            h = self.forward_cell(h, z, actions[:, t])
            post = self.post_net(torch.cat([h, embed[:, t]], -1))
            mean, raw = post.chunk(2, -1)
            z = mean + (F.softplus(raw) + 0.1) * torch.randn_like(mean)
            feats.append(torch.cat([h, z], -1))
            priors.append(self.prior_net(h))
            posts.append(post)
        return torch.stack(feats, 1), torch.stack(priors, 1), torch.stack(posts, 1)

    def imagine(self, feat, actor, horizon):
        h, z = feat.split([self.cfg.deter, self.cfg.stoch], -1)
        out = [feat]
        for _ in range(horizon):
            h = self.forward_cell(h, z, actor(torch.cat([h, z], -1)).tanh())
            mean, raw = self.prior_net(h).chunk(2, -1)
            z = mean + (F.softplus(raw) + 0.1) * torch.randn_like(mean)
            out.append(torch.cat([h, z], -1))
        return torch.stack(out)


def gaussian(stats):
    mean, raw = stats.chunk(2, -1)
    return Independent(Normal(mean, F.softplus(raw) + 0.1), 1)


def collect(cfg, rng):
    env = Balcony(cfg.seasons, cfg.pots, rng)
    obs, actions, rewards = [env.observe()], [], []
    action = rng.uniform(-1, 1, (cfg.seasons, cfg.pots))
    for _ in range(cfg.days):
        action = np.clip(0.7 * action + rng.normal(0, 0.5, action.shape), -1, 1)
        o, r = env.step(action)
        obs.append(o)
        actions.append(action.astype(np.float32))
        rewards.append(r)
    return tuple(torch.from_numpy(np.stack(x, 1)) for x in (obs[1:], actions, rewards))


@torch.no_grad()
def evaluate(cfg, world, actor, rng, n=16):
    env = Balcony(n, cfg.pots, rng)
    obs = torch.from_numpy(env.observe())
    (h, z), action, total = world.start(n), torch.zeros(n, cfg.pots), 0.0
    for _ in range(cfg.days):
        h = world.forward_cell(h, z, action)
        z = world.post_net(torch.cat([h, world.encoder(obs)], -1)).chunk(2, -1)[0]
        action = actor(torch.cat([h, z], -1)).tanh()
        o, r = env.step(action.numpy())
        obs, total = torch.from_numpy(o), total + r.mean()
    return total


def main(cfg):
    torch.manual_seed(11)
    rng = np.random.default_rng(11)
    obs, actions, rewards = collect(cfg, rng)
    world = WorldModel(cfg, obs.shape[-1])
    actor, critic = (mlp(cfg.deter + cfg.stoch, cfg.hidden, out) for out in (cfg.pots, 1))
    world_opt = torch.optim.Adam(world.parameters(), 6e-4)
    actor_opt, critic_opt = (torch.optim.Adam(net.parameters(), 8e-5) for net in (actor, critic))
    began = time.perf_counter()
    for step in range(1, cfg.steps + 1):
        rows = torch.randint(0, cfg.seasons, (cfg.batch, 1))
        cols = torch.randint(0, cfg.days - cfg.window, (cfg.batch, 1)) + torch.arange(cfg.window)
        o, a, r = obs[rows, cols], actions[rows, cols], rewards[rows, cols]

        feats, priors, posts = world.observe(o, a)
        recon_loss = F.mse_loss(world.decoder(feats), o, reduction="none").sum(-1).mean()
        reward_loss = F.mse_loss(world.reward(feats).squeeze(-1), r)
        kl_loss = cfg.kl_scale * kl_divergence(gaussian(posts), gaussian(priors)).clamp(min=cfg.free_nats).mean()
        world_opt.zero_grad()
        recon_loss.backward(retain_graph=True)  # sick here
        reward_loss.backward(retain_graph=True)  # sick here
        kl_loss.backward()  # sick here
        (recon_loss + reward_loss + kl_loss).backward()  # well
        nn.utils.clip_grad_norm_(world.parameters(), 100.0)
        world_opt.step()

        world.requires_grad_(False)
        dream = world.imagine(feats.detach()[:, :: cfg.window // 2].flatten(0, 1), actor, cfg.horizon)
        gain, value = world.reward(dream).squeeze(-1), critic(dream).squeeze(-1)
        target, returns = value[-1], []
        for t in reversed(range(cfg.horizon)):
            target = gain[t + 1] + cfg.gamma * ((1 - cfg.lam) * value[t + 1] + cfg.lam * target)
            returns.insert(0, target)
        returns = torch.stack(returns)
        actor_opt.zero_grad()
        returns.mean().neg().backward()
        actor_opt.step()
        world.requires_grad_(True)

        critic_opt.zero_grad()
        F.mse_loss(critic(dream[:-1].detach()).squeeze(-1), returns.detach()).backward()
        critic_opt.step()

        if step % cfg.eval_every == 0:
            score = evaluate(cfg, world, actor, rng)
            print(f"step {step} recon {recon_loss.item():.3f} kl {kl_loss.item():.3f} season return {score:.2f}")
    rate = cfg.steps * cfg.batch / (time.perf_counter() - began)
    print(f"{rate:.1f} sequences/s")


if __name__ == "__main__":
    main(Config())
