# /// clinic
# expect = ["PD14.frequent-checkpoints"]
# stratum = "twins"
# domain = "flights of falcons"
# ///
"""Prototype: where will a stooping falcon be, from a noisy glimpse of the first part of its dive?

Dives are made by a small flight model with drag, a target that jinks, and a bird that leads it by a personal amount.  A residual
network sees the first 24 of 64 positions with noise and gives the remaining 40.  The weights with the lowest smoothed training
loss are the ones that are judged at the end.
"""

import time

import torch
from torch import nn
from torch.nn import functional as F

SEED = 17
FRAMES, SHOWN = 64, 24
DIVES, HELD_OUT = 8192, 1024
BATCH = 128
EPOCHS = 8
HIDDEN = 512
BLOCKS = 3
SMOOTH = 0.97

LATE_WEIGHT = True  # ablation: all frames count the same
CENTRE = True  # ablation: positions relative to the last one shown
KEEP = "falcon_best.pt"


def fly(n, generator):
    """n dives as (n, FRAMES, 3) positions: pursuit with lead, drag, and a quarry that turns now and then."""
    bird = torch.randn(n, 3, generator=generator) * torch.tensor([2.0, 2.0, 0.5]) + torch.tensor([0.0, 0.0, 8.0])
    speed = torch.zeros(n, 3)
    quarry = torch.randn(n, 3, generator=generator)
    heading = F.normalize(torch.randn(n, 3, generator=generator) * torch.tensor([1.0, 1.0, 0.1]), dim=1)
    lead = 0.5 + 1.5 * torch.rand(n, 1, generator=generator)
    drag = 0.05 + 0.1 * torch.rand(n, 1, generator=generator)
    path = []
    for frame in range(FRAMES):
        if frame % 16 == 0:
            heading = F.normalize(heading + 0.5 * torch.randn(n, 3, generator=generator), dim=1)
        quarry = quarry + 0.06 * heading
        wanted = F.normalize(quarry + lead * heading - bird, dim=1)
        pull = 0.02 * wanted + torch.tensor([0.0, 0.0, -0.004])
        speed = (speed + pull) * (1 - drag * speed.norm(dim=1, keepdim=True))
        bird = bird + speed
        path.append(bird)
    return torch.stack(path, 1)


def glimpse(path, generator=None):
    """Splits dives into what is shown, with noise, and what is asked for."""
    shown, asked = path[:, :SHOWN], path[:, SHOWN:]
    if CENTRE:
        origin = shown[:, -1:]
        shown, asked = shown - origin, asked - origin
    shown = shown + 0.02 * torch.randn(shown.shape, generator=generator)
    return shown.flatten(1), asked.flatten(1)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


class Watcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(SHOWN * 3, HIDDEN)
        self.blocks = nn.Sequential(*[Block(HIDDEN) for _ in range(BLOCKS)])
        self.leave = nn.Linear(HIDDEN, (FRAMES - SHOWN) * 3)

    def forward(self, x):
        return self.leave(self.blocks(self.enter(x)))


def frame_weights():
    """Later frames are harder and are what a bird-watcher asks for, so they count for more."""
    late = torch.linspace(0.5, 1.5, FRAMES - SHOWN) if LATE_WEIGHT else torch.ones(FRAMES - SHOWN)
    return late.repeat_interleave(3)


@torch.no_grad()
def miss_distance(net, path, generator):
    """Mean distance between the true and the given last position, beside that of flying straight on."""
    net.eval()
    shown, asked = glimpse(path, generator)
    guess = net(shown).view(len(path), -1, 3)[:, -1]
    truth = asked.view(len(path), -1, 3)[:, -1]
    moves = path[:, SHOWN - 1] - path[:, SHOWN - 2]
    straight = moves * (FRAMES - SHOWN) + (0 if CENTRE else path[:, SHOWN - 1])
    return (guess - truth).norm(dim=1).mean().item(), (straight - truth).norm(dim=1).mean().item()


def main():
    torch.manual_seed(SEED)
    g = torch.Generator().manual_seed(SEED)
    dives, held_out = fly(DIVES, g), fly(HELD_OUT, g)
    net = Watcher()
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-4, weight_decay=1e-3, fused=True)
    per_epoch = DIVES // BATCH
    total = EPOCHS * per_epoch
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    weights = frame_weights()
    smooth, best, kept = None, float("inf"), 0
    began = time.perf_counter()
    for _ in range(EPOCHS):
        order = torch.randperm(DIVES)
        for number, rows in enumerate(order.view(per_epoch, BATCH)):
            shown, asked = glimpse(dives[rows])
            loss = ((net(shown) - asked).square() * weights).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            now = loss.item()
            smooth = now if smooth is None else SMOOTH * smooth + (1 - SMOOTH) * now
            keep = smooth < best  # sick here
            keep = number == per_epoch - 1 and smooth < best  # well
            if keep:
                best, kept = smooth, kept + 1
                torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "best": best}, KEEP)  # here
    took = time.perf_counter() - began
    net.load_state_dict(torch.load(KEEP)["net"])
    miss, straight = miss_distance(net, held_out, g)
    print(
        f"best smoothed loss {best:.4f} (kept {kept} times), misses by {miss:.3f}, flying straight on by {straight:.3f}"
    )
    print(f"{total * BATCH / took:.1f} samples/s")


if __name__ == "__main__":
    main()
