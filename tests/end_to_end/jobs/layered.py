"""One illness of layers or lines at a time, or its cure: `layered.py NAME [cured]`."""

import sys

import torch
from torch import nn

ENDLESS = 1_000_000


def train(model, loss_of, inputs, at_step=lambda: None):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(ENDLESS):
        optimizer.zero_grad()
        loss_of(model(inputs)).backward()
        at_step()
        optimizer.step()


def loop(cured):
    """A loss that goes through the batch sample by sample."""
    target = torch.randn(256, 16)

    def one_by_one(output):
        total = 0.0
        for i in range(len(output)):
            total = total + (output[i] - target[i]).pow(2).mean()
        return total

    def at_once(output):
        return (output - target).pow(2).mean(dim=1).sum()

    train(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16)), at_once if cured else one_by_one, inputs(256))


def reads(cured):
    """The norm of every gradient, read in every step."""
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(60)))
    norms = []

    def watch():
        norms.append([p.grad.norm().item() for p in model.parameters()])

    train(model, lambda output: output.mean(), inputs(16, 16), (lambda: None) if cured else watch)


def asserts(cured):
    """Every gradient tested in every step, or the last weight now and then."""
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(60)))
    steps = iter(range(ENDLESS))

    def every():
        for p in model.parameters():
            assert torch.isfinite(p.grad).all()

    def rarely():
        if next(steps) % 50 == 0:
            assert torch.isfinite(model[-1].weight).all()

    train(model, lambda output: output.mean(), inputs(16, 16), rarely if cured else every)


def profiled(cured):
    """A profiler that is on for good, or by a schedule that ends."""
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(60)))
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1) if cured else None
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True, schedule=schedule) as profiler:
        train(model, lambda output: output.mean(), inputs(16, 16), profiler.step)


def average(cured):
    """An average of the weights, tensor by tensor or all at once."""
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(60)))
    weights = list(model.parameters())
    averages = [p.detach().clone() for p in weights]

    def follow():
        with torch.no_grad():
            if cured:
                torch._foreach_lerp_(averages, weights, 0.001)
                return
            for average, p in zip(averages, model.parameters(), strict=True):
                average.mul_(0.999).add_(p, alpha=0.001)

    train(model, lambda output: output.mean(), inputs(16, 16), follow)


def layer(cured):
    """A layer that takes in a whole feature map, and one that takes in what is left after pooling."""
    convolution = nn.Conv2d(1, 16, 3, padding=1)
    if cured:
        rest = [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 64)]
    else:
        rest = [nn.Flatten(), nn.Linear(16 * 28 * 28, 512), nn.Linear(512, 64)]
    model = nn.Sequential(convolution, nn.ReLU(), *rest, nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    train(model, lambda output: output.mean(), torch.randn(32, 1, 28, 28))


def embedding(cured):
    """A large table of which a batch needs few rows."""
    model = nn.Sequential(nn.Embedding(100_000, 64, sparse=cured), nn.Flatten(), nn.Linear(64 * 8, 2))
    train(model, lambda output: output.mean(), torch.randint(100_000, (32, 8)))


def inputs(count, width=64):
    return torch.randn(count, width)


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]("cured" in sys.argv[2:])
