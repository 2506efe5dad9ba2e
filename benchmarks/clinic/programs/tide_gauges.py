# /// clinic
# expect = ["PD10.repeated-work"]
# stratum = "twins"
# domain = "oceanography"
# sizes = {WIDTH = [88, 100], HISTORY = [38, 46]}
# ///
# surge residual forecast from tide gauges, orthogonal recurrence
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations

WIDTH = 96
HISTORY = 42
AHEAD = 12
STATIONS = 16
BATCH = 256
STEPS = 400

torch.manual_seed(0)
rng = np.random.default_rng(0)

# two years of hourly levels: four constituents + AR(1) surge shared along the coast
hours = np.arange(17520)
level = np.zeros((STATIONS, hours.size), dtype=np.float32)
for period, height in ((12.42, 1.2), (12.0, 0.4), (25.82, 0.15), (23.93, 0.2)):
    phase = rng.uniform(0, 2 * np.pi, (STATIONS, 1))
    level += height * rng.uniform(0.6, 1.4, (STATIONS, 1)) * np.sin(2 * np.pi * hours / period + phase)
noise = rng.normal(0, 0.05, hours.size)
surge = np.zeros(hours.size)
for i in range(1, hours.size):
    surge[i] = 0.985 * surge[i - 1] + noise[i]
level += surge * rng.uniform(0.5, 1.2, (STATIONS, 1)) + rng.normal(0, 0.03, level.shape)
series = torch.from_numpy(((level - level.mean()) / level.std()).T.copy()).float()
windows = series.unfold(0, HISTORY + AHEAD, 1).transpose(1, 2)  # a view: (start, time, station)
split = int(0.9 * len(windows))

inlet = nn.Linear(STATIONS, WIDTH)
gate = nn.Linear(STATIONS + WIDTH, WIDTH)
turn = parametrizations.orthogonal(nn.Linear(WIDTH, WIDTH, bias=False), orthogonal_map="cayley")
shift = nn.Parameter(torch.zeros(WIDTH))
outlet = nn.Sequential(nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, AHEAD * STATIONS))
weights = [*inlet.parameters(), *gate.parameters(), *turn.parameters(), shift, *outlet.parameters()]
opt = torch.optim.Adam(weights, lr=1e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)

for step in range(STEPS):
    if step == 10:
        begin = time.perf_counter()
    pick = torch.randint(split, (BATCH,))
    block = windows[pick]
    past, future = block[:, :HISTORY], block[:, HISTORY:]
    drive = inlet(past)
    h = torch.zeros(BATCH, WIDTH)
    w = turn.weight  # well
    for t in range(HISTORY):
        z = drive[:, t] + turn(h)  # sick here
        z = drive[:, t] + F.linear(h, w)  # well
        z = torch.sign(z) * F.relu(z.abs() + shift)
        g = torch.sigmoid(gate(torch.cat([past[:, t], h], dim=1)))
        h = g * h + (1 - g) * z
    forecast = outlet(h).view(BATCH, AHEAD, STATIONS)
    loss = F.smooth_l1_loss(forecast, future)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(weights, 1.0)
    opt.step()
    sched.step()
    if step % 60 == 0:
        print(f"step {step:4d}  loss {loss.item():.4f}", flush=True)

spent = time.perf_counter() - begin
print(f"done, {(STEPS - 10) / spent:.1f} steps/s")
