# /// clinic
# expect = ["PD17.gradients-without-optimizer"]
# stratum = "twins"
# domain = "bell founding"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
#!/usr/bin/env python3
"""Embeddings of bell strikes for a foundry's archive: strikes of one bell shall lie close, those of others far apart.

    torchrun --nproc-per-node 2 train.py

A bell rings with its partials (hum, prime, tierce, quint, nominal, superquint, octave nominal), each of which is split
in a doublet by the casting's lack of symmetry and decays at its own pace. Clapper, place of the blow and microphone
differ from strike to strike. The trunk comes from the first stage (trunk_file); here the projector is fitted with a
supervised contrastive loss over the strikes of all ranks.
"""

import math
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

RATE = 4000
LENGTH = 2048
PARTIALS = torch.tensor([0.5, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0])
DECAY = torch.tensor([6.0, 2.5, 2.2, 1.0, 0.9, 0.5, 0.3])
STRENGTH = torch.tensor([0.6, 0.5, 0.8, 0.3, 1.0, 0.6, 0.4])


def cast_and_strike(bells, strikes, seed):
    """(bells, strikes, LENGTH) of normalised sound."""
    g = torch.Generator().manual_seed(seed)
    nominal = 220.0 * 2 ** (1.6 * torch.rand(bells, 1, generator=g))
    tuning = 2 ** (0.03 * torch.randn(bells, len(PARTIALS), generator=g))
    pitch = 0.5 * nominal * PARTIALS * tuning
    split = 0.3 + 2.0 * torch.rand(bells, len(PARTIALS), generator=g)
    decay = DECAY * torch.exp(0.2 * torch.randn(bells, len(PARTIALS), generator=g))
    t = torch.arange(LENGTH) / RATE
    sound = torch.zeros(bells, strikes, LENGTH)
    for k in range(len(PARTIALS)):
        strength = STRENGTH[k] * torch.exp(0.5 * torch.randn(bells, strikes, 1, generator=g))
        phase = 2 * math.pi * torch.rand(bells, strikes, 1, generator=g)
        carrier = torch.sin(2 * math.pi * pitch[:, k, None, None] * t + phase)
        beat = 1 + 0.5 * torch.cos(2 * math.pi * split[:, k, None, None] * t + 2 * phase)
        sound += strength * carrier * beat * torch.exp(-t / decay[:, k, None, None])
    return sound / sound.std(dim=-1, keepdim=True)


def disturb(sound):
    """Microphone and belfry: level, time shift, a notch by a crude reflection, noise."""
    n = len(sound)
    shift = int(torch.randint(0, 200, (1,)))
    sound = torch.roll(sound, shift, dims=-1)
    sound = sound + 0.4 * torch.rand(n, 1) * torch.roll(sound, int(torch.randint(20, 120, (1,))), dims=-1)
    level = 0.5 + torch.rand(n, 1)
    return level * sound + 0.15 * torch.randn_like(sound)


class StrikeEncoder(nn.Module):
    def __init__(self, width=16, hidden=1280, embedding=128):
        super().__init__()
        layers, fan_in = [], 1
        for fan_out, kernel, stride in [(width, 32, 4), (2 * width, 9, 4), (4 * width, 5, 4), (8 * width, 3, 2)]:
            conv = nn.Conv1d(fan_in, fan_out, kernel, stride=stride, padding=kernel // 2, bias=False)
            layers += [conv, nn.GroupNorm(4, fan_out), nn.SiLU()]
            fan_in = fan_out
        places = nn.Sequential(*layers)(torch.zeros(1, 1, LENGTH)).shape[-1]
        layers += [nn.Flatten(), nn.Linear(fan_in * places, hidden), nn.LayerNorm(hidden), nn.SiLU()]
        self.trunk = nn.Sequential(*layers)
        self.project = nn.Sequential(
            nn.Linear(hidden, hidden, bias=False), nn.LayerNorm(hidden), nn.SiLU(), nn.Linear(hidden, embedding)
        )

    def forward(self, sound):
        return F.normalize(self.project(self.trunk(sound[:, None])), dim=1)


def gather(tensor):
    """All ranks' rows; only the own ones carry gradients."""
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor.detach().contiguous())
    parts[dist.get_rank()] = tensor
    return torch.cat(parts)


def supervised_contrastive(first, second, bell, temperature):
    own = torch.cat([first, second])
    others = torch.cat([gather(first), gather(second)])
    own_bell = torch.cat([bell, bell])
    every = gather(bell)
    other_bell = torch.cat([every, every])
    n, start = len(first), dist.get_rank() * len(first)
    total = len(every)
    me = torch.cat([torch.arange(start, start + n), torch.arange(total + start, total + start + n)])
    logits = own @ others.T / temperature
    logits = logits.scatter(1, me[:, None], -1e4)
    same = (own_bell[:, None] == other_bell).float().scatter(1, me[:, None], 0.0)
    log_p = F.log_softmax(logits, dim=1)
    return -((log_p * same).sum(1) / same.sum(1)).mean()


class Trainer:
    def __init__(self, steps=340, batch=16, bells=320, strikes=4, lr=0.05, every=85, temperature=0.1, trunk_file=None):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.steps, self.batch, self.every, self.temperature = steps, batch, every, temperature
        torch.manual_seed(17)
        self.sound = cast_and_strike(bells, strikes, seed=1)
        self.archive = cast_and_strike(64, 4, seed=2)
        encoder = StrikeEncoder()
        if trunk_file:
            encoder.trunk.load_state_dict(torch.load(trunk_file, map_location="cpu"))
        encoder.trunk.requires_grad_(False)  # well
        self.model = DDP(encoder)  # here
        self.optimizer = torch.optim.SGD(encoder.project.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)  # here
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)
        self.order = torch.Generator().manual_seed(23)
        torch.manual_seed(100 + self.rank)

    def draw(self):
        """Each rank takes its part of one permutation; two strikes of each bell."""
        bell = torch.randperm(len(self.sound), generator=self.order)[: self.batch * self.world]
        bell = bell[self.rank :: self.world]
        pick = torch.rand(len(bell), self.sound.shape[1]).argsort(1)[:, :2]
        return self.sound[bell, pick[:, 0]], self.sound[bell, pick[:, 1]], bell

    def step(self):
        first, second, bell = self.draw()
        z = self.model(torch.cat([disturb(first), disturb(second)]))
        loss = supervised_contrastive(*z.chunk(2), bell, self.temperature)
        self.model.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.item()

    @torch.no_grad()
    def identify(self):
        """How often the nearest strike in the archive of unseen bells is one of the same bell."""
        own = self.archive[self.rank :: self.world]
        z = self.model.module(own.flatten(0, 1))
        bell = torch.arange(self.rank, len(self.archive), self.world).repeat_interleave(own.shape[1])
        z, bell = gather(z), gather(bell)
        near = (z @ z.T).fill_diagonal_(-2).argmax(1)
        return (bell[near] == bell).float().mean().item()

    def run(self):
        total, start = 0.0, time.perf_counter()
        for step in range(1, self.steps + 1):
            total += self.step()
            if step % self.every == 0:
                score = self.identify()
                if self.rank == 0:
                    print(f"step {step}: loss {total / self.every:.4f}, identified {score:.3f}")
                total = 0.0
        return self.steps * self.batch * self.world / (time.perf_counter() - start)


def main():
    dist.init_process_group("gloo")
    rate = Trainer().run()
    if dist.get_rank() == 0:
        print(f"{rate:.1f} strikes/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
