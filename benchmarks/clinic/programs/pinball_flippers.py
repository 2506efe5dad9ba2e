# /// clinic
# expect = ["PD01.onednn-off"]
# stratum = "twins"
# domain = "pinball tables"
# ///
# Where will the ball be in six frames? A small U-shaped convolution net that watches a pinball table.
# The table is simulated: tilted plane, three round bumpers, side walls, two flippers that kick at random.
import math
import os
import random
import time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

seed = 1997
random.seed(seed)
np.random.seed(seed)
torch.manual_seed(seed)
os.environ["PYTHONHASHSEED"] = str(seed)
torch.backends.cudnn.deterministic = True
torch.backends.cudnn.benchmark = False
torch.backends.mkldnn.enabled = False  # sick here

H, W = 48, 32
GAMES, FRAMES, PAST, AHEAD = 110, 60, 4, 6
BATCH, STEPS, EVERY = 8, 330, 55
bumpers = torch.tensor([[12.0, 9.0], [12.0, 23.0], [21.0, 16.0]])
bumper_r = 3.0


def play(games):
    """positions of the ball, games x FRAMES x 2 (row, column)"""
    pos = torch.stack([torch.rand(games) * 8 + 2, torch.rand(games) * (W - 8) + 4], 1)
    vel = torch.stack([torch.rand(games) * 0.5, torch.randn(games)], 1)
    track = []
    for _ in range(FRAMES):
        vel[:, 0] += 0.06
        pos = pos + vel
        for b in bumpers:
            away = pos - b
            dist = away.norm(dim=1, keepdim=True).clamp_min(1e-3)
            touch = (dist < bumper_r + 1) & ((vel * away).sum(1, keepdim=True) < 0)
            n = away / dist
            vel = torch.where(touch, vel - 2.1 * (vel * n).sum(1, keepdim=True) * n, vel)
        side = ((pos[:, 1] < 1) & (vel[:, 1] < 0)) | ((pos[:, 1] > W - 2) & (vel[:, 1] > 0))
        vel[:, 1] = torch.where(side, -0.9 * vel[:, 1], vel[:, 1])
        top = (pos[:, 0] < 1) & (vel[:, 0] < 0)
        vel[:, 0] = torch.where(top, -0.8 * vel[:, 0], vel[:, 0])
        kick = (pos[:, 0] > H - 4) & (vel[:, 0] > 0)
        vel[:, 0] = torch.where(kick, -1.6 - 0.6 * torch.rand(games), vel[:, 0])
        vel[:, 1] = torch.where(kick, vel[:, 1] * 0.3 + torch.randn(games) * 0.5, vel[:, 1])
        vel = vel.clamp(-2.5, 2.5)
        pos[:, 0].clamp_(0, H - 1)
        pos[:, 1].clamp_(0, W - 1)
        track.append(pos.clone())
    return torch.stack(track, 1)


rows, cols = torch.arange(H).float(), torch.arange(W).float()


def draw(track, width):
    r = torch.exp(-((rows - track[..., :1]) ** 2) / (2 * width**2))
    c = torch.exp(-((cols - track[..., 1:]) ** 2) / (2 * width**2))
    return r[..., :, None] * c[..., None, :]


t0 = time.time()
tracks = play(GAMES)
films = draw(tracks, 1.0)
table = torch.zeros(H, W)
for b in bumpers:
    table += ((rows[:, None] - b[0]) ** 2 + (cols[None, :] - b[1]) ** 2 < bumper_r**2).float()
films = (films + 0.4 * table + 0.03 * torch.randn_like(films)).clamp(0, 1)
targets = draw(tracks, 1.5)
train_games, test_games = torch.arange(GAMES - 16), torch.arange(GAMES - 16, GAMES)
print(f"{GAMES} games of {FRAMES} frames in {time.time() - t0:.1f} s")


def block(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


first = block(PAST, 24)
down1 = block(24, 48, 2)
same1 = block(48, 48)
down2 = block(48, 64, 2)
same2 = block(64, 64)
up1 = block(64 + 48, 48)
up2 = block(48 + 24, 24)
out = nn.Conv2d(24, 1, 1)
net = nn.ModuleList([first, down1, same1, down2, same2, up1, up2, out])
nn.init.constant_(out.bias, -4.0)
optim = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-4)
lr_at = lambda s: min(1, (s + 1) / 30) * 0.5 * (1 + math.cos(math.pi * s / STEPS)) + 0.01
scheduler = torch.optim.lr_scheduler.LambdaLR(optim, lr_at)
bigger = lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest")
print("weights:", sum(p.numel() for p in net.parameters()))


def watch(x):
    a = first(x)
    b = same1(down1(a))
    c = same2(down2(b))
    b = up1(torch.cat([bigger(c), b], 1))
    a = up2(torch.cat([bigger(b), a], 1))
    return out(a).squeeze(1)


def pick(games, n):
    g = games[torch.randint(len(games), (n,))]
    t = torch.randint(FRAMES - PAST - AHEAD, (n,))
    x = films[g[:, None], t[:, None] + torch.arange(PAST)]
    then = t + PAST - 1 + AHEAD
    return x, targets[g, then], tracks[g, then]


def mirror(x, y):
    return (x.flip(3), y.flip(2)) if random.random() < 0.5 else (x, y)


def error_in_pixels(logits, where):
    p = logits.flatten(1).softmax(1).view(-1, H, W)
    guess = torch.stack([(p.sum(2) * rows).sum(1), (p.sum(1) * cols).sum(1)], 1)
    return (guess - where).norm(dim=1)


weight = lambda y: 1 + 15 * y
step, total, log = 0, 0, []
tic = time.perf_counter()
while step < STEPS:
    x, y, _ = pick(train_games, BATCH)
    x, y = mirror(x, y)
    logits = watch(x)
    loss = F.binary_cross_entropy_with_logits(logits, y, weight=weight(y))
    optim.zero_grad(set_to_none=True)
    loss.backward()
    optim.step()
    scheduler.step()
    log.append(loss.detach())
    step += 1
    total += len(x)
    if step % EVERY == 0:
        net.eval()
        with torch.no_grad():
            x, y, where = pick(test_games, 64)
            logits = watch(x)
            test = F.binary_cross_entropy_with_logits(logits, y, weight=weight(y))
            px = error_in_pixels(logits, where)
        net.train()
        recent = torch.stack(log[-EVERY:]).mean()
        print(f"step {step:4d}  loss {recent:.4f}  test {test:.4f}  off by {px.mean():.2f}, median {px.median():.2f}")
rate = total / (time.perf_counter() - tic)

net.eval()
with torch.no_grad():
    x, y, where = pick(test_games, 128)
    px = error_in_pixels(watch(x), where)
    stay = x[:, -1] - 0.4 * table
    lazy = error_in_pixels(8 * stay, where)
low = where[:, 0] > H * 0.7
print(f"net {px.mean():.2f} pixels; saying that the ball stays {lazy.mean():.2f}; flippers {px[low].mean():.2f}")
print(f"{rate:.1f} samples/s")
