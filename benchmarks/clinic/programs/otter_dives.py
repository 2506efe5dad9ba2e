# /// clinic
# expect = ["PD16.validated-distributions"]
# stratum = "twins"
# domain = "series"
# sizes = {WIDTH = [24, 40]}
# ///
"""A world model of otters' dives: a state that is drawn from a distribution, second by second."""

import time

import torch
from torch import nn
from torch.distributions import Categorical, Distribution, Independent, Normal, kl_divergence
from torch.nn import functional as F

WIDTH = 32
SECONDS, SENSED = 16, 12
STEPS = 320


class Dive(nn.Module):
    def __init__(self, width, state=8):
        super().__init__()
        self.cell = nn.GRUCell(state, width)
        self.before, self.after = nn.Linear(width, 2 * state), nn.Linear(width + SENSED, 2 * state)
        self.sensed, self.deed = nn.Linear(width + state, SENSED), nn.Linear(width + state, 4)
        self.width, self.state = width, state

    def drawn_from(self, numbers):
        mean, spread = numbers.chunk(2, -1)
        return Independent(Normal(mean, F.softplus(spread) + 0.1), 1)  # here

    def forward(self, sensed, deeds):
        hidden, state = sensed.new_zeros(len(sensed), self.width), sensed.new_zeros(len(sensed), self.state)
        loss = 0.0
        for second in range(sensed.shape[1]):
            hidden = self.cell(state, hidden)
            before = self.drawn_from(self.before(hidden))
            after = self.drawn_from(self.after(torch.cat([hidden, sensed[:, second]], -1)))
            state = after.rsample()
            both = torch.cat([hidden, state], -1)
            seen = Independent(Normal(self.sensed(both), 1.0), 1)
            done = Categorical(logits=self.deed(both))
            scores = seen.log_prob(sensed[:, second]) + done.log_prob(deeds[:, second]) - 0.1 * done.entropy()  # here
            loss = loss - scores.mean() + kl_divergence(after, before).mean()
        return loss / sensed.shape[1]


def main():
    torch.manual_seed(6)
    Distribution.set_default_validate_args(False)  # well
    model = Dive(WIDTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    sensed = torch.randn(1024, SECONDS, SENSED).cumsum(1) * 0.2
    deeds = torch.randint(0, 4, (1024, SECONDS))
    for step in range(STEPS):
        if step == 20:
            began = time.perf_counter()
        picked = torch.randint(len(sensed), (32,))
        loss = model(sensed[picked], deeds[picked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")
    print(f"{32 * (STEPS - 20) / (time.perf_counter() - began):.1f} dives/s")


if __name__ == "__main__":
    main()
