# /// clinic
# endless = true
# stratum = "decoys"
# domain = "seismic interpretation"
# ///
"""Fault picking on migrated seismic sections, one section at a time with accumulated gradients."""

import math
import time
from itertools import islice

import torch
import torch.nn.functional as F
from torch import nn

DEPTH, TRACES = 320, 384
ACCUMULATE = 6
LEARNING_RATE = 3e-4
UPDATES = 20000


def ricker(freq=0.06, half=20):
    t = torch.arange(-half, half + 1, dtype=torch.float32)
    a = (math.pi * freq * t) ** 2
    return ((1 - 2 * a) * torch.exp(-a)).view(1, 1, -1, 1)


def section(generator, faults=4):
    """Layered reflectivity, folded, cut by dipping faults with a throw, convolved with a wavelet."""
    layers = torch.randn(DEPTH + 160, generator=generator) * (torch.rand(DEPTH + 160, generator=generator) < 0.2)
    z = torch.arange(DEPTH).view(-1, 1).float().expand(DEPTH, TRACES)
    x = torch.arange(TRACES).view(1, -1).float().expand(DEPTH, TRACES)
    bend = 12 * torch.sin(2 * math.pi * x / TRACES * (1 + torch.rand((), generator=generator)))
    index, mask = z + bend + 60, torch.zeros(DEPTH, TRACES)
    for _ in range(faults):
        foot = torch.rand((), generator=generator) * TRACES
        dip = 0.6 * torch.randn((), generator=generator)
        throw = 6 + 18 * torch.rand((), generator=generator)
        side = x - foot - dip * (z - DEPTH / 2)
        index = index + throw * (side > 0)
        mask = torch.maximum(mask, (side.abs() < 1.5).float())
    reflectivity = layers[index.long().clamp(0, len(layers) - 1)]
    image = F.conv2d(reflectivity.view(1, 1, DEPTH, TRACES), ricker(), padding=(20, 0))
    image = image + 0.1 * torch.randn(image.shape, generator=generator)
    return image / image.std(), mask.view(1, 1, DEPTH, TRACES)


def survey(lines, seed=40):
    generator = torch.Generator().manual_seed(seed)
    return [section(generator) for _ in range(lines)]


def lines_of(sections, generator):
    """Endless; one section per item, polarity flipped half of the time."""
    while True:
        for k in torch.randperm(len(sections), generator=generator).tolist():
            image, mask = sections[k]
            if k % 2:
                image = -image
            yield image, mask


def conv(cin, cout, stride=1, dilation=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride, dilation, dilation), nn.GroupNorm(4, cout), nn.ReLU(inplace=True)
    )


def fault_net(width=16):
    return nn.ModuleDict(
        {
            "first": conv(1, width, 2),
            "second": conv(width, 2 * width, 2),
            "deep": nn.Sequential(*[conv(2 * width, 2 * width, dilation=d) for d in (1, 2, 4)]),
            "join": conv(3 * width, width),
            "pick": nn.Conv2d(width, 4, 1),
        }
    )


def pick(net, image):
    a = net["first"](image)
    b = net["deep"](net["second"](a))
    b = F.interpolate(b, scale_factor=2, mode="nearest")
    return F.pixel_shuffle(net["pick"](net["join"](torch.cat([a, b], 1))), 2)


def fault_loss(logits, mask):
    bce = F.binary_cross_entropy_with_logits(logits, mask, pos_weight=mask.new_tensor(8.0))
    p = logits.sigmoid()
    dice = 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)
    return bce + dice


def update(net, optimizer, feed):
    total = torch.zeros(())
    for image, mask in islice(feed, ACCUMULATE):
        loss = fault_loss(pick(net, image), mask) / ACCUMULATE
        loss.backward()
        total += loss.detach()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


def main():
    torch.manual_seed(40)
    net = fault_net()
    optimizer = torch.optim.NAdam(net.parameters(), lr=LEARNING_RATE)
    feed = lines_of(survey(36), torch.Generator().manual_seed(41))
    since = time.perf_counter()
    for n in range(1, UPDATES + 1):
        loss = update(net, optimizer, feed)
        if n % 5 == 0:
            now = time.perf_counter()
            print(f"update {n:5d}  loss {loss.item():.4f}  {5 / (now - since):.2f} steps/s", flush=True)
            since = now


if __name__ == "__main__":
    main()
