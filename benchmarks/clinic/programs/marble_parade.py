# /// clinic
# expect = ["PD05.called-in-parts", "PD10.element-loop"]
# stratum = "twins"
# domain = "bags of marbles"
# ///
"""Prototype: guess the worth of a bag of marbles from the marbles, whatever their order and number.

Each bag holds between 15 and 60 marbles with six properties.  Its worth depends on the mix: rare colours count for more, cracks
take away, and big marbles raise their neighbours.  A permutation-invariant network learns it; the pooling can be a mean, or a
mean with the number of marbles beside it.  The result is the share of the variance that is explained, by size of the bag.
"""

import time

import torch
from torch import nn
from torch.nn import functional as F

SEED = 3
PROPERTIES = 6
BAGS, HELD_OUT = 4000, 600
SMALLEST, LARGEST = 15, 60
BATCH = 32
STEPS = 700
WIDTH = 192

TELL_COUNT = True  # ablation: hide the number of marbles from the head
GATED = True  # ablation: plain features in place of gated ones


def worth(marbles):
    """What a bag is worth: a function of the whole set that no single marble tells."""
    colour, size, crack = marbles[:, 0], marbles[:, 1], marbles[:, 2]
    rare = (colour.abs() > 1.2).float()
    spread = marbles[:, 3:].std(0).sum()
    return 2.0 * rare.mean() + torch.tanh(size).mean() * 1.5 - (crack > 1.0).float().mean() + 0.6 * spread


def fill_bags(n, generator):
    sizes = torch.randint(SMALLEST, LARGEST + 1, (n,), generator=generator).tolist()
    bags, prices = [], []
    for size in sizes:
        lean = 0.6 * torch.randn(PROPERTIES, generator=generator)
        stretch = 0.5 + torch.rand(PROPERTIES, generator=generator)
        bag = torch.randn(size, PROPERTIES, generator=generator) * stretch + lean
        bags.append(bag)
        prices.append(worth(bag))
    prices = torch.stack(prices)
    return bags, prices


class Gate(nn.Module):
    """A feature layer in which one half of the outputs opens and closes the other."""

    def __init__(self, width):
        super().__init__()
        self.both = nn.Linear(width, 2 * width)

    def forward(self, x):
        if not GATED:
            return F.relu(self.both(x)[:, : x.shape[1]])
        return F.glu(self.both(x), dim=1)


class Appraiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.look = nn.Sequential(
            nn.Linear(PROPERTIES, WIDTH), nn.ReLU(), Gate(WIDTH), nn.Linear(WIDTH, WIDTH), nn.ReLU()
        )
        self.judge = nn.Sequential(nn.Linear(WIDTH + 1, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, bags):
        counts = torch.tensor([len(bag) for bag in bags])
        pooled = torch.stack([self.look(bag).mean(0) for bag in bags])  # sick here
        seen = self.look(torch.cat(bags))  # well
        owner = torch.repeat_interleave(torch.arange(len(bags)), counts)[:, None].expand_as(seen)  # well
        pooled = seen.new_zeros(len(bags), WIDTH).scatter_add(0, owner, seen) / counts[:, None]  # well
        hint = counts[:, None] / LARGEST if TELL_COUNT else torch.zeros(len(bags), 1)
        return self.judge(torch.cat([pooled, hint], 1)).squeeze(1)


def hands(n, batch, generator):
    """Endless batches of indices, every bag once before any comes again."""
    while True:
        order = torch.randperm(n, generator=generator).tolist()
        for at in range(0, n - batch + 1, batch):
            yield order[at : at + batch]


@torch.no_grad()
def explained(net, bags, prices):
    """Share of the variance explained, for all bags and for the smaller and larger half."""
    net.eval()
    guess = torch.cat([net(bags[at : at + 200]) for at in range(0, len(bags), 200)])
    off = (guess - prices).square()
    size = torch.tensor([float(len(bag)) for bag in bags])
    small = size < size.median()
    base = prices.var()
    return tuple((1 - part.mean() / base).item() for part in (off, off[small], off[~small]))


def main():
    torch.manual_seed(SEED)
    g = torch.Generator().manual_seed(SEED)
    bags, prices = fill_bags(BAGS, g)
    test_bags, test_prices = fill_bags(HELD_OUT, g)
    middle, scale = prices.mean(), prices.std()
    prices, test_prices = (prices - middle) / scale, (test_prices - middle) / scale
    net = Appraiser()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=STEPS)
    draw = hands(BAGS, BATCH, g)
    net.train()
    began = time.perf_counter()
    for _ in range(STEPS):
        chosen = next(draw)
        guess = net([bags[i] for i in chosen])
        loss = F.smooth_l1_loss(guess, prices[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    took = time.perf_counter() - began
    whole, small, large = explained(net, test_bags, test_prices)
    print(f"explained variance {whole:.3f} (smaller bags {small:.3f}, larger bags {large:.3f})")
    print(f"{STEPS * BATCH / took:.1f} samples/s")


if __name__ == "__main__":
    main()
