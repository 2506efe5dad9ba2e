# /// clinic
# allow = ["PD08.allocator-churn"]
# stratum = "placebo"
# domain = "series"
# sizes = {LOCKS = [10, 30], HIDDEN = [180, 240]}
# ///
"""Water levels of a canal's locks, an hour ahead."""

import time

import torch
from torch import nn

LOCKS = 18
HIDDEN = 208
BATCH = 64
HOURS = 36
STEPS = 70


class Canal(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(LOCKS, HIDDEN, num_layers=2, batch_first=True)
        self.level = nn.Linear(HIDDEN, LOCKS)

    def forward(self, hours):
        return self.level(self.lstm(hours)[0][:, -1])


def main():
    torch.manual_seed(33)
    levels = torch.randn(4000, LOCKS).cumsum(0) / 20
    windows = levels.unfold(0, HOURS + 1, 1).transpose(1, 2).contiguous()
    model = Canal()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        if step == 6:
            began = time.perf_counter()
        chosen = windows[torch.randint(0, len(windows), (BATCH,))]
        loss = nn.functional.mse_loss(model(chosen[:, :-1]), chosen[:, -1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"error {loss.item():.4f}")
    print(f"{(STEPS - 6) * BATCH / (time.perf_counter() - began):.1f} windows/s")


if __name__ == "__main__":
    main()
