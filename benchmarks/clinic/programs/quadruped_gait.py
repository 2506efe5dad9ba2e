# /// clinic
# expect = ["PD10"]
# stratum = "twins"
# domain = "legged locomotion"
# sizes = {ACTUATORS = [11, 14], HIDDEN = [300, 340]}
# ///
"""PPO for a gait controller: many simulated quadrupeds in one tensor, a diagonal Gaussian over the joint targets."""

import time

import torch
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal

ACTUATORS = 12
HIDDEN = 320
ROBOTS = 256
HORIZON = 24
MINIBATCH = 1024
PASSES = 3
ITERATIONS = 56
WARMUP_ITERATIONS = 2
GAMMA, LAMBDA, CLIP = 0.98, 0.95, 0.2


class Herd:
    """Joint-space stand-in for the simulator: damped joints that should follow a phase-locked gait."""

    def __init__(self, robots):
        self.phase = torch.rand(robots) * 6.283
        self.q = torch.zeros(robots, ACTUATORS)
        self.dq = torch.zeros(robots, ACTUATORS)
        self.offset = torch.arange(ACTUATORS) * (6.283 / ACTUATORS)

    def observe(self):
        clock = torch.stack([self.phase.sin(), self.phase.cos()], 1)
        return torch.cat([self.q, self.dq, clock], 1)

    def step(self, action):
        self.dq = 0.7 * self.dq + 0.3 * (action.clamp(-2, 2) - self.q)
        self.q = self.q + self.dq
        self.phase = (self.phase + 0.2) % 6.283
        target = 0.6 * torch.sin(self.phase[:, None] + self.offset)
        return 1.0 - (self.q - target).square().mean(1) - 0.01 * action.square().mean(1)


class GaitPolicy(nn.Module):
    def __init__(self, observations):
        super().__init__()

        def mlp(out):
            return nn.Sequential(
                nn.Linear(observations, HIDDEN), nn.ELU(), nn.Linear(HIDDEN, HIDDEN), nn.ELU(), nn.Linear(HIDDEN, out)
            )

        self.actor = mlp(ACTUATORS)
        self.critic = mlp(1)
        self.log_std = nn.Parameter(torch.full((ACTUATORS,), -0.5))

    def distribution(self, obs):
        mean = self.actor(obs)
        std = self.log_std.exp().expand_as(mean)
        return MultivariateNormal(mean, covariance_matrix=torch.diag_embed(std.square()))  # sick here
        return Independent(Normal(mean, std), 1)  # well

    def value(self, obs):
        return self.critic(obs).squeeze(-1)


class PPO:
    def __init__(self):
        self.herd = Herd(ROBOTS)
        self.policy = GaitPolicy(2 * ACTUATORS + 2)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=3e-4, fused=True)

    @torch.no_grad()
    def rollout(self):
        obs, act, logp, rew, val = [], [], [], [], []
        for _ in range(HORIZON):
            o = self.herd.observe()
            pi = self.policy.distribution(o)
            a = pi.sample()
            obs.append(o)
            act.append(a)
            logp.append(pi.log_prob(a))
            val.append(self.policy.value(o))
            rew.append(self.herd.step(a))
        val.append(self.policy.value(self.herd.observe()))
        advantage, running = [None] * HORIZON, torch.zeros(ROBOTS)
        for t in reversed(range(HORIZON)):
            delta = rew[t] + GAMMA * val[t + 1] - val[t]
            running = delta + GAMMA * LAMBDA * running
            advantage[t] = running
        adv = torch.cat(advantage)
        returns = adv + torch.cat(val[:-1])
        return (
            torch.cat(obs),
            torch.cat(act),
            torch.cat(logp),
            (adv - adv.mean()) / adv.std(),
            returns,
            torch.cat(rew).mean(),
        )

    def update(self, obs, act, logp, adv, returns):
        for _ in range(PASSES):
            for rows in torch.randperm(len(obs)).split(MINIBATCH):
                o = obs[rows]
                pi = self.policy.distribution(o)
                ratio = (pi.log_prob(act[rows]) - logp[rows]).exp()
                a = adv[rows]
                surrogate = torch.min(ratio * a, ratio.clamp(1 - CLIP, 1 + CLIP) * a).mean()
                value_loss = (self.policy.value(o) - returns[rows]).square().mean()
                loss = -surrogate + 0.5 * value_loss - 1e-3 * pi.entropy().mean()
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
                self.optimizer.step()


def main():
    torch.manual_seed(8)
    ppo = PPO()
    start = None
    for iteration in range(ITERATIONS):
        if iteration == WARMUP_ITERATIONS:
            start = time.perf_counter()
        *batch, reward = ppo.rollout()
        ppo.update(*batch)
        if iteration % 10 == 0:
            print(f"iteration {iteration}: mean reward {reward.item():.3f}", flush=True)
    elapsed = time.perf_counter() - start
    print(f"{(ITERATIONS - WARMUP_ITERATIONS) * ROBOTS * HORIZON / elapsed:.0f} robot-steps/s")


if __name__ == "__main__":
    main()
