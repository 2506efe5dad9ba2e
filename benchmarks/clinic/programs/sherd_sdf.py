# /// clinic
# expect = ["PD06.busy-waiting"]
# stratum = "twins"
# domain = "archaeology: neural signed distance field of a scanned pottery sherd with preview pictures"
# ///
# Neural signed distance field of a scanned pottery sherd, with a preview thread that draws slices while training.
#
# Three small networks: a coordinate encoder (Fourier features), a SIREN trunk for the distance, and a glaze head that
# predicts the surface colour from the trunk's features.
import math
import queue
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


torch.manual_seed(5)
rng = np.random.default_rng(5)


# ---------------------------------------------------------------- scan


def sherd_distance(p):
    """Distance to a curved shell with a broken rim (the 'scan' that we fit)."""
    r = np.sqrt(p[:, 0] ** 2 + p[:, 1] ** 2)
    wall = np.abs(r - 0.6 - 0.08 * np.sin(3 * p[:, 2])) - 0.05
    rim = p[:, 2] - 0.4 - 0.05 * np.sin(9 * np.arctan2(p[:, 1], p[:, 0]))
    foot = -0.7 - p[:, 2]
    return np.maximum(np.maximum(wall, rim), foot).astype(np.float32)


def glaze_colour(p):
    band = np.sin(14 * p[:, 2] + 4 * np.arctan2(p[:, 1], p[:, 0]))
    return np.stack([0.6 + 0.3 * band, 0.4 + 0.1 * band, 0.3 - 0.2 * band], 1).astype(np.float32)


def make_scan(n):
    p = rng.uniform(-1, 1, (n, 3)).astype(np.float32)
    return torch.from_numpy(p), torch.from_numpy(sherd_distance(p)), torch.from_numpy(glaze_colour(p))


# ---------------------------------------------------------------- networks


class Fourier(nn.Module):
    def __init__(self, n, sigma=2.0):
        super().__init__()
        self.register_buffer("b", torch.randn(3, n) * sigma)

    def forward(self, p):
        z = p @ self.b
        return torch.cat([z.sin(), z.cos()], -1)


class Sine(nn.Module):
    def __init__(self, d_in, d_out, w0=6.0):
        super().__init__()
        self.lin, self.w0 = nn.Linear(d_in, d_out), w0
        bound = math.sqrt(6 / d_in) / w0
        nn.init.uniform_(self.lin.weight, -bound, bound)

    def forward(self, x):
        return torch.sin(self.w0 * self.lin(x))


class SherdField(nn.Module):
    def __init__(self, n_freq=64, width=256, depth=3):
        super().__init__()
        self.encoder = Fourier(n_freq)
        self.trunk = nn.Sequential(Sine(2 * n_freq, width), *[Sine(width, width) for _ in range(depth - 1)])
        self.distance = nn.Linear(width, 1)
        self.glaze = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 3), nn.Sigmoid())

    def forward(self, p):
        h = self.trunk(self.encoder(p))
        return self.distance(h).squeeze(-1), self.glaze(h)


# ---------------------------------------------------------------- preview


class Preview(threading.Thread):
    """Draws a horizontal slice of the field whenever one is asked for; the viewer shows the latest picture."""

    def __init__(self, field, lock, res=48):
        super().__init__(daemon=True)
        self.field, self.lock = field, lock
        self.wanted = queue.Queue()
        self.pictures = {}
        axis = torch.linspace(-1, 1, res)
        yy, xx = torch.meshgrid(axis, axis, indexing="ij")
        self.plane, self.res = torch.stack([xx, yy], -1).reshape(-1, 2), res

    def ask(self, step, height):
        self.wanted.put((step, height))

    def close(self):
        self.wanted.put(None)
        self.join()

    def run(self):
        while True:
            try:  # sick here
                job = self.wanted.get_nowait()  # sick here
            except queue.Empty:  # sick here
                time.sleep(0)  # sick here
                continue  # sick here
            job = self.wanted.get()  # well
            if job is None:
                return
            self.draw(*job)

    @torch.no_grad()
    def draw(self, step, height):
        points = F.pad(self.plane, (0, 1), value=height)
        with self.lock:
            dist, rgb = self.field(points)
        inside = (dist < 0).unsqueeze(-1)
        picture = torch.where(inside, rgb, torch.ones(()))
        self.pictures[step] = (picture.reshape(self.res, self.res, 3) * 255).byte().numpy()


# ---------------------------------------------------------------- training

STEPS, BATCH, TAU = 560, 4096, 0.1

points, target, colour = make_scan(200_000)
field = SherdField()
opt = torch.optim.Adam(field.parameters(), lr=1e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)
weights_lock = threading.Lock()
preview = Preview(field, weights_lock)
preview.start()

began, seen = time.perf_counter(), 0.0
for step in range(1, STEPS + 1):
    idx = torch.randint(len(points), (BATCH,))
    p, d, c = points[idx], target[idx], colour[idx]
    dist, rgb = field(p)
    near = torch.exp(-d.abs() / TAU)
    loss_d = ((near + 0.1) * (dist - d).abs()).mean()
    loss_c = (near * (rgb - c).square().mean(-1)).mean()
    loss = loss_d + 0.2 * loss_c
    opt.zero_grad(set_to_none=True)
    loss.backward()
    with weights_lock:
        opt.step()
    sched.step()
    if step % 30 == 0:
        preview.ask(step, height=-0.6 + 0.9 * step / STEPS)
        took = time.perf_counter() - began
        print(
            f"step {step:4d}  distance {loss_d.item():.4f}  glaze {loss_c.item():.4f}  {1e3 * took / step:.0f} ms/step",
            flush=True,
        )

preview.close()
with torch.no_grad():
    q, dq, _ = make_scan(20_000)
    err = (field(q)[0].clamp(-TAU, TAU) - dq.clamp(-TAU, TAU)).abs().mean().item()
print(f"{len(preview.pictures)} previews, mean error {err:.4f}")
