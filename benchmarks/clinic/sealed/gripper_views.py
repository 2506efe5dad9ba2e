# /// clinic
# expect = ["PD06", "PD13"]
# endless = true
# stratum = "twins"
# domain = "robotics, imitation learning"
# ///
"""Behaviour cloning of a peg-insertion arm from three cameras and joint angles."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

import torch
import torch.nn.functional as F
from torch import nn

CAMERAS = ("wrist", "left", "overhead", "right")


@dataclass
class Recipe:
    demos: int = 24
    horizon: int = 60
    image: int = 40
    joints: int = 7
    chunk: int = 8
    batch: int = 16
    lr: float = 4e-4
    updates: int = 100000
    report: int = 50


class Demonstrations:
    """Scripted demonstrations: a bright peg travels to a hole, each camera sees its own projection of it."""

    def __init__(self, r):
        g = torch.Generator().manual_seed(31)
        t = torch.linspace(0, 1, r.horizon).view(1, -1, 1)
        start, goal = (torch.rand(r.demos, 1, 3, generator=g) for _ in range(2))
        self.path = start + (goal - start) * (3 * t**2 - 2 * t**3)
        self.lift = torch.randn(3, r.joints, generator=g)
        self.views = {name: torch.randn(3, 2, generator=g) * 0.4 for name in CAMERAS}
        axis = torch.linspace(-1, 1, r.image)
        self.pixel = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1)
        self.r, self.generator = r, g

    def picture(self, name, points):
        spot = (points - 0.5) @ self.views[name]
        gap = self.pixel.view(1, *self.pixel.shape) - spot.view(-1, 1, 1, 2)
        return torch.exp(-12 * gap.pow(2).sum(-1)).unsqueeze(1)

    def draw(self):
        r = self.r
        d = torch.randint(0, r.demos, (r.batch,), generator=self.generator)
        t = torch.randint(0, r.horizon - r.chunk, (r.batch,), generator=self.generator)
        here, goal = self.path[d, t], self.path[d, -1]
        pictures = {name: torch.cat([self.picture(name, here), self.picture(name, goal)], 1) for name in CAMERAS}
        ahead = self.path[d.view(-1, 1), t.view(-1, 1) + torch.arange(1, r.chunk + 1)] - here.unsqueeze(1)
        return pictures, here @ self.lift, (ahead @ self.lift).flatten(1)


class Eye(nn.Module):
    """Shared by all cameras; keeps the last spatial softmax of each camera for the replay viewer."""

    def __init__(self, width=32, keypoints=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(2, width, 5, 2, 2),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1),
            nn.ReLU(),
            nn.Conv2d(width, keypoints, 3, 1, 1),
        )
        self.attended, self._guard = {}, Lock()

    def forward(self, name, x):
        heat = self.net(x)
        side = heat.shape[-1]
        p = heat.flatten(2).softmax(-1).view_as(heat)
        axis = torch.linspace(-1, 1, side)
        with self._guard:
            self.attended[name] = p.detach()
        return torch.cat([(p.sum(2) * axis).sum(-1), (p.sum(3) * axis).sum(-1)], 1)


class Policy(nn.Module):
    def __init__(self, r):
        super().__init__()
        self.eye = Eye()
        self.camera = nn.ParameterDict({name: nn.Parameter(0.02 * torch.randn(32)) for name in CAMERAS})
        self.pool = ThreadPoolExecutor(len(CAMERAS), thread_name_prefix="camera")  # sick
        self.trunk = nn.Sequential(
            nn.Linear(32 * len(CAMERAS) + r.joints, 256),
            nn.SiLU(),
            nn.Linear(256, 256),
            nn.SiLU(),
            nn.Linear(256, r.chunk * r.joints),
        )

    def look(self, item):
        name, picture = item
        return self.eye(name, picture) + self.camera[name]

    def forward(self, pictures, joints):
        seen = list(self.pool.map(self.look, pictures.items()))  # sick here
        seen = list(map(self.look, pictures.items()))  # well
        return self.trunk(torch.cat([*seen, joints], 1))


class Cloner:
    def __init__(self, r):
        self.r, self.demos, self.policy = r, Demonstrations(r), Policy(r)
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=r.lr)

    def update(self):
        pictures, joints, target = self.demos.draw()
        loss = F.smooth_l1_loss(self.policy(pictures, joints), target, beta=0.1)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run(self):
        since, total = time.perf_counter(), torch.zeros(())
        for n in range(1, self.r.updates + 1):
            total += self.update()
            if n % self.r.report == 0:
                now = time.perf_counter()
                print(
                    f"[{n:6d}] bc {total.item() / self.r.report:.4f}  {self.r.report / (now - since):.2f} steps/s",
                    flush=True,
                )
                since = now
                total.zero_()


if __name__ == "__main__":
    torch.manual_seed(12)
    Cloner(Recipe()).run()
