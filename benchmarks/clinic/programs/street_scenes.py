# /// clinic
# expect = ["PD02.onednn-disabled", "PD10.scalar-reads"]
# allow = ["PD08.allocator-churn"]
# stratum = "comorbid"
# domain = "images"
# sizes = {BATCH = [10, 14]}
# severities = {SIDE = [16, 24, 40]}
# ///
"""Labels every pixel of small street scenes and keeps count of the classes it gets right."""

import time
from collections import Counter

import torch
from torch import nn
from torch.nn import functional

BATCH = 12
SIDE = 24
KINDS = 6
STEPS = 80


def scene(count):
    kinds = torch.randint(0, KINDS, (count, SIDE // 4, SIDE // 4)).repeat_interleave(4, 1).repeat_interleave(4, 2)
    return functional.one_hot(kinds, KINDS)[..., :3].permute(0, 3, 1, 2) + 0.2 * torch.randn(
        count, 3, SIDE, SIDE
    ), kinds


def tally(counter, guess, kinds):
    for a, b in zip(guess.view(-1), kinds.view(-1), strict=True):  # sick:b here
        if a == b:  # sick:b here
            counter[b.item()] += 1  # sick:b here
    counter.update(kinds[guess == kinds].tolist())  # well:b


torch.manual_seed(21)
images, truth = scene(300)
net = nn.Sequential(
    nn.Conv2d(3, 48, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(48, 48, 5, padding=2),
    nn.ReLU(),
    nn.Conv2d(48, 48, 5, padding=2),
    nn.ReLU(),
    nn.Conv2d(48, KINDS, 1),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
right = Counter()
exact = {"deterministic": True}  # sick:a here
exact = {"deterministic": True, "enabled": True}  # well:a
for step in range(STEPS):
    if step == 8:
        t0 = time.perf_counter()
    rows = torch.randint(0, 300, (BATCH,))
    with torch.backends.mkldnn.flags(**exact):  # here
        scores = net(images[rows])
        loss = functional.cross_entropy(scores, truth[rows])
        optimizer.zero_grad()
        loss.backward()
    optimizer.step()
    tally(right, scores.argmax(1), truth[rows])
print("right", sum(right.values()), "loss", f"{loss.item():.3f}")
print(f"{(STEPS - 8) * BATCH / (time.perf_counter() - t0):.1f} images/s")
