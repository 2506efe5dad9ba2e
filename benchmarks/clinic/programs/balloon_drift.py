# /// clinic
# expect = ["PD13.pinned-process"]
# stratum = "twins"
# domain = "hot-air balloons"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Drift forecast for hot-air balloons: from wind soundings and burner use to the track of the next minutes.

torchrun --nproc-per-node N train.py
"""

import contextlib
import functools
import os
import time
from collections import defaultdict
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass(frozen=True)
class Host:
    backend: str = "gloo"
    sockets: int = 2
    ranks_per_socket: int = 4  # sick here
    ranks_per_socket: int = 1  # well
    seed: int = 21

    @property
    def local_rank(self) -> int:
        return int(os.environ.get("LOCAL_RANK", 0))

    @property
    def cores(self) -> set[int]:
        everything = sorted(os.sched_getaffinity(0))
        share = max(1, len(everything) // self.sockets)
        socket = self.local_rank // self.ranks_per_socket % self.sockets
        return set(everything[socket * share : (socket + 1) * share])


@dataclass(frozen=True)
class Flight:
    flights: int = 1600
    levels: int = 10
    past: int = 40
    ahead: int = 20


@dataclass(frozen=True)
class Net:
    width: int = 160
    heads: int = 4
    layers: int = 3
    spread: float = 0.05


@dataclass(frozen=True)
class Plan:
    host: Host = field(default_factory=Host)
    flight: Flight = field(default_factory=Flight)
    net: Net = field(default_factory=Net)
    batch: int = 8
    epochs: int = 2
    lr: float = 6e-4
    clip: float = 1.0
    report_every: int = 40


@contextlib.contextmanager
def session(host: Host):
    os.sched_setaffinity(0, host.cores)
    torch.manual_seed(host.seed)
    dist.init_process_group(host.backend)
    try:
        yield host
    finally:
        dist.barrier()
        dist.destroy_process_group()


def rank_zero(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        return fn(*args, **kwargs) if dist.get_rank() == 0 else None

    return inner


def fly(spec: Flight, seed: int) -> TensorDataset:
    """Balloons take the wind of their level; the pilot climbs and sinks with the burner."""
    g = torch.Generator().manual_seed(seed)
    n, steps = spec.flights, spec.past + spec.ahead
    turn = torch.linspace(0, 1.2, spec.levels) + torch.rand(n, 1, generator=g) * 6.28
    speed = (2 + torch.linspace(0, 9, spec.levels)) * (0.5 + torch.rand(n, 1, generator=g))
    sounding = torch.stack([speed * turn.cos(), speed * turn.sin()], -1)
    burner = (torch.rand(n, steps, generator=g) < 0.35).float()
    lift, height = torch.zeros(n), torch.full((n,), spec.levels / 3)
    spot, rows, track = torch.zeros(n, 2), [], []
    for k in range(steps):
        lift = 0.85 * lift + 0.3 * (burner[:, k] - 0.35)
        height = (height + lift).clamp(0, spec.levels - 1.001)
        low = height.long()
        part = (height - low)[:, None]
        wind = torch.lerp(sounding[torch.arange(n), low], sounding[torch.arange(n), low + 1], part)
        spot = spot + 0.02 * (wind + 0.4 * torch.randn(n, 2, generator=g))
        rows.append(torch.cat([spot, height[:, None], lift[:, None], burner[:, k, None]], -1))
        track.append(spot)
    rows, track = torch.stack(rows, 1), torch.stack(track, 1)
    future = track[:, spec.past :] - track[:, spec.past - 1 : spec.past]
    return TensorDataset(sounding.flatten(1), rows[:, : spec.past], burner[:, spec.past :], future)


class DriftNet(nn.Module):
    def __init__(self, net: Net, flight: Flight):
        super().__init__()
        self.flight = flight
        self.sounding = nn.Linear(2 * flight.levels, net.width)
        self.row = nn.Linear(5, net.width)
        self.burn = nn.Linear(1, net.width)
        self.clock = nn.Parameter(torch.randn(flight.past + flight.ahead, net.width) * net.spread)
        layer = nn.TransformerEncoderLayer(
            net.width, net.heads, 2 * net.width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, net.layers, enable_nested_tensor=False)
        self.out = nn.Sequential(nn.LayerNorm(net.width), nn.Linear(net.width, 2))

    def forward(self, sounding, past, burner):
        steps = torch.cat([self.row(past), self.burn(burner.unsqueeze(-1))], 1)
        hidden = self.body(steps + self.clock + self.sounding(sounding).unsqueeze(1))
        return self.out(hidden[:, self.flight.past :]).cumsum(1)


class Events:
    def __init__(self):
        self.listeners = defaultdict(list)

    def on(self, name):
        return lambda fn: self.listeners[name].append(fn) or fn

    def emit(self, name, **facts):
        for fn in self.listeners[name]:
            fn(**facts)


class Engine:
    def __init__(self, plan: Plan):
        self.plan, self.events = plan, Events()
        data = fly(plan.flight, plan.host.seed)
        self.sampler = DistributedSampler(data, shuffle=True, drop_last=True)
        self.loader = DataLoader(data, plan.batch, sampler=self.sampler, drop_last=True)
        self.model = DistributedDataParallel(DriftNet(plan.net, plan.flight))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=plan.lr)
        self.steps = self.seen = 0

    def update(self, sounding, past, burner, future):
        guess = self.model(sounding, past, burner)
        loss = nn.functional.smooth_l1_loss(guess, future)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.plan.clip)
        self.optimizer.step()
        return loss.item(), (guess.detach()[:, -1] - future[:, -1]).norm(dim=-1).mean().item()

    def run(self) -> float:
        began = time.perf_counter()
        for epoch in range(self.plan.epochs):
            self.sampler.set_epoch(epoch)
            for batch in self.loader:
                loss, miss = self.update(*batch)
                self.steps += 1
                self.seen += len(batch[0]) * dist.get_world_size()
                self.events.emit("step", step=self.steps, loss=loss, miss=miss)
            self.events.emit("epoch", epoch=epoch)
        return self.seen / (time.perf_counter() - began)


def main(plan: Plan = Plan()):
    with session(plan.host):
        engine = Engine(plan)

        @engine.events.on("step")
        @rank_zero
        def show(step, loss, miss):
            if step % plan.report_every == 0:
                print(f"step {step}: loss {loss:.4f}, landing off by {miss:.3f} km", flush=True)

        @engine.events.on("epoch")
        @rank_zero
        def save(epoch):
            torch.save(engine.model.module.state_dict(), f"drift_{epoch}.pt")

        rate = engine.run()
        rank_zero(print)(f"{rate:.1f} samples/s", flush=True)


if __name__ == "__main__":
    main()
