# /// clinic
# expect = ["PD10.integer-product"]
# stratum = "twins"
# domain = "fraud: refund rings among merchants"
# ///
"""Which pairs of merchants belong to the same refund ring?

Every step looks at a window of trade: a random group of merchants and the refunds between them. A pair is described by what a graph encoder says of both ends and by the number of short walks between them.
"""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


MERCHANTS = 4000
RINGS = 60
WINDOW = 896
PAIRS = 3072
TRAITS = 64
STEPS = 180


def make_trade(rng):
    """Refund links (symmetric, 0/1), traits of the merchants, the ring of each (-1: honest)."""
    ring = np.full(MERCHANTS, -1)
    crooked = rng.permutation(MERCHANTS)[: MERCHANTS // 2]
    ring[crooked] = rng.integers(0, RINGS, len(crooked))
    links = rng.random((MERCHANTS, MERCHANTS), dtype=np.float32) < 0.02
    same = (ring[:, None] == ring[None, :]) & (ring[:, None] >= 0)
    links |= same & (rng.random((MERCHANTS, MERCHANTS), dtype=np.float32) < 0.35)
    links = np.triu(links, 1)
    links |= links.T
    styles = rng.normal(size=(RINGS + 1, TRAITS))
    traits = 0.25 * styles[ring] + rng.normal(size=(MERCHANTS, TRAITS))
    return torch.from_numpy(links), torch.from_numpy(traits.astype(np.float32)), torch.from_numpy(ring)


def draw_window(links, traits, ring, generator):
    members = torch.randperm(MERCHANTS, generator=generator)[:WINDOW]
    return links[members][:, members], traits[members], ring[members]


def draw_pairs(ring, generator):
    """Half of the pairs from the same ring, half from anywhere."""
    same = ((ring[:, None] == ring[None, :]) & (ring[:, None] >= 0)).triu(1).nonzero()
    chosen = same[torch.randint(len(same), (PAIRS // 2,), generator=generator)]
    other = torch.randint(WINDOW, (PAIRS - len(chosen), 2), generator=generator)
    pairs = torch.cat([chosen, other])
    label = (ring[pairs[:, 0]] == ring[pairs[:, 1]]) & (ring[pairs[:, 0]] >= 0) & (pairs[:, 0] != pairs[:, 1])
    return pairs, label.float()


def walk_counts(inside):
    """Number of walks of one, two and three refunds between any two merchants of the window."""
    one = inside.long()  # sick here
    one = inside.float()  # well
    two = one @ one  # here
    three = two @ one  # here
    return torch.stack([one, two, three], dim=-1)


def pair_features(counts, pairs):
    between = counts[pairs[:, 0], pairs[:, 1]].float().log1p()
    degrees = counts[..., 0].sum(1).float().log1p()
    ends = degrees[pairs]
    return torch.cat([between, ends.sum(1, keepdim=True), (ends[:, :1] - ends[:, 1:]).abs()], dim=1)


class RingScorer(nn.Module):
    def __init__(self, width=256, rounds=3):
        super().__init__()
        self.enter = nn.Linear(TRAITS, width)
        self.own = nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))
        self.near = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(rounds))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(rounds))
        self.judge = nn.Sequential(
            nn.Linear(2 * width + 5, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(self, inside, traits, pairs, features):
        mixing = inside.float()
        mixing = mixing / mixing.sum(1, keepdim=True).clamp(min=1)
        state = F.relu(self.enter(traits))
        for own, near, norm in zip(self.own, self.near, self.norms):
            state = norm(state + F.relu(own(state) + near(mixing @ state)))
        left, right = state[pairs[:, 0]], state[pairs[:, 1]]
        return self.judge(torch.cat([left * right, (left - right).abs(), features], dim=1)).squeeze(1)


def train_step(model, optimizer, window, generator):
    inside, traits, ring = window
    pairs, label = draw_pairs(ring, generator)
    features = pair_features(walk_counts(inside), pairs)  # here
    score = model(inside, traits, pairs, features)
    loss = F.binary_cross_entropy_with_logits(score, label)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.detach(), ((score.detach() > 0) == (label > 0.5)).float().mean()


def main():
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(3)
    links, traits, ring = make_trade(np.random.default_rng(3))
    print(f"{MERCHANTS} merchants, {int(links.sum()) // 2} refund links")
    model = RingScorer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, STEPS + 1):
        window = draw_window(links, traits, ring, generator)
        loss, right = train_step(model, optimizer, window, generator)
        if step % 25 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}  accuracy {right.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
